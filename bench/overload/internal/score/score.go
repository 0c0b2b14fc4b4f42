package score

import (
	"math"
	"slices"
	"time"

	"github.com/sedabus/seda/bench/overload/internal/sim"
)

// Score is what one run showed. Shares are from 0 to 1, NaN where there was
// nothing to take a share of.
type Score struct {
	// Offered, Shed, Dropped and InTime count the jobs that arrived in the span;
	// Dropped are those that were admitted and thrown away or pushed out.
	Offered, Shed, Dropped, InTime int
	// Completed counts those of them that were completed, in the span or after.
	Completed int
	// Good is the work, in seconds of service time at the last stage, that was
	// done in the span for jobs that ended within their budget; Late the work
	// done for others.
	Good, Late float64
	// Done is how many jobs were completed in the span, in time or not.
	Done int
	// Wait and Total are quantiles, in seconds, of the jobs that were started,
	// from ten units after the beginning of the span on.
	Wait, Total Quantiles
	// False is the share of jobs shed while the load was below 0.95 of capacity.
	False float64
	// FalseOf counts the arrivals under that condition, FalseShed those shed.
	FalseOf, FalseShed int
	// Converged is the time from the beginning of the span until waits and
	// goodput are steady; NaN if they never are.
	Converged float64
	// Swing is the variation of goodput from bin to bin in units of what chance
	// alone gives.
	Swing float64
	// Inversions are refusals while lower-class work beyond its share waited; -1
	// where that is not known.
	Inversions int
	// Jain is the index of fairness over the senders' shares, each capped by
	// its demand.
	Jain float64
	// Doomed is the share of work done for jobs that could not make their
	// deadline any more when they were started.
	Doomed float64
	// Top is the share of the highest class's jobs that were completed.
	Top float64
	// Amplification is attempts for each job that was tried at all.
	Amplification float64
	// Recovered is the time from the end of the outage until all is as before.
	Recovered float64
	// MaxWaiting is how many ever waited at a stage.
	MaxWaiting int
}

// Quantiles of a distribution, in seconds.
type Quantiles struct{ P50, P99, P999 float64 }

// InTime says whether a job ended by its deadline, or within the budget where it
// has none.
func InTime(s *sim.Spec, j *sim.Job) bool {
	if j.Fate != sim.Completed {
		return false
	}
	if j.Deadline > 0 {
		return j.End <= j.Deadline
	}
	return j.End-j.At <= s.Budget()
}

// Of scores a run.
func Of(r *sim.Result) *Score {
	s := r.Spec
	out := &Score{Inversions: r.Inversions, MaxWaiting: r.MaxWaiting}
	settled := s.From + min(10*s.Unit(), s.Len()/3)
	var waits, totals []time.Duration
	tried, attempts := 0, 0
	wasted, work := time.Duration(0), time.Duration(0)
	top, topDone := 0, 0
	for i := range r.Jobs {
		j := &r.Jobs[i]
		in := InTime(s, j)
		if s.Contains(j.End) && j.Fate == sim.Completed {
			out.Done++
			if in {
				out.Good += j.Last.Seconds()
			} else {
				out.Late += j.Last.Seconds()
			}
		}
		if !s.Contains(j.At) {
			continue
		}
		out.count(j, in)
		if j.Class == 0 {
			top++
			if j.Fate == sim.Completed {
				topDone++
			}
		}
		if j.Attempts == 0 {
			continue
		}
		work += j.Work
		if j.Wasted {
			wasted += j.Work
		}
		if j.At >= settled {
			waits = append(waits, j.Wait)
			if j.Fate == sim.Completed {
				totals = append(totals, j.End-j.At)
			}
		}
	}
	for i := range r.Jobs {
		if j := &r.Jobs[i]; j.Attempts > 0 {
			tried++
			attempts += int(j.Attempts)
		}
	}
	stages := float64(len(s.Itinerary()))
	out.Amplification = share(float64(attempts)/stages, float64(tried))
	out.Wait, out.Total = quantiles(waits), quantiles(totals)
	out.Doomed = share(wasted.Seconds(), work.Seconds())
	out.Top = share(float64(topDone), float64(top))
	out.falseSheds(r)
	out.Jain = jain(r)
	out.Converged = converged(r, s.From)
	out.Swing = swing(r)
	out.Recovered = math.NaN()
	if len(s.Outages) > 0 {
		out.Recovered = converged(r, s.Outages[len(s.Outages)-1].To)
	}
	return out
}

// count adds a job that arrived in the span.
func (out *Score) count(j *sim.Job, in bool) {
	out.Offered++
	if in {
		out.InTime++
	}
	switch j.Fate {
	case sim.Shed:
		out.Shed++
	case sim.Dropped, sim.PushedOut:
		out.Dropped++
	case sim.Completed:
		out.Completed++
	case sim.Pending, sim.Failed:
	}
}

func share(part, of float64) float64 {
	if of == 0 {
		return math.NaN()
	}
	return part / of
}

func quantiles(xs []time.Duration) Quantiles {
	if len(xs) == 0 {
		return Quantiles{math.NaN(), math.NaN(), math.NaN()}
	}
	slices.Sort(xs)
	at := func(q float64) float64 { return xs[int(math.Ceil(q*float64(len(xs))))-1].Seconds() }
	return Quantiles{at(.5), at(.99), at(.999)}
}

// falseSheds looks at the arrivals of the span that came while the schedule was
// below 0.95 of capacity and had been so for a unit. Without a schedule it is
// the rate of arrivals over the last second, or twenty units, that counts, and
// all of them where bursts are what the scenario is about.
func (out *Score) falseSheds(r *sim.Result) {
	s := r.Spec
	window := max(time.Second, 20*s.Unit())
	enough := .95 * s.Bottleneck() * window.Seconds()
	first := 0
	for i := range r.Jobs {
		j := &r.Jobs[i]
		if !s.Contains(j.At) {
			continue
		}
		if s.Sizes != nil {
			for j.At-r.Jobs[first].At > window {
				first++
			}
			if float64(i-first) >= enough {
				continue
			}
		} else if !below(s, j.At) || !below(s, max(0, j.At-s.Unit())) {
			continue
		}
		out.FalseOf++
		if j.Fate == sim.Shed || j.Fate == sim.Dropped {
			out.FalseShed++
		}
	}
	out.False = share(float64(out.FalseShed), float64(out.FalseOf))
}

func below(s *sim.Spec, t time.Duration) bool {
	load := s.LoadAt(t)
	if s.Slow != nil {
		load *= s.Slow(t)
	}
	return load < .95
}
