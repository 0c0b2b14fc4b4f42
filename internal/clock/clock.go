// Package clock gives monotonic time as plain int64 nanoseconds since an
// origin: cheap to store, to compare and to keep in an atomic. Shipped code
// reads the time and sets timers only through this package.
package clock

import (
	"math"
	"sync/atomic"
	"time"
)

// Clock counts nanoseconds since it was made. A reading is a plain int64, 1 or
// more, so that 0 can stand for "not set". Readings of two clocks cannot be
// compared. Inside a testing/synctest bubble, make the clock inside the bubble
// as well; it then follows the bubble's time.
//
// A Clock is safe for concurrent use and must not be copied.
type Clock struct {
	origin time.Time    // immutable; carries a monotonic reading
	coarse atomic.Int64 // written by Tick only, never goes down
}

// New returns a Clock whose origin is now. Its coarse reading starts at 1.
func New() *Clock {
	c := &Clock{origin: time.Now()}
	c.coarse.Store(1)
	return c
}

// Now returns the nanoseconds since the origin plus one. It is at least 1 and
// never goes down, whatever happens to the wall clock. One call costs about as
// much as 20 calls of [Clock.Coarse].
func (c *Clock) Now() int64 {
	return max(int64(time.Since(c.origin)), 0) + 1
}

// Coarse returns the reading of the latest [Clock.Tick]: as old as the last
// Tick, for the price of an atomic load.
func (c *Clock) Coarse() int64 { return c.coarse.Load() }

// Tick reads the clock, stores the reading for [Clock.Coarse] and returns it.
// Ticks in parallel never turn the coarse reading back; a Tick that lost
// against a later one returns the later reading.
func (c *Clock) Tick() int64 {
	now := c.Now()
	for {
		old := c.coarse.Load()
		if now <= old {
			return old
		}
		if c.coarse.CompareAndSwap(old, now) {
			return now
		}
	}
}

// touchAfter is how old a coarse reading may be before Touch renews it.
const touchAfter = 5_000

// Touch is [Clock.Tick] that leaves a coarse reading alone that is less than
// 5 µs old, because a store takes the cache line away from everyone else.
func (c *Clock) Touch() int64 {
	now := c.Now()
	if now-c.coarse.Load() < touchAfter {
		return now
	}
	return c.Tick()
}

// Wall returns the time of day of a reading, or the zero Time for 0, which is
// no reading. It assumes that the wall clock was not set since the origin. The
// Time carries a monotonic reading where its range allows, so that
// [Clock.FromWall] gives the same number back.
func (c *Clock) Wall(mono int64) time.Time {
	if mono == 0 {
		return time.Time{}
	}
	if mono == math.MinInt64 {
		mono++ // one nanosecond in 292 years, against an overflow below
	}
	return c.origin.Add(time.Duration(mono - 1))
}

// FromWall returns the reading that the clock shows at t: negative for a time
// before the origin, never 0. If t has a monotonic reading, that decides. If
// not (it was parsed, or built from a date), its distance from the wall clock
// of this moment does, so that a wall clock set since the origin, or a machine
// that slept, does not shift it. Times further than 292 years away give the
// smallest or largest int64.
func (c *Clock) FromWall(t time.Time) int64 {
	var mono int64
	if t.Round(0) == t { //nolint:staticcheck // Equal would not tell whether there is a monotonic reading
		now := time.Now()
		mono = addSaturating(int64(t.Sub(now)), int64(now.Sub(c.origin)))
	} else {
		mono = int64(t.Sub(c.origin))
	}
	mono = addSaturating(mono, 1)
	if mono == 0 {
		return -1
	}
	return mono
}

// addSaturating adds b, which is not negative, to a. The smallest int64 means
// "further back than that" and stays what it is.
func addSaturating(a, b int64) int64 {
	switch {
	case a == math.MinInt64:
		return a
	case a > math.MaxInt64-b:
		return math.MaxInt64
	}
	return a + b
}

// AfterFunc is time.AfterFunc: it calls f on a goroutine of its own once d is
// over.
func AfterFunc(d time.Duration, f func()) *time.Timer { return time.AfterFunc(d, f) }

// NewTimer is time.NewTimer.
func NewTimer(d time.Duration) *time.Timer { return time.NewTimer(d) }
