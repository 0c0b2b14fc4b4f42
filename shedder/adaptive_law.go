package shedder

import (
	"math"
	"time"
)

// bound returns how many may wait now, without Guards.MaxTarget.
func (a *Adaptive) bound() float64 { return a.low + a.burst*(a.high-a.low) }

// window is how many completions the service time is estimated from.
func (a *Adaptive) window() float64 {
	return math.Max(a.k.window*a.workers, a.k.windowFloor)
}

// satWindow is the same for the saturated departure rate.
func (a *Adaptive) satWindow() float64 {
	return math.Max(a.k.satWindow*a.workers, a.k.satWindowFloor)
}

// advance moves the time on, takes a changed concurrency over, and closes
// intervals that are over.
func (a *Adaptive) advance(now time.Duration, l *Load) {
	if now < a.now || now-a.now > farAhead { // the clock jumped: begin anew from there
		a.began, a.ends, a.leaving.open = now, now, false
		a.shed = a.shed && now >= a.now
	}
	a.now = now
	a.load = *l
	if w := float64(l.Concurrency); w != a.workers {
		a.workers = w
		a.leaving.reset()
		a.derive()
	}
	if l.Waiting == 0 && l.Busy < l.Concurrency {
		a.leaving.idle()
	}
	a.least = min(a.least, l.Waiting)
	if now >= a.ends {
		a.interval(l)
	}
}

// farAhead is a step of the clock that is not taken for time that passed.
const farAhead = 365 * 24 * time.Hour

// interval ends an interval: a queue that was empty and refused nothing gives
// burst budget back, one that never got short spends it.
func (a *Adaptive) interval(l *Load) {
	length := a.length()
	switch {
	case a.least == 0 && !a.refused:
		// Intervals without any call count too: nothing waited in them.
		k := 1 + math.Max(float64(a.now-a.ends)/length, 0)
		a.burst = 1 - (1-a.burst)*math.Pow(1-a.k.regain, k)
	case a.warm && float64(a.least) > a.k.standing*a.low:
		a.burst *= a.k.shrink
	}
	if a.now-a.shedAt > toDuration(2*length) || a.now < a.shedAt {
		a.shed = false
	}
	a.refused = false
	a.least = l.Waiting
	a.ends = a.now + toDuration(length)
}

// length is that of an interval, in ns.
func (a *Adaptive) length() float64 {
	if a.drain == 0 {
		return float64(time.Millisecond)
	}
	return a.k.interval * a.low / a.drain
}

// overloaded says whether something was refused of late.
func (a *Adaptive) overloaded() bool { return a.shed }

// derive computes what follows from the measurements.
func (a *Adaptive) derive() {
	a.warm = a.service.seen >= int(math.Min(a.workers, 1<<20))+a.cfg.Warm
	own := a.service.mean()
	if !a.frozen {
		a.mean = own
	}
	if !a.warm || a.mean <= 0 || own <= 0 {
		a.drain = 0
		a.warm = false
		return
	}
	a.drain = a.workers / a.mean
	sat, ok := a.leaving.rate(a.satWindow())
	if ok && sat < a.drain {
		a.drain = sat
	}
	m := a.service.sum / a.service.n
	cv := 1.0
	if m > 0 {
		cv = a.service.variance() / (m * m)
	}
	floor := float64(a.cfg.FloorJobs) * clampTo((1+cv)/2, a.k.floorLeast, a.k.floorMost)
	a.low, a.high = a.bounds(a.mean, a.drain, floor)
	a.trueLow = a.low
	if a.frozen {
		drain := a.workers / own
		if ok && sat < drain {
			drain = sat
		}
		a.trueLow, _ = a.bounds(own, drain, floor)
	}
}

// bounds returns the standing and the burst bound.
func (a *Adaptive) bounds(mean, drain, floor float64) (low, high float64) {
	low = math.Max(math.Max(a.cfg.TargetFactor*mean, float64(a.cfg.MinTarget))*drain, floor)
	high = math.Max(a.cfg.BurstFactor*math.Min(mean, a.service.slow)*drain, float64(a.cfg.BurstJobs))
	high = math.Max(high, 2*low)
	if b := float64(a.cfg.Budget); b > 0 {
		low = math.Max(math.Min(low, drain*b/4), 1)
		high = math.Max(math.Min(high, drain*b/2), low)
	}
	return low, high
}

// guard takes over the guard rails in force.
func (a *Adaptive) guard(g *Guards) {
	a.cap = math.Inf(1)
	if g == nil {
		if a.frozen {
			a.frozen = false
			a.derive()
		}
		return
	}
	base := float64(max(g.Baseline, 0))
	if frozen := base > 0; frozen != a.frozen || frozen && base != a.mean {
		a.frozen = frozen
		if frozen {
			a.mean = base
		}
		a.derive()
	}
	if g.MaxTarget > 0 && a.drain > 0 {
		a.cap = math.Max(a.drain*float64(g.MaxTarget), 1)
	}
}

// classSlots is how many classes are told apart; those beyond count as the
// last.
const classSlots = 16

// class is what is known of one priority class.
type class struct {
	asked  counter
	tokens float64 // of the minimum share
	filled time.Duration
	shedAt time.Duration
	shed   bool
}

// ask counts a request of a class and returns the class, or nil without
// classes.
func (a *Adaptive) ask(r *Request) *class {
	if r.Classes <= 1 && r.Sender == "" {
		return nil
	}
	a.turn()
	if r.Classes <= 1 {
		return nil
	}
	c := &a.classes[min(max(r.Class, 0), classSlots-1)]
	c.asked.add(a.epoch)
	return c
}

// turn begins a new epoch of the rate counters when it is time.
func (a *Adaptive) turn() {
	length := a.epochLength()
	gone := float64(a.now - a.began)
	switch {
	case gone < length:
	case gone < 2*length:
		a.epoch++
		a.began += toDuration(length)
	default:
		a.epoch += 2
		a.began = a.now
	}
}

func (a *Adaptive) epochLength() float64 {
	if a.drain == 0 {
		return float64(time.Second)
	}
	return math.Max(a.k.epochJobs, a.k.epochTargets*a.low) / a.drain
}

// part is how much of the epoch under way has passed.
func (a *Adaptive) part() float64 {
	return clampTo(float64(a.now-a.began)/a.epochLength(), 0, 1)
}

// residual returns the part of the drain rate that classes above c leave.
func (a *Adaptive) residual(c *class) float64 {
	sum, part := 0.0, a.part()
	for i := range a.classes {
		if &a.classes[i] == c {
			break
		}
		sum += a.classes[i].asked.count(a.epoch, part)
	}
	return 1 - sum/(a.epochLength()*a.drain)
}

// classBound returns how many may wait ahead of work of class c.
func (a *Adaptive) classBound(c *class, bound float64) float64 {
	left := a.residual(c)
	if left < leastResidual {
		return 0
	}
	return math.Min(math.Max(bound*left, float64(a.cfg.FloorJobs)), bound)
}

// leastResidual is the part of the drain rate below which higher classes are
// taken to need all of it.
const leastResidual = 0.05

// classOpen says whether work of class c may wait: the higher classes leave
// enough, and none of them was refused within the target.
func (a *Adaptive) classOpen(r *Request, c *class, bound, ahead float64) bool {
	if r.Class <= 0 {
		return true
	}
	hold := toDuration(a.low / a.drain)
	for i := range a.classes {
		h := &a.classes[i]
		if h == c {
			break
		}
		if h.shed && a.now >= h.shedAt && a.now-h.shedAt <= hold {
			return false
		}
	}
	if ahead < a.classBound(c, bound) {
		return true
	}
	c.shed, c.shedAt = true, a.now
	return false
}

// takeShare admits work of class c on its minimum share, if any is left.
func (a *Adaptive) takeShare(r *Request, c *class) bool {
	share := clampTo(r.Share, 0, 1)
	if share == 0 {
		return false
	}
	if a.now > c.filled {
		c.tokens = math.Min(c.tokens+share*a.drain*float64(a.now-c.filled), mostTokens)
	}
	c.filled = a.now
	if c.tokens < 1 {
		return false
	}
	c.tokens--
	return true
}

// mostTokens bounds how much of a minimum share is saved up.
const mostTokens = 2
