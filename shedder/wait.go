package shedder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sedabus/seda/internal/clock"
	"github.com/sedabus/seda/reason"
)

// Acquire is [Shedder.AllowRequest] that holds the caller back until one of
// Config.Concurrency places is free: the highest class first, first come first
// served within a class. So the limit is enforced, and wait and service are
// measured exactly.
//
// It returns without a place, and leaves nothing behind, when
//   - the work is refused at the door, or pushed out by a higher class while it
//     waits: the error matches [ErrShed];
//   - ctx ends or r.Deadline passes: the error matches the context's cause, and
//     [ErrDeadline] if it was a deadline;
//   - its turn comes too late to meet the deadline: the error matches
//     [ErrDeadline] and [ErrShed].
//
// The deadline of ctx counts if it is before r.Deadline. Promises of Allow count
// as taking places too, but are not held back.
func (s *Shedder) Acquire(ctx context.Context, r Request) (Promise, error) {
	if ctx == nil {
		return Promise{}, fmt.Errorf("%w: Acquire without a context", ErrInvalid)
	}
	if ctx.Err() != nil {
		s.mu.Lock()
		s.mu.slots.expired++
		s.mu.Unlock()
		return Promise{}, s.gaveUp(ctx)
	}
	own := r.Deadline // what no timer of ctx looks after
	if t, ok := ctx.Deadline(); ok {
		if d := time.Duration(s.clock.FromWall(t)); r.Deadline == 0 || d <= r.Deadline {
			r.Deadline, own = d, 0
		}
	}
	now := s.Now()
	s.mu.Lock()
	i, err := s.admitLocked(&r, now, true)
	if err != nil {
		s.mu.Unlock()
		return Promise{}, err
	}
	sl := &s.mu.slots
	w := &sl.slab[i]
	p := Promise{s: s, slot: i, gen: w.gen}
	if sl.started.n < s.mu.cfg.Concurrency && sl.waits == 0 {
		sl.begin(i, sl.now)
		s.mu.Unlock()
		return p, nil
	}
	if w.wake == nil {
		w.wake = make(chan struct{}, 1)
	}
	wake := w.wake
	sl.wait(i)
	s.mu.Unlock()
	return s.await(ctx, &r, p, wake, own)
}

// await waits for the turn of a slot.
func (s *Shedder) await(ctx context.Context, r *Request, p Promise, wake <-chan struct{}, deadline time.Duration) (Promise, error) {
	var passed <-chan time.Time
	if deadline != 0 {
		t := clock.NewTimer(deadline - r.Now)
		defer t.Stop()
		passed = t.C
	}
	var gone error
	select {
	case <-wake:
	case <-ctx.Done():
		gone = s.gaveUp(ctx)
	case <-passed:
		gone = &RefusedError{Name: s.Config().Name, Rule: RuleDeadline, Reason: reason.Expired}
	}
	now := s.Now()
	s.mu.Lock()
	err := s.arriveLocked(p.slot, now, wake, gone)
	if err != nil && err == gone && r.asked { //nolint:errorlint // the same value, not its kind
		s.undo(s.lendLocked(r, r.Now))
	}
	s.mu.Unlock()
	if err != nil {
		return Promise{}, err
	}
	return p, nil
}

// arriveLocked ends the wait of a slot: with its place, or with the error of
// why it gets none. gone is why its caller gave up, if it did.
func (s *Shedder) arriveLocked(i uint32, now time.Duration, wake <-chan struct{}, gone error) error {
	sl := &s.mu.slots
	w := &sl.slab[i]
	if gone != nil {
		empty(wake)
	}
	switch {
	case w.phase.over():
		err := newRefusal(s.mu.cfg.Name, w.phase.verdict())
		sl.give(i)
		return err
	case gone == nil:
		return nil
	case w.phase == waiting:
		sl.unwait(i)
		sl.give(i)
	default: // its turn came at the same time: the next one's
		s.departLocked(i, sl.tick(now))
	}
	sl.account.Canceled++
	return gone
}

// empty takes what is left out of the channel of a slot that somebody else will wait at.
func empty(wake <-chan struct{}) {
	select {
	case <-wake:
	default:
	}
}

// gaveUp is the error of a context that ended.
func (s *Shedder) gaveUp(ctx context.Context) error {
	cause := context.Cause(ctx)
	e := &RefusedError{Name: s.Config().Name, Reason: reason.Canceled, Cause: cause}
	if errors.Is(cause, context.DeadlineExceeded) {
		e.Reason = reason.Expired
	}
	return e
}

// over says that a wait ended without a place.
func (p phase) over() bool { return p >= pushedOut }

// verdict says why.
func (p phase) verdict() *Verdict {
	switch p {
	case pushedOut:
		return &Verdict{Rule: RulePushedOut, Reason: reason.PushedOut}
	case doomed:
		return &Verdict{Rule: RuleDeadline, Reason: reason.ShedDeadline}
	default:
		return &Verdict{Rule: RuleDeadline, Reason: reason.Expired}
	}
}
