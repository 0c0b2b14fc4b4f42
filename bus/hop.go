package bus

import (
	"math"
	"time"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/reason"
)

// arrival is a hop that waits for room: it counts in the depth and capacity of
// the stage it comes from.
type arrival struct {
	env   Envelope
	from  *Stage
	until int64 // bus clock at which it is dead-lettered
}

// forever is no limit.
const forever = math.MaxInt64

// note tells a stage that envelopes of its own that were parked have entered
// the next stage.
type note struct {
	up, to *Stage
	n      int
	copies bool // they are copies of a pub/sub stage, not its own hops
	lend   bool // up is a sibling of to, which has places to lend
}

// arrive moves c.Items[a:b], which from has acknowledged, into s; up to
// reserved of them have a place. It returns how many were parked, and counts
// those that it dead-lettered in lettered.
func (s *Stage) arrive(from *Stage, c *chunk, a, b, reserved int, lettered *int) (parked int) {
	if s.takesAll() {
		s.mu.Lock()
		return s.arriveLocked(from, c, a, b, reserved)
	}
	// The rare checks, one by one.
	for i := a; i < b; i++ {
		e := &c.Items[i]
		if why := s.refusesHop(e); why != reason.None {
			from.letterHop(e, s.name, why)
			*lettered++
			continue
		}
		s.mu.Lock()
		parked += s.arriveLocked(from, c, i, i+1, min(reserved, 1))
		reserved = max(0, reserved-1)
	}
	if reserved > 0 { // for those that were lettered
		s.mu.Lock()
		s.releaseAsideLocked(reserved)
		s.unlockAndStart()
	}
	return parked
}

// takesAll says whether no hop can be refused.
func (s *Stage) takesAll() bool {
	return gates(s.gates.Load())&(gateAccepts|gateNoHandler|gateShedInside) == 0 && !faults.On(faults.ShedsHops)
}

// refusesHop returns why e cannot enter, or None.
func (s *Stage) refusesHop(e *Envelope) reason.Reason {
	g := gates(s.gates.Load())
	if g&gateAccepts != 0 && !s.accepts(e.Payload) {
		return reason.Type
	}
	if g&gateNoHandler != 0 {
		return reason.NoHandler
	}
	if g&gateShedInside != 0 || faults.On(faults.ShedsHops) {
		return s.shedInside(e)
	}
	return reason.None
}

// arriveLocked enters or parks the envelopes. It unlocks s.mu.
func (s *Stage) arriveLocked(from *Stage, c *chunk, a, b, reserved int) (parked int) {
	m := &s.mu
	now := s.stamp()
	if s.unwatchedLocked() {
		now = s.bus.clock.Tick()
	}
	for ; reserved > 0 && m.arrivals.Len() > 0 && !m.closed; reserved-- {
		s.enterArrivalLocked() // who waits already comes first
	}
	var victims []Envelope
	for i := a; i < b; i++ {
		e := &c.Items[i]
		e.hop()
		e.entered, e.attempt, e.disp = now, 1, dispAck
		e.flags |= timedFlag(e)
		if reserved > 0 {
			reserved--
		} else if !s.placeForHopLocked(&victims) {
			s.parkLocked(from, e, now)
			parked++
			continue
		}
		m.count.entered++
		s.enqueueLocked(e)
	}
	s.unlockAndStart()
	for i := range victims {
		s.dropped(&victims[i], reason.Evicted)
	}
	return parked
}

// arriveWhole moves all of c in, which has a place for each, and returns an
// empty chunk for it. It does nothing if others wait, who come first.
func (s *Stage) arriveWhole(c *chunk) (empty *chunk, ok bool) {
	s.mu.Lock()
	m := &s.mu
	if m.arrivals.Len() > 0 {
		s.mu.Unlock()
		return c, false
	}
	now := s.stamp()
	if s.unwatchedLocked() {
		now = s.bus.clock.Tick()
	}
	for i := c.Rd; i < c.N; i++ {
		e := &c.Items[i]
		e.hop()
		e.entered, e.attempt, e.disp = now, 1, dispAck
		e.flags |= timedFlag(e)
	}
	m.count.entered += uint64(c.Size())
	c = m.q.PushChunk(&m.pool, c)
	s.unlockAndStart()
	return c, true
}

// placeForHopLocked takes a place for a hop: a free one, the one above
// capacity, or that of an evicted envelope.
func (s *Stage) placeForHopLocked(victims *[]Envelope) bool {
	m := &s.mu
	if m.arrivals.Len() > 0 || m.closed {
		return false
	}
	if s.free.Add(-1) >= s.slack.Load() {
		return true
	}
	s.free.Add(1)
	if !s.sated() && s.borrow(1) > 0 && s.takeForHops(1, 1) == 1 {
		return true
	}
	if len(m.lanes) > 0 {
		s.revokeLanesLocked()
		if s.takeForHops(1, 1) == 1 {
			return true
		}
	}
	if m.cfg.Full == DropOldest && s.free.Load() <= 0 {
		var victim Envelope
		if s.evictLocked(&victim) {
			*victims = append(*victims, victim)
			return true
		}
	}
	if s.mayEscapeLocked() {
		m.escape = true
		return true
	}
	return false
}

// mayEscapeLocked says whether a hop may take the place above capacity. Not
// while retries that wait exceed that, because each would let one more in; time
// moves them on. What is parked elsewhere does not count as exceeding it.
func (s *Stage) mayEscapeLocked() bool {
	m := &s.mu
	if m.escape || m.excess > 0 || (s.whole != nil && s.whole.owed.Load() > 0) || (m.desk != nil && faults.On(faults.CreditRingFull)) || (m.desk != nil && m.desk.windowNow() == 0) {
		return false
	}
	return m.delayed == m.postponed || s.free.Load()+int64(m.parked) >= 0
}

// parkLocked lets e wait at s for room.
func (s *Stage) parkLocked(from *Stage, e *Envelope, now int64) {
	m := &s.mu
	until := now + int64(m.cfg.HopTimeout)
	slot, _ := m.arrivals.Slot(&m.arrPool)
	*slot = arrival{env: *e, from: from, until: until}
	if m.parkTimer == 0 || until < m.parkTimer { // the timeout may have been lowered
		m.parkTimer = until
		s.bus.timers.push(until, &parkTimeout{s})
	}
}

// addParked books n own envelopes as parked for room in to.
func (s *Stage) addParked(to *Stage, n int) {
	s.mu.Lock()
	e := s.edgeLocked(to)
	before := max(0, e.parked)
	e.parked += n
	s.mu.parked += n
	s.free.Add(-int64(max(0, e.parked) - before))
	e.feelLocked()
	s.unlockAndStart()
}

// feedArrivalsLocked lets parked hops enter while there is room.
func (s *Stage) feedArrivalsLocked() {
	m := &s.mu
	for m.arrivals.Len() > 0 && !m.closed {
		if s.free.Add(-1) < s.slack.Load() {
			s.free.Add(1)
			if !s.mayEscapeLocked() {
				return
			}
			m.escape = true
		}
		s.enterArrivalLocked()
	}
}

// enterArrivalLocked lets the first parked hop enter; there is a place for it.
func (s *Stage) enterArrivalLocked() {
	m := &s.mu
	var a arrival
	m.arrivals.Pop(&m.arrPool, &a)
	m.count.entered++
	if a.env.flags&flagCopy != 0 {
		m.count.copies++
	}
	a.env.entered = s.stamp()
	s.enqueueLocked(&a.env)
	s.noteLocked(a.from, 1, a.env.flags&flagCopy != 0)
}

// noteLocked notes that n of up's parked envelopes, or copies, have entered,
// or, with 0, that there is room for more.
func (s *Stage) noteLocked(up *Stage, n int, copies bool) {
	for i := range s.mu.notes {
		if s.mu.notes[i].up == up && s.mu.notes[i].copies == copies {
			s.mu.notes[i].n += n
			return
		}
	}
	s.mu.notes = append(s.mu.notes, note{up: up, to: s, n: n, copies: copies})
}

// tell delivers notes. It is a loop because an upstream that gets room may in
// turn let its own parked hops in.
func tell(notes []note) {
	for len(notes) > 0 {
		n := notes[0]
		notes = append(notes[1:], n.up.unparked(n)...)
	}
}

// unparked books envelopes as gone to the stage they were parked for.
func (s *Stage) unparked(n note) (more []note) {
	s.mu.Lock()
	switch {
	case n.lend:
		s.mu.told = true
	case n.n == 0:
		s.roomAheadLocked()
	case n.copies:
		t := s.mu.topic
		before := max(0, t.lagging)
		t.lagging -= n.n // below zero if they were quicker than their own booking
		s.releaseAsideLocked(before - max(0, t.lagging))
	default:
		s.leaveParkedLocked(n.to, n.n)
		s.mu.count.hopped += uint64(n.n)
	}
	more, s.mu.notes = s.mu.notes, nil
	s.unlockAndStart()
	s.bus.settled()
	return more
}

// leaveParkedLocked takes n envelopes off the books of those parked for to.
func (s *Stage) leaveParkedLocked(to *Stage, n int) {
	e := s.edgeLocked(to)
	before := max(0, e.parked)
	e.parked -= n // below zero if they were quicker than their own booking
	s.mu.parked -= n
	e.feelLocked()
	s.roomAheadLocked()
	s.releaseBesideLocked(before - max(0, e.parked))
}

// roomAheadLocked lets what waited for room in a next stage be looked at again.
func (s *Stage) roomAheadLocked() {
	if s.mu.topic != nil {
		s.mu.topic.held = false
	}
	if s.mu.keyed != nil {
		s.mu.keyed.offerAll()
	}
}

// parkTimeout dead-letters the hops that have waited for room too long.
type parkTimeout struct{ s *Stage }

func (t *parkTimeout) fire(now int64) {
	s := t.s
	var late []arrival
	next := int64(forever)
	s.mu.Lock()
	s.mu.arrivals.RemoveIf(&s.mu.arrPool, func(a *arrival) bool {
		if a.until > now {
			next = min(next, a.until)
			return false
		}
		late = append(late, *a)
		return true
	})
	if s.mu.parkTimer <= now { // else another one looks later
		s.mu.parkTimer = 0
		if next != forever {
			s.mu.parkTimer = next
			s.bus.timers.push(next, t)
		}
	}
	if s.mu.waiters.n > 0 {
		s.feedWaitersLocked()
	}
	s.unlockAndStart()
	for i := range late {
		late[i].from.letterParked(&late[i].env, s)
	}
}

// letterParked dead-letters e, which was parked at s for room in to.
func (s *Stage) letterParked(e *Envelope, to *Stage) {
	s.mu.Lock()
	s.leaveParkedLocked(to, 1)
	s.unlockAndStart()
	s.toLetter(e, letterCause{
		why: reason.HopTimeout, stage: to.name, from: s.name,
		err: &HopError{From: s.name, To: to.name, Reason: reason.HopTimeout, Waited: to.hopTimeout()},
	})
}

func (s *Stage) hopTimeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.cfg.HopTimeout
}

// letterHop dead-letters e, which s has acknowledged but the next stage cannot
// take.
func (s *Stage) letterHop(e *Envelope, to string, why reason.Reason) {
	e.hop()
	s.toLetter(e, letterCause{
		why: why, stage: to, from: s.name,
		err: &HopError{From: s.name, To: to, Reason: why},
	})
}
