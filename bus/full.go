package bus

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sedabus/seda/internal/clock"
	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/reason"
)

// waiter is a publisher that waits for room. Its envelope is put into the
// queue by whoever makes room, so that first come is first served and a
// publisher that gives up leaves nothing behind.
type waiter struct {
	env        Envelope
	par        *parent
	reserve    bool     // wants the place only: the journal is asked next
	want       int      // credits to be held in hand, for Producer.Acquire; else 0
	acct       *account // in a stage with Credit: whose turn it waits for
	turn       turnLink // in its line
	since      int64    // bus clock, when it began to wait
	inside     bool     // publishes from inside a handler: the end of admission does not concern it
	ready      chan reason.Reason
	next, prev *waiter
	queued     bool
}

// newWaiters returns a pool of waiters. Each bus has its own: a channel that
// was made in a synctest bubble cannot be used in another one.
func newWaiters() *sync.Pool {
	return &sync.Pool{New: func() any { return &waiter{ready: make(chan reason.Reason, 1)} }}
}

// waitList is a FIFO of waiters, guarded by Stage.mu.
type waitList struct {
	head, tail *waiter
	n          int
}

func (l *waitList) push(w *waiter) {
	w.prev, w.next, w.queued = l.tail, nil, true
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
	l.n++
}

func (l *waitList) remove(w *waiter) {
	if w.prev == nil {
		l.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.next, w.prev, w.queued = nil, nil, false
	l.n--
}

// enterFull is what a publish does that found no room. It unlocks s.mu.
func (s *Stage) enterFull(ctx context.Context, e *Envelope, par *parent, now int64) error {
	if s.shutToLocked(ctx) {
		s.unlockAndStart()
		return s.refuse(reason.Closed, nil)
	}
	s.helpLocked() // leases and claims may hold places that nobody uses
	if s.whole != nil && !s.searchLocked(ctx) {
		s.unlockAndStart()
		return s.refuse(reason.Closed, nil)
	}
	if s.takeOneLocked(e, par) {
		s.admitLocked(e, par, now)
		s.unlockAndStart()
		return nil
	}
	switch s.mu.cfg.Full {
	case DropOldest:
		var victim Envelope
		if !faults.On(faults.NoEviction) && !s.evictLocked(&victim) {
			s.unlockAndStart()
			return s.enterByEviction(ctx, e, par, now)
		}
		s.admitLocked(e, par, now)
		s.unlockAndStart()
		s.dropped(&victim, reason.Evicted)
		return nil
	case DropNewest:
		s.unlockAndStart()
		if faults.On(faults.NewestAccepted) {
			return nil
		}
		return s.refuse(reason.Newest, nil)
	case Block, Credit:
		if ctx != nil && !faults.On(faults.BlockRefuses) {
			return s.wait(ctx, e, par, false)
		}
	case Reject:
	}
	why := s.fullLocked()
	s.unlockAndStart()
	return s.refuse(why, nil)
}

// fullLocked is the reason for which a publish that finds no room is refused.
func (s *Stage) fullLocked() reason.Reason {
	if s.mu.desk != nil {
		return reason.NoCredit
	}
	return reason.Full
}

// shutToLocked says whether a publish with ctx comes too late.
func (s *Stage) shutToLocked(ctx context.Context) bool {
	return s.mu.closed || (s.mu.draining && (ctx == nil || !s.bus.isInside(ctx)))
}

// evictLocked takes the oldest envelope that was never started; its token
// stays taken for the newcomer.
func (s *Stage) evictLocked(victim *Envelope) bool {
	if s.mu.arrivals.Len() > 0 || s.mu.waiters.n > 0 {
		return false // others come first
	}
	switch {
	case faults.On(faults.EvictsRetries) && s.mu.due.Len() > 0:
		s.mu.due.Pop(&s.mu.pool, victim)
	case s.mu.keyed != nil:
		if !s.mu.keyed.evict(&s.mu.pool, victim) {
			return false
		}
	case s.mu.classes != nil && s.mu.classes.evict(&s.mu.pool, victim):
	case s.evictHeldLocked(victim):
	case s.mu.back.Len() > 0:
		s.mu.back.Pop(&s.mu.pool, victim)
	case s.mu.q.Len() > 0:
		s.mu.q.Pop(&s.mu.pool, victim)
	default:
		return false
	}
	s.endLocked(victim, Dropped, reason.Evicted)
	return true
}

// evictHeldLocked takes the oldest of those set aside for want of room in
// their next stage: they were ahead of all in the queue.
func (s *Stage) evictHeldLocked(victim *Envelope) bool {
	var from *fifo
	for _, e := range s.mu.edges {
		if first := e.held.Front(); first != nil && (from == nil || first.entered < from.Front().entered) {
			from = &e.held
		}
	}
	if from == nil {
		return false
	}
	from.Pop(&s.mu.pool, victim)
	return true
}

// wait blocks until e was entered or will not be. It unlocks s.mu.
func (s *Stage) wait(ctx context.Context, e *Envelope, par *parent, reserve bool) error {
	if s.mu.closed || s.mu.waiters.n >= s.mu.cfg.MaxWaiters {
		why := s.fullLocked()
		if s.mu.closed {
			why = reason.Closed
		}
		s.unlockAndStart()
		return s.refuse(why, nil)
	}
	w, _ := s.bus.waiters.Get().(*waiter)
	w.env, w.par, w.reserve, w.inside, w.want = *e, par, reserve, s.bus.isInside(ctx), 0
	s.lineUpLocked(w)
	return s.waitInLine(ctx, w)
}

// waitInLine waits until w, which is in line, is served or gives up. It unlocks
// s.mu.
func (s *Stage) waitInLine(ctx context.Context, w *waiter) error {
	limit := s.mu.cfg.HopTimeout
	s.unlockAndStart()

	if !w.inside || faults.On(faults.InsideWaits) {
		limit = 0
	}
	stop, timeout := s.waitLimits(&w.env, limit)
	why, cause := s.await(ctx, w, timeout)
	stop()
	w.env, w.par, w.acct = Envelope{}, nil, nil
	s.bus.waiters.Put(w)
	if why == reason.None {
		return nil
	}
	if why == reason.Closed {
		cause = nil
	}
	return s.refuse(why, cause)
}

// await waits until w is served, or gives up.
func (s *Stage) await(ctx context.Context, w *waiter, timeout <-chan time.Time) (why reason.Reason, cause error) {
	done := ctx.Done()
	if done == nil && timeout == nil {
		return <-w.ready, nil // much cheaper than a select
	}
	deadline := w.env.deadline // the envelope may be gone by then
	select {
	case why = <-w.ready:
	case <-done:
		why, cause = s.giveUp(w), overBecause(ctx)
	case <-timeout:
		why = s.giveUp(w)
		if deadline != 0 && (why == reason.Full || why == reason.NoCredit) && s.bus.expired(deadline, s.bus.clock.Now()) {
			why = reason.Expired
		}
	}
	return why, cause
}

// waitLimits returns the channel that ends a wait beside the context: at the
// envelope's deadline, and after d, the hop timeout for a publish from inside,
// unless that is 0.
func (s *Stage) waitLimits(e *Envelope, d time.Duration) (stop func(), timeout <-chan time.Time) {
	if e.deadline != 0 {
		left := time.Duration(max(1, e.deadline-s.bus.epoch-s.bus.clock.Now()))
		if d == 0 || left < d {
			d = left
		}
	}
	if d == 0 {
		return nothing, nil
	}
	t := clock.NewTimer(d)
	return func() { t.Stop() }, t.C
}

// giveUp takes w off the list; if it was served meanwhile, that stands.
func (s *Stage) giveUp(w *waiter) reason.Reason {
	s.mu.Lock()
	queued, why := w.queued, s.fullLocked()
	if queued {
		s.leaveLineLocked(w)
		if faults.On(faults.CreditCancelKeeps) && s.mu.desk != nil {
			s.free.Add(-1)
		}
		if faults.On(faults.LateWaiter) {
			s.admitLocked(&w.env, w.par, s.bus.clock.Coarse())
		}
	}
	s.unlockAndStart()
	if !queued {
		return <-w.ready
	}
	return why
}

// feedWaitersLocked serves waiters while there is room.
func (s *Stage) feedWaitersLocked() {
	if s.mu.desk != nil {
		s.serveLocked()
		return
	}
	for s.mu.waiters.n > 0 && s.mu.arrivals.Len() == 0 && s.free.Add(-1) >= 0 {
		w := s.mu.waiters.head
		if faults.On(faults.LastComeFirst) {
			w = s.mu.waiters.tail
		}
		s.mu.waiters.remove(w)
		if w.reserve {
			s.mu.journaled++
		} else {
			s.admitLocked(&w.env, w.par, s.stamp())
		}
		w.ready <- reason.None
	}
	// Every way out but an empty list has taken one place too many.
	if s.mu.waiters.n > 0 && s.mu.arrivals.Len() == 0 {
		s.free.Add(1)
	}
}

// answerWaitersLocked refuses everyone who waits.
func (s *Stage) answerWaitersLocked(why reason.Reason) {
	for s.mu.waiters.n > 0 && !faults.On(faults.WaitersForgotten) {
		w := s.mu.waiters.head
		s.leaveLineLocked(w)
		w.ready <- why
	}
}

// answerOutsideLocked refuses those who wait, but for publishers inside
// handlers: work under way finishes.
func (s *Stage) answerOutsideLocked(why reason.Reason) {
	if faults.On(faults.WaitersForgotten) {
		return
	}
	for w := s.mu.waiters.head; w != nil; {
		next := w.next
		if !w.inside {
			s.leaveLineLocked(w)
			w.ready <- why
		}
		w = next
	}
}

// releaseLocked gives n places back: to the hop above capacity, to arriving
// hops, to waiting publishers, or to all.
func (s *Stage) releaseLocked(n int) {
	if n <= 0 {
		return
	}
	if s.whole != nil && s.whole.owed.Load() > 0 {
		if n -= s.payLocked(n); n == 0 {
			return
		}
	}
	if s.mu.excess > 0 {
		paid := min(n, s.mu.excess)
		s.mu.excess -= paid
		s.free.Add(int64(paid))
		n -= paid
		if s.mu.excess > 0 {
			return // else a hop may have the place above capacity now
		}
	}
	if n > 0 && s.mu.escape {
		s.mu.escape = false
		n--
	}
	s.free.Add(int64(n))
	s.feedArrivalsLocked()
	if s.mu.waiters.n > 0 && s.worthWakingLocked() {
		s.feedWaitersLocked()
	}
	s.tellRoomLocked()
}

// releaseAsideLocked is releaseLocked for places that no executor gives back:
// none may come by soon to serve those who wait.
func (s *Stage) releaseAsideLocked(n int) {
	s.releaseLocked(n)
	if s.mu.waiters.n > 0 {
		s.feedWaitersLocked()
	}
}

// releaseBesideLocked is releaseAsideLocked for places of what did not wait in
// the queue itself: delayed or parked envelopes, or new capacity. Where hops
// stop at the shedder's bound these are not for them, nor for the hop above it.
func (s *Stage) releaseBesideLocked(n int) {
	if s.shed != nil && n > 0 {
		s.boundHopsLocked() // it has risen with the room
		if s.mu.excess == 0 && s.slack.Load() > 0 {
			s.free.Add(int64(n))
			n = 0
			s.feedArrivalsLocked()
			s.tellRoomLocked()
		}
	}
	s.releaseAsideLocked(n)
}

// worthWakingLocked says whether there is room enough to wake publishers. A wake
// costs more than many envelopes, so they are woken when half of the queue is
// free, in a stage of slow handlers as soon as what these handle in wakeWithin
// is.
func (s *Stage) worthWakingLocked() bool {
	m := &s.mu
	if m.active == 0 {
		return true
	}
	lot := min((m.cfg.Capacity-int(m.shut))/2, 256)
	if s.slow.Load() {
		lot = min(lot, m.executed*int(wakeWithin/time.Microsecond)/int(max(1, m.per/time.Microsecond)))
	}
	return s.free.Load()-m.shut >= int64(lot)
}

// wakeWithin is how long a free place may wait for others in a stage of slow
// handlers, before those who want it are woken.
const wakeWithin = 500 * time.Microsecond

// snapshot is the shared refusal error of one reason.
type snapshot struct {
	err atomic.Pointer[RejectedError]
	at  atomic.Int64
	n   atomic.Uint32
}

const (
	shedSnapshots = 4
	snapshotAge   = 10e6 // nanoseconds
	snapshotCheck = 64   // refusals between two looks at the clock
)

// refuse counts a refusal and returns its error. Without a cause it does not
// allocate, but for a new snapshot every 10 ms.
func (s *Stage) refuse(why reason.Reason, cause error) error {
	s.refused[why].Add(1)
	if faults.Enabled && faults.On(faults.RefusalUncounted) { // Enabled keeps it within what is inlined
		s.refused[why].Store(0)
	}
	return s.refusal(why, cause)
}

// refusal returns the error without counting.
func (s *Stage) refusal(why reason.Reason, cause error) error {
	if cause != nil {
		e := s.describe(why)
		e.Cause = cause
		return e
	}
	return s.snapshotOf(why)
}

// snapshotOf returns the shared error of a reason.
func (s *Stage) snapshotOf(why reason.Reason) error {
	snap := &s.snapshots[why]
	now := s.bus.clock.Coarse()
	if snap.n.Add(1)%snapshotCheck == 0 {
		now = s.bus.clock.Tick() // nobody else may be looking at it
	}
	if e := snap.err.Load(); e != nil && now-snap.at.Load() < snapshotAge {
		return e
	}
	e := s.describe(why)
	snap.at.Store(now)
	snap.err.Store(e)
	return e
}

// describe builds a refusal without taking the stage's lock, which the caller
// may hold.
func (s *Stage) describe(why reason.Reason) *RejectedError {
	info, free := s.info.Load(), s.free.Load()
	if s.whole != nil {
		info, free = s.whole.info.Load(), 0
		for _, p := range s.whole.parts {
			free += max(0, p.free.Load())
		}
	}
	e := &RejectedError{Stage: s.name, Reason: why, Policy: info.full, Capacity: info.capacity}
	e.Depth = max(0, info.capacity-int(free))
	if why == reason.NoCredit {
		e.At, e.Value = s.name, float64(e.Depth)
		e.Limit = float64(int64(info.capacity) - s.beyond.Load())
	}
	return e
}
