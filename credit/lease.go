package credit

import (
	"errors"
	"math"
	"time"
)

// lease is an account's entry in the list of leases.
type lease struct {
	until      time.Duration // by leases.now
	next, prev *Account
	leased     bool
}

// leases is the list of accounts with credits in the order in which their
// leases end, which is the order of their latest grants. An account without
// unspent credits stays in it until its turn comes.
//
// It runs on a time of its own that never goes back and takes no large steps,
// whatever the caller's clock does: after a jump, leases that run still end a
// lease's length later at the latest.
type leases struct {
	first, last *Account
	now         time.Duration
	clock       time.Duration // the caller's, at now
}

const (
	// crossing is how far a time goes back because calls of several goroutines
	// overtook each other; it counts as the latest. Further back the clock was set.
	crossing = 20 * time.Millisecond
	// farthest is when leases.now starts anew, against overflows.
	farthest = 1 << 61
)

// advance moves the time on.
func (l *leases) advance(clock, length time.Duration) {
	step := l.step(clock)
	if step < 0 && step >= -crossing {
		return
	}
	l.clock = clock
	l.now += min(max(step, 0), length+1) // longer, and everything is over in any case
	if l.now > farthest {
		for a := l.first; a != nil; a = a.next {
			a.until -= l.now
		}
		l.now = 0
	}
}

// step returns how far clock is beyond l.clock, farthest at most either way.
func (l *leases) step(clock time.Duration) time.Duration {
	step := clock - l.clock
	if (step < 0) != (clock < l.clock) { // it overflowed
		step = farthest
		if clock < l.clock {
			step = -farthest
		}
	}
	return min(max(step, -farthest), farthest)
}

// outside converts a time of l, not before l.now, to the caller's clock. It is
// never 0.
func (l *leases) outside(t time.Duration) time.Duration {
	at := l.clock + (t - l.now)
	switch {
	case at < l.clock:
		return math.MaxInt64
	case at == 0:
		return 1
	}
	return at
}

// over says whether a has no lease that lasts beyond clock.
func (l *leases) over(a *Account, clock time.Duration) bool {
	if !a.leased {
		return true
	}
	return a.until <= l.now+max(l.step(clock), 0)
}

// renew lets the lease of a last for length from clock on.
func (l *leases) renew(a *Account, clock, length time.Duration) {
	l.advance(clock, length)
	a.until = l.now + length
	if l.last == a {
		return
	}
	l.remove(a)
	a.leased = true
	a.prev = l.last
	if l.last != nil {
		l.last.next = a
	} else {
		l.first = a
	}
	l.last = a
}

func (l *leases) remove(a *Account) {
	if !a.leased {
		return
	}
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		l.first = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	} else {
		l.last = a.prev
	}
	a.next, a.prev, a.leased = nil, nil, false
}

func (l *leases) check() error {
	var prev *Account
	for a := l.first; a != nil; a = a.next {
		if a.prev != prev || !a.leased || prev != nil && prev.until > a.until {
			return errors.New("credit: the order of the leases is broken")
		}
		prev = a
	}
	if prev != l.last {
		return errors.New("credit: the list of leases is broken")
	}
	return nil
}
