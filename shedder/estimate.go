package shedder

import (
	"math"
	"time"
)

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
func (d *demand) ask(now time.Duration, rate, memory float64) {
	if now > d.last {
		gone := min(float64(now-d.last)*rate, memory)
		d.done += gone
		if d.slotDone += gone; d.slotDone >= slotJobs {
			d.nextSlot(memory)
		}
	}
	d.last = now
	d.asked++
	if rate > 0 {
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
