package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/sedabus/seda/reason"
)

// End is how an accepted envelope ended.
type End uint8

// Ends.
const (
	Completed    End = iota // acknowledged at the end of its itinerary
	DeadLettered            // given up; see Bus.Letters
	Dropped                 // ended without completion or dead letter, for a reason
	Abandoned               // the bus ended first
)

// String returns the end's name.
func (e End) String() string {
	return enumName(e, "completed", "dead-lettered", "dropped", "abandoned")
}

// Result is how an accepted envelope ended. Each one has exactly one.
type Result struct {
	ID       uint64
	TextID   string
	End      End
	Reason   reason.Reason // why, unless Completed
	Stage    string        // where it ended
	Err      error         // the handler's last error, if that was why
	Reply    any           // what a handler set with Envelope.Reply; for Call only
	Attempts int           // deliveries at the last stage
	Copies   []Result      // the ends of a pub/sub stage's copies, unless all completed; of those that did: End and Stage
}

// Error returns nil for a completed envelope, else an error that says how it
// ended and wraps Err.
func (r *Result) Error() error {
	if r.End == Completed {
		return nil
	}
	return &EndError{Result: *r}
}

// EndError is the error form of a Result that is not Completed.
type EndError struct{ Result Result }

// Error says how, where and why the envelope ended.
func (e *EndError) Error() string {
	r := &e.Result
	s := fmt.Sprintf("bus: envelope %d %v at stage %q (%s) after %d attempts", r.ID, r.End, r.Stage, r.Reason, r.Attempts)
	if r.Err != nil {
		s += ": " + r.Err.Error()
	}
	return s
}

// Unwrap returns the handler's last error.
func (e *EndError) Unwrap() error { return e.Result.Err }

// HopError says why an envelope could not go on to its next stage.
type HopError struct {
	From, To string
	Reason   reason.Reason
	Waited   fmt.Stringer // the hop timeout, if that was why
}

// Error names both stages and the reason.
func (e *HopError) Error() string {
	if e.Waited != nil {
		return fmt.Sprintf("bus: hop from %q to %q: no room for %v (%s)", e.From, e.To, e.Waited, e.Reason)
	}
	return fmt.Sprintf("bus: hop from %q to %q refused (%s)", e.From, e.To, e.Reason)
}

// Is matches the reason's sentinel.
func (e *HopError) Is(target error) bool {
	s := sentinelOf(e.Reason)
	return s != nil && target == s
}

// parent is who waits for an envelope's end beside OnDone.
type parent struct {
	call  *call    // a Call
	group *group   // a pub/sub stage; the envelope is a copy
	later *later   // only between publish and entry
	lane  *lane    // the same
	acct  *account // the same: the producer that publishes
}

// call is a waiting Call.
type call struct {
	parent parent
	reply  any // written by the handler that has the envelope
	done   chan Result
}

func newCall() *call {
	c := &call{done: make(chan Result, 1)}
	c.parent.call = c
	return c
}

func (c *call) finish(r Result) {
	if r.End != Abandoned { // its handler may still be writing the reply
		r.Reply = c.reply
	}
	c.done <- r
}

// Call publishes e, waits for its end and returns it with the reply that a
// handler may have set. The error is about the publish or the wait: it is nil
// for every Result, also one that is not Completed; see Result.Error. ctx's
// deadline becomes the envelope's, if that has none. If ctx ends first, its
// error is returned and the envelope lives on.
func (s *Stage) Call(ctx context.Context, e *Envelope) (Result, error) {
	if ctx == nil || e == nil {
		return Result{}, s.refuse(reason.Invalid, nilArgument(ctx, e))
	}
	v := *e
	if t, ok := ctx.Deadline(); ok && v.deadline == 0 {
		v.SetDeadline(t)
	}
	c := newCall()
	var err error
	if s.gates.Load() != 0 || v.deadline != 0 {
		err = s.publishSlow(ctx, &v, &c.parent)
	} else if ctx.Err() != nil {
		err = s.refuse(reason.Canceled, overBecause(ctx))
	} else {
		err = s.enter(ctx, &v, &c.parent)
	}
	if err != nil {
		return Result{}, err
	}
	select {
	case r := <-c.done:
		return r, nil
	case <-ctx.Done():
		return Result{}, fmt.Errorf("bus: stage %q: waiting for the result: %w", s.name, context.Cause(ctx))
	}
}

// CallAs is Call for a reply of type T: it returns the reply of a completed
// envelope, and an error for everything else.
func CallAs[T any](ctx context.Context, s *Stage, e *Envelope) (T, error) {
	var zero T
	r, err := s.Call(ctx, e)
	if err != nil {
		return zero, err
	}
	if err := r.Error(); err != nil {
		return zero, err
	}
	v, ok := r.Reply.(T)
	if !ok {
		return zero, fmt.Errorf("%w: stage %q replied with a %T, not a %T", ErrType, s.name, r.Reply, zero)
	}
	return v, nil
}

var errNotDrained = errors.New("bus: not drained")
