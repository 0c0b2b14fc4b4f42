package shape

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/sedabus/seda/bench/overload/internal/sim"
)

// trace is a recording of arrivals with what each needs.
type trace struct {
	times []time.Duration // from the first
	sizes []float64       // in units of their mean
}

// The recordings are those of the Azure LLM inference dataset of 2023, a line
// for each request: when it came, and how many tokens went in and out.
var traceFiles = []struct{ name, file, title string }{
	{"code", "azure-llm-code.csv", "recorded arrivals, code completion"},
	{"conv", "azure-llm-conv.csv", "recorded arrivals, conversation"},
}

// traceScale is the stage that recordings are played to.
var traceScale = sim.Scale{Name: "16x20ms", Workers: 16, Service: 20 * time.Millisecond}

// Traces returns the scenarios that play the recordings in a folder, at speeds
// that give 0.7, 1 and 3 times the capacity. Service times are in proportion to
// the tokens that were generated.
func Traces(folder string) ([]Shape, error) {
	var out []Shape
	for _, f := range traceFiles {
		tr, err := load(filepath.Join(folder, f.file))
		if err != nil {
			return nil, err
		}
		for _, speed := range []float64{.7, 1, 3} {
			out = append(out, Shape{
				Name: fmt.Sprintf("%s-%g", f.name, speed), Title: fmt.Sprintf("%s, %g times capacity", f.title, speed),
				Make: func(sim.Scale) *sim.Spec { return tr.play(speed) }, Only: &traceScale,
			})
		}
	}
	return out, nil
}

// play makes the scenario.
func (tr *trace) play(speed float64) *sim.Spec {
	long := tr.times[len(tr.times)-1]
	work := float64(len(tr.times)) * traceScale.Service.Seconds() / float64(traceScale.Workers)
	factor := work / speed / long.Seconds()
	s := &sim.Spec{Scale: traceScale, Sizes: tr.sizes, Times: make([]time.Duration, len(tr.times))}
	for i, t := range tr.times {
		s.Times[i] = time.Duration(float64(t) * factor)
	}
	s.To = s.Times[len(s.Times)-1] + 1
	return s
}

// Bounds of what is read.
const (
	traceColumns = 3
	mostTrace    = 1 << 20
)

func load(path string) (*trace, error) {
	f, err := os.Open(path) //nolint:gosec // the user names the folder
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	tr, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return tr, nil
}

func read(r io.Reader) (*trace, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord = traceColumns
	if _, err := in.Read(); err != nil {
		return nil, err
	}
	type request struct {
		at   time.Time
		size float64
	}
	var all []request
	sum := 0.
	for len(all) < mostTrace {
		line, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		at, err := time.Parse("2006-01-02 15:04:05.9999999", line[0])
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseFloat(line[2], 64)
		if err != nil {
			return nil, err
		}
		n = max(1, n)
		all = append(all, request{at, n})
		sum += n
	}
	if len(all) < 2 || !all[0].at.Before(all[len(all)-1].at) {
		return nil, errors.New("too few requests")
	}
	slices.SortStableFunc(all, func(a, b request) int { return a.at.Compare(b.at) })
	tr := &trace{times: make([]time.Duration, len(all)), sizes: make([]float64, len(all))}
	for i, q := range all {
		tr.times[i] = q.at.Sub(all[0].at)
		tr.sizes[i] = q.size / (sum / float64(len(all)))
	}
	return tr, nil
}
