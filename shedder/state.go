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
	for i := range m.last {
		e := &m.last[(m.lastAt-1-uint8(i))%uint8(len(m.last))]
		if e.Reason == 0 {
			break
		}
		st.Recent = append(st.Recent, *e)
	}
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
func out(p phase) bool { return p != free && p != ended }

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
