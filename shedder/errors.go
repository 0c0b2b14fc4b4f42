package shedder

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sedabus/seda/reason"
)

// Sentinels for errors.Is.
var (
	// ErrShed is matched by every refusal of a shedder, see [RefusedError].
	ErrShed = errors.New("shedder: shed")
	// ErrDeadline is matched where a deadline has passed or cannot be met.
	ErrDeadline = errors.New("shedder: deadline cannot be met")
	// ErrInvalid is matched by errors about settings and arguments.
	ErrInvalid = errors.New("shedder: invalid")
	// ErrConcurrency: Allow and Acquire need Config.Concurrency. It does not
	// match ErrShed.
	ErrConcurrency = errors.New("shedder: Config.Concurrency is 0, which leaves open how many units are in service at once: " +
		"set it, or call Tune, with the number of workers or connections that do the work, or GOMAXPROCS for work that only computes")
	// ErrAttached: the shedder serves a stage of a bus already.
	ErrAttached = errors.New("shedder: attached to a stage already")
)

// RefusedError says why Allow or Acquire refused. Values are immutable and
// shared: the figures in one are at most 10 ms old while refusals keep coming.
// It matches [ErrShed] unless the deadline or the context just ended, and
// [ErrDeadline] where a deadline is the reason; one that has passed matches
// context.DeadlineExceeded as well.
type RefusedError struct {
	Name         string        // of the shedder
	Rule         Rule          // what decided
	Reason       reason.Reason // the kind, in the words that all of seda uses
	Limit, Value float64       // the limit that decided and what stood against it
	RetryAfter   time.Duration // a hint: when to try again; 0 is unknown
	Cause        error         // the context's cause, if that ended; else nil
}

// Error names the rule, the bound, what stood against it, and the remedy.
func (e *RefusedError) Error() string {
	var b strings.Builder
	b.WriteString("shedder")
	if e.Name != "" {
		fmt.Fprintf(&b, " %q", e.Name)
	}
	fmt.Fprintf(&b, ": refused (%s", e.Reason)
	if e.Rule != RuleNone {
		fmt.Fprintf(&b, ", rule %s", e.Rule)
	}
	b.WriteByte(')')
	switch e.Reason {
	case reason.Canceled:
		b.WriteString(": the context ended while it waited for a place")
	case reason.Expired:
		b.WriteString(": its deadline has passed; allow more time or send less")
	case reason.ShedDeadline:
		b.WriteString(": its deadline cannot be met")
		e.figures(&b)
		b.WriteString("; allow more time or send less")
	case reason.PushedOut:
		b.WriteString(": work of a higher class took its place in the queue; try again later or send less")
	default:
		e.figures(&b)
		if e.RetryAfter > 0 {
			fmt.Fprintf(&b, "; retry after %v", e.RetryAfter)
		} else {
			b.WriteString("; retry later")
		}
		b.WriteString(", send less or raise Concurrency")
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

func (e *RefusedError) figures(b *strings.Builder) {
	if e.Limit != 0 || e.Value != 0 {
		fmt.Fprintf(b, ": %.4g against the limit %.4g", e.Value, e.Limit)
	}
}

// Is matches ErrShed and ErrDeadline by the reason.
func (e *RefusedError) Is(target error) bool {
	switch target {
	case ErrShed:
		return e.Reason != reason.Expired && e.Reason != reason.Canceled
	case context.DeadlineExceeded:
		return e.Reason == reason.Expired
	case ErrDeadline:
		return e.Reason == reason.Expired || e.Reason == reason.ShedDeadline
	}
	return false
}

// Unwrap returns Cause.
func (e *RefusedError) Unwrap() error { return e.Cause }

// refusalAge is for how long an error is shared.
const refusalAge = 10 * time.Millisecond

// refusals keeps one error for each of the rules that refuse, so that a refusal
// costs no memory.
type refusals struct {
	of [8]struct {
		err *RefusedError
		at  time.Duration
	}
	turn int
}

// get returns the shared error of v.
func (rs *refusals) get(name string, v *Verdict, now time.Duration) error {
	for i := range rs.of {
		c := &rs.of[i]
		if c.err == nil {
			rs.turn = i
			break
		}
		if c.err.Rule == v.Rule && c.err.Reason == v.Reason {
			if now-c.at >= refusalAge {
				c.err, c.at = newRefusal(name, v), now
			}
			return c.err
		}
	}
	c := &rs.of[rs.turn]
	rs.turn = (rs.turn + 1) % len(rs.of)
	c.err, c.at = newRefusal(name, v), now
	return c.err
}

func newRefusal(name string, v *Verdict) *RefusedError {
	return &RefusedError{Name: name, Rule: v.Rule, Reason: v.Reason, Limit: v.Limit, Value: v.Value, RetryAfter: v.RetryAfter}
}
