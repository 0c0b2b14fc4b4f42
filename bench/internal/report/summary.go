package report

import (
	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bench/internal/stat"
)

const (
	// resamples of a bootstrap interval.
	resamples = 10_000
	// superiorFrom and nonInferiorFrom are where the lower end of the interval
	// of a ratio has to be for these words.
	superiorFrom    = 1.3
	nonInferiorFrom = 0.95
)

// Summary is a row with its numbers, medians over the rounds.
type Summary struct {
	Row

	Rounds    int
	Rate      float64 // messages per second
	Ratio     stat.Estimate
	CPURatio  stat.Estimate // CPU time per message against the base
	WallNanos float64
	CPUNanos  float64
	Allocs    float64
	Bytes     float64
	Others    float64 // the largest share of the machine that others took
	Err       error
}

// Summarise works out every row of the plan. Ratios are taken within a round
// and the median of these is reported, never a ratio of two medians.
func Summarise(p Plan, d Data, seed uint64) []Summary {
	out := make([]Summary, 0, len(p.Rows))
	for _, row := range p.Rows {
		out = append(out, summarise(row, d, seed))
	}
	return out
}

func summarise(row Row, d Data, seed uint64) Summary {
	s := Summary{Row: row, Err: d.Errs[row.Cell]}
	if s.Err == nil {
		s.Err = d.Errs[row.Base]
	}
	samples := d.Samples[row.Cell]
	if s.Err != nil || len(samples) == 0 {
		return s
	}
	median := func(of func(load.Sample) float64) float64 {
		var xs []float64
		for _, x := range samples {
			xs = append(xs, of(x))
		}
		return stat.Median(xs)
	}
	s.Rounds = len(samples)
	s.Rate = median(load.Sample.Rate)
	s.WallNanos = median(load.Sample.WallNanos)
	s.CPUNanos = median(load.Sample.CPUNanos)
	s.Allocs = median(func(x load.Sample) float64 { return x.Allocs })
	s.Bytes = median(func(x load.Sample) float64 { return x.Bytes })
	s.Ratio = ratio(d, row, load.Sample.Rate, seed)
	s.CPURatio = ratio(d, row, load.Sample.CPUNanos, seed)
	for _, c := range []Cell{row.Cell, row.Base} {
		for _, x := range d.Samples[c] {
			s.Others = max(s.Others, x.Others)
		}
	}
	return s
}

func ratio(d Data, row Row, of func(load.Sample) float64, seed uint64) stat.Estimate {
	xs, bases := d.pairs(row, of)
	for i := range xs {
		xs[i] /= bases[i]
	}
	return stat.MedianInterval(xs, resamples, seed)
}

// Verdict is a word for the throughput ratio. The strong words need the whole
// interval, not the median.
func (s Summary) Verdict() string {
	switch {
	case s.Cell == s.Base:
		return "base"
	case s.Ratio.Low >= superiorFrom:
		return "superior"
	case s.Ratio.Low >= nonInferiorFrom:
		return "non-inferior"
	case s.Ratio.High < nonInferiorFrom:
		return "inferior"
	default:
		return "open"
	}
}
