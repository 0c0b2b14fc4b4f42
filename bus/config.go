package bus

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"time"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/layout"
	"github.com/sedabus/seda/internal/names"
	"github.com/sedabus/seda/shedder"
)

// Config configures a Bus. The zero value is valid; every zero field means its
// documented default, and a value out of its bounds is an error of New that
// names field, value and bound, all faults at once.
type Config struct {
	// Name labels the bus in statistics and errors; default "bus". The same
	// alphabet as for stage names.
	Name string
	// MaxHandlers bounds the handlers that run at once over all stages; 0 is no
	// bound, at most 1<<20. Each stage keeps a reserved share of one, so that
	// none is starved by the others. Pull consumers do not count. Live-tunable.
	MaxHandlers int
	// DeadLetters bounds the dead-letter store. Live-tunable.
	DeadLetters LetterBounds
	// Grace is how long Run waits for a drain; default 30 s.
	Grace time.Duration
	// Hooks are called on changes; all fields are optional.
	Hooks Hooks
	// Logger gets state changes; nil is silent.
	Logger *slog.Logger
	// Shards turns sharded mode on: each stage is split into as many parts, and
	// what the parts of one shard handle they handle one after the other, on one
	// goroutine at a time. A key belongs to one shard. 0 is off, AutoShards one
	// for each of GOMAXPROCS at the time of New; at most 1024. A stage whose
	// Concurrency is not set has one handler a shard; handlers that wait for
	// something hold up their shard, unless the stage is marked Blocking.
	Shards int
	// Journal records accepted work and its ends; nil is none. Its type, and
	// that of Tracer, must be comparable, such as a pointer.
	Journal Journal
	// Tracer sees publishes and handler calls; nil is none.
	Tracer Tracer
	// NewShedder makes the shedder of each stage that is registered without one
	// of its own; a nil result is none, and so is a nil NewShedder. It is called
	// with the registry locked and must not call the bus. See shedder.Default.
	NewShedder func(stage string) *shedder.Shedder
}

// LetterBounds bounds the dead-letter store; whichever bound is reached first
// evicts the oldest letters, which is counted.
type LetterBounds struct {
	// MaxCount is the number of letters; default 10,000, at most 1<<30.
	MaxCount int
	// MaxBytes bounds the estimated size of the letters: 512 bytes each, and
	// the lengths of texts and headers, and the payload's if it is a string, a
	// []byte or has a method Size() int. Default 64 MiB.
	MaxBytes int64
	// MaxAge is how long a letter is kept; default 0, for ever.
	MaxAge time.Duration
}

const (
	defaultName      = "bus"
	defaultGrace     = 30 * time.Second
	defaultLetters   = 10_000
	defaultLetterMem = 64 << 20
	maxHandlersBound = 1 << 20
	maxShards        = layout.MaxShards
	maxDuration      = time.Duration(math.MaxInt64 / 4) // so that adding to the clock cannot overflow
)

func (c *Config) setDefaults() {
	if c.Name == "" {
		c.Name = defaultName
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.DeadLetters.MaxCount == 0 {
		c.DeadLetters.MaxCount = defaultLetters
	}
	if c.DeadLetters.MaxBytes == 0 {
		c.DeadLetters.MaxBytes = defaultLetterMem
	}
	if c.Shards == AutoShards {
		c.Shards = min(runtime.GOMAXPROCS(0), maxShards)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func (c *Config) validate() error {
	const where = "config"
	if faults.On(faults.ConfigUnchecked) {
		return nil
	}
	var errs []error
	if c.Name != "" {
		if err := names.Check(c.Name); err != nil {
			errs = append(errs, fault(where, "Name", c.Name, err.Error()))
		}
	}
	errs = append(errs,
		checkInt(where, "MaxHandlers", c.MaxHandlers, maxHandlersBound),
		c.checkShards(where),
		checkInt(where, "DeadLetters.MaxCount", c.DeadLetters.MaxCount, 1<<30),
		checkDuration(where, "DeadLetters.MaxAge", c.DeadLetters.MaxAge),
		checkDuration(where, "Grace", c.Grace),
		checkComparable(where, "Journal", c.Journal),
		checkComparable(where, "Tracer", c.Tracer),
	)
	if c.DeadLetters.MaxBytes < 0 {
		errs = append(errs, fault(where, "DeadLetters.MaxBytes", c.DeadLetters.MaxBytes, "must be 0 (default) or more"))
	}
	return errors.Join(errs...)
}

// AutoShards lets a bus have as many shards as GOMAXPROCS says when it is made.
// More shards than processors only make the parts of each stage smaller.
const AutoShards = -1

func (c *Config) checkShards(where string) error {
	if c.Shards < AutoShards || c.Shards > maxShards {
		return fault(where, "Shards", c.Shards, fmt.Sprintf("must be AutoShards (%d), 0 (off) or up to %d", AutoShards, maxShards))
	}
	return nil
}

func checkInt(where, field string, v, most int) error {
	if v < 0 || v > most {
		return fault(where, field, v, rangeText(most))
	}
	return nil
}

func checkDuration(where, field string, d time.Duration) error {
	if d < 0 || d > maxDuration {
		return fault(where, field, d, "must be from 0 (default) to "+maxDuration.String())
	}
	return nil
}
