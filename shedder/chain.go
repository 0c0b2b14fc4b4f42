package shedder

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Chain is a [Policy] of several: the first that refuses decides, and those that
// had admitted before are told that it came to nothing. Work is let in when all
// admit, and pushes out when one of them says so. Its bound is the smallest of
// theirs.
type Chain struct {
	policies []Policy
}

// NewChain returns a Chain of at least one policy, asked in this order.
func NewChain(policies ...Policy) (*Chain, error) {
	if len(policies) == 0 {
		return nil, fmt.Errorf("%w: Chain of no policies: 1 or more", ErrInvalid)
	}
	for i, p := range policies {
		if p == nil {
			return nil, fmt.Errorf("%w: policy %d of a Chain is nil", ErrInvalid, i)
		}
	}
	return &Chain{policies: append([]Policy(nil), policies...)}, nil
}

// Admit asks in turn. Wait, Service and RetryAfter are the longest of those who
// were asked.
//
// hot: 0 allocs, no locks, no clock
func (c *Chain) Admit(r *Request) (v Verdict) {
	admitted, settled := 0, false
	defer func() {
		if !settled { // refused, or one of them panicked
			c.undo(r, 0, admitted)
		}
	}()
	for _, p := range c.policies {
		next := p.Admit(r)
		next.Wait = max(next.Wait, v.Wait)
		next.Service = max(next.Service, v.Service)
		next.RetryAfter = max(next.RetryAfter, v.RetryAfter)
		if next.Action == Refuse || next.Action == PushOut && r.Evictable <= 0 {
			return next
		}
		admitted++
		if v.Action == PushOut || next.Rule == RuleNone {
			next.Action, next.Rule, next.Limit, next.Value = v.Action, v.Rule, v.Limit, v.Value
		}
		v = next
	}
	settled = true
	return v
}

// Undo tells all.
func (c *Chain) Undo(r *Request) { c.undo(r, 0, len(c.policies)) }

// undo tells policies i to n. It goes on behind one that panics, which the
// shedder contains.
func (c *Chain) undo(r *Request, i, n int) {
	for ; i < n; i++ {
		c.undoOne(r, i, n)
	}
}

func (c *Chain) undoOne(r *Request, i, n int) {
	fine := false
	defer func() {
		if !fine {
			c.undo(r, i+1, n)
		}
	}()
	c.policies[i].Undo(r)
	fine = true
}

// Done tells all, as Undo does.
func (c *Chain) Done(d *Done) { c.done(d, 0) }

func (c *Chain) done(d *Done, i int) {
	for ; i < len(c.policies); i++ {
		c.doneOne(d, i)
	}
}

func (c *Chain) doneOne(d *Done, i int) {
	fine := false
	defer func() {
		if !fine {
			c.done(d, i+1)
		}
	}()
	c.policies[i].Done(d)
	fine = true
}

// Bound returns the smallest bound that one of them gives.
func (c *Chain) Bound() int {
	least := 0
	for _, p := range c.policies {
		if b := p.Bound(); b > 0 && (least == 0 || b < least) {
			least = b
		}
	}
	return least
}

// Inspect asks all; of a field that several fill in the first counts, and of
// Bound the smallest.
func (c *Chain) Inspect(now time.Duration, st *State) {
	var policies []string
	for _, p := range slices.Backward(c.policies) {
		p.Inspect(now, st)
		policies = append([]string{st.Policy}, policies...)
	}
	st.Policy, st.Bound = "chain("+strings.Join(policies, ",")+")", c.Bound()
}
