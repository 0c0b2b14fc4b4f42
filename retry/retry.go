// Package retry says how often work that failed is tried again, and how long
// to wait before each further attempt. It only computes: it holds no timer, no
// goroutine and no state, and it never reads a clock.
//
//	p := retry.Policy{MaxAttempts: 4, Kind: retry.Exponential, Base: 100 * time.Millisecond}
//
// means one call and at most three retries, after 100, 200 and 400 ms.
package retry

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Defaults of a Policy, in force where its field is zero.
const (
	// DefaultBase is the first wait.
	DefaultBase = 100 * time.Millisecond
	// DefaultCap bounds every wait.
	DefaultCap = time.Minute
	// DefaultFactor is the growth of an exponential wait.
	DefaultFactor = 2.0
	// DefaultBudget is the share of retries in an overloaded stage.
	DefaultBudget = 0.1
)

const (
	// minGrowth is the smallest factor that counts as growth. Below it the
	// rounding of a power could exceed the step from one power to the next.
	minGrowth = 1 + 1e-6
	// spread is how far above the previous wait decorrelated jitter may go.
	spread = 3
	// maxBudget is beyond any number of attempts that makes sense.
	maxBudget = 1000
)

// Policy says how often and after which waits to try again. The zero Policy
// means one attempt. A Policy is a plain value: copy it, compare it, share it.
type Policy struct {
	// MaxAttempts is the number of attempts including the first: 4 means one
	// call and at most 3 retries. 0 means 1; there is no upper bound.
	MaxAttempts int
	// Kind is how waits develop. The default, Immediate, does not wait.
	Kind Kind
	// Base is the wait after the first failure. 0 means DefaultBase, or Cap
	// where that is smaller. Immediate has no use for it.
	Base time.Duration
	// Cap bounds every wait, jitter included. 0 means DefaultCap, or Base
	// where that is greater. A set Cap must be at least a set Base.
	Cap time.Duration
	// Factor is by how much an exponential wait grows with each failure: 1 or
	// more; less than 1.000001 does not grow. 0 means DefaultFactor.
	Factor float64
	// Jitter spreads the waits. The default, NoJitter, makes them exact.
	Jitter Jitter
	// MaxElapsed bounds the total time for retries, counted from when the work
	// entered the stage: no attempt starts later. 0 means no bound.
	MaxElapsed time.Duration
	// Budget is how many retries a stage with a shedder that sheds may make, while
	// it is overloaded, for each delivery: 0.1 is ten per cent of extra load. A failed
	// envelope beyond it is dead-lettered with the reason retry_budget. 0 means
	// 0.1; a large value, up to 1,000, is no budget.
	Budget float64
	// Seed starts the random numbers for jitter, so that a run can be
	// repeated. 0 means a random seed.
	Seed uint64
}

// WithDefaults returns p with the defaults in place of zeros. Base, Cap and
// Factor stay as they are where the Kind has no use for them. It does not mend
// what Validate refuses.
func (p Policy) WithDefaults() Policy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 1
	}
	if p.Budget == 0 {
		p.Budget = DefaultBudget
	}
	if p.Kind == Immediate {
		return p
	}
	if p.Base == 0 {
		p.Base = DefaultBase
		if p.Cap > 0 {
			p.Base = min(p.Base, p.Cap)
		}
	}
	if p.Cap == 0 {
		p.Cap = max(DefaultCap, p.Base)
	}
	if p.Factor == 0 && p.Kind != Constant {
		p.Factor = DefaultFactor
	}
	return p
}

// Validate returns nil if p can be used, else all its faults joined, each as
// "retry: <field> <value>: <bound>". Zeros stand for the defaults and are no
// fault.
func (p Policy) Validate() error {
	var faults []error
	refuse := func(bad bool, field string, value any, bound string) {
		if bad {
			faults = append(faults, fmt.Errorf("retry: %s %v: %s", field, value, bound))
		}
	}
	refuse(p.MaxAttempts < 0, "MaxAttempts", p.MaxAttempts, "must be 0 (one attempt) or more")
	refuse(p.Kind > Exponential, "Kind", p.Kind, "must be immediate, constant or exponential")
	refuse(p.Base < 0, "Base", p.Base, "must be 0 (the default) or more")
	refuse(p.Base > 0 && p.Kind == Immediate, "Base", p.Base, "needs Kind constant or exponential")
	refuse(p.Cap < 0, "Cap", p.Cap, "must be 0 (the default) or more")
	refuse(p.Cap > 0 && p.Cap < p.Base, "Cap", p.Cap, fmt.Sprintf("must be at least Base (%v)", p.Base))
	refuse(p.Factor != 0 && (!(p.Factor >= 1) || math.IsInf(p.Factor, 0)),
		"Factor", p.Factor, "must be a finite number of 1 or more, or 0 (the default)")
	refuse(p.Jitter > Decorrelated, "Jitter", p.Jitter, "must be none, full, equal or decorrelated")
	refuse(p.Jitter == Decorrelated && p.Kind != Exponential, "Jitter", p.Jitter, "needs Kind exponential")
	refuse((p.Jitter == Full || p.Jitter == Equal) && p.Kind == Immediate,
		"Jitter", p.Jitter, "needs Kind constant or exponential")
	refuse(p.MaxElapsed < 0, "MaxElapsed", p.MaxElapsed, "must be 0 (no bound) or more")
	refuse(p.Budget != 0 && !(p.Budget > 0 && p.Budget <= maxBudget), "Budget", p.Budget, "must be from 0 (the default, 0.1) to 1000")
	return errors.Join(faults...)
}

// Delay returns how long to wait before the next attempt when failures attempts
// in a row have failed: 1 after the first failure, for which the wait is Base;
// with fewer there is nothing to wait for, and the wait is 0. prev is the
// previous wait, and rnd are 64 uniformly random bits; jitter alone uses them.
//
// The wait is in [0, Cap] whatever the arguments. Before jitter it never
// shrinks from one failure to the next, and with a Factor of 1.000001 or more
// it is Cap from some failure on. Zeros in p stand for the defaults. Values
// that Validate refuses do no harm: a negative duration counts as 0, a Base
// above Cap as Cap, a Factor that is no number of 1 or more as 1, an unknown
// Kind as Exponential, an unknown or unfit Jitter as NoJitter.
func (p Policy) Delay(failures int, prev time.Duration, rnd uint64) time.Duration {
	if failures < 1 || p.Kind == Immediate {
		return 0
	}
	p = p.WithDefaults()
	limit := max(p.Cap, 0)
	base := min(max(p.Base, 0), limit)
	if p.Jitter == Decorrelated && p.Kind != Constant {
		if failures == 1 {
			prev = base // what was before a success must not count
		}
		return decorrelated(base, limit, prev, rnd)
	}
	wait := base
	if p.Kind != Constant {
		wait = grow(base, limit, p.Factor, failures-1)
	}
	switch p.Jitter {
	case Full:
		return upTo(wait, rnd)
	case Equal:
		return wait/2 + upTo(wait-wait/2, rnd)
	default:
		return wait
	}
}

// grow returns base times factor to the power of n, at most limit. base is in
// [0, limit].
func grow(base, limit time.Duration, factor float64, n int) time.Duration {
	if n == 0 || base == 0 || !(factor >= minGrowth) {
		return base
	}
	// A float saturates at infinity where an integer would wrap. It is exact
	// up to 2^53 ns (104 days) for a factor of 2. Compare as floats: limit
	// may round up to 2^63, which must not be converted back.
	wait := float64(base) * math.Pow(factor, float64(n))
	if wait >= float64(limit) {
		return limit
	}
	return time.Duration(wait)
}

// decorrelated returns a wait between base and three times the previous one,
// at most limit.
func decorrelated(base, limit, prev time.Duration, rnd uint64) time.Duration {
	prev = min(max(prev, base), limit)
	top := limit
	if prev < limit/spread {
		top = prev * spread
	}
	return base + upTo(top-base, rnd)
}

// upTo maps rnd to [0, n]. n is not negative.
func upTo(n time.Duration, rnd uint64) time.Duration {
	hi, _ := bits.Mul64(rnd, uint64(n)+1)
	return time.Duration(hi)
}
