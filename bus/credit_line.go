package bus

import "time"

// turnLink links a waiter into its account's line.
type turnLink struct{ next, prev *waiter }

// turnList is the FIFO of those who wait for credits of one account.
type turnList struct{ head, tail *waiter }

func (l *turnList) push(w *waiter) {
	w.turn = turnLink{prev: l.tail}
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.turn.next = w
	}
	l.tail = w
}

func (l *turnList) remove(w *waiter) {
	if w.turn.prev == nil {
		l.head = w.turn.next
	} else {
		w.turn.prev.turn.next = w.turn.next
	}
	if w.turn.next == nil {
		l.tail = w.turn.prev
	} else {
		w.turn.next.turn.prev = w.turn.prev
	}
	w.turn = turnLink{}
}

// lineUpLocked lets w wait for room, or for its producer's turn.
func (s *Stage) lineUpLocked(w *waiter) {
	s.mu.waiters.push(w)
	if s.mu.desk == nil {
		return
	}
	if w.acct == nil {
		w.acct = s.payerLocked(&w.env, w.par)
	}
	w.since = int64(s.mu.desk.now())
	w.acct.waits.begin(w.since)
	if w.want > 0 {
		s.mu.desk.acquiring++
	}
	s.takeTurnLocked(w)
}

// takeTurnLocked puts w into its account's line.
func (s *Stage) takeTurnLocked(w *waiter) {
	s.mu.desk.tellLocked()
	a := w.acct
	a.turns.push(w)
	if a.turns.head == w {
		s.mu.desk.ledger.Want(a.led, max(1, w.want))
	}
}

// leaveLineLocked takes w out of the line: it was served or gives up.
func (s *Stage) leaveLineLocked(w *waiter) {
	s.mu.waiters.remove(w)
	a := w.acct
	if a == nil {
		return
	}
	s.leaveTurnLocked(w)
	if w.want > 0 {
		s.mu.desk.acquiring--
	}
	now := int64(s.mu.desk.now())
	a.waits.end(now)
	s.mu.desk.blocked += time.Duration(max(0, now-w.since))
	w.acct = nil
}

// leaveTurnLocked takes w out of its account's line.
func (s *Stage) leaveTurnLocked(w *waiter) {
	a := w.acct
	head := a.turns.head == w
	a.turns.remove(w)
	if head {
		want := 0
		if next := a.turns.head; next != nil {
			want = max(1, next.want)
		}
		s.mu.desk.ledger.Want(a.led, want)
	}
}

// moveTurnLocked lets w wait on in the line of those who publish without a
// Producer: its own is closed.
func (s *Stage) moveTurnLocked(w *waiter) {
	s.leaveTurnLocked(w)
	now := s.bus.clock.Tick()
	w.acct.waits.end(now)
	w.acct = s.mu.desk.plain[w.acct.class]
	w.acct.waits.begin(now)
	s.takeTurnLocked(w)
}
