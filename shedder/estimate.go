package shedder

import (
	"math"
	"time"
)

// maxService bounds a service time that is believed: longer ones count as this
// long. A mean of it still multiplies without overflow.
const maxService = float64(1 << 50) // about 13 days, in ns

// service estimates mean and deviation of the service time, in nanoseconds,
// from aggregates. It forgets by the number of completions, not by time: after
// a silence it knows what it knew.
type service struct {
	n, sum, squares float64 // decayed
	seen            int     // completions so far, saturating
	slow            float64 // long-term mean
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

// add tells of count completions with the given sums; window is how many
// completions are remembered. A batch counts as if it came one by one.
func (s *service) add(count int, sum, squares, window float64) {
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
	s.seen = int(min(float64(s.seen)+n, 1<<30))
	s.slowN = min(s.slowN+n, window*longTerm)
	weight := min(n/s.slowN, 1)
	if s.slowN > 4*window && s.mean() > degraded*s.slow {
		weight /= grudging
	}
	s.slow += (sum/n - s.slow) * weight
}

// mean returns the mean service time in ns, at least 1.
func (s *service) mean() float64 {
	if s.n == 0 {
		return 0
	}
	return max(s.sum/s.n, 1)
}

// variation returns the squared coefficient of variation: the variance over the
// square of the mean. It is 1 until something is known.
func (s *service) variation() float64 {
	if s.longSum <= 0 {
		return 1
	}
	m := s.longSum / s.longN
	return max(s.longSquares/s.longN/(m*m)-1, 0)
}

// departures estimates the rate at which a stage that always has work gets it
// done. It adds up the times between completions at both ends of which work
// waited, so it sees what the service time does not: batches, and processors
// that are not there.
type departures struct {
	n, spent float64 // decayed: completions, and ns that they took
	last     time.Duration
	open     bool // work waited at last
}

// add tells of count completions at now, after which waiting units wait. An
// interval counts for no more than most ns.
func (d *departures) add(now time.Duration, count, waiting int, window, most float64) {
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

// idle tells that the stage ran out of work between completions.
func (d *departures) idle() { d.open = false }

// reset forgets all, for when the concurrency changed.
func (d *departures) reset() { *d = departures{} }

// rate returns completions a nanosecond, and whether at least window/2 of them
// were seen of late.
func (d *departures) rate(window float64) (float64, bool) {
	if d.n < window/2 || d.spent <= 0 {
		return 0, false
	}
	return d.n / d.spent, true
}

// demand compares what is asked for with what can be done, since a worker was
// last idle but not for much longer than the memory.
type demand struct {
	asked, done float64 // done is what would have been if there was work all the time
	last        time.Duration

	// slots of a few units of work each tell how bursty the arrivals are
	slot, slotDone    float64 // asked and done in the one under way
	prev              float64 // asked in the one before
	changes, askedAll float64 // decayed sums of squared changes, and of asked
}

const (
	// slotJobs is the length of a slot in units of work.
	slotJobs = 8
	// poisson is how many units of a Poisson process are taken as seen.
	poisson = 64
	// leastBursts is how many bursts, each as large as the dispersion says, are
	// no evidence of anything.
	leastBursts = 2
	// maxLoad is the highest load that is told from others.
	maxLoad = 100
)

// ask counts one request.
func (d *demand) ask(now time.Duration, drain, memory float64) {
	if now > d.last {
		gone := min(float64(now-d.last)*drain, memory)
		d.done += gone
		if d.slotDone += gone; d.slotDone >= slotJobs {
			d.nextSlot(memory)
		}
	}
	d.last = now
	d.asked++
	if drain > 0 {
		d.slot++
	}
	if d.done > memory {
		d.asked /= 2
		d.done /= 2
	}
	d.asked = min(d.asked, memory*maxLoad)
}

func (d *demand) nextSlot(memory float64) {
	keep := max(1-d.slotDone/memory, 0.5)
	change := d.slot - d.prev
	d.changes = d.changes*keep + change*change/2
	d.askedAll = d.askedAll*keep + d.slot
	d.prev = d.slot
	if d.slotDone >= 2*slotJobs { // whole slots without any
		d.changes += d.slot * d.slot / 2
		d.prev = 0
	}
	d.slot, d.slotDone = 0, 0
}

// idle tells that a worker had nothing to do: what could have been done and was
// not asked for is no evidence against an overload that begins now.
func (d *demand) idle() {
	d.asked /= 2
	d.done = min(d.done/2, d.asked)
}

// ratio returns the load; prior units at a load of 1 are taken as seen.
func (d *demand) ratio(prior float64) float64 {
	return (d.asked + prior) / (d.done + prior)
}

// beyond returns by how many standard deviations more was asked for than can be
// done, given how bursty the arrivals are: their index of dispersion is the
// variance of how many come in a slot, over the mean, and 1 for a Poisson
// process. It is taken from changes from slot to slot, so that a step of the
// load does not pass for a burst.
func (d *demand) beyond() float64 {
	bursty := max((d.changes+poisson)/(d.askedAll+poisson), 0.25)
	return (d.asked - d.done) / math.Sqrt(bursty*max(d.done, leastBursts*bursty))
}

// counter counts events over a sliding window: the epoch under way, and the
// part of the one before that the window still covers.
type counter struct {
	epoch     uint32
	cur, prev float64
}

func (c *counter) roll(epoch uint32) {
	switch epoch - c.epoch {
	case 0:
	case 1:
		c.prev, c.cur = c.cur, 0
	default:
		c.prev, c.cur = 0, 0
	}
	c.epoch = epoch
}

// add counts one event.
func (c *counter) add(epoch uint32) {
	c.roll(epoch)
	c.cur++
}

// count returns the events in one epoch's length up to now; part is how much of
// the epoch under way has passed, 0 to 1.
func (c *counter) count(epoch uint32, part float64) float64 {
	c.roll(epoch)
	return c.prev*(1-part) + c.cur
}

// clampTo returns v within lo and hi; NaN gives lo.
func clampTo(v, lo, hi float64) float64 {
	if !(v > lo) {
		return lo
	}
	return min(v, hi)
}

// toDuration converts ns, which may be anything, to a Duration that is not
// negative.
func toDuration(ns float64) time.Duration {
	if ns >= 0 && ns < 1<<62 {
		return time.Duration(ns)
	}
	return time.Duration(clampTo(ns, 0, 1<<62))
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
