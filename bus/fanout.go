package bus

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/queue"
	"github.com/sedabus/seda/reason"
)

// group follows the copies of up to one chunk of published envelopes. Each
// subscriber has a word with a bit for each envelope whose copy has ended
// there; who sets the last bit of an envelope ends the publish.
type group struct {
	par       parent // what the copies point to
	stage     *Stage
	c         *chunk // the published envelopes
	subs      []*subscription
	done      []doneMask
	ended     atomic.Uint64 // publishes that somebody has taken on to end
	anyFailed atomic.Bool
	refs      atomic.Int32 // copies whose end has not been booked
	mu        struct {
		sync.Mutex
		failed map[uint8][]Result // copies that did not complete, by envelope
	}
}

type doneMask struct {
	bits atomic.Uint64
	_    [56]byte // each is written by its own subscriber's executors
}

var groupPool = sync.Pool{New: func() any { //nolint:gochecknoglobals // groups carry no state between uses
	g := &group{}
	g.par.group = g
	return g
}}

// topicRoomLocked is how many of n envelopes can be copied without parking one
// at a subscriber of fast handlers. 0 says that the topic will be told when
// there is room.
func (s *Stage) topicRoomLocked(n int) int {
	for _, sub := range *s.mu.topic.subs.Load() {
		to := sub.to
		if sub.lag != LagWait || to.slow.Load() {
			continue
		}
		lot := to.lotFor(n)
		free := int(to.free.Load() - to.beyond.Load())
		if free < lot && s.edgeLocked(to).wantRoom(lot) {
			s.mu.topic.held = true
			return 0
		}
		n = min(n, max(free, lot))
	}
	return n
}

// fanOut copies the claimed envelopes to all subscribers. It never waits.
func (ex *executor) fanOut() {
	s := ex.stage
	subs := *s.mu.topic.subs.Load()
	ex.dropExpired()
	c, n := ex.c, ex.c.Size()
	if len(subs) == 0 || n == 0 {
		ex.noSubscribers(n)
		return
	}
	g, _ := groupPool.Get().(*group)
	g.stage, g.subs = s, subs
	g.c = c
	g.ended.Store(0)
	g.refs.Store(int32(n * len(subs)))
	if cap(g.done) < len(subs) {
		g.done = make([]doneMask, len(subs))
	}
	g.done = g.done[:len(subs)]
	for i := range g.done {
		g.done[i].bits.Store(0)
	}
	s.mu.Lock()
	s.mu.topic.out += n
	s.mu.count.delivered += uint64(n)
	ex.detachLocked()
	s.mu.Unlock()
	first, _ := s.bus.chunks.Get().(*chunk)
	plain := g.copyAll(first)
	for i := range len(subs) - 1 {
		next, _ := s.bus.chunks.Get().(*chunk)
		if plain { // copies of copies: nothing in them is a subscriber's own yet
			next.N = copy(next.Items, first.Items[:first.N])
		} else {
			g.copyAll(next)
		}
		g.copyTo(i, next)
	}
	g.copyTo(len(subs)-1, first)
}

// detachLocked gives the claim's chunk away to the group.
func (ex *executor) detachLocked() {
	ex.claim.Store(0)
	if ex.c == ex.solo {
		ex.solo = nil
	}
	ex.c = ex.stage.mu.pool.Get() // an empty one takes its place
}

// noSubscribers ends a claim of a topic that has lost its last subscriber.
func (ex *executor) noSubscribers(n int) {
	s := ex.stage
	for i := range n {
		e := &ex.c.Items[ex.c.Rd+i]
		s.toLetter(e, letterCause{why: reason.NoHandler, stage: s.name, err: ErrNoHandler})
	}
	ex.claim.Store(0)
}

// dropExpired takes envelopes whose deadline has passed out of the claim.
func (ex *executor) dropExpired() {
	s, c := ex.stage, ex.c
	now := s.bus.clock.Coarse()
	kept := c.Rd
	for i := c.Rd; i < c.N; i++ {
		e := &c.Items[i]
		if e.deadline != 0 && s.bus.expired(e.deadline, now) {
			s.mu.Lock()
			s.endLocked(e, Dropped, reason.Expired)
			s.mu.Unlock()
			s.dropped(e, reason.Expired)
			continue
		}
		if kept != i {
			c.Items[kept] = *e
		}
		kept++
	}
	clear(c.Items[kept:c.N])
	c.N = kept
}

// copyTo enters the copies in c at subscriber i.
func (g *group) copyTo(i int, c *chunk) {
	b := g.stage.bus
	c = g.subs[i].to.arriveCopies(g, i, c)
	c.Reset()
	b.chunks.Put(c)
}

// copyAll fills c with copies; plain says that they hold nothing that each
// subscriber must have of its own.
func (g *group) copyAll(c *chunk) (plain bool) {
	plain = true
	for k := range g.c.Size() {
		if !g.copyOne(&c.Items[k], k) {
			plain = false
		}
	}
	c.N = g.c.Size()
	return plain
}

func (g *group) copyOne(dst *Envelope, k int) (plain bool) {
	plain = true
	*dst = g.c.Items[g.c.Rd+k]
	dst.par, dst.OnDone, dst.Slip = &g.par, nil, Slip{}
	dst.flags = flagCopy | dst.flags&flagTimed
	dst.member = uint8(k)
	dst.attempt, dst.failures, dst.disp = 1, 0, dispAck
	if len(dst.Headers) > 0 && !faults.On(faults.HeadersShared) {
		dst.Headers = slices.Clone(dst.Headers)
		plain = false
	}
	if p, ok := dst.Payload.(Cloner); ok {
		plain = false
		g.stage.bus.contain("clone", g.stage.name, dst.id, func() { dst.Payload = p.ClonePayload() })
	}
	return plain
}

// arriveCopies enters c's copies, or does with them what the subscription's
// lag policy says. It returns a chunk to reuse.
func (s *Stage) arriveCopies(g *group, sub int, c *chunk) *chunk {
	if !s.takesAll() {
		return s.arriveCopiesSlow(g, sub, c)
	}
	s.mu.Lock()
	m := &s.mu
	n := c.N
	now := s.stamp()
	if s.unwatchedLocked() {
		now = s.bus.clock.Tick()
	}
	for i := range n {
		c.Items[i].id = m.ids.id(s.bus)
		c.Items[i].entered = now
	}
	if m.closed {
		s.mu.Unlock()
		s.abandonCopies(c, 0)
		return c
	}
	if m.keyed == nil && m.classes == nil && m.arrivals.Len() == 0 {
		got := s.takeForCopies(n)
		if got == n {
			m.count.entered += uint64(n)
			m.count.copies += uint64(n)
			c = m.q.PushChunk(&m.pool, c)
			s.unlockAndStart()
			return c
		}
		s.free.Add(int64(got))
	}
	return s.enterCopies(g, sub, c)
}

// enterCopies enters the copies one by one, as far as there is room, and does
// with the others what the lag policy says. It unlocks s.mu.
func (s *Stage) enterCopies(g *group, sub int, c *chunk) *chunk {
	m := &s.mu
	// Once the lock is gone the copies may end, and with the last one the group.
	from, subscription := g.stage, g.subs[sub]
	lag := subscription.lag
	parked, i := 0, 0
	for ; i < c.N; i++ {
		e := &c.Items[i]
		if m.arrivals.Len() == 0 && s.takeForCopies(1) == 1 {
			m.count.entered++
			m.count.copies++
			s.enqueueLocked(e)
			continue
		}
		if lag != LagWait {
			break
		}
		slot, _ := m.arrivals.Slot(&m.arrPool)
		*slot = arrival{env: *e, from: from, until: forever}
		parked++
	}
	var lost []Envelope
	for ; i < c.N; i++ {
		m.count.entered++
		m.count.copies++
		s.endLocked(&c.Items[i], Dropped, reason.Lag)
		lost = append(lost, c.Items[i])
	}
	s.unlockAndStart()
	if parked > 0 {
		from.addLagging(parked)
	}
	if len(lost) > 0 && lag == LagDetach {
		from.detach(subscription)
	}
	for k := range lost {
		s.dropped(&lost[k], reason.Lag)
	}
	return c
}

// arriveCopiesSlow is for a subscriber that may refuse copies.
func (s *Stage) arriveCopiesSlow(g *group, sub int, c *chunk) *chunk {
	one, _ := s.bus.chunks.Get().(*chunk)
	for i := range c.N {
		e := &c.Items[i]
		if why := s.refusesHop(e); why != reason.None {
			s.mu.Lock()
			e.id = s.mu.ids.id(s.bus)
			e.entered = s.bus.clock.Coarse()
			s.mu.count.entered++
			s.mu.count.copies++
			s.mu.Unlock()
			s.toLetter(e, letterCause{why: why, stage: s.name, err: sentinelOf(why)})
			continue
		}
		one.Items[0], one.N = *e, 1
		s.mu.Lock()
		one.Items[0].id = s.mu.ids.id(s.bus)
		one.Items[0].entered = s.bus.clock.Coarse()
		one = s.enterCopies(g, sub, one)
		one.Reset()
	}
	s.bus.chunks.Put(one)
	return c
}

// abandonCopies ends copies that come when the subscriber is closed.
func (s *Stage) abandonCopies(c *chunk, from int) {
	for i := from; i < c.N; i++ {
		e := &c.Items[i]
		s.mu.Lock()
		s.mu.count.entered++
		s.mu.count.copies++
		s.endLocked(e, Abandoned, reason.Shutdown)
		s.mu.Unlock()
		s.bus.finish(e, Result{End: Abandoned, Reason: reason.Shutdown, Stage: s.name})
	}
}

// addLagging lets parked copies hold places of the topic.
func (s *Stage) addLagging(n int) {
	s.mu.Lock()
	t := s.mu.topic
	before := max(0, t.lagging)
	t.lagging += n
	s.free.Add(-int64(max(0, t.lagging) - before))
	s.unlockAndStart()
}

// detach ends the subscription of a subscriber that lagged behind.
func (s *Stage) detach(sub *subscription) {
	var gone bool
	if w := s.whole; w != nil {
		gone = w.removeSubscription(func(o *subscription) bool { return o.to == sub.to.whole })
	} else {
		gone = s.removeSubscription(func(o *subscription) bool { return o == sub })
	}
	if !gone {
		return
	}
	s.mu.Lock()
	s.mu.count.detached++
	s.mu.Unlock()
	s.bus.fireState(StateInfo{Stage: sub.to.name, State: "detached", By: s.name, Why: "its queue was full"})
}

// groupRun collects consecutive completed copies of one group.
type groupRun struct {
	g    *group
	s    *Stage
	bits uint64
}

func (r *groupRun) add(s *Stage, e *Envelope) {
	if r.g != e.par.group {
		r.flush()
		r.g, r.s = e.par.group, s
	}
	r.bits |= 1 << e.member
}

func (r *groupRun) flush() {
	if r.g != nil {
		r.g.end(r.s, r.bits)
	}
	*r = groupRun{}
}

// failed ends one copy that did not complete.
func (g *group) failed(s *Stage, e *Envelope, r *Result) {
	if r.End != Completed && !faults.On(faults.CopyFailureLost) {
		g.mu.Lock()
		if g.mu.failed == nil {
			g.mu.failed = map[uint8][]Result{}
		}
		g.mu.failed[e.member] = append(g.mu.failed[e.member], *r)
		g.anyFailed.Store(true)
		g.mu.Unlock()
	}
	g.end(s, 1<<e.member)
}

// end marks the copies in mask as ended at s, and ends the publishes of which
// they were the last.
func (g *group) end(s *Stage, mask uint64) {
	g.mark(s, mask)
	// The last one to get here is the last one that knows g.
	if g.refs.Add(-int32(bits.OnesCount64(mask))) == 0 {
		g.recycle()
	}
}

func (g *group) mark(s *Stage, mask uint64) {
	all := ^uint64(0)
	for i := range g.done {
		if g.subs[i].to == s {
			g.done[i].bits.Or(mask)
		}
	}
	for i := range g.done {
		all &= g.done[i].bits.Load()
	}
	for {
		old := g.ended.Load()
		mine := all &^ old
		if mine == 0 {
			return
		}
		if g.ended.CompareAndSwap(old, old|mine) {
			g.finish(mine)
			return
		}
	}
}

// finish ends the publishes in mask.
func (g *group) finish(mask uint64) {
	s := g.stage
	n := bits.OnesCount64(mask)
	var t tally
	var out *chunk // those that need more than to be counted
	for rest := mask; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		e := &g.c.Items[g.c.Rd+i]
		if failed := g.failures(i); failed != nil {
			g.endFailed(e, failed)
			continue
		}
		if e.OnDone == nil && e.par == nil && e.Slip.route == nil && s.bus.cfg.Journal == nil {
			t.completed[0]++
			continue
		}
		if out == nil {
			out, _ = s.bus.chunks.Get().(*chunk)
		}
		out.Items[out.N] = *e
		out.N++
	}
	if out != nil {
		s.settleChunk(out, 0, out.N, &reservations{}, &t)
		out.Reset()
		s.bus.chunks.Put(out)
	}
	s.mu.Lock()
	s.mu.topic.out -= n
	s.mu.count.hopped += t.hopped
	s.mu.count.end[0].completed += t.completed[0]
	s.mu.count.end[1].completed += t.completed[1]
	s.unlockAndStart()
	s.bus.settled()
}

// failures returns how the copies of envelope i ended, if any did not complete.
func (g *group) failures(i int) []Result {
	if !g.anyFailed.Load() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.failed[uint8(i)]
}

func (g *group) recycle() {
	if g.c.Reset(); len(g.c.Items) == queue.Len {
		g.stage.bus.chunks.Put(g.c)
	}
	g.c, g.stage, g.subs = nil, nil, nil
	g.mu.failed = nil
	g.anyFailed.Store(false)
	groupPool.Put(g)
}

// endFailed ends a publish of which copies failed: dead-lettered if one was,
// else abandoned or dropped.
func (g *group) endFailed(e *Envelope, failed []Result) {
	s := g.stage
	worst := failed[0]
	for _, r := range failed[1:] {
		if r.End == DeadLettered && worst.End != DeadLettered {
			worst = r
		}
	}
	s.mu.Lock()
	s.endLocked(e, worst.End, worst.Reason)
	s.mu.Unlock()
	if s.bus.cfg.Journal != nil {
		s.journalEnd(e, worst.End, worst.Reason)
	}
	s.bus.finish(e, Result{End: worst.End, Reason: worst.Reason, Stage: s.name, Err: worst.Err, Copies: g.copyEnds(failed)})
}

// copyEnds lists the ends of all copies in the order of the subscriptions; of
// those that completed nothing but the stage is known.
func (g *group) copyEnds(failed []Result) []Result {
	list := make([]Result, 0, len(g.subs))
	for _, sub := range g.subs {
		r := Result{End: Completed, Stage: sub.to.name}
		for i := range failed {
			if failed[i].Stage == r.Stage {
				r = failed[i]
			}
		}
		list = append(list, r)
	}
	return list
}

// letterCopyHop dead-letters a copy whose handler pushed hops.
func (s *Stage) letterCopyHop(e *Envelope) {
	to := e.Slip.next()
	e.Slip = Slip{}
	s.toLetter(e, letterCause{
		why: reason.Invalid, stage: s.name, from: s.name,
		err: &HopError{From: s.name, To: to, Reason: reason.Invalid},
	})
}
