package bus

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sedabus/seda/reason"
)

// delayedEnvelope waits for its time: a retry, or a later publish. It holds a
// place of its stage, and nothing else.
type delayedEnvelope struct {
	stage *Stage
	env   Envelope
	retry bool
}

// fire lets the envelope go on.
func (d *delayedEnvelope) fire(now int64) {
	s := d.stage
	s.mu.Lock()
	s.mu.delayed--
	if !d.retry {
		s.mu.postponed--
	}
	e := &d.env
	if e.deadline != 0 && s.bus.expired(e.deadline, now) {
		s.endLocked(e, Dropped, reason.Expired)
		s.endRetryLocked(d)
		s.releaseBesideLocked(1)
		s.unlockAndStart()
		s.dropped(e, reason.Expired)
		return
	}
	if d.retry {
		if s.mu.keyed != nil {
			s.mu.keyed.delay(e.Key, false)
		}
		s.mu.due.Push(&s.mu.pool, e)
		s.unlockAndStart()
		return
	}
	e.entered = now
	s.enqueueLocked(e)
	s.unlockAndStart()
}

// endRetryLocked lets the followers of a retry that will not come go on.
func (s *Stage) endRetryLocked(d *delayedEnvelope) {
	if k := s.mu.keyed; k != nil && d.retry {
		k.release(k.slotOf(d.env.Key), k.orderKey(d.env.Key))
	}
}

// DelayedInfo describes an envelope that waits for its time.
type DelayedInfo struct {
	ID    uint64
	Key   string
	Due   time.Time
	Retry bool // a retry; else a later publish
}

// PublishAt publishes e at t, or at once if t has passed. It is accepted now:
// it counts in the depth and capacity until it is due, its deadline is checked
// now and when it is due, and the id cancels it.
func (s *Stage) PublishAt(ctx context.Context, t time.Time, e *Envelope) (id uint64, err error) {
	if ctx == nil || e == nil {
		return 0, s.refuse(reason.Invalid, nilArgument(ctx, e))
	}
	if t.IsZero() {
		return 0, s.refuse(reason.Invalid, errZeroTime)
	}
	return s.publishLater(ctx, min(s.bus.clock.FromWall(t), s.bus.clock.Now()+int64(maxDuration)), e)
}

// PublishAfter is PublishAt for d from now. A negative d counts as 0.
func (s *Stage) PublishAfter(ctx context.Context, d time.Duration, e *Envelope) (id uint64, err error) {
	if ctx == nil || e == nil {
		return 0, s.refuse(reason.Invalid, nilArgument(ctx, e))
	}
	return s.publishLater(ctx, s.bus.clock.Now()+int64(min(max(0, d), maxDuration)), e)
}

// publishLater admits e like any publish, into the timers instead of the queue.
func (s *Stage) publishLater(ctx context.Context, when int64, e *Envelope) (id uint64, err error) {
	later := &later{when: when}
	if err := s.publishSlow(ctx, e, &parent{later: later}); err != nil {
		return 0, err
	}
	return later.id, nil
}

// later travels with a publish to the place where the envelope is entered.
type later struct {
	when int64
	id   uint64
}

// admitLaterLocked enters e, which holds a token, into the account and the
// timers.
func (s *Stage) admitLaterLocked(e *Envelope, l *later, now int64) {
	s.mu.count.accepted++
	s.mu.count.entered++
	s.mu.delayed++
	s.mu.postponed++
	d := &delayedEnvelope{stage: s, env: *e}
	s.initLocked(&d.env, nil, now)
	l.id = d.env.id
	s.bus.timers.push(l.when, d)
}

// Delayed lists the envelopes of the stage that wait for their time, earliest
// first.
func (s *Stage) Delayed() []DelayedInfo {
	if s.parts != nil {
		return s.delayedOfParts()
	}
	var out []DelayedInfo
	s.bus.timers.each(func(when int64, t task) bool {
		if d, ok := t.(*delayedEnvelope); ok && d.stage == s {
			out = append(out, DelayedInfo{ID: d.env.id, Key: d.env.Key, Due: s.bus.clock.Wall(when), Retry: d.retry})
		}
		return true
	})
	slices.SortFunc(out, func(a, b DelayedInfo) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// CancelDelayed ends a delayed envelope as dropped with the reason canceled
// and reports whether it was still waiting.
func (s *Stage) CancelDelayed(id uint64) bool {
	if s.parts != nil {
		return slices.ContainsFunc(s.parts, func(p *Stage) bool { return p.CancelDelayed(id) })
	}
	taken := s.bus.timers.take(func(t task) bool {
		d, ok := t.(*delayedEnvelope)
		return ok && d.stage == s && d.env.id == id
	})
	for _, t := range taken {
		if d, ok := t.(*delayedEnvelope); ok {
			s.endDelayed(d, Dropped, reason.Canceled)
		}
	}
	return len(taken) > 0
}

// endDelayed ends an envelope that was taken out of the timers.
func (s *Stage) endDelayed(d *delayedEnvelope, end End, why reason.Reason) {
	s.mu.Lock()
	s.mu.delayed--
	if !d.retry {
		s.mu.postponed--
	}
	s.endLocked(&d.env, end, why)
	s.endRetryLocked(d)
	s.releaseBesideLocked(1)
	s.unlockAndStart()
	if end == Dropped {
		s.dropped(&d.env, why)
		return
	}
	s.bus.finish(&d.env, Result{End: end, Reason: why, Stage: s.name})
}
