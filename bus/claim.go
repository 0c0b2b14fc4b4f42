package bus

import (
	"cmp"
	"runtime"
	"slices"
	"time"
	"unsafe"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/prefetch"
	"github.com/sedabus/seda/internal/queue"
)

// The claim word of an executor says how far it is in its chunk:
//
//	bits 0-7    lim      the end of the claim
//	bits 8-15   cur      the next envelope to start; cur-1 is in the handler
//	bits 16-23  settled  everything before it is settled
//	bit  24     lost     the envelope in the handler was abandoned
//	bit  25     pin      held by another goroutine for a moment
//	bit  26     job      another goroutine settles what was finished before
//
// The executor moves cur and settled by compare-and-swap, without a lock. Who
// wants to take unstarted envelopes back, settle finished ones, or look at the
// one in the handler, holds the stage's lock and sets pin: then the executor
// cannot start or settle anything.
const (
	claimCurShift     = 8
	claimSettledShift = 16
	claimMask         = 0xff
	claimLost         = 1 << 24
	claimPin          = 1 << 25
	claimJob          = 1 << 26
)

func claimLim(w uint32) int     { return int(w & claimMask) }
func claimCur(w uint32) int     { return int(w >> claimCurShift & claimMask) }
func claimSettled(w uint32) int { return int(w >> claimSettledShift & claimMask) }

func claimOf(settled, cur, lim int) uint32 {
	return uint32(settled)<<claimSettledShift | uint32(cur)<<claimCurShift | uint32(lim)
}

const (
	// slowHandler is the service time from which envelopes are claimed one by
	// one: the hand-over is then below one per cent of it.
	slowHandler = 20 * time.Microsecond
	// watchAfter is after what time a claim of several is looked at.
	watchAfter = time.Millisecond
)

// begin starts the next envelope of the claim, or returns nil at its end.
//
// hot: 0 allocs, no locks, no time
func (ex *executor) begin() *Envelope {
	if ex.redo {
		ex.redo = false
		return ex.current()
	}
	for {
		w := ex.claim.Load()
		cur := claimCur(w)
		if w&claimLost != 0 || cur >= claimLim(w) {
			if w&claimPin == 0 {
				return nil
			}
		} else if w&claimPin == 0 {
			if ex.claim.CompareAndSwap(w, w+1<<claimCurShift) {
				if prefetch.Enabled && cur+1 < claimLim(w) {
					ex.c.Items[cur+1].fetchPayload()
				}
				return &ex.c.Items[cur]
			}
			continue
		}
		runtime.Gosched()
	}
}

// fetchPayload lets the processor fetch what the payload points to while the
// envelope before is handled: it was mostly written on another one. e may be
// taken back meanwhile; whatever is read here is only a hint.
func (e *Envelope) fetchPayload() {
	prefetch.Read((*[2]uintptr)(unsafe.Pointer(&e.Payload))[1]) //nolint:gosec // the data word of an interface
}

// settle settles what the executor has finished. It runs without the lock.
func (ex *executor) settle() {
	for {
		w := ex.claim.Load()
		if w&claimPin != 0 {
			runtime.Gosched()
			continue
		}
		if w&claimJob != 0 { // it comes first
			<-ex.jobDone
			ex.claim.CompareAndSwap(w, w&^claimJob)
			continue
		}
		a, b := claimSettled(w), claimCur(w)
		if (w&claimLost != 0 && !faults.On(faults.LateHops)) || a == b {
			break
		}
		if ex.claim.CompareAndSwap(w, claimOf(b, b, claimLim(w))) {
			ex.settleRange(a, b)
			break
		}
	}
	ex.resv.giveBack()
}

// pinLocked stops ex for a moment; ok is false when it has nothing in hand.
// The stage's lock is held, so nobody else pins.
func (ex *executor) pinLocked() (w uint32, ok bool) {
	for {
		w = ex.claim.Load()
		if w&claimLost != 0 || claimSettled(w) == claimLim(w) {
			return w, false
		}
		if ex.claim.CompareAndSwap(w, w|claimPin) {
			return w, true
		}
	}
}

// finishLocked hands in what ex has done with its claim.
func (s *Stage) finishLocked(ex *executor, now int64) {
	m := &s.mu
	m.count.hopped += ex.tally.hopped
	m.count.delivered += ex.tally.delivered
	m.count.end[0].completed += ex.tally.completed[0]
	m.count.end[1].completed += ex.tally.completed[1]
	if s.shed != nil && ex.working && ex.tally.delivered > 0 && !faults.On(faults.EndsUntold) {
		ex.feedLocked(now)
	}
	if m.desk != nil && ex.working && ex.tally.delivered > 0 {
		s.sizeWindowLocked(ex, now)
	}
	ex.tally = tally{}
	if !ex.working {
		return
	}
	ex.working = false
	if ex.heldUp {
		ex.heldUp = false
		m.heldUp--
	}
	ex.leaveWayLocked()
	w := ex.claim.Load()
	if w&claimLost != 0 {
		m.count.late++
	}
	m.executed--
	if ex.slot != nil {
		m.keyed.finish(ex)
	}
	if !ex.single {
		m.claimed -= ex.size - ex.counted
	}
	s.recordLocked(ex, now)
	left := ex.size - ex.released
	ex.size, ex.released, ex.counted = 0, 0, 0
	s.putChunkLocked(ex.c)
	ex.c = nil
	ex.claim.Store(0)
	s.releaseLocked(left)
}

// recordLocked takes the claim's times and chooses the size of the next one.
func (s *Stage) recordLocked(ex *executor, now int64) {
	n := ex.size
	if n <= 0 || ex.timed {
		return
	}
	took := now - ex.start
	s.mu.svc.Add(took/int64(n), uint64(n))
	s.adaptLocked(time.Duration(took/int64(n)), n)
}

// adaptLocked chooses the claim size from the service time of n envelopes.
func (s *Stage) adaptLocked(per time.Duration, n int) {
	m := &s.mu
	m.per = per
	switch {
	case m.cfg.Batch > 0:
		m.batch = m.cfg.Batch
		if per >= slowHandler {
			s.becomeSlowLocked()
		} else {
			s.becomeFastLocked()
		}
	case per >= slowHandler:
		m.batch = 1
		s.becomeSlowLocked()
	case n >= m.batch:
		s.becomeFastLocked()
		m.batch = min(queue.Len, 2*m.batch)
	}
}

// becomeSlowLocked takes the stage's handlers for slow from now on: nobody
// waits for a lot of places any more.
func (s *Stage) becomeSlowLocked() {
	if !s.slow.Load() && !s.slow.Swap(true) { // publishers read its line
		s.tellUpstreamLocked()
	}
}

// becomeFastLocked ends that. Claims of one were not watched until now.
func (s *Stage) becomeFastLocked() {
	if !s.slow.Load() {
		return // publishers read its line
	}
	s.slow.Store(false)
	if s.mu.executed > 0 {
		s.bus.watch()
	}
}

// claimLocked makes ex's next claim. With force it takes one envelope although
// its next stage has no room.
func (s *Stage) claimLocked(ex *executor, now int64, force bool) bool {
	m := &s.mu
	if !s.runnableLocked() {
		return false
	}
	ex.handler, ex.timeout = m.handler, m.cfg.HandlerTimeout
	ex.timed = m.cfg.ExactTiming || m.cfg.HandlerTimeout > 0
	switch {
	case m.due.Len() > 0:
		m.due.Pop(&m.pool, ex.soloSlot())
		s.rememberKey(ex)
	case len(s.mu.edges) > 0 && s.claimHeldLocked(ex, force):
	case m.keyed != nil:
		if !m.keyed.claim(s, ex, force) {
			return false
		}
	case m.classes != nil:
		if !m.classes.claim(s, ex, force) {
			return false
		}
	default:
		if !s.claimPlain(ex, force) {
			return false
		}
	}
	s.startClaimLocked(ex, now)
	return true
}

// claimPlain takes turns between the queue and the lanes.
func (s *Stage) claimPlain(ex *executor, force bool) bool {
	m := &s.mu
	limit := s.shareLocked()
	if m.topic != nil && !force {
		if limit = s.topicRoomLocked(limit); limit == 0 {
			return false
		}
	}
	if m.back.Len() > 0 && s.claimFrom(ex, &m.back, limit, force) {
		return true
	}
	m.laneTurn = !m.laneTurn
	if m.laneTurn && m.ready.n > 0 && s.claimLane(ex, limit, force) {
		return true
	}
	return s.claimFrom(ex, &m.q, limit, force) || s.claimLane(ex, limit, force)
}

// shareLocked is how many envelopes a claim may take: not more than a fair
// share of what waits.
func (s *Stage) shareLocked() int {
	m := &s.mu
	if m.batch <= 1 || m.cfg.Concurrency <= 1 {
		return m.batch
	}
	if m.ready.n > 1 {
		return m.batch // each executor has a lane of its own to claim from
	}
	return max(1, min(m.batch, s.queuedLocked()/min(m.cfg.Concurrency, m.active+1)))
}

// putChunkLocked takes a chunk back; one for a single envelope stays with its
// executor.
func (s *Stage) putChunkLocked(c *chunk) {
	if len(c.Items) == queue.Len {
		s.mu.pool.Put(c)
		return
	}
	c.Reset()
}

// soloSlot makes a claim of one envelope and returns its place, in a chunk of
// its own, so that a stage of many slow handlers needs little memory.
func (ex *executor) soloSlot() *Envelope {
	if ex.solo == nil {
		ex.solo = queue.New[Envelope](1)
	}
	ex.c = ex.solo
	ex.c.Rd, ex.c.N = 0, 1
	return &ex.c.Items[0]
}

// claimFrom claims up to limit envelopes from q, setting aside those whose
// next stage has no room.
func (s *Stage) claimFrom(ex *executor, q *fifo, limit int, force bool) bool {
	for q.Len() > 0 {
		head := q.Head()
		n := s.allowedLocked(ex, head, min(limit, head.Size()), force)
		if n == 0 {
			s.setAsideLocked(q)
			continue
		}
		s.claimHead(ex, q, n)
		return true
	}
	return false
}

// claimHead claims the first n envelopes of q, all in its first chunk.
func (s *Stage) claimHead(ex *executor, q *fifo, n int) {
	switch n {
	case 1:
		q.Pop(&s.mu.pool, ex.soloSlot())
	case q.Head().Size():
		ex.c = q.TakeHead()
	default:
		ex.c = s.mu.pool.Get()
		q.PopInto(&s.mu.pool, ex.c, n)
	}
}

// startClaimLocked enters the claim in ex.c into the books.
func (s *Stage) startClaimLocked(ex *executor, now int64) {
	m := &s.mu
	c := ex.c
	if s.blockedOn.Load() != nil {
		s.blockedOn.Store(nil)
	}
	ex.working = true
	m.claims++
	ex.seq = m.claims
	ex.size, ex.released, ex.counted = c.Size(), 0, 0
	ex.single = ex.size == 1
	ex.start, ex.waited = now, max(0, now-c.Items[c.Rd].entered)
	if s.shed != nil {
		ex.least = max(0, now-c.Items[c.N-1].entered)
	}
	if !ex.timed {
		m.wait.Add(ex.waited, uint64(ex.size))
	}
	m.executed++
	m.maxInFlight = max(m.maxInFlight, m.executed)
	ex.keeps = m.desk != nil && m.topic == nil // a credit is spent until its work has left
	if !ex.single {
		m.claimed += ex.size
	} else if !ex.keeps {
		ex.released = 1
	}
	// A single envelope keeps nothing else only where the stage is known to be
	// slow and no slot is claimed with it.
	if m.topic == nil && (!ex.single || !s.slow.Load() || (ex.slot != nil && !ex.holding)) {
		s.bus.watch()
	}
	ex.claim.Store(claimOf(c.Rd, c.Rd, c.N))
	if ex.single && !ex.keeps {
		s.releaseLocked(1)
	}
}

// helpLocked gives back the places of envelopes that were started meanwhile,
// so that full means full.
func (s *Stage) helpLocked() {
	s.reapLanesLocked()
	s.revokeLanesLocked()
	if s.mu.claimed == 0 {
		return // claims of one are started as good as at once
	}
	for _, ex := range s.mu.execs {
		if !ex.working || ex.single {
			continue
		}
		w := ex.claim.Load()
		started := ex.size - (claimLim(w) - claimCur(w))
		if n := started - ex.counted; n > 0 {
			ex.counted = started
			s.mu.claimed -= n
		}
		if ex.keeps {
			started = ex.size - (claimLim(w) - claimSettled(w))
		}
		if n := started - ex.released; n > 0 {
			ex.released = started
			s.releaseLocked(n)
		}
	}
}

// takeBackLocked puts what was claimed but not started back to the front of
// the queue, and takes what was finished to be settled by the caller.
func (s *Stage) takeBackLocked() (jobs []job) {
	if s.mu.topic != nil {
		return nil // what is being copied is out of the queue for good
	}
	// The latest claim first, so that the earliest comes to the very front.
	byClaim := slices.Clone(s.mu.execs)
	slices.SortFunc(byClaim, func(a, b *executor) int { return cmp.Compare(b.seq, a.seq) })
	for _, ex := range byClaim {
		if !ex.working || ex.single {
			continue
		}
		if j, ok := s.takeBackFrom(ex); ok {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// job is a finished part of a claim that somebody else settles because the
// executor is held up in a handler.
// Until it is done the executor does not settle what came after.
type job struct {
	c    *chunk
	resv reservations
	done chan struct{}
	keep *executor // whose slot others may go on with then, or nil
}

// takeBackFrom leaves ex only the envelope that is in its handler.
func (s *Stage) takeBackFrom(ex *executor) (j job, ok bool) {
	w, ok := ex.pinLocked()
	if !ok {
		return job{}, false
	}
	if w&claimJob != 0 {
		ex.claim.Store(w) // taken back before
		return job{}, false
	}
	settled, cur, lim := claimSettled(w), claimCur(w), claimLim(w)
	if cur < lim {
		s.putBackLocked(ex, cur, lim)
	}
	keep := ex.slot != nil && !ex.holding && !ex.passed && !ex.retries && cur > settled
	finished := max(settled, cur-1) // cur-1 is in the handler
	if finished == settled {
		if keep {
			s.mu.keyed.keepOnlyKey(ex, ex.c.Items[cur-1].Key)
		}
		j.resv, ex.resv = ex.resv, reservations{} // full means full there, too
		ex.claim.Store(claimOf(finished, cur, cur))
		return j, j.resv.n > 0
	}
	j.c = s.mu.pool.Get()
	j.c.Append(ex.c, settled, finished)
	j.resv, ex.resv = ex.resv, reservations{}
	j.done = make(chan struct{})
	if keep {
		j.keep = ex
		ex.key = ex.c.Items[cur-1].Key
	}
	ex.jobDone = j.done
	ex.claim.Store(claimOf(finished, cur, cur) | claimJob)
	return j, true
}

// putBackLocked puts the unstarted envelopes a to b of ex's claim back to the
// front of the queue that they came from.
func (s *Stage) putBackLocked(ex *executor, a, b int) {
	m := &s.mu
	if ex.slot != nil {
		ex.slot.q.PushFrontRange(&m.pool, ex.c, a, b)
		m.keyed.n += b - a
	} else {
		s.returnLocked(ex.c, a, b)
	}
	clear(ex.c.Items[a:b])
	n := b - a
	started := ex.size - n
	m.claimed -= ex.size - ex.counted
	ex.size, ex.counted = started, min(ex.counted, started)
	m.claimed += ex.size - ex.counted
}

// runJobs settles what takeBackLocked has taken. No lock is held.
func (s *Stage) runJobs(jobs []job) {
	for i := range jobs {
		j := &jobs[i]
		if j.c == nil {
			j.resv.giveBack()
			continue
		}
		var t tally
		s.settleChunk(j.c, 0, j.c.N, &j.resv, &t)
		j.resv.giveBack()
		s.mu.Lock()
		s.mu.count.hopped += t.hopped
		s.mu.count.end[0].completed += t.completed[0]
		s.mu.count.end[1].completed += t.completed[1]
		s.mu.pool.Put(j.c)
		if j.keep != nil && !j.keep.retries {
			s.mu.keyed.keepOnlyKey(j.keep, j.keep.key)
		}
		close(j.done)
		s.unlockAndStart()
	}
	if len(jobs) > 0 {
		s.bus.settled()
	}
}
