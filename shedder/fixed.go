package shedder

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Fixed is a [Policy] with a limit that somebody chose: how many units may be in
// service, wait, or be on their way by a hop. It learns nothing.
type Fixed struct {
	Passive

	limit atomic.Int64
	bound int
}

// NewFixed returns a Fixed with a limit of at least 1.
func NewFixed(limit int) (*Fixed, error) {
	f := &Fixed{}
	if err := f.SetLimit(limit); err != nil {
		return nil, err
	}
	return f, nil
}

// SetLimit changes the limit, from the next decision on. It is safe for
// concurrent use with all else.
func (f *Fixed) SetLimit(limit int) error {
	if limit < 1 {
		return fmt.Errorf("%w: limit of Fixed is %d: 1 or more", ErrInvalid, limit)
	}
	f.limit.Store(int64(limit))
	return nil
}

// Limit returns the limit in force.
func (f *Fixed) Limit() int { return int(f.limit.Load()) }

// Admit refuses at the limit. A higher class takes the place of a lower one that
// waits.
//
// hot: 0 allocs, no locks, no clock
func (f *Fixed) Admit(r *Request) Verdict {
	limit := int(f.limit.Load())
	f.bound = max(1, limit-max(0, r.Busy))
	n := max(0, r.Waiting) + max(0, r.Busy) + max(0, r.Inbound)
	switch {
	case n < limit:
		return Verdict{}
	case r.Evictable > 0:
		return Verdict{Action: PushOut, Rule: RuleFixed, Limit: float64(limit), Value: float64(n)}
	}
	return Verdict{Action: Refuse, Rule: RuleFixed, Limit: float64(limit), Value: float64(n)}
}

// Done takes the load over for Bound.
func (f *Fixed) Done(d *Done) { f.bound = max(1, f.Limit()-max(0, d.Busy)) }

// Bound is what the limit leaves to those who wait; at least 1. It is the limit
// until something is known of the load.
func (f *Fixed) Bound() int {
	if f.bound == 0 {
		return f.Limit()
	}
	return f.bound
}

// Inspect fills in the name and the bound.
func (f *Fixed) Inspect(_ time.Duration, st *State) { st.Policy, st.Bound = "fixed", f.Bound() }
