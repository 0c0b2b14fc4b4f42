package shedder

import (
	"math"
	"time"
)

// window is how many completions the service time is estimated from.
func (a *Adaptive) window() float64 {
	return max(a.k.window*a.workers, a.k.windowFloor)
}

// satWindow is the same for the saturated departure rate.
func (a *Adaptive) satWindow() float64 {
	return max(a.k.satWindow*a.workers, a.k.satWindowFloor)
}

// advance moves the time on, takes a changed concurrency over, and closes
// intervals that are over. It returns what is in hand, which is a.load.
func (a *Adaptive) advance(now time.Duration, given *Load) *Load {
	switch {
	case now < a.now && a.now-now <= crossing:
		now = a.now
	case now < a.now || now-a.now > farAhead: // the clock jumped: begin anew from there
		a.began, a.ends = now, now
		a.leaving.Idle()
		a.shed = a.shed && now >= a.now
		a.spareAt = now
		a.habit.restart(now)
	}
	quiet := time.Duration(0) // of what is beyond the interval under way, without work or calls
	if a.load.Waiting == 0 && now > a.ends {
		quiet = now - a.ends
	}
	a.now = now
	l := &a.load
	l.take(given)
	if w := float64(l.Concurrency); w != a.workers {
		a.workers = w
		a.leaving.Reset()
		a.derive()
	}
	if l.Held || l.Waiting == 0 && l.Busy < l.Concurrency {
		a.leaving.Idle()
	}
	a.least = min(a.least, l.Waiting)
	switch {
	case l.Held: // says nothing about overload
		a.least, a.refused = l.Waiting, false
		a.ends = now + toDuration(a.length())
	case now >= a.ends:
		a.interval(l, quiet)
	}
	return l
}

// crossing is how far a time goes back because calls of several goroutines
// overtook each other; it counts as the latest. Further back the clock was set.
const crossing = 20 * time.Millisecond

// farAhead is a step of the clock that is not taken for time that passed.
const farAhead = 365 * 24 * time.Hour

// interval ends an interval: a queue that was empty and refused nothing gives
// burst budget back, one that never got short spends it. Intervals without any
// call in quiet count too, whatever was before: nothing waited in them.
func (a *Adaptive) interval(l *Load, quiet time.Duration) {
	if a.warm {
		a.habit.forget(a.now, a.supply, a.k.habitJobs)
	}
	length := a.length()
	empty := math.Floor(float64(quiet) / length)
	switch {
	case a.least == 0 && !a.refused && a.demand.beyond() < a.k.regainAt:
		empty++
	case a.warm && a.demand.beyond() > a.k.standingAt && float64(a.least) > max(max(a.k.standing*a.low, a.k.standingHigh*a.high), a.k.standingJobs):
		a.burst *= a.k.shrink
	}
	if empty > 0 {
		a.burst = 1 - (1-a.burst)*math.Pow(1-a.k.regain, empty)
	}
	if a.shed && (a.now-a.shedAt > toDuration(2*length) || a.now < a.shedAt) {
		a.shed, a.fair.on = false, false
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
	return max(a.k.interval*a.low, a.k.intervalJobs) / a.drain
}

// derive computes what follows from the measurements.
func (a *Adaptive) derive() {
	was := a.warm
	a.warm = a.service.Seen >= int(min(a.workers, 1<<20))+a.cfg.Warm
	if a.warm && !was { // what was asked for so far is known, what was done too
		a.demand.done = float64(a.service.Seen)
		a.demand.last = a.now
	}
	own := a.service.Mean()
	if !a.frozen {
		a.mean = own
	}
	a.service0 = toDuration(a.mean)
	a.deviation = a.mean * math.Sqrt(a.service.Variation())
	if !a.warm || a.mean <= 0 || own <= 0 {
		a.drain, a.supply = 0, 0
		a.warm = false
		a.span, a.perSpan = float64(time.Second), 1e-9
		return
	}
	noise := a.noise(a.satWindow())
	a.drain = a.leaving.Drain(a.workers, a.mean, a.satWindow(), noise)
	a.deriveSupply()
	a.each = 1 / a.drain
	var timed float64
	a.low, a.high, timed = a.bounds(a.mean, a.drain)
	a.deriveBurst(timed)
	a.whole = max(a.k.epochJobs, a.k.epochTargets*a.low)
	a.span = a.whole * a.each
	a.perSpan, a.perWhole = 1/a.span, 1/a.whole
	a.trueLow = a.low
	if a.frozen {
		a.trueLow, _, _ = a.bounds(own, a.leaving.Drain(a.workers, own, a.satWindow(), noise))
	}
}

// noise is how far a mean of n may be off by chance.
func (a *Adaptive) noise(n float64) float64 {
	return a.service.Noise(a.k.noise, n)
}

// bounds returns the standing and the burst bound for a service time and a
// drain rate, and the burst bound as it would be by time alone.
//
// The wait is counted in the long-term service time where that is shorter: who
// waits is used to that, and a stage whose dependency got slow has no more time
// than before.
func (a *Adaptive) bounds(mean, rate float64) (low, high, timed float64) {
	usual, sure := mean, mean
	if !a.frozen {
		chance := a.noise(a.window())
		usual, sure = a.service.Usual(mean, chance), a.service.Usual(mean, 1.5*chance)
	}
	spread := clampTo((1+a.service.Variation())/2, a.k.floorLeast, a.k.floorMost)
	floor := float64(a.cfg.FloorJobs) * spread * idleShape(a.demand.ratio(a.k.prior))
	floor = min(floor, a.k.floorTime*mean*rate) * usual / mean
	target := max(a.cfg.TargetFactor*usual, float64(a.cfg.MinTarget)) * rate
	low = max(max(target, floor), max(2, a.workers/4))
	usual *= sure / mean // no bursts on top of a service that got slow
	timed = a.cfg.BurstFactor * usual * rate
	high = max(timed, float64(a.cfg.BurstJobs)*usual/mean)
	high = max(max(high, 2*target), low)
	if b := float64(a.cfg.Budget); b > 0 {
		low = max(min(low, rate*b/4), 1)
		high = max(min(high, rate*b/2), low)
	}
	return low, high, timed
}

// idleShape returns how many must wait so that a worker idles less than a given
// part of the time while load times what it can do is asked of it, in units of
// that number for a load of 2. The queue of M/M/1 that holds k waiting is empty
// for (load-1)/(load^(k+2)-1) of the time.
func idleShape(load float64) float64 {
	const (
		idle  = 0.003
		atTwo = 6.387 // jobs
	)
	load = clampTo(load, 1.02, 100)
	return max(math.Log1p((load-1)/idle)/math.Log(load)-2, 1) / atTwo
}

// guard takes over the guard rails in force.
func (a *Adaptive) guard(g *Guards) {
	a.cap = math.Inf(1)
	a.guarded = g != nil && (g.Baseline > 0 || g.MaxTarget > 0)
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
		a.cap = max(a.drain*float64(g.MaxTarget), 1)
	}
}

// classSlots is how many classes are told apart; those beyond count as the
// last.
const classSlots = 16

// class is what is known of one priority class.
type class struct {
	asked  counter
	tokens float64 // of the minimum share
	held   float64 // admitted on it and, by the share, not started
	share  float64
	filled time.Duration
	shedAt time.Duration
	shed   bool
}

// ask counts a request and returns its class, or nil without classes.
func (a *Adaptive) ask(r *Request, l *Load) *class {
	a.count()
	if l.Waiting == 0 && l.Busy < l.Concurrency {
		a.spare(l)
	}
	if r.Classes <= 1 && r.Sender == "" {
		return nil
	}
	a.turn()
	if r.Classes <= 1 {
		return nil
	}
	c := &a.classes[min(max(r.Class, 0), classSlots-1)]
	c.asked.add(a.epoch)
	c.share = clampTo(r.Share, 0, 1)
	a.fill(c)
	return c
}

// turn begins a new epoch of the rate counters when it is time.
func (a *Adaptive) turn() {
	length := a.span
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

// part is how much of the epoch under way has passed.
func (a *Adaptive) part() float64 {
	return clampTo(float64(a.now-a.began)*a.perSpan, 0, 1)
}

// classBound returns how many may wait ahead of work of class c: the burst bound
// if all up to c can be served, else what the higher classes leave of bound.
func (a *Adaptive) classBound(c *class, bound float64) (own float64, served bool) {
	above, part := 0.0, a.part()
	for i := range a.classes {
		if &a.classes[i] == c {
			break
		}
		above += a.classes[i].asked.count(a.epoch, part)
	}
	if above+c.asked.count(a.epoch, part) < servedLoad*a.whole {
		return min(a.high, a.cap), true
	}
	left := 1 - above*a.perWhole
	if left < leastLeft {
		return 0, false
	}
	return min(max(bound*left, float64(a.cfg.FloorJobs)), bound), false
}

const (
	// servedLoad is the load of a class and those above it up to which the
	// class is not in overload.
	servedLoad = 0.9
	// leastLeft is the part of the drain rate below which higher classes are
	// taken to need all of it.
	leastLeft = 0.05
)

// closed says that a class above c was refused within the target.
func (a *Adaptive) closed(c *class) bool {
	hold := toDuration(a.low * a.each)
	for i := range a.classes {
		h := &a.classes[i]
		if h == c {
			break
		}
		if h.shed && a.now >= h.shedAt && a.now-h.shedAt <= hold {
			return true
		}
	}
	return false
}

// fill lets tokens of a class's minimum share come in, and what it holds on
// them go.
func (a *Adaptive) fill(c *class) {
	if a.now > c.filled {
		owed := c.share * a.drain * float64(a.now-c.filled)
		c.tokens = min(c.tokens+shareMargin*owed, mostTokens)
		c.held = max(c.held-owed, 0)
	}
	c.filled = a.now
}

// heldBelow is how many of the classes below c may wait on their shares.
func (a *Adaptive) heldBelow(c *class) float64 {
	sum, below := 0.0, false
	for i := range a.classes {
		l := &a.classes[i]
		if below && l.share > 0 {
			a.fill(l)
			sum += l.held
		}
		below = below || l == c
	}
	return sum
}

const (
	// shareMargin keeps what is admitted on a share within it as the stage
	// counts it, over a window of its own.
	shareMargin = 0.9
	// mostTokens bounds how much of a minimum share is saved up, and mostDebt
	// how far a class that had more than it is taken to be ahead.
	mostTokens = 2
	mostDebt   = 64
)
