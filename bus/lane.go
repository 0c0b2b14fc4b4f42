package bus

import (
	"context"
	"slices"
	"sync/atomic"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/queue"
)

// lane is a Producer's own way into a stage. A publish fills the next slot of
// the lane's open chunk and makes it visible with one compare-and-swap of the
// chunk's mark; the stage's lock is taken once a chunk.
//
// The mark holds n, the envelopes published, and lim, the end of the places
// that the lane has leased. The stage takes a lease back by lowering lim to n,
// so that a place that nobody uses keeps nobody out.
type lane struct {
	stage *Stage
	par   parent  // leads a publish that takes the long way back to the lane
	c     *chunk  // the open chunk: replaced by the producer, with stage.mu held
	ids   idBlock // the producer's
	acct  account // its credits, in a stage with Credit

	_ [64]byte // above for the producer alone

	ready  atomic.Bool // listed, or about to be
	orphan atomic.Bool // its producer was collected

	// Guarded by stage.mu. The open chunk's Rd is the first unread envelope.
	full   fifo // what came before the open chunk
	next   *lane
	listed bool
	off    bool

	_ [64]byte
}

const (
	maxLanes      = 256 // a stage's further producers publish without one
	laneLimShift  = 8
	laneCountMask = 0xff
)

func laneMark(n, lim int) uint32 { return uint32(lim)<<laneLimShift | uint32(n) }

// laneList is a FIFO of lanes that have something to claim.
type laneList struct {
	head, tail *lane
	n          int
}

func (l *laneList) push(x *lane) {
	x.next, x.listed = nil, true
	if l.tail == nil {
		l.head = x
	} else {
		l.tail.next = x
	}
	l.tail = x
	l.n++
}

// lead moves x, the last, to the front.
func (l *laneList) lead(x *lane) {
	if l.head == x {
		return
	}
	last := l.head
	for last.next != x {
		last = last.next
	}
	last.next, l.tail = nil, last
	x.next, l.head = l.head, x
}

func (l *laneList) pop() *lane {
	x := l.head
	if l.head = x.next; l.head == nil {
		l.tail = nil
	}
	x.next, x.listed = nil, false
	l.n--
	return x
}

// newLane returns a lane into s, or nil where a stage has none: it needs one
// queue, from which nothing is evicted.
func (s *Stage) newLane() *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mu
	s.reapLanesLocked()
	if m.classes != nil || s.laneless.Load() || len(m.lanes) >= maxLanes || m.closed {
		return nil
	}
	l := &lane{stage: s}
	l.acct.stage, l.acct.lane = s, l
	l.par.lane, l.par.acct = l, &l.acct
	m.lanes = append(m.lanes, l)
	return l
}

// put publishes e through the lane.
//
// hot: 0 allocs, no locks, no time unless the stage is slow
func (l *lane) put(ctx context.Context, e *Envelope) error {
	for {
		c := l.c
		var w uint32
		if c != nil {
			w = c.Mark.Load()
		}
		n := w & laneCountMask
		if n >= w>>laneLimShift {
			if leased, err := l.lease(ctx, e); !leased {
				return err
			}
			continue
		}
		slot := &c.Items[n]
		*slot = *e
		l.init(slot)
		if c.Mark.CompareAndSwap(w, w+1) {
			if !l.ready.Load() && !l.ready.Swap(true) {
				l.offer(c, int(n))
			}
			return nil
		}
	}
}

func (l *lane) init(e *Envelope) {
	s := l.stage
	e.par = nil
	e.id = l.ids.id(s.bus)
	e.entered = s.stamp()
	e.flags = timedFlag(e)
	e.attempt, e.failures, e.member, e.disp, e.redrives = 1, 0, 0, dispAck, 0
}

// offer lists the lane, whose first unread envelope is c.Items[i].
func (l *lane) offer(c *chunk, i int) {
	s := l.stage
	s.mu.Lock()
	if s.unwatchedLocked() && c.Rd <= i {
		c.Items[i].entered = s.bus.clock.Tick() // nobody has looked at the clock for a while
	}
	if !l.listed && !l.off {
		s.mu.ready.push(l)
	}
	s.unlockAndStart()
}

// lease opens a chunk or leases places; leased is false where it has published
// e itself, the long way, or was refused by the full policy.
func (l *lane) lease(ctx context.Context, e *Envelope) (leased bool, err error) {
	s := l.stage
	now := s.stamp()
	s.mu.Lock()
	m := &s.mu
	if m.desk != nil {
		return l.leaseCreditLocked(ctx, e, now) // unlocks
	}
	if l.off || s.laneless.Load() || m.draining || m.waiters.n > 0 || m.arrivals.Len() > 0 {
		l.sealLocked()
		return false, s.enterFull(ctx, e, &l.par, now) // unlocks
	}
	got := s.takePlaces(l.lot())
	if got == 0 {
		s.helpLocked()
		if !s.sated() {
			s.borrow(lendLot)
		}
		got = s.takePlaces(l.lot())
	}
	if got == 0 {
		m.minFree = min(m.minFree, 0)
		l.sealLocked()
		return false, s.enterFull(ctx, e, &l.par, now) // unlocks
	}
	l.leaseLocked(got)
	s.unlockAndStart()
	return true, nil
}

// lot is how many places to lease: a chunk's worth, and fewer when the stage
// has few left for all its lanes.
func (l *lane) lot() int {
	s := l.stage
	share := s.free.Load() / int64(2*max(1, len(s.mu.lanes)))
	return int(min(max(1, share), queue.Len))
}

// leaseLocked adds places to the open chunk, opening a new one if it is used
// up.
func (l *lane) leaseLocked(n int) {
	if l.c != nil {
		w := l.c.Mark.Load()
		if count := int(w & laneCountMask); count < queue.Len {
			extra := min(n, queue.Len-int(w>>laneLimShift))
			l.c.Mark.Store(laneMark(count, int(w>>laneLimShift)+extra))
			l.stage.free.Add(int64(n - extra))
			return
		}
		l.sealLocked()
	}
	l.c = l.stage.mu.pool.Get()
	l.c.Mark.Store(laneMark(0, n))
}

// openLocked makes sure that there is an open chunk with space.
func (l *lane) openLocked() {
	if l.c != nil && int(l.c.Mark.Load()&laneCountMask) == queue.Len {
		l.sealLocked()
	}
	if l.c == nil {
		l.c = l.stage.mu.pool.Get()
		l.c.Mark.Store(0)
	}
}

// extendLocked leases up to n places more in the open chunk and returns how
// many it has space for. Only the producer calls it.
func (l *lane) extendLocked(n int) int {
	w := l.c.Mark.Load()
	n = min(n, queue.Len-int(w>>laneLimShift))
	l.c.Mark.Store(laneMark(int(w&laneCountMask), int(w>>laneLimShift)+n))
	return n
}

// sealLocked gives the open chunk to the stage with what is in it. Only the
// producer calls it, or somebody who knows that it is gone.
func (l *lane) sealLocked() {
	if l.c == nil {
		return
	}
	if l.acct.led != nil {
		l.acct.foldLocked()
	} else {
		l.revokeLocked()
	}
	c := l.c
	l.c = nil
	c.N = int(c.Mark.Load() & laneCountMask)
	c.Mark.Store(0)
	l.acct.booked = 0
	s := l.stage
	if c.Size() == 0 {
		s.mu.pool.Put(c)
		return
	}
	s.countLanedLocked(c.Size())
	l.full.Append(&s.mu.pool, c)
	l.listLocked()
}

// revokeLocked takes back the places that the lane has leased and not used.
func (l *lane) revokeLocked() {
	if l.c == nil {
		return
	}
	if l.acct.led != nil {
		l.acct.recallLocked(l.stage.mu.desk.now())
		return
	}
	for {
		w := l.c.Mark.Load()
		n, lim := int(w&laneCountMask), int(w>>laneLimShift)
		if lim <= n {
			return
		}
		if l.c.Mark.CompareAndSwap(w, laneMark(n, n)) {
			l.stage.free.Add(int64(lim - n))
			return
		}
	}
}

// unreadLocked is how many envelopes of the open chunk the stage has not seen.
func (l *lane) unreadLocked() int {
	if l.c == nil {
		return 0
	}
	return int(l.c.Mark.Load()&laneCountMask) - l.c.Rd
}

// gatherLocked moves what is published in the open chunk to the stage's side.
func (l *lane) gatherLocked() {
	unread := l.unreadLocked()
	if unread == 0 {
		return
	}
	c, s := l.c, l.stage
	n := c.Rd + unread
	if l.acct.led != nil && !faults.On(faults.LaneUnbooked) {
		l.acct.bookLocked(n) // before their places can come back
	}
	s.countLanedLocked(n - c.Rd)
	l.full.PushRange(&s.mu.pool, c, c.Rd, n)
	clear(c.Items[c.Rd:n])
	c.Rd = n
}

// countLanedLocked enters n envelopes of a lane into the account.
func (s *Stage) countLanedLocked(n int) {
	s.mu.count.accepted += uint64(n)
	s.mu.count.entered += uint64(n)
	s.mu.laned += n
}

func (l *lane) listLocked() {
	if !l.listed && !l.off {
		l.ready.Store(true)
		l.stage.mu.ready.push(l)
	}
}

// appendLocked enters an envelope that took the long way, and holds a place.
func (l *lane) appendLocked(e *Envelope, now int64) {
	s := l.stage
	l.sealLocked()
	s.countLanedLocked(1)
	slot, _ := l.full.Slot(&s.mu.pool)
	*slot = *e
	s.initLocked(slot, nil, now)
	l.listLocked()
}

// claimLane makes ex's claim from the first lane that has something to start.
func (s *Stage) claimLane(ex *executor, limit int, force bool) bool {
	for s.mu.ready.n > 0 {
		l := s.mu.ready.pop()
		if l.full.Len() == 0 {
			l.gatherLocked()
		}
		before := l.full.Len()
		ok := before > 0 && s.claimFrom(ex, &l.full, limit, force)
		s.mu.laned -= before - l.full.Len()
		l.relistLocked()
		if s.mu.desk != nil && s.slow.Load() && l.listed && l.longLocked() {
			s.mu.ready.lead(l)
		}
		if ok {
			return true
		}
	}
	return false
}

// longLocked says whether twice as much waits in l as in the lanes that have
// something on average. With as many credits for each, a long one would stay
// long, and what is in it would wait for longer than the window is meant to
// allow.
func (l *lane) longLocked() bool {
	s := l.stage
	waits := s.mu.cfg.Capacity - int(s.free.Load()) - s.mu.executed
	return (l.full.Len()+l.unreadLocked())*s.mu.ready.n > 2*waits
}

// relistLocked lists a lane again that has more, else lets the producer list
// it with its next envelope.
func (l *lane) relistLocked() {
	if l.off {
		return
	}
	if l.full.Len() == 0 {
		l.ready.Store(false)
		if l.unreadLocked() == 0 || l.ready.Swap(true) {
			return
		}
	}
	l.listLocked()
}

// gatherLanesLocked makes the books exact: everything published is counted.
func (s *Stage) gatherLanesLocked() {
	for _, l := range s.mu.lanes {
		l.gatherLocked()
		if l.full.Len() > 0 {
			l.listLocked()
		}
	}
}

// revokeLanesLocked takes all unused leases back.
func (s *Stage) revokeLanesLocked() {
	if s.mu.desk != nil {
		s.mu.desk.recallLocked()
	} else {
		for _, l := range s.mu.lanes {
			l.revokeLocked()
		}
	}
	s.tellRoomLocked()
}

// closeLanesLocked moves everything in lanes to the queue and ends their use.
func (s *Stage) closeLanesLocked() {
	s.laneless.Store(true)
	for _, l := range s.mu.lanes {
		l.revokeLocked()
		l.gatherLocked()
		l.spillLocked()
	}
}

// spillLocked moves what the stage has of the lane to the queue's end.
func (l *lane) spillLocked() {
	m := &l.stage.mu
	m.laned -= l.full.Len()
	if m.keyed == nil {
		m.q.AppendAll(&l.full)
		return
	}
	m.keyed.pushAll(&m.pool, &l.full)
}

// spreadLanes moves what lanes have to the slots of an ordered stage, until
// those hold enough for claims of a good size. It moves one lane in any case:
// a lane that is listed counts as something to claim.
func (s *Stage) spreadLanes() {
	k := s.mu.keyed
	for first := true; s.mu.ready.n > 0 && (first || k.n < len(k.slots)*queue.Len/2); first = false {
		l := s.mu.ready.pop()
		l.gatherLocked()
		l.spillLocked()
		l.relistLocked()
	}
}

// close ends the lane when its producer is closed.
func (l *lane) close() {
	s := l.stage
	s.mu.Lock()
	if !l.off {
		l.closeLocked()
		if s.mu.waiters.n > 0 {
			s.feedWaitersLocked()
		}
		s.tellRoomLocked()
	}
	s.unlockAndStart()
}

func (l *lane) closeLocked() {
	s := l.stage
	l.sealLocked()
	l.spillLocked()
	l.off = true
	l.acct.closeLocked()
	if i := slices.Index(s.mu.lanes, l); i >= 0 {
		s.mu.lanes = slices.Delete(s.mu.lanes, i, i+1)
	}
}

// forget notes that the lane's producer was collected. It runs on the
// collector's goroutine and so does no more than that: what was published is
// listed, and the lease is called back when somebody needs it.
func (l *lane) forget() {
	l.orphan.Store(true)
	l.stage.mu.orphans.Store(true)
}

// reapLanesLocked closes the lanes of producers that were collected.
func (s *Stage) reapLanesLocked() {
	if faults.On(faults.CreditOrphanKeeps) || !s.mu.orphans.Load() || !s.mu.orphans.Swap(false) {
		return
	}
	for _, l := range slices.Clone(s.mu.lanes) {
		if l.orphan.Load() {
			l.closeLocked()
		}
	}
	if s.mu.desk != nil {
		s.mu.desk.reapLocked()
	}
}
