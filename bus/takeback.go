package bus

// stopLocked makes sure that no claimed envelope is started any more, after
// the stage was closed, suspended or has lost its handler: what is in handlers
// then is all that still runs.
func (s *Stage) stopLocked() (jobs []job) {
	jobs = s.takeBackLocked()
	for _, ex := range s.mu.execs {
		if ex.working && ex.single && s.mu.topic == nil {
			s.takeSingleLocked(ex)
		}
	}
	return jobs
}

// takeSingleLocked puts a claim of one envelope back if that was not started.
// Its place was given away, so that the capacity may be exceeded by it, as by
// a requeue.
func (s *Stage) takeSingleLocked(ex *executor) {
	m := &s.mu
	w, ok := ex.pinLocked()
	if !ok {
		return
	}
	cur, lim := claimCur(w), claimLim(w)
	if cur == lim {
		ex.claim.Store(w) // it is in the handler
		return
	}
	e := &ex.c.Items[cur]
	switch {
	case e.flags&flagRequeued != 0:
		m.due.PushFrontRange(&m.pool, ex.c, cur, lim)
		if ex.slot != nil {
			ex.holding, ex.passed = false, true // its key stays held
		}
	case ex.slot != nil:
		if ex.holding { // its followers must stay behind it
			m.keyed.release(ex.slot, ex.key)
		}
		ex.slot.q.PushFrontRange(&m.pool, ex.c, cur, lim)
		m.keyed.n++
		if ex.holding {
			m.keyed.offer(ex.slot)
			ex.slot, ex.holding = nil, false
		}
	default:
		s.returnLocked(ex.c, cur, lim)
	}
	clear(ex.c.Items[cur:lim])
	s.keepPlaceLocked(ex)
	ex.size, ex.released = 0, 0
	ex.claim.Store(claimOf(cur, cur, cur))
}

// returnLocked puts c.Items[a:b] back to where they come first: before what was
// set aside for the same next stage, else to the front of the queue.
func (s *Stage) returnLocked(c *chunk, a, b int) {
	m := &s.mu
	front := func(a, b int) {
		if m.classes != nil {
			m.classes.putBack(&m.pool, c, a, b)
		} else {
			m.back.PushFrontRange(&m.pool, c, a, b)
		}
	}
	if s.heldLocked() == 0 {
		front(a, b)
		return
	}
	for i := b - 1; i >= a; i-- {
		if e := s.heldEdge(&c.Items[i]); e != nil {
			e.held.PushFrontRange(&m.pool, c, i, i+1)
		} else {
			front(i, i+1)
		}
	}
}

// heldEdge returns e's edge if others are set aside there, or nil.
func (s *Stage) heldEdge(e *Envelope) *edge {
	if e.Slip.route == nil {
		return nil
	}
	if to := s.nextFor(e); to != nil {
		if edge := s.findEdge(to); edge != nil && edge.held.Len() > 0 {
			return edge
		}
	}
	return nil
}
