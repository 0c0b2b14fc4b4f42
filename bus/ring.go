package bus

import "slices"

// jammedLocked says whether nothing here can be started while s waits for
// stages that do not get on either: then s may be part of a ring of stages that
// only wait for each other.
func (s *Stage) jammedLocked() bool {
	m := &s.mu
	if m.active > 0 || (m.arrivals.Len() == 0 && s.blockedOn.Load() == nil) || s.mayStartLocked() {
		return false
	}
	var ahead [8]*Stage
	return len(s.aheadLocked(ahead[:0])) > 0
}

// mayStartLocked says whether something starts as soon as there is a permit.
func (s *Stage) mayStartLocked() bool { return s.runnableLocked() && s.claimableLocked() }

// halted says, without the lock, whether s does not get on by itself, as far as
// it can be told from outside.
func (s *Stage) halted() bool { return s.idle.Load() || s.blockedOn.Load() != nil }

// aheadLocked appends to list the stages whose room s waits for and that do not
// get on: envelopes of its own are parked there, or copies, or it holds its
// queue back for a subscriber.
func (s *Stage) aheadLocked(list []*Stage) []*Stage {
	for _, e := range s.mu.edges {
		if e.parked > 0 && e.to.halted() {
			list = append(list, e.to)
		}
	}
	if t := s.mu.topic; t != nil && (t.held || t.lagging > 0) {
		for _, sub := range *t.subs.Load() {
			if sub.lag == LagWait && sub.to.hopRoom() <= 0 && sub.to.halted() {
				list = append(list, sub.to)
			}
		}
	}
	return list
}

// ring returns the stages that wait for s and that s waits for, over others,
// itself included: none if it is part of no ring. It holds one lock at a time.
func (s *Stage) ring() []*Stage {
	seen, index := []*Stage{s}, map[*Stage]int{s: 0}
	var ahead [][]*Stage
	for i := 0; i < len(seen); i++ {
		seen[i].mu.Lock()
		next := seen[i].aheadLocked(nil)
		seen[i].mu.Unlock()
		ahead = append(ahead, next)
		for _, to := range next {
			if _, known := index[to]; !known {
				index[to] = len(seen)
				seen = append(seen, to)
			}
		}
	}
	// Of those that s waits for, only the ones that lead back to it.
	back := make([]bool, len(seen))
	leads := func(to *Stage) bool { return to == s || back[index[to]] }
	for more := true; more; {
		more = false
		for i := len(seen) - 1; i >= 0; i-- {
			if !back[i] && slices.ContainsFunc(ahead[i], leads) {
				back[i], more = true, true
			}
		}
	}
	if !back[0] {
		return nil
	}
	ring := seen[:0]
	for i, at := range seen {
		if back[i] {
			ring = append(ring, at)
		}
	}
	return ring
}

// inRingLocked says whether to is a stage of the ring that is to be moved.
func (s *Stage) inRingLocked(to *Stage) bool { return slices.Contains(s.mu.ring, to) }

// unjam moves one envelope in the ring of stages that s belongs to, if it does.
func (s *Stage) unjam() {
	ring := s.ring()
	for _, at := range ring {
		if at.moveBubble(ring) {
			return
		}
	}
}

// moveBubble lets one parked hop in, or starts one envelope although its next
// stage has no room, which makes room for one that comes: so a ring moves on.
// It reports whether s gets on.
func (s *Stage) moveBubble(ring []*Stage) bool {
	s.mu.Lock()
	switch {
	case s.mu.active > 0 || !s.runnableLocked():
		s.mu.Unlock()
		return false
	case s.claimableLocked(): // it waits for a permit
		s.mu.Unlock()
		return true
	case s.letInLocked():
		s.unlockAndStart()
		return true
	case !s.mayExceedLocked():
		s.mu.Unlock()
		return false
	}
	p, ok := s.takePermitsLocked(nil)
	if !ok {
		grants := s.mu.grants
		s.mu.grants = nil
		s.mu.Unlock()
		settleGrants(grants, false)
		return false
	}
	return s.bubbleLocked(p, ring)
}

// letInLocked lets a parked hop into a stage of a standing ring that would not
// take it because its capacity was lowered. The content of the ring does not
// fall while it stands, so s keeps what it has: from now on each place that is
// given back is there for the next hop. If all that it has is parked, nothing
// here could ever give one back; then one enters beyond.
func (s *Stage) letInLocked() bool {
	m := &s.mu
	waiting := m.arrivals.Len()
	if waiting == 0 {
		return false
	}
	m.excess = 0
	if s.whole != nil {
		s.whole.owed.Store(0)
	}
	if m.escape && !s.hasQueueLocked() {
		m.escape = false
		s.free.Add(-1)
	}
	s.feedArrivalsLocked()
	return m.arrivals.Len() < waiting
}

// hasQueueLocked says whether anything waits to be started.
func (s *Stage) hasQueueLocked() bool {
	return s.queuedLocked()+s.heldLocked()+s.mu.due.Len() > 0
}

// mayExceedLocked says whether one envelope may be started although its next
// stage has no room: its place goes to a hop that waits for it, or it is the
// first one beyond.
func (s *Stage) mayExceedLocked() bool {
	if s.mu.active > 0 || s.mu.pull != nil || !s.runnableLocked() || !s.hasQueueLocked() {
		return false
	}
	if s.mu.arrivals.Len() > 0 {
		return true
	}
	to := s.blockedOn.Load()
	return to != nil && s.hopRoom() <= 0 && s.parkedFor(to) < s.mu.cfg.egressCap()
}

// bubbleLocked starts that envelope, with a permit that is held. It unlocks
// s.mu.
func (s *Stage) bubbleLocked(p permitSet, ring []*Stage) bool {
	s.roomAheadLocked() // look at everything again
	ex := s.startLocked(p)
	s.mu.ring = ring
	ok := s.claimLocked(ex, s.bus.clock.Coarse(), true)
	s.mu.ring = nil
	if ok {
		s.unlockAndStart()
		go ex.loop()
		return true
	}
	// Nothing here goes on in the ring. Others of it can move; to look again
	// for them is not for this stage.
	s.retireLocked(ex)
	ex.permit = permitSet{}
	s.mu.looping = s.mu.looping && !p.loops()
	grants := s.releaseSet(p, s.mu.grants)
	s.mu.grants = nil
	notes := s.mu.notes
	s.mu.notes = nil
	s.mu.Unlock()
	tell(notes)
	settleGrants(grants, false)
	return false
}
