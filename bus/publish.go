package bus

import (
	"context"
	"reflect"

	"github.com/sedabus/seda/reason"
)

// Publish puts a copy of e into the stage. Nil means accepted: e's Result
// comes exactly once. In a full stage it does what the full policy says; with
// Block it waits, first come first served, until there is room or ctx ends.
// Every error matches ErrRejected and the sentinel of its reason, and ctx's
// error if that was the cause.
//
// Checks are made in this order and the first that fails counts: arguments,
// closed, payload type, context over, not started or paused, deadline,
// duplicate, shedder, room.
func (s *Stage) Publish(ctx context.Context, e *Envelope) error {
	if ctx == nil || e == nil {
		return s.refuse(reason.Invalid, nilArgument(ctx, e))
	}
	if s.gates.Load() != 0 || e.deadline != 0 || s.bus.cloggedFor(e) {
		return s.publishSlow(ctx, e, nil)
	}
	if ctx.Err() != nil {
		return s.refuse(reason.Canceled, overBecause(ctx))
	}
	return s.enter(ctx, e, nil)
}

// TryPublish is Publish that never waits: in a full stage with Block it is
// refused at once.
func (s *Stage) TryPublish(e *Envelope) error {
	if e == nil {
		return s.refuse(reason.Invalid, errNilEnvelope)
	}
	if s.gates.Load() != 0 || e.deadline != 0 || s.bus.cloggedFor(e) {
		return s.publishSlow(nil, e, nil) //nolint:staticcheck // no context: never waits
	}
	return s.enter(nil, e, nil) //nolint:staticcheck // no context: never waits
}

// PublishBatch publishes es in order and returns how many were accepted. It is
// not atomic: each envelope has its own verdict in verdicts, which may be nil
// or must be as long as es. err is the first refusal.
func (s *Stage) PublishBatch(ctx context.Context, es []Envelope, verdicts []error) (accepted int, err error) {
	if verdicts != nil && len(verdicts) != len(es) {
		return 0, fault(s.where(), "len(verdicts)", len(verdicts), "must be 0 or the number of envelopes")
	}
	for i := range es {
		verdict := s.Publish(ctx, &es[i])
		if verdicts != nil {
			verdicts[i] = verdict
		}
		if verdict == nil {
			accepted++
		} else if err == nil {
			err = verdict
		}
	}
	return accepted, err
}

// enter admits a checked envelope. A nil ctx never waits.
//
// hot: 0 allocs, no time unless the stage is slow or idle
func (s *Stage) enter(ctx context.Context, e *Envelope, par *parent) error {
	now := s.stamp()
	s.mu.LockAmong(&s.entering)
	if !s.takePlaceLocked(e, par) {
		return s.enterFull(ctx, e, par, now) // unlocks
	}
	s.admitLocked(e, par, now)
	s.unlockAndStart()
	return nil
}

// stamp returns the time at which an envelope enters: the exact one for a
// stage of slow handlers, else that of the executor's last look at the clock.
func (s *Stage) stamp() int64 {
	if s.slow.Load() {
		return s.bus.clock.Tick()
	}
	return s.bus.clock.Coarse()
}

// unwatchedLocked says whether no executor of the stage, or of the subscribers
// that it waits for, has looked at the clock of late.
func (s *Stage) unwatchedLocked() bool {
	return s.mu.active == 0 && s.mu.executed == 0 && (s.mu.topic == nil || !s.mu.topic.held)
}

// takePlaceLocked takes a token for a publish if nothing speaks against it.
func (s *Stage) takePlaceLocked(e *Envelope, par *parent) bool {
	if s.mu.desk != nil {
		return !s.mu.draining && s.spendLocked(e, par)
	}
	return !s.mu.draining && s.takeFreeLocked()
}

// takeOneLocked is takePlaceLocked for a publish that may come during a drain.
func (s *Stage) takeOneLocked(e *Envelope, par *parent) bool {
	if s.mu.desk != nil {
		return s.spendLocked(e, par)
	}
	return s.takeFreeLocked()
}

// takeFreeLocked takes a free place unless others wait for it.
func (s *Stage) takeFreeLocked() bool {
	if s.mu.waiters.n > 0 || s.mu.arrivals.Len() > 0 {
		return false
	}
	free := s.free.Add(-1)
	if free < s.mu.shut {
		s.free.Add(1)
		if s.sated() || s.borrow(lendLot) == 0 {
			return false
		}
		free = s.free.Add(-1)
	}
	s.mu.minFree = min(s.mu.minFree, free)
	return true
}

// admitLocked enters a new envelope, which holds a token, into the account and
// the queue.
func (s *Stage) admitLocked(e *Envelope, par *parent, now int64) {
	if par != nil && par.later != nil {
		s.admitLaterLocked(e, par.later, now)
		return
	}
	if par != nil && par.acct != nil {
		if l := par.lane; l != nil && !l.off && !s.laneless.Load() {
			l.appendLocked(e, now)
			return
		}
		par = nil
	}
	s.mu.count.accepted++
	s.mu.count.entered++
	if s.unwatchedLocked() {
		now = s.bus.clock.Tick() // nobody has looked at the clock for a while
	}
	var slot *Envelope
	switch {
	case s.mu.keyed != nil:
		slot = s.mu.keyed.place(&s.mu.pool, e.Key)
	case s.mu.classes != nil:
		slot = s.mu.classes.place(&s.mu.pool, e)
	default:
		slot, _ = s.mu.q.Slot(&s.mu.pool)
	}
	*slot = *e
	s.initLocked(slot, par, now)
}

// admitWithLocked is admitLocked for an envelope of the bus itself: a dead
// letter or a redrive.
func (s *Stage) admitWithLocked(e *Envelope, f flags) {
	c := *e
	s.mu.count.accepted++
	s.mu.count.entered++
	s.initLocked(&c, nil, s.bus.clock.Tick())
	c.flags |= f
	c.redrives = e.redrives
	s.enqueueLocked(&c)
}

// initLocked sets the fields that the bus owns in a new envelope.
func (s *Stage) initLocked(e *Envelope, par *parent, now int64) {
	e.par = par
	if e.id = s.mu.forced; e.id == 0 {
		e.id = s.mu.ids.id(s.bus)
	}
	e.entered = now
	e.attempt, e.failures, e.member, e.disp, e.redrives = 1, 0, 0, dispAck, 0
	e.flags = timedFlag(e)
}

// publishSlow makes the checks that most publishes do not need.
func (s *Stage) publishSlow(ctx context.Context, e *Envelope, par *parent) error {
	g := gates(s.gates.Load())
	if g&gateSharded != 0 {
		return s.publishPart(ctx, e, par)
	}
	inside := g&gatesOfBus != 0 && ctx != nil && s.bus.isInside(ctx)
	if why, cause := s.check(ctx, e, g, inside); why != reason.None {
		return s.refuse(why, cause)
	}
	v := *e
	if v.deadline != 0 {
		v.deadline = s.bus.anchor(v.deadline)
		if s.bus.expired(v.deadline, s.bus.clock.Now()) {
			return s.refuse(reason.Expired, nil)
		}
	}
	undo, err := s.checkKey(&v, g)
	if err != nil {
		return err
	}
	var asked *asking
	if g&gateShed != 0 {
		if asked, err = s.ask(&v, par); err != nil {
			undo()
			return err
		}
	}
	if g&gateTracer != 0 {
		v = s.tracePublish(v)
	}
	err = s.enterSlow(ctx, &v, par, g, asked)
	asked.settle(s.bus, err == nil)
	if err != nil {
		undo()
	}
	return err
}

// enterSlow enters an envelope for which nothing but room may be missing.
func (s *Stage) enterSlow(ctx context.Context, v *Envelope, par *parent, g gates, asked *asking) error {
	if g&gateNoHandler != 0 {
		if done, err := s.publishUnhandled(v, par); done {
			return err
		}
	}
	if asked != nil && asked.pushOut >= 0 && !s.pushOut(asked.pushOut) {
		return s.refuseShed(&asked.instead, s) // others were quicker
	}
	way, err := s.awaitPath(ctx, v, asked)
	if err != nil {
		return err
	}
	if g&gateJournal != 0 {
		err = s.enterJournaled(ctx, *v, par, asked)
	} else {
		err = s.enterAsked(ctx, v, par, asked)
	}
	way.passed()
	return err
}

// enterAsked is enter for a publish that may be at the doors of later stages.
func (s *Stage) enterAsked(ctx context.Context, e *Envelope, par *parent, asked *asking) error {
	now := s.stamp()
	s.mu.LockAmong(&s.entering)
	if !s.takePlaceLocked(e, par) {
		asked.stepAside()
		return s.enterFull(ctx, e, par, now) // unlocks
	}
	s.admitLocked(e, par, now)
	s.unlockAndStart()
	return nil
}

// check makes the stateless checks in the order of the contract.
func (s *Stage) check(ctx context.Context, e *Envelope, g gates, inside bool) (why reason.Reason, cause error) {
	if g&gateClosed != 0 && (!inside || s.bus.state() >= stateClosed) {
		return reason.Closed, nil
	}
	if g&gateAccepts != 0 && !s.accepts(e.Payload) {
		return reason.Type, &typeError{have: reflect.TypeOf(e.Payload), want: s.takes}
	}
	if ctx != nil {
		if ctx.Err() != nil {
			return reason.Canceled, overBecause(ctx)
		}
	}
	if g&gateNotStarted != 0 {
		return reason.NotStarted, nil
	}
	if g&gatePaused != 0 && !inside {
		return reason.Paused, nil
	}
	return reason.None, nil
}

func nothing() {}

// checkKey looks e's idempotency key up; undo forgets it again when the
// publish fails for another reason.
func (s *Stage) checkKey(e *Envelope, g gates) (undo func(), err error) {
	if g&gateDedup == 0 || e.Meta == nil || e.Meta.Idempotency == "" {
		return nothing, nil
	}
	key := e.Meta.Idempotency
	if s.whole != nil {
		s = s.whole // one window for all parts; the refusal is the whole's
	}
	s.mu.Lock()
	seen := s.mu.dedup.Seen(key)
	s.mu.Unlock()
	if seen {
		return nothing, s.refuse(reason.Duplicate, nil)
	}
	return func() {
		s.mu.Lock()
		s.mu.dedup.Forget(key)
		s.mu.Unlock()
	}, nil
}

func (s *Stage) accepts(payload any) bool {
	return s.takes == nil || typeFits(payload, s.takes)
}
