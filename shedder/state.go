package shedder

import (
	"cmp"
	"slices"
	"time"
)

// State returns what the shedder knows, and why it refuses. now is on the clock
// of the caller of Decide: without a bus that of [Shedder.Now].
func (s *Shedder) State(now time.Duration) State {
	var st State
	s.mu.Lock()
	s.tellGatheredLocked()
	if !s.inspect(now, &st) {
		st = State{}
	}
	s.fillLocked(now, &st)
	s.mu.Unlock()
	return st
}

// fillLocked adds what the shell knows.
func (s *Shedder) fillLocked(now time.Duration, st *State) {
	m := &s.mu
	g := gate(s.gate.Load())
	passed := s.passed.Load()
	st.Mode, st.Killed = g.mode(), g&killed != 0
	if st.Load == (Load{}) {
		st.Load = m.load
	}
	st.Asked, st.Shed, st.Admitted = m.asked+passed, m.shed, m.admitted+passed
	st.Undone, st.PushedOut, st.Rails = m.undone, m.pushedOut, m.railed
	st.Panics, st.LastPanic = m.panics, m.lastPanic
	st.Recent = m.history.list()
	if len(st.Recent) > 0 {
		st.Last, st.At = st.Recent[0].Verdict, st.Recent[0].At
	}
	st.Promises = m.slots.state(now)
}

// inspect asks the policy, with the lock held. False means that it panicked.
func (s *Shedder) inspect(now time.Duration, st *State) (ok bool) {
	defer s.contain()
	s.mu.asking = true
	s.mu.policy.Inspect(now, st)
	s.mu.asking = false
	return true
}

// state sums the account up.
func (sl *slots) state(now time.Duration) Promises {
	st := sl.account
	st.Expired = sl.expired
	st.Outstanding = sl.started.n + sl.passing.n + sl.waits
	for i := range sl.slab {
		if out(sl.slab[i].phase) {
			st.Oldest = max(st.Oldest, now-sl.slab[i].arrived)
		}
	}
	return st
}

// out says that a slot's unit of work is in hand.
func out(p phase) bool { return p != free && !p.over() }

// Leak is a promise that was not settled for long, or a call that waits for one.
type Leak struct {
	Age         time.Duration
	Class       int
	Sender, Key string // of the request
	Waiting     bool   // in Acquire
}

// maxLeaks bounds what Leaks returns.
const maxLeaks = 100

// Leaks returns the promises that have been out for longer than olderThan, the
// oldest first, at most 100. Each takes a place for ever if its owner forgot it:
// set Sender or Key of the request to find out who that was. It looks at all
// that is out with the shedder's lock held.
func (s *Shedder) Leaks(olderThan time.Duration) []Leak {
	now := s.Now()
	var found []Leak
	s.mu.Lock()
	for i := range s.mu.slots.slab {
		w := &s.mu.slots.slab[i]
		if age := now - w.arrived; out(w.phase) && age > olderThan {
			found = append(found, Leak{Age: age, Class: int(w.class), Sender: w.sender, Key: w.key, Waiting: w.phase == waiting})
		}
	}
	s.mu.Unlock()
	slices.SortStableFunc(found, func(a, b Leak) int { return cmp.Compare(b.Age, a.Age) })
	return found[:min(len(found), maxLeaks)]
}

// history keeps the latest refusal, and one for each of the times before that
// in which the same rule refused, cut at a millisecond: a burst of refusals
// should not wash away what was before it.
type history struct {
	last    Refusal
	since   time.Duration // when the period of the last one began
	periods uint64        // so far, with that one
	ring    [8]Refusal    // the last refusals of the periods before
}

// keep makes v the latest refusal.
func (h *history) keep(now time.Duration, v *Verdict) {
	l := &h.last
	// A clock that went back makes a huge number.
	if uint64(now-h.since) >= uint64(time.Millisecond) || v.Reason != l.Reason || v.Rule != l.Rule {
		h.turn(now, v)
	}
	// Field by field: a copy in larger pieces has to wait for the small stores
	// that have just made v.
	l.At = now
	l.Limit, l.Value = v.Limit, v.Value
	l.Wait, l.Service, l.RetryAfter = v.Wait, v.Service, v.RetryAfter
}

// turn begins a period.
func (h *history) turn(now time.Duration, v *Verdict) {
	if h.periods > 0 {
		h.ring[(h.periods-1)%uint64(len(h.ring))] = h.last
	}
	h.periods++
	h.since = now
	h.last.Verdict = *v
}

// list returns the refusals, the newest first.
func (h *history) list() []Refusal {
	if h.periods == 0 {
		return nil
	}
	out := []Refusal{h.last}
	for n := h.periods - 1; n > 0 && len(out) < len(h.ring); n-- {
		out = append(out, h.ring[(n-1)%uint64(len(h.ring))])
	}
	return out
}
