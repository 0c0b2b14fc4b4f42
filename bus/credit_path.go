package bus

import (
	"context"
	"time"

	"github.com/sedabus/seda/internal/queue"
	"github.com/sedabus/seda/reason"
)

// A stage with Credit that sends work to several next stages must not fill with
// what waits for the slowest of them. An edge is clogged once its share of the
// window waits for room in the next stage. A publish whose slip leads over a
// clogged edge, however far from its first stage, waits at the door for that
// edge; all others pass. So pressure reaches the first producer, and only those
// who cause it.

// clog is what an edge keeps for those who wait for it; guarded by the lock of
// the stage that it leads from.
type clog struct {
	head, tail *pathWaiter
	coming     int // were let through, and have not entered yet
}

// pathWaiter is a publish that waits for a clogged edge.
type pathWaiter struct {
	ready      chan reason.Reason
	inside     bool
	queued     bool
	next, prev *pathWaiter
}

func (c *clog) push(w *pathWaiter) {
	w.prev, w.next, w.queued = c.tail, nil, true
	if c.tail == nil {
		c.head = w
	} else {
		c.tail.next = w
	}
	c.tail = w
}

func (c *clog) remove(w *pathWaiter) {
	if w.prev == nil {
		c.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		c.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.next, w.prev, w.queued = nil, nil, false
}

// edgeShare is the part of the window that may wait for one next stage before
// publishes that go there have to wait.
const edgeShare = 4

// backlogLocked is how much waits for room in the next stage.
func (e *edge) backlogLocked() int { return max(0, e.parked) + e.held.Len() }

// shareLocked is how much may.
func (e *edge) shareLocked() int { return max(1, e.from.mu.desk.windowNow()/edgeShare) }

// feelLocked marks or unmarks the edge as clogged, and lets those through for
// whom there is a share.
func (e *edge) feelLocked() {
	if e.from.mu.desk == nil {
		if e.clogged.Load() {
			e.letAllLocked(reason.None)
		}
		return
	}
	backlog, share := e.backlogLocked(), e.shareLocked()
	for c := &e.line; c.head != nil && backlog+c.coming < share; {
		w := c.head
		c.remove(w)
		c.coming++
		w.ready <- reason.None
	}
	switch clogged := e.clogged.Load(); {
	case !clogged && backlog >= share && e.from.branchesLocked():
		e.clogged.Store(true)
		e.from.bus.clogs.Add(1)
	case clogged && e.line.head == nil && e.line.coming == 0 && backlog <= share/2:
		e.clogged.Store(false)
		e.from.bus.clogs.Add(-1)
	}
}

// branchesLocked says whether the stage has work that does not go where its other
// work goes: only then has anybody to be kept out of a clogged edge's way.
func (s *Stage) branchesLocked() bool {
	end := &s.mu.count.end
	return s.mu.desk.forks || end[0].completed+end[1].completed > 0
}

// goesTo notes that some of the stage's work goes to a next stage.
func (d *desk) goesTo(to *Stage) {
	switch {
	case d == nil || d.next == to:
	case d.next == nil:
		d.next = to
	default:
		d.forks = true
	}
}

// letAllLocked answers all who wait for the edge, and unmarks it.
func (e *edge) letAllLocked(why reason.Reason) {
	for c := &e.line; c.head != nil; {
		w := c.head
		c.remove(w)
		if why == reason.None {
			c.coming++
		}
		w.ready <- why
	}
	if e.clogged.Swap(false) {
		e.from.bus.clogs.Add(-1)
	}
}

// answerPathsLocked refuses those who wait for an edge from s; with outside only
// those who do not publish from inside a handler.
func (s *Stage) answerPathsLocked(why reason.Reason, outside bool) {
	for _, e := range s.mu.edges {
		for w := e.line.head; w != nil; {
			next := w.next
			if !outside || !w.inside {
				e.line.remove(w)
				w.ready <- why
			}
			w = next
		}
		e.feelLocked()
	}
}

// cloggedAhead returns the first clogged edge on the way of an envelope that is
// published to s, or nil.
func (s *Stage) cloggedAhead(slip Slip) *edge {
	from := s
	for slip.Len() > 0 {
		to := from.sibling(slip.resolve(s.bus))
		if to == nil {
			return nil
		}
		if list := to.upstream.list.Load(); list != nil {
			for _, e := range *list {
				if e.from == from && e.clogged.Load() {
					return e
				}
			}
		}
		from, slip = to, slip.rest()
	}
	return nil
}

// cloggedFor says whether e might have to wait for a clogged edge.
func (b *Bus) cloggedFor(e *Envelope) bool { return e.Slip.route != nil && b.clogs.Load() != 0 }

// awaitPath waits until e may go where its slip leads. The caller ends the
// passage with passed; a nil ctx never waits.
func (s *Stage) awaitPath(ctx context.Context, e *Envelope, asked *asking) (*edge, error) {
	if e.Slip.route == nil || s.bus.clogs.Load() == 0 {
		return nil, nil //nolint:nilnil // nothing is in the way, which is the common case
	}
	s.mu.Lock()
	credits, timeout, closed := s.mu.desk != nil, s.mu.cfg.HopTimeout, s.shutToLocked(ctx)
	s.mu.Unlock()
	if !credits {
		return nil, nil //nolint:nilnil // it has another policy
	}
	if closed {
		return nil, s.refuse(reason.Closed, nil)
	}
	way := s.cloggedAhead(e.Slip)
	if way == nil {
		return nil, nil //nolint:nilnil // not its way
	}
	from := way.from
	w := &pathWaiter{ready: make(chan reason.Reason, 1), inside: ctx != nil && s.bus.isInside(ctx)}
	from.mu.Lock()
	if way.line.head == nil && (!way.clogged.Load() || way.backlogLocked()+way.line.coming < way.shareLocked()) {
		way.line.coming++
		from.unlockAndStart()
		return way, nil
	}
	if ctx == nil || from.mu.closed {
		from.unlockAndStart()
		return nil, s.refuseAt(way, nil)
	}
	way.line.push(w)
	from.unlockAndStart()
	asked.stepAside()
	if !w.inside {
		timeout = 0
	}
	return s.waitForPath(ctx, e, way, w, timeout)
}

func (s *Stage) waitForPath(ctx context.Context, e *Envelope, way *edge, w *pathWaiter, d time.Duration) (*edge, error) {
	stop, timeout := s.waitLimits(e, d)
	defer stop()
	var why reason.Reason
	var cause error
	select {
	case why = <-w.ready:
	case <-ctx.Done():
		why, cause = way.giveUp(w), overBecause(ctx)
	case <-timeout:
		why = way.giveUp(w)
		if why == reason.NoCredit && e.deadline != 0 && s.bus.expired(e.deadline, s.bus.clock.Now()) {
			why = reason.Expired
		}
	}
	if why == reason.None {
		return way, nil
	}
	if why == reason.NoCredit {
		return nil, s.refuseAt(way, cause)
	}
	if why == reason.Closed {
		cause = nil
	}
	return nil, s.refuse(why, cause)
}

// giveUp takes w out of the line; if it was answered meanwhile, that stands.
func (e *edge) giveUp(w *pathWaiter) reason.Reason {
	e.from.mu.Lock()
	queued := w.queued
	if queued {
		e.line.remove(w)
		e.feelLocked()
	}
	e.from.unlockAndStart()
	if !queued {
		return <-w.ready
	}
	return reason.NoCredit
}

// passed ends a passage: the publish has entered, or was refused.
func (e *edge) passed() {
	if e == nil {
		return
	}
	e.from.mu.Lock()
	e.line.coming--
	e.feelLocked()
	e.from.unlockAndStart()
}

// refuseAt is refuse for want of credits of a later stage.
func (s *Stage) refuseAt(way *edge, cause error) error {
	s.refused[reason.NoCredit].Add(1)
	e := s.describe(reason.NoCredit)
	e.At, e.Cause = way.to.name, cause
	return e
}

// ringOf returns the stages of the rings that s is part of, itself included, or
// nil. It follows the edges that have been used so far.
func (s *Stage) ringOf() []*Stage {
	before := map[*Stage]bool{}
	var all []*Stage
	for look := []*Stage{s}; len(look) > 0; {
		at := look[len(look)-1]
		look = look[:len(look)-1]
		if list := at.upstream.list.Load(); list != nil {
			for _, e := range *list {
				if !before[e.from] {
					before[e.from] = true
					look, all = append(look, e.from), append(all, e.from)
				}
			}
		}
	}
	if !before[s] {
		return nil
	}
	after := map[*Stage]bool{s: true} // s leads to it
	ring := []*Stage{s}
	for more := true; more; {
		more = false
		for _, at := range all {
			if !after[at] && at.follows(after) {
				after[at], more = true, true
				ring = append(ring, at)
			}
		}
	}
	return ring
}

// follows says whether an edge leads from one of them to s.
func (s *Stage) follows(them map[*Stage]bool) bool {
	if list := s.upstream.list.Load(); list != nil {
		for _, e := range *list {
			if them[e.from] {
				return true
			}
		}
	}
	return false
}

// reserveForHopsLocked is how many credits of the window publishes leave to
// arriving hops. A ring of stages goes round at full speed only while each has
// room for what its handlers are about to send it; what circulates leaves no
// room by itself, so those who publish into a ring must. It is one claim and one
// place a handler for each of its stages and three quarters of the window at
// least, since all that was published comes by here again and again, but never
// so much that publishes could not keep the handlers of this one at work.
func (s *Stage) reserveForHopsLocked(window int) int {
	c := &s.mu.cfg
	if c.Credit.HopReserve != 0 {
		return max(0, min(c.Credit.HopReserve, window-1))
	}
	d := s.mu.desk
	if made := s.bus.edgesMade.Load(); made != d.edgesMade {
		d.edgesMade, d.ring = made, s.ringOf()
	}
	sum := 0
	for _, at := range d.ring {
		sum += at.info.Load().concurrency
		if at.slow.Load() {
			sum++
		} else {
			sum += queue.Len
		}
	}
	if len(d.ring) > 0 {
		sum = max(sum, window/4*3)
	}
	return max(0, min(sum, window-s.bus.handlersAtMost(c.Concurrency)))
}
