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

	Rounds    int     // rounds that count
	Measured  int     // rounds in all
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
	pairs, all := d.pairs(row)
	if s.Err != nil || len(pairs) == 0 {
		return s
	}
	median := func(of func(load.Sample) float64) float64 {
		var xs []float64
		for _, p := range pairs {
			xs = append(xs, of(p.cell))
		}
		return stat.Median(xs)
	}
	ratio := func(of func(load.Sample) float64) stat.Estimate {
		var xs []float64
		for _, p := range pairs {
			xs = append(xs, of(p.cell)/of(p.base))
		}
		return stat.MedianInterval(xs, resamples, seed)
	}
	s.Rounds, s.Measured = len(pairs), all
	s.Rate = median(load.Sample.Rate)
	s.WallNanos = median(load.Sample.WallNanos)
	s.CPUNanos = median(load.Sample.CPUNanos)
	s.Allocs = median(func(x load.Sample) float64 { return x.Allocs })
	s.Bytes = median(func(x load.Sample) float64 { return x.Bytes })
	s.Ratio = ratio(load.Sample.Rate)
	s.CPURatio = ratio(load.Sample.CPUNanos)
	for _, p := range pairs {
		s.Others = max(s.Others, p.others())
	}
	return s
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
