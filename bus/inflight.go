package bus

import (
	"cmp"
	"slices"
	"time"
)

// InFlight describes an envelope that is inside a handler or held by a pull
// consumer.
type InFlight struct {
	ID      uint64
	Key     string
	Age     time.Duration // since it was started; for fast handlers, since its chunk was
	Attempt int
	Overdue bool // cancelled, or over its handler timeout, deadline or lease, and not returned: stuck
}

// InFlight lists the envelopes inside handlers and with pull consumers, oldest
// first. Those handled in microseconds may be gone before they are listed.
func (s *Stage) InFlight() []InFlight {
	if s.parts != nil {
		return s.inFlightOfParts()
	}
	now := s.bus.clock.Now()
	var out []InFlight
	s.mu.Lock()
	for _, ex := range s.mu.execs {
		if !ex.working || s.mu.topic != nil {
			continue
		}
		w, ok := ex.pinLocked()
		if !ok {
			continue
		}
		if e := ex.handledLocked(w); e != nil {
			out = append(out, ex.describe(e, now))
		}
		ex.claim.Store(w)
	}
	if s.mu.pull != nil {
		for _, l := range s.mu.pull.out {
			out = append(out, l.describe(now))
		}
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b InFlight) int { return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(a.ID, b.ID)) })
	return out
}

// handledLocked returns the envelope that is in ex's handler, or nil: its end
// may be booked before the claim goes on. The claim is pinned at w.
func (ex *executor) handledLocked(w uint32) *Envelope {
	cur := claimCur(w)
	if cur == claimSettled(w) || ex.c.Items[cur-1].disp == dispGone {
		return nil
	}
	return &ex.c.Items[cur-1]
}

func (ex *executor) describe(e *Envelope, now int64) InFlight {
	start := max(ex.start, ex.begun.Load())
	due := ex.overdue.Load()
	return InFlight{
		ID: e.id, Key: e.Key, Attempt: int(e.attempt),
		Age: time.Duration(max(0, now-start)), Overdue: due != 0 && now >= due,
	}
}

func (l *Lease) describe(now int64) InFlight {
	return InFlight{
		ID: l.env.id, Key: l.env.Key, Attempt: int(l.env.attempt),
		Age: time.Duration(now - l.start), Overdue: l.until != 0 && now >= l.until,
	}
}

// Cancel cancels the context of the handler call that has the envelope of that
// id, or takes it from its pull consumer, and reports whether it was in
// flight. The envelope ends as dropped with the reason canceled: at once if a
// consumer has it, else when its handler returns an error. A handler that
// ignores the cancellation keeps its slot until it returns, and counts as stuck.
func (s *Stage) Cancel(id uint64) bool {
	if s.parts != nil {
		return slices.ContainsFunc(s.parts, func(p *Stage) bool { return p.Cancel(id) })
	}
	s.mu.Lock()
	if s.mu.pull != nil {
		return s.cancelLease(id)
	}
	defer s.mu.Unlock()
	for _, ex := range s.mu.execs {
		if !ex.working || s.mu.topic != nil {
			continue
		}
		w, ok := ex.pinLocked()
		if !ok {
			continue
		}
		e := ex.handledLocked(w)
		found := e != nil && e.id == id
		if found {
			ex.canceled.Store(id)
			ex.overdue.Store(s.bus.clock.Now())
			ex.cancel(errCanceledByID)
		}
		ex.claim.Store(w)
		if found {
			return true
		}
	}
	return false
}

// cancelLease ends a delivery that a pull consumer holds. It unlocks s.mu.
func (s *Stage) cancelLease(id uint64) bool {
	l := s.mu.pull.out[id]
	if l == nil {
		s.mu.Unlock()
		return false
	}
	l.state = leaseLost
	s.settleLeaseLocked(l, errCanceledByID, outcome{}) // unlocks
	return true
}
