package bus

// edge is what a stage knows of one next stage, guarded by the stage's lock.
type edge struct {
	to     *Stage
	parked int  // own envelopes that wait for room there
	held   fifo // envelopes set aside until fewer are parked
}

// reservations are places of next stages that an executor holds for the
// envelopes of its claim.
type reservations struct {
	r [reserveWays]reservation
	n int
}

type reservation struct {
	to    *Stage
	held  int // places taken
	spare int // of them: not yet promised to an envelope of the claim
	over  int // envelopes promised without a place
}

// reserveWays is how many next stages one claim can have places of; a claim
// ends before an envelope that goes to another one.
const reserveWays = 4

func (r *reservations) of(to *Stage) *reservation {
	for i := range r.n {
		if r.r[i].to == to {
			return &r.r[i]
		}
	}
	if r.n == reserveWays {
		return nil
	}
	r.r[r.n] = reservation{to: to}
	r.n++
	return &r.r[r.n-1]
}

// use takes up to n of the places held of to.
func (r *reservations) use(to *Stage, n int) int {
	for i := range r.n {
		if r.r[i].to == to {
			k := min(n, r.r[i].held)
			r.r[i].held -= k
			return k
		}
	}
	return 0
}

// giveBack returns the places that were not used. No lock is held.
func (r *reservations) giveBack(b *Bus) {
	for i := range r.n {
		if n := r.r[i].held; n > 0 {
			to := r.r[i].to
			to.mu.Lock()
			to.releaseLocked(n)
			to.unlockAndStart()
		}
		r.r[i] = reservation{}
	}
	r.n = 0
	_ = b
}

// takePlaces takes up to n free places, without a lock.
func (s *Stage) takePlaces(n int) int {
	for {
		free := s.free.Load()
		k := min(int64(n), free)
		if k <= 0 {
			return 0
		}
		if s.free.CompareAndSwap(free, free-k) {
			return int(k)
		}
	}
}

func (s *Stage) edgeLocked(to *Stage) *edge {
	e := s.mu.edges[to]
	if e == nil {
		if s.mu.edges == nil {
			s.mu.edges = map[*Stage]*edge{}
		}
		e = &edge{to: to}
		s.mu.edges[to] = e
	}
	return e
}

// parkedFor is how many envelopes wait parked for room in to.
func (s *Stage) parkedFor(to *Stage) int {
	if s.mu.parked == 0 {
		return 0
	}
	if e := s.mu.edges[to]; e != nil {
		return e.parked
	}
	return 0
}

// allowedLocked returns how many of the first n envelopes of c may be started:
// up to the first one whose known next stage has neither room nor, below the
// egress cap, a place to wait for it. With force it is at least one.
func (s *Stage) allowedLocked(ex *executor, c *chunk, n int, force bool) int {
	if n == 1 {
		return s.allowedOne(&c.Items[c.Rd], force)
	}
	limit := s.mu.cfg.egressCap()
	for i := range n {
		e := &c.Items[c.Rd+i]
		if e.Slip.route == nil {
			continue
		}
		to := e.Slip.resolve(s.bus)
		if to == nil {
			continue
		}
		r := ex.resv.of(to)
		if r == nil {
			return i
		}
		if r.spare == 0 {
			got := to.takePlaces(n - i)
			r.held += got
			r.spare += got
		}
		switch {
		case r.spare > 0:
			r.spare--
		case s.parkedFor(to)+r.over < limit:
			r.over++
		case force && i == 0:
			return 1
		default:
			return i
		}
	}
	return n
}

// allowedOne says whether e may be started without a place held for it.
func (s *Stage) allowedOne(e *Envelope, force bool) int {
	if force || e.Slip.route == nil || s.mu.parked == 0 {
		return 1
	}
	to := e.Slip.resolve(s.bus)
	if to == nil || s.parkedFor(to) < s.mu.cfg.egressCap() {
		return 1
	}
	s.blockedOn.Store(to)
	return 0
}

// setAsideLocked moves q's first envelope to those that wait until fewer are
// parked for their next stage.
func (s *Stage) setAsideLocked(q *fifo) {
	e := q.Front()
	to := e.Slip.resolve(s.bus)
	held := &s.edgeLocked(to).held
	s.blockedOn.Store(to)
	held.Push(&s.mu.pool, e)
	var drop Envelope
	q.Pop(&s.mu.pool, &drop)
}

// heldReadyLocked says whether something set aside may be started.
func (s *Stage) heldReadyLocked() bool {
	limit := 0
	for _, e := range s.mu.edges {
		if e.held.Len() > 0 {
			if limit == 0 {
				limit = s.mu.cfg.egressCap()
			}
			if e.parked < limit {
				return true
			}
		}
	}
	return false
}

// claimHeldLocked claims the first envelope set aside that may be started.
func (s *Stage) claimHeldLocked(ex *executor, force bool) bool {
	limit := s.mu.cfg.egressCap()
	for _, e := range s.mu.edges {
		if e.held.Len() > 0 && (force || e.parked < limit) {
			e.held.Pop(&s.mu.pool, s.soloSlot(ex))
			return true
		}
	}
	return false
}

// stuckInCycle says whether everything here waits for room in a next stage
// that, over others, waits for room here.
func (s *Stage) stuckInCycle() bool {
	to := s.blockedOn.Load()
	if to == nil {
		return false
	}
	if s.mu.arrivals.Len() == 0 {
		return false
	}
	for at, hops := to, 0; at != nil && hops < len(s.bus.stagesNow()); hops++ {
		if at == s {
			return true
		}
		at = at.blockedOn.Load()
	}
	return false
}

// moveBubble starts one envelope beyond the egress cap, which makes room for
// one that arrives and so lets a full cycle of stages move on.
func (s *Stage) moveBubble() {
	s.mu.Lock()
	m := &s.mu
	if m.active >= m.cfg.Concurrency || m.arrivals.Len() == 0 || !s.runnableLocked() || !s.bus.permits.acquire(s) {
		s.mu.Unlock()
		return
	}
	ex := s.startLocked()
	if !s.claimLocked(ex, s.bus.clock.Coarse(), true) {
		s.retireLocked(ex)
		ex.permit = false
		s.unlockAndStartAfter(true)
		return
	}
	s.unlockAndStart()
	go ex.loop()
}
