package score

import (
	"math"
	"slices"
	"time"

	"github.com/sedabus/seda/bench/overload/internal/law"
	"github.com/sedabus/seda/bench/overload/internal/sim"
)

// Of convergence: the window that is looked at, how many of them have to be
// good in a row, and the bounds.
const (
	windowJobs   = 100 // completions at capacity
	steadyFor    = 25  // windows
	steadyWait   = 2.  // times the steady p99
	steadyOutput = .95 // of what could be done
)

// window is the stretch over which convergence is judged: 100 services at
// capacity, at least 2 ms and at most a unit. The usual trailing window of 20 ms
// could not see a convergence within 10 ms.
func window(s *sim.Spec) time.Duration {
	return min(s.Unit(), max(2*time.Millisecond, time.Duration(windowJobs/s.Bottleneck()*1e9)))
}

// converged returns the time in seconds from a moment on until, for 25 windows
// in a row, or an eighth of the rest of the span where that is less, the p99 of waits of what starts in a window is at most twice the
// steady one (that of the second half) or two services, and either 0.95
// of the workers' time goes into jobs that end in time, or 0.95 of the jobs that
// arrive do.
func converged(r *sim.Result, from time.Duration) float64 {
	s := r.Spec
	win := window(s)
	n := int((s.To - from) / win)
	if n <= 0 {
		return math.NaN()
	}
	waits := make([][]time.Duration, n)
	work, offered, timely := make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range r.Jobs {
		j := &r.Jobs[i]
		in := InTime(s, j)
		if b := binOf(j.At, from, win, n); b >= 0 {
			offered[b]++
			if in {
				timely[b]++
			}
		}
		if b := binOf(j.Started, from, win, n); b >= 0 && j.Attempts > 0 {
			waits[b] = append(waits[b], j.Wait)
		}
		if in {
			spread(work, j.Started-from, j.End-from, win)
		}
	}
	stages := s.Itinerary()
	full := steadyOutput * float64(stages[len(stages)-1].Workers) * win.Seconds()
	calm := max(steadyWait*halfP99(waits), steadyWait*s.Service.Seconds())
	enough := max(1, min(steadyFor, n/8))
	run := 0
	for b := range n {
		good := work[b] >= full || timely[b] >= steadyOutput*offered[b]
		if !good || len(waits[b]) > 0 && quantiles(waits[b]).P99 > calm {
			run = 0
			continue
		}
		if run++; run == enough {
			return (time.Duration(b-enough+1) * win).Seconds()
		}
	}
	return math.NaN()
}

func halfP99(waits [][]time.Duration) float64 {
	return quantiles(slices.Concat(waits[len(waits)/2:]...)).P99
}

func binOf(t, from, win time.Duration, n int) int {
	if t < from {
		return -1
	}
	if b := int((t - from) / win); b < n {
		return b
	}
	return -1
}

// spread adds the stretch of work to the bins that it covers.
func spread(bins []float64, from, to, win time.Duration) {
	for b := max(0, int(from/win)); b < len(bins); b++ {
		lo, hi := max(from, time.Duration(b)*win), min(to, time.Duration(b+1)*win)
		if hi <= lo {
			return
		}
		bins[b] += (hi - lo).Seconds()
	}
}

// swing is the coefficient of variation of jobs done in time from bin to bin,
// over those bins that lie in stretches of load above 1, divided by that of a
// saturated server with the same services: the root of c²/(rate·bin).
func swing(r *sim.Result) float64 {
	s := r.Spec
	if s.Times != nil {
		return math.NaN()
	}
	bin := max(100*time.Millisecond, 2*s.Unit())
	n := int((s.To - s.From) / bin)
	if n < 5 {
		return math.NaN()
	}
	counts := make([]float64, n)
	for i := range r.Jobs {
		if j := &r.Jobs[i]; InTime(s, j) {
			if b := binOf(j.End, s.From, bin, n); b >= 0 {
				counts[b]++
			}
		}
	}
	var high []float64
	for b, c := range counts {
		at := s.From + time.Duration(b)*bin
		if b > 0 && s.LoadAt(at-bin) >= 1 && s.LoadAt(at) >= 1 && s.LoadAt(at+bin-1) >= 1 {
			high = append(high, c)
		}
	}
	if len(high) < 5 {
		return math.NaN()
	}
	mean, dev := meanDev(high)
	return dev / mean / math.Sqrt(variation(s)/(s.Bottleneck()*bin.Seconds()))
}

func meanDev(xs []float64) (mean, dev float64) {
	for _, x := range xs {
		mean += x
	}
	mean /= float64(len(xs))
	for _, x := range xs {
		dev += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(dev / float64(len(xs)-1))
}

// variation is the squared coefficient of variation of service times.
func variation(s *sim.Spec) float64 {
	if s.Dist == nil {
		return 1
	}
	const n = 10000
	sum, squares := 0., 0.
	for i := range n {
		x := s.Dist((float64(i) + .5) / n)
		sum += x
		squares += x * x
	}
	return max(1e-9, squares/n/(sum/n*sum/n)-1)
}

// jain is Jain's index over the senders' completions, each as a part of what it
// asks for or its max-min fair part of the completions, whichever is less.
func jain(r *sim.Result) float64 {
	n := len(r.Spec.Senders)
	if n < 2 {
		return math.NaN()
	}
	got, asked := make([]float64, n), make([]float64, n)
	sum := 0.
	for i := range r.Jobs {
		j := &r.Jobs[i]
		if !r.Spec.Contains(j.At) {
			continue
		}
		asked[j.Sender]++
		if j.Fate == sim.Completed {
			got[j.Sender]++
			sum++
		}
	}
	if sum == 0 {
		return math.NaN()
	}
	fair := law.MaxMin(asked, sum)
	total, squares := 0., 0.
	for i := range got {
		x := got[i] / fair[i]
		total += x
		squares += x * x
	}
	return total * total / (float64(n) * squares)
}
