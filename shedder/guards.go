package shedder

import "time"

// Guards are rails around a policy's decisions. The zero value is none; all can
// be changed live with [Shedder.Tune]. A rail that admits what the policy
// refused is named by [Verdict].Rule and counted in [State].Rails. They are
// asked in the order Exempt, FloorInFlight, FloorRate, MaxShare.
type Guards struct {
	// FloorInFlight admits whatever the policy says while fewer are in service
	// or wait. 0 or more; 0 is none.
	FloorInFlight int
	// FloorRate admits whatever the policy says while fewer a second are
	// admitted, judged over a tenth of a second, or over the time of one
	// admission where that is longer. 0 or more and finite; 0 is none.
	FloorRate float64
	// MaxTarget caps the wait that the bound is made for. The policy applies it.
	// 0 or more; 0 is none.
	MaxTarget time.Duration
	// MaxShare is the largest part of requests that is shed: of any n that
	// follow each other at most MaxShare·(n + 100), and one more. 0 to 1; 0 is
	// no limit.
	MaxShare float64
	// Baseline is a service time to be used in place of the measured one. The
	// policy applies it. 0 or more; 0 is none.
	Baseline time.Duration
	// Exempt lists classes, 0 the highest to 7, that are never shed, nor pushed
	// out.
	Exempt []int
}

// measured says that g changes what a policy measures. g may be nil.
func (g *Guards) measured() bool { return g != nil && (g.Baseline > 0 || g.MaxTarget > 0) }

// shareSpan is over how many requests MaxShare evens out.
const shareSpan = 100

// rails is what the guards that decide remember.
type rails struct {
	on     bool // one of them is set
	exempt uint8
	floor  int

	// A bucket that each admission takes from and time fills: while something
	// is in it, fewer than rate a second were admitted.
	rate, tokens, burst float64
	filled              time.Duration

	// Each request earns share, each shed costs 1.
	share, credit, cap float64
}

// set takes g over and forgets what is no longer asked for.
func (ra *rails) set(g *Guards) {
	ra.exempt = 0
	for _, class := range g.Exempt {
		ra.exempt |= 1 << class
	}
	ra.floor = g.FloorInFlight
	if g.FloorRate != ra.rate {
		ra.rate, ra.burst = g.FloorRate, max(1, g.FloorRate/10)
		ra.tokens = ra.burst
	}
	if g.MaxShare != ra.share {
		ra.share, ra.cap, ra.credit = g.MaxShare, max(1, shareSpan*g.MaxShare), 0
	}
	ra.on = ra.exempt != 0 || ra.floor > 0 || ra.rate > 0 || ra.share > 0
}

// exempts says whether the class is never shed.
func (ra *rails) exempts(class int) bool {
	return class >= 0 && class < maxClasses && ra.exempt&(1<<class) != 0
}

// admit returns the rail that admits r, which the policy refused.
func (ra *rails) admit(r *Request) Rule {
	switch {
	case ra.exempts(r.Class):
		return RuleExempt
	case r.Waiting+r.Busy < ra.floor:
		return RuleFloor
	case ra.rate > 0 && ra.fill(r.Now) >= 1:
		return RuleFloor
	case ra.share > 0 && ra.credit+ra.share < 1:
		return RuleShare
	}
	return RuleNone
}

// count is told of each decision.
func (ra *rails) count(now time.Duration, shed bool) {
	if ra.rate > 0 && !shed {
		ra.tokens = max(0, ra.fill(now)-1)
	}
	if ra.share > 0 {
		ra.credit = min(ra.cap, ra.credit+ra.share)
		if shed {
			ra.credit--
		}
	}
}

// fill adds what the time brought. A clock that jumps back brings nothing.
func (ra *rails) fill(now time.Duration) float64 {
	if now > ra.filled {
		ra.tokens = min(ra.burst, ra.tokens+ra.rate*(float64(now)-float64(ra.filled))/float64(time.Second))
	}
	ra.filled = now
	return ra.tokens
}
