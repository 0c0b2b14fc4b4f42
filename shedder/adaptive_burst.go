package shedder

import "math"

// bound returns how many may wait now, without Guards.MaxTarget.
func (a *Adaptive) bound() float64 { return a.low + a.burst*(a.high-a.low) }

// room returns how many may wait for a request that finds queue waiting; bound
// is what bound returns.
//
// The burst that comes while a worker has just been idle may be as large as
// AdaptiveConfig.BurstJobs says. After that the bound falls to firm, the more
// surely more is asked for than can be done, that burst not counted: what waits
// beyond it would, by chance alone, often wait for longer than a burst may.
func (a *Adaptive) room(queue, bound float64) float64 {
	lead := a.demand.asked - a.demand.done
	switch {
	case float64(a.now-a.spareAt) < a.grace:
		a.excused = lead
		return max(bound, a.burst*a.atOnce)
	case queue >= bound || bound <= a.firm || lead <= a.excused:
		return bound
	}
	beyond := a.demand.beyond() * (1 - a.excused/lead)
	over := clampTo((beyond+a.k.unusual*a.unusual()-a.k.firmAt)/a.k.firmOver, 0, 1)
	return bound - over*(bound-a.firm)
}

// unusual is 1 where a worker is idle for much of the time and 0 where seldom,
// so that a long queue is explained by chance.
func (a *Adaptive) unusual() float64 {
	return clampTo((a.k.habitHigh-a.habit.load(a.now, a.supply))/(a.k.habitHigh-a.k.habitLow), 0, 1)
}

// spare tells that a worker has nothing to do.
func (a *Adaptive) spare(l *Load) {
	a.spareAt, a.excused = a.now, 0
	if l.Inbound > 0 {
		return
	}
	a.demand.idle()
	if a.demand.asked <= a.demand.done {
		a.burst += (1 - a.burst) * a.k.regainIdle
	}
}

// count counts a request.
func (a *Adaptive) count() {
	a.habit.asked++
	a.demand.ask(a.now, a.supply, a.k.demandJobs)
}

// deriveBurst computes what bursts need from the measurements; timed is how many
// may wait in one by the time that it takes.
//
// The time of n that wait is off by deviation/mean/sqrt(n) of itself, so that
// firm is the n with n + firmSigma·(deviation/mean)·sqrt(n) = timed.
func (a *Adaptive) deriveBurst(timed float64) {
	sigma := a.k.firmSigma * math.Sqrt(a.service.Variation())
	root := (math.Sqrt(sigma*sigma+4*timed) - sigma) / 2
	a.firm = max(root*root, a.low)
	a.grace = a.k.grace * a.mean
	a.atOnce = float64(a.cfg.BurstJobs)
	if a.cfg.Budget > 0 {
		a.atOnce = 0
	}
}

// deriveSupply computes the rate that the demand is compared with: the drain
// rate. Where that is of few completions, it is by the mean over a longer time,
// unless the two differ by more than chance explains: a mean of few is off by more
// than overload is told by. While little has been seen, what could have been done
// until now is corrected by what turned out.
func (a *Adaptive) deriveSupply() {
	before := a.supply
	a.supply = a.drain
	if n, sum := a.service.Long(); !a.frozen && n > 0 && a.window() <= a.k.windowFloor {
		ratio := a.mean * n / sum
		if math.Abs(ratio-1) < a.service.Noise(a.k.supplyNoise, a.window()) {
			a.supply *= ratio
		}
	}
	if before > 0 && float64(a.service.Seen) < a.k.young*a.window() {
		a.demand.done *= a.supply / before
	}
}
