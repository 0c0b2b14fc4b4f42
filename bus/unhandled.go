package bus

import (
	"github.com/sedabus/seda/reason"
)

// publishUnhandled does what the no-handler policy says with a publish to a
// stage without handler; done is false when it can be entered like any other.
func (s *Stage) publishUnhandled(e *Envelope, par *parent) (done bool, err error) {
	s.mu.Lock()
	if s.handledLocked() || s.mu.cfg.NoHandler == NoHandlerHold || (par != nil && par.later != nil) {
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

// letterIfUnhandled dead-letters what is queued if the stage has nobody to
// hand it to and its policy says so.
func (s *Stage) letterIfUnhandled() {
	s.mu.Lock()
	letters := !s.handledLocked() && s.mu.pull == nil && s.mu.cfg.NoHandler == NoHandlerDeadLetter
	s.mu.Unlock()
	if letters {
		s.letterQueued()
	}
}

// letterQueued dead-letters everything that is queued.
func (s *Stage) letterQueued() {
	var queued []Envelope
	s.mu.Lock()
	if !s.handledLocked() {
		s.drainLocked(func(e *Envelope) { queued = append(queued, *e) })
		s.releaseLocked(len(queued))
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
	drainFIFO(&m.due, &m.pool, f)
	for _, e := range m.edges {
		drainFIFO(&e.held, &m.pool, f)
	}
	switch {
	case m.keyed != nil:
		m.keyed.drain(&m.pool, f)
	case m.classes != nil:
		m.classes.drain(&m.pool, f)
	default:
		for _, l := range m.lanes {
			l.gatherLocked()
			l.spillLocked()
		}
		drainFIFO(&m.back, &m.pool, f)
		drainFIFO(&m.q, &m.pool, f)
	}
}
