package bus

import (
	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/reason"
)

// publishUnhandled does what the no-handler policy says with a publish to a
// stage without handler; done is false when it can be entered like any other.
func (s *Stage) publishUnhandled(e *Envelope, par *parent) (done bool, err error) {
	s.mu.Lock()
	if faults.On(faults.UnhandledWaits) || s.handledLocked() || s.mu.cfg.NoHandler == NoHandlerHold || (par != nil && par.later != nil) {
		s.mu.Unlock()
		return false, nil
	}
	if s.mu.cfg.NoHandler == NoHandlerReject {
		s.mu.Unlock()
		return true, s.refuse(reason.NoHandler, nil)
	}
	v := *e // escapes
	s.mu.count.accepted++
	s.mu.count.entered++
	s.initLocked(&v, par, s.bus.clock.Tick())
	v.attempt = 0 // never delivered
	s.mu.Unlock()
	if s.bus.cfg.Journal != nil {
		s.record([]Entry{{Op: OpAccept, Stage: s.name, Envelope: &v}})
	}
	s.toLetter(&v, letterCause{why: reason.NoHandler, stage: s.name, err: ErrNoHandler})
	return true, nil
}

// orphanedLocked says whether something is queued although the stage has
// nobody to hand it to and does not keep it. Whoever puts something into the
// queue may have looked before the handler was removed, so this is asked at
// every unlock.
func (s *Stage) orphanedLocked() bool {
	m := &s.mu
	return !faults.On(faults.UnhandledWaits) && m.cfg.NoHandler == NoHandlerDeadLetter && m.pull == nil && !m.closed && !s.handledLocked() &&
		s.queuedLocked()+m.due.Len()+s.heldLocked() > 0
}

// letterQueued dead-letters everything that is queued, and with it the parked
// hops and waiting publishers that get in.
func (s *Stage) letterQueued() {
	var queued []Envelope
	s.mu.Lock()
	for n := -1; n < len(queued) && s.orphanedLocked(); {
		n = len(queued)
		s.drainLocked(func(e *Envelope) { queued = append(queued, *e) })
		s.releaseAsideLocked(len(queued) - n)
	}
	s.unlockAndStart()
	for i := range queued {
		s.toLetter(&queued[i], letterCause{why: reason.NoHandler, stage: s.name, err: ErrNoHandler})
	}
}

// drainLocked takes everything that waits in the queue itself, due retries and
// what was set aside included.
func (s *Stage) drainLocked(f func(*Envelope)) {
	m := &s.mu
	drainFIFO(&m.due, &m.pool, func(e *Envelope) {
		if m.keyed != nil { // the retry has held its key
			m.keyed.release(m.keyed.slotOf(e.Key), m.keyed.orderKey(e.Key))
		}
		f(e)
	})
	for _, e := range m.edges {
		drainFIFO(&e.held, &m.pool, f)
	}
	for _, l := range m.lanes {
		l.gatherLocked()
		l.spillLocked()
	}
	switch {
	case m.keyed != nil:
		m.keyed.drain(&m.pool, f)
	case m.classes != nil:
		m.classes.drain(&m.pool, f)
	default:
		drainFIFO(&m.back, &m.pool, f)
		drainFIFO(&m.q, &m.pool, f)
	}
}
