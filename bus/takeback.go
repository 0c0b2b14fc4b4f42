package bus

// stopLocked makes sure that no claimed envelope is started any more, after
// the stage was closed, suspended or has lost its handler: what is in handlers
// then is all that still runs.
func (s *Stage) stopLocked() (jobs []job) {
	if s.mu.topic != nil {
		return nil // a claim that is being copied calls no handler
	}
	jobs = s.takeBackLocked()
	for _, ex := range s.mu.execs {
		if ex.working && ex.single {
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
	case m.classes != nil:
		m.classes.putBack(&m.pool, ex.c, cur, lim)
	default:
		m.back.PushFrontRange(&m.pool, ex.c, cur, lim)
	}
	clear(ex.c.Items[cur:lim])
	ex.size, ex.released = 0, 0
	s.free.Add(-1)
	ex.claim.Store(claimOf(cur, cur, cur))
}
