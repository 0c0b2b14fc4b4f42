package report

import (
	"fmt"
	"io"

	"github.com/sedabus/seda/bench/internal/stat"
)

// Floor is a ratio that a row is expected to reach.
type Floor struct {
	Row

	// Ratio is the least throughput ratio, or the greatest CPU ratio.
	Ratio float64
	// CPU says that it is CPU time per message that is compared.
	CPU bool
}

// Floors are the ratios that the bus is built for, on two cores with nothing
// else running. They were set from prototypes of its mechanisms at roughly two
// thirds of what these reached, the rest being left for what a prototype does
// not do: accounts, statistics, retries, time limits. Where the handler's own
// work decides (W5, W6) the floor only says that the bus is not in the way.
//
// The gate is advisory: on a shared machine a ratio moves by a fifth or more
// for reasons outside the process.
func Floors() []Floor {
	against := func(base string) func(w, sys string, r float64) Floor {
		return func(w, sys string, r float64) Floor {
			return Floor{Row: Row{Cell: Cell{w, sys}, Base: Cell{w, base}}, Ratio: r}
		}
	}
	ch := against(plain)
	floors := []Floor{
		ch("W1", "publish", 1), ch("W2", "publish", 1), ch("W3", "publish", 2), ch("W4", "publish", 4),
		ch("W1", "handle", 1.3), ch("W2", "handle", 2.5), ch("W3", "handle", 3), ch("W4", "handle", 5),
		ch("W5n", "handle", 2.5),
		ch("W3", batched, 5),
		against(plainBatched)("W3", batched, 0.8),
	}
	for _, sys := range []string{"publish", "handle"} {
		floors = append(floors,
			Floor{Row: Row{Cell: Cell{mixed, sys}, Base: Cell{mixedBase, sys}}, Ratio: 0.6},
			ch("W5", sys, 0.95), ch("W6", sys, 0.95),
			Floor{Row: Row{Cell: Cell{"W6", sys}, Base: Cell{"W6", plain}}, Ratio: 0.8, CPU: true})
	}
	return floors
}

// Gate compares the summaries with the floors that apply to them and writes a
// markdown table. It returns how many of them the median missed.
func Gate(w io.Writer, rows []Summary, floors []Floor) (missed int, err error) {
	t := newMarkdown(w, "workload", "system", "against", "what", "floor", "measured [95 %]", "distance", "outcome")
	for _, f := range floors {
		s, ok := find(rows, f.Row)
		if !ok {
			continue
		}
		if s.Err != nil || s.Rounds == 0 {
			missed++
			t.row(f.Workload, f.System, baseName(f.Row), f.what(), f.bound(), "–", "–", "not measured")
			continue
		}
		got := s.Ratio
		if f.CPU {
			got = s.CPURatio
		}
		outcome, met := f.judge(got)
		if !met {
			missed++
		}
		t.row(f.Workload, f.System, baseName(f.Row), f.what(), f.bound(), estimate(got),
			fmt.Sprintf("%+.0f %%", 100*f.distance(got.Mid)), outcome)
	}
	return missed, t.flush()
}

func find(rows []Summary, r Row) (Summary, bool) {
	for _, s := range rows {
		if s.Row == r {
			return s, true
		}
	}
	return Summary{}, false
}

func (f Floor) what() string {
	if f.CPU {
		return "CPU time"
	}
	return "throughput"
}

func (f Floor) bound() string {
	if f.CPU {
		return fmt.Sprintf("at most %.2f", f.Ratio)
	}
	return fmt.Sprintf("at least %.2f", f.Ratio)
}

// distance is how far a ratio is on the good side of the floor, as a share of
// the floor; negative when it is missed.
func (f Floor) distance(got float64) float64 {
	d := got/f.Ratio - 1
	if f.CPU {
		return -d
	}
	return d
}

// judge says met or missed by the median, and whether the interval agrees.
func (f Floor) judge(e stat.Estimate) (outcome string, met bool) {
	worst, best := f.distance(e.Low), f.distance(e.High)
	if f.CPU {
		worst, best = best, worst
	}
	switch {
	case worst >= 0:
		return "met", true
	case f.distance(e.Mid) >= 0:
		return "met, interval reaches below", true
	case best >= 0:
		return "missed, interval reaches it", false
	default:
		return "missed", false
	}
}
