package bus

import "sync/atomic"

// edge is what a stage knows of one next stage. Stage.mu guards it, but for the
// atomics.
type edge struct {
	from, to *Stage
	starting int         // claims of one that may park there
	parked   int         // own envelopes that wait for room there
	held     fifo        // envelopes set aside until there is room
	want     atomic.Bool // from waits to be told of room
	line     clog        // publishes that wait until less waits here
	clogged  atomic.Bool // they have to
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
func (r *reservations) giveBack() {
	for i := range r.n {
		if n := r.r[i].held; n > 0 {
			to := r.r[i].to
			to.mu.Lock()
			to.releaseAsideLocked(n)
			to.unlockAndStart()
		}
		r.r[i] = reservation{}
	}
	r.n = 0
}

// takePlaces takes up to n free places, without a lock.
func (s *Stage) takePlaces(n int) int { return s.takeLeaving(0, 1, n) }

// takeForCopies is takePlaces for copies of a pub/sub stage, which stop at the
// window of a stage with Credit.
func (s *Stage) takeForCopies(n int) int { return s.takeLeaving(s.beyond.Load(), 1, n) }

// takeAtLeast takes up to n free places, or none if there are fewer than least.
func (s *Stage) takeAtLeast(least, n int) int { return s.takeLeaving(0, least, n) }

// takeForHops is takeAtLeast for hops, which stop at the shedder's bound.
func (s *Stage) takeForHops(least, n int) int { return s.takeLeaving(s.slack.Load(), least, n) }

// takeLeaving takes up to n free places but leaves slack of them, or none if
// that makes fewer than least.
func (s *Stage) takeLeaving(slack int64, least, n int) int {
	for {
		free := s.free.Load()
		k := min(int64(n), free-slack)
		if k < int64(least) {
			return 0
		}
		if s.free.CompareAndSwap(free, free-k) {
			return int(k)
		}
	}
}

// lotFor is the number of places that an upstream stage waits for before it
// starts a chunk: in a stage of fast handlers a hand-over of few envelopes
// costs more than it brings.
func (s *Stage) lotFor(n int) int {
	if s.slow.Load() || s.idle.Load() {
		return 1
	}
	return max(1, min(n, wakeLot, (s.info.Load().capacity-int(s.slack.Load()))/4))
}

// wakeLot is the usual size of such a lot.
const wakeLot = 32

func (s *Stage) findEdge(to *Stage) *edge {
	for _, e := range s.mu.edges {
		if e.to == to {
			return e
		}
	}
	return nil
}

func (s *Stage) edgeLocked(to *Stage) *edge {
	if e := s.findEdge(to); e != nil {
		return e
	}
	e := &edge{from: s, to: to}
	s.mu.edges = append(s.mu.edges, e)
	to.upstream.add(e)
	s.bus.edgesMade.Add(1)
	return e
}

// upstreams are the edges into a stage: replaced, never changed.
type upstreams struct {
	list    atomic.Pointer[[]*edge]
	wanting atomic.Int32 // edges whose stage waits to be told of room
}

func (u *upstreams) add(e *edge) {
	for {
		old := u.list.Load()
		next := []*edge{e}
		if old != nil {
			next = append(next, *old...)
		}
		if u.list.CompareAndSwap(old, &next) {
			return
		}
	}
}

// wantRoom lets the next stage tell of room; false means that there is some
// now.
func (e *edge) wantRoom(lot int) bool {
	if !e.want.Swap(true) {
		e.to.countWanting(1)
	}
	return e.to.hopRoom() < int64(lot)
}

// countWanting counts the edges whose stages wait for room in s.
func (s *Stage) countWanting(n int32) {
	s.upstream.wanting.Add(n)
	if s.whole != nil {
		s.whole.wanting.Add(n)
	}
}

// tellRoomLocked notes the upstream stages that wait for room here.
func (s *Stage) tellRoomLocked() {
	if s.upstream.wanting.Load() == 0 {
		return
	}
	if s.hopRoom() >= int64(s.lotFor(wakeLot)) {
		s.tellUpstreamLocked()
	}
}

// tellUpstreamLocked notes them whatever room there is.
func (s *Stage) tellUpstreamLocked() {
	if s.upstream.wanting.Load() == 0 {
		return
	}
	for _, e := range *s.upstream.list.Load() {
		if e.want.Load() && e.want.Swap(false) {
			s.countWanting(-1)
			s.noteLocked(e.from, 0, false)
		}
	}
}

// parkedFor is how many envelopes wait parked for room in to.
func (s *Stage) parkedFor(to *Stage) int {
	if s.mu.parked == 0 {
		return 0
	}
	if e := s.findEdge(to); e != nil {
		return e.parked
	}
	return 0
}

// allowedLocked returns how many of the first n envelopes of c may be started.
// One may be started as long as fewer than the egress cap are parked for its
// next stage; several need a place there each. With force it is one.
func (s *Stage) allowedLocked(ex *executor, c *chunk, n int, force bool) int {
	if n == 1 || force {
		return s.allowedOne(ex, &c.Items[c.Rd], force)
	}
	if s.mu.topic != nil { // its envelopes travel on when their copies have ended
		return n * s.allowedOne(ex, &c.Items[c.Rd], false)
	}
	var slip Slip // of the envelope before, and where it leads
	var next *Stage
	for i := range n {
		e := &c.Items[c.Rd+i]
		if e.Slip.route == nil {
			continue
		}
		if e.Slip != slip {
			slip, next = e.Slip, e.Slip.resolve(s.bus)
			s.mu.desk.goesTo(next)
		}
		to := s.partAhead(next, e)
		if to == nil || (!s.overtakes(ex, to) && s.reservePlace(ex, to, n-i)) {
			continue
		}
		if i == 0 {
			return s.allowedOne(ex, e, false)
		}
		return i
	}
	return n
}

// reservePlace promises ex a place in to, taking up to n at once.
func (s *Stage) reservePlace(ex *executor, to *Stage, n int) bool {
	r := ex.resv.of(to)
	if r == nil {
		return false
	}
	if r.spare == 0 {
		lot := to.lotFor(n)
		got := to.takeForHops(lot, n)
		if got == 0 && !to.sated() && to.borrow(n) > 0 {
			got = to.takeForHops(lot, n)
		}
		if got == 0 && (!s.edgeLocked(to).wantRoom(lot) || (!to.sated() && to.borrow(n) > 0)) {
			got = to.takeForHops(lot, n)
		}
		r.held += got
		r.spare += got
	}
	if r.spare == 0 {
		s.blockedOn.Store(to)
		return false
	}
	r.spare--
	return true
}

// allowedOne says whether e may be started without a place held for it. With
// force it may if it goes to a stage of the ring that is to be moved.
func (s *Stage) allowedOne(ex *executor, e *Envelope, force bool) int {
	if e.Slip.route == nil || len(s.mu.edges) == 0 {
		return 1
	}
	next := e.Slip.resolve(s.bus)
	if next == nil {
		return 1
	}
	s.mu.desk.goesTo(next)
	to := s.partAhead(next, e)
	way := s.findEdge(to)
	if way == nil {
		return 1
	}
	if s.overtakes(ex, to) || ((!force || !s.inRingLocked(to)) && !way.openLocked()) {
		s.blockedOn.Store(to)
		return 0
	}
	way.starting++
	ex.way = way
	return 1
}

// openLocked says whether one more envelope may be started for the edge: while
// nobody waits and there is room, or up to the egress cap.
func (e *edge) openLocked() bool {
	return (e.parked <= 0 && e.to.hopRoom() > 0) || e.parked+e.starting < e.from.mu.cfg.egressCap()
}

// leaveWayLocked ends what allowedOne has begun.
func (ex *executor) leaveWayLocked() {
	if ex.way == nil {
		return
	}
	ex.way.starting--
	ex.way = nil
	if k := ex.stage.mu.keyed; k != nil && k.stuck {
		k.offerAll() // it may have been this claim that was in the way
	}
}

// overtakes says whether a claim that is not from what was set aside for to
// would start before that.
func (s *Stage) overtakes(ex *executor, to *Stage) bool {
	if ex.fromHeld {
		return false
	}
	e := s.findEdge(to)
	return e != nil && e.held.Len() > 0
}

// setAsideLocked moves q's first envelopes, as far as they go to the same next
// stage, to those that wait for room there: others may pass.
func (s *Stage) setAsideLocked(q *fifo) {
	c := q.Head()
	to := s.nextFor(&c.Items[c.Rd])
	held := &s.edgeLocked(to).held
	n := 1
	for n < c.Size() && c.Items[c.Rd+n].Slip.route != nil && s.nextFor(&c.Items[c.Rd+n]) == to {
		n++
	}
	if n == c.Size() {
		held.Append(&s.mu.pool, q.TakeHead())
		s.edgeLocked(to).feelLocked()
		return
	}
	held.PushRange(&s.mu.pool, c, c.Rd, c.Rd+n)
	q.Skip(&s.mu.pool, n)
	s.edgeLocked(to).feelLocked()
}

// readyLocked says whether something that e holds may be started.
func (e *edge) readyLocked() bool {
	return e.held.Len() > 0 && e.openLocked()
}

// heldReadyLocked says whether something set aside may be started.
func (s *Stage) heldReadyLocked() bool {
	for _, e := range s.mu.edges {
		if e.readyLocked() {
			return true
		}
	}
	return false
}

// claimHeldLocked makes ex's claim from what was set aside, if there is room.
func (s *Stage) claimHeldLocked(ex *executor, force bool) bool {
	for _, e := range s.mu.edges {
		if e.held.Len() == 0 || (!force && !e.readyLocked()) {
			continue
		}
		head := e.held.Head()
		ex.fromHeld = true
		n := s.allowedLocked(ex, head, min(s.mu.batch, head.Size()), force)
		ex.fromHeld = false
		if n > 0 {
			s.claimHead(ex, &e.held, n)
			e.feelLocked()
			return true
		}
	}
	return false
}

// markBlockedLocked notes, after a claim that found nothing, a next stage for
// whose room something here waits.
func (s *Stage) markBlockedLocked() {
	if len(s.mu.edges) == 0 || s.queuedLocked()+s.heldLocked() == 0 {
		return
	}
	limit := s.mu.cfg.egressCap()
	for _, e := range s.mu.edges {
		if e.parked >= limit { // nothing starts, while others may only want room
			s.blockedOn.Store(e.to)
			return
		}
	}
	for _, e := range s.mu.edges {
		if e.held.Len() > 0 || e.want.Load() {
			s.blockedOn.Store(e.to)
			return
		}
	}
}
