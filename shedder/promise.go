package shedder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sedabus/seda/reason"
)

// Promise stands for one unit of work that was let in. Whoever got it calls
// exactly one of Pass, Fail, Drop and Done when the work is over, from any
// goroutine. A second call is ignored and counted in [Promises].Twice. A promise
// that is never settled counts as in hand for ever, see [Shedder.Leaks]. The
// zero Promise does nothing.
type Promise struct {
	s    *Shedder
	slot uint32
	gen  uint32
}

// Pass says that the work was done.
//
// hot: 0 allocs, one lock, one clock reading
func (p Promise) Pass() { p.settle(false, false) }

// Fail says that the work was tried and failed. Its time in service counts as
// that of work that was done.
func (p Promise) Fail() { p.settle(true, false) }

// Drop gives the place back and teaches nothing: the work was cancelled, its
// caller went away, or it was not tried.
func (p Promise) Drop() { p.settle(false, true) }

// Done settles by the work's error: nil passes; one that matches
// context.Canceled or [ErrShed] drops, because the work was not worked off;
// any other fails.
func (p Promise) Done(err error) {
	switch {
	case err == nil:
		p.Pass()
	case errors.Is(err, context.Canceled), errors.Is(err, ErrShed):
		p.Drop()
	default:
		p.Fail()
	}
}

func (p Promise) settle(failed, drop bool) {
	if p.s == nil {
		return
	}
	p.s.settle(p, p.s.Now(), failed, drop)
}

// settle ends a unit of work: it gives the slot back, lets the next one start,
// and tells the policy.
func (s *Shedder) settle(p Promise, now time.Duration, failed, drop bool) {
	s.mu.Lock()
	sl := &s.mu.slots
	if sl.slab[p.slot].gen != p.gen {
		sl.account.Twice++
		s.mu.Unlock()
		return
	}
	now = sl.tick(now)
	sl.account.Settled++
	service, wait, known := s.departLocked(p.slot, now)
	if !drop && known {
		s.gatherLocked(now, service, wait, failed)
	}
	s.mu.Unlock()
}

// gatherMost is the most that is told at once, and a part of the unit of time
// what is kept back for no longer: a policy computes much when it is told.
const (
	gatherMost = 32
	gatherPart = 64
)

// gatherLocked adds a unit that has ended to those that the policy is told of
// next. The adaptive law is told in lots.
func (s *Shedder) gatherLocked(now, service, wait time.Duration, failed bool) {
	d := &s.mu.done
	if d.N == 0 {
		s.mu.since = now
		d.Failed, d.Service, d.Squares = 0, 0, 0
		d.Shortest, d.Longest, d.Wait = service, service, wait
	}
	d.N++
	if failed {
		d.Failed++
	}
	d.Now = now
	d.Service += service
	d.Squares += float64(service) * float64(service)
	d.Shortest, d.Longest, d.Wait = min(d.Shortest, service), max(d.Longest, service), min(d.Wait, wait)
	if s.mu.adaptive == nil || d.N >= gatherMost || s.keptLongLocked(now) {
		s.tellGatheredLocked()
	}
}

func (s *Shedder) keptLongLocked(now time.Duration) bool {
	return now-s.mu.since > s.mu.learned.unit/gatherPart
}

// tellGatheredLocked tells the policy of what was kept back.
func (s *Shedder) tellGatheredLocked() {
	d := &s.mu.done
	if d.N == 0 {
		return
	}
	s.mu.slots.describe(&d.Load, s.mu.cfg.Concurrency)
	s.doneLocked(d)
	d.N = 0
}

// departLocked gives a slot back and starts the next. It returns the service
// time and the wait of the one that departs, if they are known.
//
// One that departs although by the account it waits (the work behind takes
// another order) is taken to have had the turn of the one that started last,
// which starts now. The sum of all service times stays that of the places in
// use, and with it the mean.
func (s *Shedder) departLocked(i uint32, now time.Duration) (service, wait time.Duration, known bool) {
	sl := &s.mu.slots
	p := &sl.slab[i]
	start := p.start
	known = true
	if p.phase == passing {
		sl.remove(&sl.passing, i)
		if last := sl.started.tail; last != 0 && !sl.slab[last].exact {
			start = sl.slab[last].start
			sl.slab[last].start = now
		} else {
			known = false
		}
	} else {
		sl.remove(&sl.started, i)
	}
	service, wait = now-start, max(0, start-p.arrived)
	sl.give(i)
	s.startLocked(now)
	return service, wait, known
}

// Allow lets one unit of work in, or refuses with a [*RefusedError] that
// matches [ErrShed]. It never waits: whoever is let in is expected to be worked
// off first come, first served by Config.Concurrency workers; use
// [Shedder.Acquire] to be held back until one of them is free.
//
// The shedder sees when work is let in and when it ends, but not when it
// starts. It takes the n-th unit to start when it arrives or when the one ends
// that frees its place, whichever is later, as it is in a queue served by
// Concurrency workers. So service time is measured apart from wait, as long as
// Concurrency is right: with too high a number waits count as service, with too
// low a one the work looks quicker than it is.
//
// hot: 0 allocs, one lock, one clock reading
func (s *Shedder) Allow() (Promise, error) {
	return s.allow(&s.mu.plain)
}

// AllowRequest is [Shedder.Allow] for work with a class, deadline, sender or
// key: Class, Classes, Share, Deadline (on the clock of [Shedder.Now]), Sender
// and Key of r are used; the rest is filled in. Classes is at most 8. A deadline
// that has passed is refused with an error that matches [ErrDeadline].
//
// hot: 0 allocs, one lock, one clock reading
func (s *Shedder) AllowRequest(r Request) (Promise, error) { return s.allow(&r) }

func (s *Shedder) allow(r *Request) (Promise, error) {
	now := s.Now()
	s.mu.Lock()
	i, err := s.admitLocked(r, now, false)
	if err != nil {
		s.mu.Unlock()
		return Promise{}, err
	}
	sl := &s.mu.slots
	p := Promise{s: s, slot: i, gen: sl.slab[i].gen}
	if sl.started.n < s.mu.cfg.Concurrency {
		sl.begin(i, sl.now)
	} else {
		sl.slab[i].phase = passing
		sl.push(&sl.passing, i)
	}
	s.mu.Unlock()
	return p, nil
}

// admitLocked decides about r and returns a slot for it that is in no list.
// hold says that it will wait for its place, so that it can take one from a
// lower class.
func (s *Shedder) admitLocked(r *Request, now time.Duration, hold bool) (uint32, error) {
	m := &s.mu
	sl := &m.slots
	now = sl.tick(now)
	if err := s.checkLocked(r); err != nil {
		return 0, err
	}
	if m.done.N > 0 && s.keptLongLocked(now) {
		s.tellGatheredLocked()
	}
	if r.Deadline != 0 && r.Deadline < now {
		sl.expired++
		return 0, m.errs.get(m.cfg.Name, &Verdict{Rule: RuleDeadline, Reason: reason.Expired}, now)
	}
	q := s.lendLocked(r, now)
	if hold {
		var behind int
		q.Evictable, behind = sl.below(r.Class, &m.rails)
		q.Ahead -= behind
	}
	var v Verdict
	if sl.full() {
		m.asked++
		m.shed++
		v = Verdict{Rule: RuleBound, Reason: reason.Shed, Limit: maxSlots, Value: maxSlots}
		return 0, m.errs.get(m.cfg.Name, &v, now)
	}
	if gate(s.gate.Load()).closed() {
		q.asked = false
		s.passed.Add(1)
	} else {
		s.decideLocked(q, &v)
		if v.Action == Refuse {
			return 0, m.errs.get(m.cfg.Name, &v, now)
		}
	}
	r.Now, r.asked = now, q.asked
	if v.Action == PushOut {
		if victim := sl.newestBelow(r.Class, &m.rails); victim != 0 {
			s.endLocked(victim, pushedOut)
			sl.account.PushedOut++
		}
	}
	i := sl.take()
	w := &sl.slab[i]
	w.class, w.exact, w.arrived, w.deadline = uint8(r.Class), hold, now, r.Deadline
	if r.Sender != "" || r.Key != "" {
		w.sender, w.key = r.Sender, r.Key
	}
	sl.account.Admitted++
	return i, nil
}

// lendLocked copies what counts of a caller's request to where the policy may
// see it.
func (s *Shedder) lendLocked(r *Request, now time.Duration) *Request {
	q := &s.mu.req
	q.Now, q.Deadline, q.Class, q.Classes, q.Share = now, r.Deadline, r.Class, max(1, r.Classes), r.Share
	if r.Sender != q.Sender || r.Key != q.Key {
		q.Sender, q.Key = r.Sender, r.Key
	}
	s.mu.slots.describe(&q.Load, s.mu.cfg.Concurrency)
	return q
}

// checkLocked says what is wrong with a call.
func (s *Shedder) checkLocked(r *Request) error {
	if s.mu.cfg.Concurrency == 0 || s.attached.Load() || r.Class|r.Classes != 0 || r.Share != 0 {
		return s.checkSlow(r)
	}
	return nil
}

func (s *Shedder) checkSlow(r *Request) error {
	switch {
	case s.attached.Load():
		return ErrAttached
	case s.mu.cfg.Concurrency == 0:
		return ErrConcurrency
	case r.Classes < 0 || r.Classes > maxClasses:
		return fmt.Errorf("%w: Request.Classes is %d: 0 to %d", ErrInvalid, r.Classes, maxClasses)
	case r.Class < 0 || r.Class >= max(1, r.Classes):
		return fmt.Errorf("%w: Request.Class is %d: from 0 to below Classes, which is %d", ErrInvalid, r.Class, r.Classes)
	case !(r.Share >= 0 && r.Share <= 1):
		return fmt.Errorf("%w: Request.Share is %v: a part from 0 to 1", ErrInvalid, r.Share)
	}
	return nil
}
