package tune

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

type kind uint8

const (
	integer kind = iota
	duration
	number
	text
)

// value is one setting's value; it can be compared.
type value struct {
	kind kind
	n    int64 // integer, duration
	f    float64
	s    string
}

// encode never fails: numbers from the bus are finite, and others become 0.
func (v value) encode() json.RawMessage {
	switch v.kind {
	case integer:
		return strconv.AppendInt(nil, v.n, 10)
	case duration:
		return strconv.AppendQuote(nil, time.Duration(v.n).String())
	case number:
		b, err := json.Marshal(finite(v.f))
		if err != nil {
			return json.RawMessage("0")
		}
		return b
	case text:
	}
	b, err := json.Marshal(v.s)
	if err != nil {
		return json.RawMessage(`""`)
	}
	return b
}

// size is what bounds are compared with; durations count in seconds.
func (v value) size() (float64, bool) {
	switch v.kind {
	case integer:
		return float64(v.n), true
	case duration:
		return time.Duration(v.n).Seconds(), true
	case number:
		return v.f, true
	case text:
	}
	return 0, false
}

var errForm = errors.New("form")

func decode(k kind, raw json.RawMessage) (value, error) {
	v := value{kind: k}
	switch k {
	case integer:
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || n > math.MaxInt32 || n < math.MinInt32 {
			return v, fmt.Errorf("%w: must be an integer of at most 32 bits", errForm)
		}
		v.n = n
	case number:
		if err := json.Unmarshal(raw, &v.f); err != nil {
			return v, fmt.Errorf("%w: must be a number", errForm)
		}
	case duration:
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return v, fmt.Errorf("%w: must be a duration in quotes, such as \"1m30s\"", errForm)
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			return v, fmt.Errorf("%w: must be a duration, such as \"1m30s\"", errForm)
		}
		v.n = int64(d)
	case text:
		if err := json.Unmarshal(raw, &v.s); err != nil {
			return v, fmt.Errorf("%w: must be a text", errForm)
		}
	}
	return v, nil
}

func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}

// setting is one row of a table of settings of a configuration C.
type setting[C any] struct {
	name string
	unit string
	kind kind
	get  func(*C) value
	set  func(*C, value) error
}

func intOf[C any](name, unit string, at func(*C) *int) setting[C] {
	return setting[C]{
		name, unit, integer,
		func(c *C) value { return value{kind: integer, n: int64(*at(c))} },
		func(c *C, v value) error { *at(c) = int(v.n); return nil },
	}
}

func durationOf[C any](name string, at func(*C) *time.Duration) setting[C] {
	return setting[C]{
		name, "duration", duration,
		func(c *C) value { return value{kind: duration, n: int64(*at(c))} },
		func(c *C, v value) error { *at(c) = time.Duration(v.n); return nil },
	}
}

func numberOf[C any](name, unit string, at func(*C) *float64) setting[C] {
	return setting[C]{
		name, unit, number,
		func(c *C) value { return value{kind: number, f: finite(*at(c))} },
		func(c *C, v value) error { *at(c) = v.f; return nil },
	}
}

// wordOf is a setting that takes one of the names of an enum.
func wordOf[C any, E interface {
	~uint8
	fmt.Stringer
}](name string, at func(*C) *E, all ...E) setting[C] {
	return setting[C]{
		name, "", text,
		func(c *C) value { return value{kind: text, s: (*at(c)).String()} },
		func(c *C, v value) error {
			var names []string
			for _, e := range all {
				if e.String() == v.s {
					*at(c) = e
					return nil
				}
				names = append(names, e.String())
			}
			return fmt.Errorf("%w: must be one of %s", errForm, strings.Join(names, ", "))
		},
	}
}
