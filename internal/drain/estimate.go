package drain

import (
	"math"
	"time"
)

// maxService bounds a service time that is believed: longer ones count as this
// long. A mean of it still multiplies without overflow.
const maxService = float64(1 << 50) // about 13 days, in ns

// Service estimates mean and deviation of the service time, in nanoseconds,
// from aggregates. It forgets by the number of completions, not by time: after
// a silence it knows what it knew.
type Service struct {
	Seen int     // completions so far, saturating
	Slow float64 // long-term mean in ns

	n, sum, squares float64 // decayed
	slowN           float64

	longN, longSum, longSquares float64 // for the shape of the distribution
}

// shapeTerm is by how much longer the shape is remembered than the mean: a
// variance needs more.
const shapeTerm = 8

// longTerm is by how much slower than the mean the long-term mean follows.
const longTerm = 1000

const (
	// degraded is how much longer than in the long term services are that count
	// for less in it, grudging times less: what got slow is not soon the usual.
	degraded = 1.5
	grudging = 8
)

// Add tells of count completions with the given sums; window is how many
// completions are remembered. A batch counts as if it came one by one.
func (s *Service) Add(count int, sum, squares, window float64) {
	n := float64(count)
	sum = clampTo(sum, 0, n*maxService)
	if mean := sum / n; !(squares >= mean*sum) { // NaN, or fewer than possible
		squares = mean * sum
	}
	squares = min(squares, sum*maxService)
	keep := keepAfter(n, window)
	scale := 1.0
	if count > 1 { // it has forgotten some of itself
		scale = (1 - keep) * window / n
	}
	s.n = s.n*keep + n*scale
	s.sum = s.sum*keep + sum*scale
	s.squares = s.squares*keep + squares*scale
	keep = keepAfter(n, window*shapeTerm)
	s.longN = s.longN*keep + n
	s.longSum = s.longSum*keep + sum
	s.longSquares = s.longSquares*keep + squares
	s.Seen = int(min(float64(s.Seen)+n, 1<<30))
	s.slowN = min(s.slowN+n, window*longTerm)
	weight := min(n/s.slowN, 1)
	if s.slowN > 4*window && s.Mean() > degraded*s.Slow {
		weight /= grudging
	}
	s.Slow += (sum/n - s.Slow) * weight
}

// Mean returns the mean service time in ns, at least 1.
func (s *Service) Mean() float64 {
	if s.n == 0 {
		return 0
	}
	return max(s.sum/s.n, 1)
}

// Variation returns the squared coefficient of variation: the variance over the
// square of the mean. It is 1 until something is known.
func (s *Service) Variation() float64 {
	if s.longSum <= 0 {
		return 1
	}
	m := s.longSum / s.longN
	return max(s.longSquares/s.longN/(m*m)-1, 0)
}

// Long returns how many completions are remembered over a time that is longer
// by shapeTerm, and the sum of their service times in ns.
func (s *Service) Long() (n, sum float64) { return s.longN, s.longSum }

// Departures estimates the rate at which a stage that always has work gets it
// done. It adds up the times between completions at both ends of which work
// waited, so it sees what the service time does not: batches, and processors
// that are not there.
type Departures struct {
	n, spent float64 // decayed: completions, and ns that they took
	last     time.Duration
	open     bool // work waited at last
}

// Add tells of count completions at now, after which waiting units wait. An
// interval counts for no more than most ns.
func (d *Departures) Add(now time.Duration, count, waiting int, window, most float64) {
	busy := waiting > 0
	n := float64(count)
	keep := keepAfter(n, window)
	d.n *= keep // also while it has not always work, or what was slow once would stay so
	d.spent *= keep
	if d.open && busy && now >= d.last {
		d.n += n
		d.spent += min(float64(now-d.last), most)
	}
	d.open, d.last = busy, now
}

// Idle tells that the stage ran out of work between completions.
func (d *Departures) Idle() { d.open = false }

// Reset forgets all, for when the concurrency changed.
func (d *Departures) Reset() { *d = Departures{} }

// Rate returns completions a nanosecond, and whether at least window/2 of them
// were seen of late.
func (d *Departures) Rate(window float64) (float64, bool) {
	if d.n < window/2 || d.spent <= 0 {
		return 0, false
	}
	return d.n / d.spent, true
}

// keepAfter returns what is left of a decayed sum after n more events, of which
// window are remembered.
func keepAfter(n, window float64) float64 {
	switch {
	case n >= window:
		return 0
	case n == 1:
		return 1 - 1/window
	}
	return math.Pow(1-1/window, n)
}

// clampTo returns v within lo and hi; NaN gives lo.
func clampTo(v, lo, hi float64) float64 {
	if !(v > lo) {
		return lo
	}
	return min(v, hi)
}
