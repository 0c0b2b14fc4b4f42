package bus

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/invariant"
	"github.com/sedabus/seda/internal/queue"
	"github.com/sedabus/seda/shedder"
)

// executor is a goroutine at work for one stage. It is started on demand, at
// most Concurrency at once, and ends when nothing can be started. Between
// bursts the struct is kept, the goroutine is not.
//
// An executor claims a chunk of envelopes under the stage's lock and works it
// off without: the only shared word is claim, by which others can see how far
// it is, take back what it has not started, and settle what it has finished.
type executor struct {
	stage *Stage
	loop  func() // run, as a value, so that starting it does not allocate

	claim   atomic.Uint32 // see claim.go
	working bool          // has a claim; guarded by stage.mu
	heldUp  bool          // its handler was held up at the watchdog's last look; guarded by stage.mu
	c       *chunk        // the claimed chunk; others look at it with the claim pinned
	solo    *chunk        // for claims of one envelope

	handler  Handler
	ctx      context.Context //nolint:containedctx // the handlers' context, one for many calls
	cancel   context.CancelCauseFunc
	canceled atomic.Uint64 // the envelope whose call was cancelled by id; 0 is none
	overdue  atomic.Int64  // bus clock at which the running call should have returned; 0 is none
	begun    atomic.Int64  // bus clock at which the running call was started, if it is timed
	timeout  time.Duration

	permit   permitSet
	timed    bool  // read the clock for each envelope
	way      *edge // the edge that a claim of one is for, if others wait there
	fromHeld bool  // the claim is being made from what was set aside
	redo     bool  // handle the current envelope once more
	ended    bool  // the work loop came to its end
	single   bool  // the claim is of one envelope
	keeps    bool  // the places of the claim are given back when its envelopes have left
	key      string
	slot     *keySlot      // the key slot that the claim owns, or nil
	holding  bool          // the claim holds key in its slot
	passed   bool          // the hold went on to a retry
	retries  bool          // an envelope of a claimed slot has kept its key for a retry
	jobDone  chan struct{} // see claimJob

	seen   uint32 // the claim word at the watchdog's last look
	seenAt int64  // and the claim's start

	start     int64  // bus clock when the claim was made
	waited    int64  // how long its first envelope had waited
	seq       uint64 // number of the claim
	size      int    // envelopes in the claim when it was made
	released  int    // places given back so far
	counted   int    // envelopes no longer in stage.mu.claimed
	resv      reservations
	fed       shedder.Done // what the shedder is to be told of the last claim
	least     int64        // how long the claim's last envelope had waited
	tally     tally
	permitRun int // claims since the permit was taken
}

// tally is what an executor has done since it last held the lock.
type tally struct {
	delivered uint64
	failed    uint64
	hopped    uint64
	completed [2]uint64
}

func newExecutor(s *Stage) *executor {
	ex := &executor{stage: s}
	ex.loop = ex.run
	ex.renewContext()
	return ex
}

func (ex *executor) renewContext() {
	base, cancel := context.WithCancelCause(ex.stage.bus.root)
	ex.ctx = &handlerContext{Context: base, ex: ex}
	ex.cancel = cancel
	ex.canceled.Store(0)
}

// forgetCancel takes a new context in place of the cancelled one.
func (ex *executor) forgetCancel() {
	ex.stage.mu.Lock() // Cancel may be looking at it
	defer ex.stage.mu.Unlock()
	ex.cancel(nil)
	ex.renewContext()
	ex.overdue.Store(0)
}

// run is the executor's goroutine; it ends when nothing can be started, when
// the bus cuts its work off, or by a handler's Goexit, which starts another.
//
// In sharded mode it is the shard's run loop: when an executor has ended, the
// one that gets its permit goes on, on the same goroutine.
func (ex *executor) run() {
	retired := false // by then ex may be at work on another goroutine
	defer func() {
		if !retired && !faults.On(faults.GoexitLosesWorker) { // a handler called Goexit
			go ex.loop()
		}
	}()
	for {
		if ex.working { // after a Goexit
			ex.workOff()
		}
		then, ok := ex.next()
		for ok {
			ex.workOff()
			then, ok = ex.next()
		}
		if faults.On(faults.ExecutorStays) {
			select {}
		}
		if then == nil {
			break
		}
		ex = then
	}
	retired = true
}

func (ex *executor) workOff() {
	if ex.stage.mu.topic != nil { // immutable once registered
		ex.fanOut()
		return
	}
	for ex.ended = false; !ex.ended; {
		ex.work()
	}
	ex.settle()
}

// work calls the handler for what is left of the claim. It returns early when
// a handler panics.
func (ex *executor) work() {
	defer ex.recoverCall()
	for {
		e := ex.begin()
		if e == nil {
			ex.ended = true
			return
		}
		if id := ex.canceled.Load(); id != 0 && id != e.id {
			ex.forgetCancel() // it hit the call before just after its end
		}
		for {
			ex.tally.delivered++
			var err error
			if ex.timed || e.flags&flagTimed != 0 {
				err = ex.callTimed(e)
			} else {
				err = ex.handler(ex.ctx, e)
			}
			if faults.On(faults.DeliverTwice) && e.id%64 == 0 {
				err = ex.handler(ex.ctx, e)
			}
			if (err == nil && ex.canceled.Load() == 0) || !ex.refused(e, err) {
				break
			}
		}
	}
}

// recoverCall turns a panic or a Goexit into a nack of the envelope that was
// being handled.
func (ex *executor) recoverCall() {
	if ex.ended {
		return
	}
	err := &PanicError{Value: recover(), Stack: debug.Stack()}
	e := ex.current()
	ex.stage.panicked(e, err)
	if e != nil {
		ex.redo = ex.refused(e, err)
	}
	ex.ended = faults.On(faults.PanicLosesRest) && err.Value != nil
}

// current is the envelope that was started last, or nil if it is no longer
// this executor's.
func (ex *executor) current() *Envelope {
	w := ex.claim.Load()
	cur := claimCur(w)
	if cur == 0 || w&claimLost != 0 {
		return nil
	}
	return &ex.c.Items[cur-1]
}

// next hands the last claim's results in and makes the next claim; it reports
// whether there is one. Without one, then is the executor that goes on in its
// place, or nil.
func (ex *executor) next() (then *executor, ok bool) {
	s := ex.stage
	s.bus.callbacks.throttle()
	now := s.bus.clock.Touch()
	s.mu.Lock()
	s.finishLocked(ex, now)
	if ex.fed.N > 0 {
		ex.tellShedderLocked()
	}
	ok = !s.mustYieldLocked(ex) && s.claimLocked(ex, now, false)
	if !ok {
		s.retireLocked(ex)
		s.markBlockedLocked()
		if s.mu.desk != nil {
			s.starvedLocked(now)
		}
	}
	if !ok && ex.resv.n > 0 {
		ex.resv.n = 0 // a failed claim holds no place
	}
	var permit permitSet
	if !ok {
		permit, ex.permit = ex.permit, permitSet{}
	}
	then = s.unlockAndStartAfter(permit, true)
	if !ok {
		s.bus.settled()
	}
	return then, ok
}

// retireLocked takes ex off the list of those at work.
func (s *Stage) retireLocked(ex *executor) {
	if s.mu.active--; s.mu.active == 0 {
		s.idle.Store(true)
	}
	for i, other := range s.mu.execs {
		if other == ex {
			last := len(s.mu.execs) - 1
			s.mu.execs[i] = s.mu.execs[last]
			s.mu.execs[last] = nil
			s.mu.execs = s.mu.execs[:last]
			break
		}
	}
	ex.handler = nil
	if len(s.mu.idle) < min(idleExecutors, s.mu.cfg.Concurrency) && ex.canceled.Load() == 0 {
		s.mu.idle = append(s.mu.idle, ex)
	} else {
		ex.cancel(nil)
	}
	if s.mu.waiters.n > 0 {
		s.feedWaitersLocked()
	}
	s.tellRoomLocked()
}

// idleExecutors is how many executors a stage keeps between bursts.
const idleExecutors = 1024

// wantLocked returns an executor to start, or nil.
func (s *Stage) wantLocked() *executor {
	m := &s.mu
	if m.active >= m.cfg.Concurrency {
		return nil
	}
	if m.pull != nil {
		s.wakeReceiversLocked()
		return nil
	}
	if !s.runnableLocked() {
		return nil
	}
	if m.active > 0 && !s.worthAnotherLocked() {
		return nil
	}
	if !s.claimableLocked() {
		return nil
	}
	p, ok := s.takePermitsLocked(nil)
	if !ok {
		return nil
	}
	return s.startLocked(p)
}

// startLocked returns an executor that holds a permit.
func (s *Stage) startLocked(p permitSet) *executor {
	m := &s.mu
	m.looping = m.looping || p.loops()
	if m.active++; m.active == 1 {
		s.idle.Store(false)
	}
	var ex *executor
	if n := len(m.idle); n > 0 {
		ex = m.idle[n-1]
		m.idle[n-1] = nil
		m.idle = m.idle[:n-1]
	} else {
		ex = newExecutor(s)
	}
	ex.permit, ex.permitRun = p, 0
	m.execs = append(m.execs, ex)
	return ex
}

// runnableLocked says whether anything may start at all.
func (s *Stage) runnableLocked() bool {
	m := &s.mu
	if m.closed || m.holds.any() {
		return false
	}
	return s.handledLocked() || m.pull != nil
}

// handledLocked says whether there is someone to hand envelopes to.
func (s *Stage) handledLocked() bool {
	if t := s.mu.topic; t != nil {
		return len(*t.subs.Load()) > 0
	}
	return s.mu.handler != nil
}

// worthAnotherLocked says whether one more executor would help: always where
// handlers are slow, or none of those at work gets on, else when there is more
// than the others take at a time.
func (s *Stage) worthAnotherLocked() bool {
	m := &s.mu
	free := m.active - m.heldUp
	if s.slow.Load() || m.batch <= 1 || m.due.Len() > 0 || free <= 0 {
		return true
	}
	queued := s.queuedLocked()
	if m.per > worthSharing && time.Duration(queued)*m.per > slowHandler*time.Duration(free) {
		return true
	}
	return m.ready.n > free || queued > 2*m.batch*free
}

// oneTooManyLocked says whether the others would do as well without one of
// them: in a stage of fast handlers that gets its envelopes one by one, small
// claims by several keep the lock from those who publish.
func (s *Stage) oneTooManyLocked() bool {
	m := &s.mu
	rest := m.active - m.heldUp - 1
	if rest < 1 || len(m.lanes) > 0 || m.keyed != nil || s.slow.Load() || m.batch < queue.Len ||
		m.per > worthSharing || m.due.Len() > 0 || m.ready.n > rest {
		return false // worthAnotherLocked would start it again at once
	}
	return s.queuedLocked() < m.batch*rest
}

// worthSharing is the service time from which the time that a backlog takes, not
// its length, says whether another executor helps.
const worthSharing = 500 * time.Nanosecond

// claimableLocked says whether a claim would find something.
func (s *Stage) claimableLocked() bool {
	m := &s.mu
	if m.due.Len() > 0 || s.heldReadyLocked() {
		return true
	}
	if m.keyed != nil {
		return m.keyed.ready.n > 0 || m.ready.n > 0
	}
	if m.topic != nil && m.topic.held {
		return false
	}
	return m.ready.n > 0 || s.queuedLocked() > 0
}

// mustYieldLocked says whether ex has to end its turn: too many run, or
// another stage waits for its permit.
func (s *Stage) mustYieldLocked(ex *executor) bool {
	if s.mu.active > s.mu.cfg.Concurrency && !faults.On(faults.ResizeIgnored) {
		return true
	}
	if s.oneTooManyLocked() {
		return true
	}
	ex.permitRun++
	if s.home != nil && ((ex.permit.bus == nil && s.bus.permits.limited.Load()) ||
		(ex.permit.whole == nil && s.whole.limits.limited.Load())) {
		return true // it was started without one
	}
	return ex.permit.wanted() && ex.permitRun > 1
}

// unlockAndStart unlocks s.mu, starts an executor if one is worth it, and
// tells upstreams that their parked envelopes entered.
//
// hot: 0 allocs
func (s *Stage) unlockAndStart() {
	if ex := s.unlockAndStartAfter(permitSet{}, false); ex != nil {
		go ex.loop()
	}
}

// unlockAndStartAfter first gives a permit back if permit is set, so that a
// stage that waits for it comes before this one.
func (s *Stage) unlockAndStartAfter(permit permitSet, inline bool) (then *executor) {
	if s.shed != nil {
		s.boundHopsLocked()
	}
	var room [4]grant
	grants := room[:0]
	if permit != (permitSet{}) {
		grants = s.handBackSetLocked(permit, grants)
	}
	if s.mu.waiters.n > 0 || s.mu.room != nil {
		s.serveWaitingLocked()
	}
	if s.whole != nil {
		s.noteLoadLocked()
		s.shareRoomLocked()
	}
	ex := s.wantLocked()
	notes := s.mu.notes
	s.mu.notes = nil
	grants = append(grants, s.mu.grants...)
	s.mu.grants = nil
	odd := (s.mu.handler == nil || s.blockedOn.Load() != nil || (s.mu.active == 0 && s.mu.arrivals.Len() > 0)) &&
		s.oddLocked(ex)
	if invariant.Enabled {
		s.checkLocked()
	}
	s.mu.Unlock()
	if odd {
		s.settleOdd()
	}
	if ex != nil {
		go ex.loop()
	}
	tell(notes)
	return settleGrants(grants, inline)
}

// handBackSetLocked gives the permits of an executor that ends back.
func (s *Stage) handBackSetLocked(set permitSet, grants []grant) []grant {
	if set.loops() {
		s.mu.looping = false
	}
	return s.releaseSet(set, grants)
}

// serveWaitingLocked serves those who wait for room: places may come back by
// ways that serve nobody.
func (s *Stage) serveWaitingLocked() {
	if s.mu.waiters.n > 0 && (s.free.Load() > s.mu.shut || (!s.sated() && s.borrow(s.mu.waiters.n) > 0)) {
		if s.worthWakingLocked() {
			s.feedWaitersLocked()
		} else if s.slow.Load() {
			s.bus.watch() // it serves them if nobody else comes by
		}
	}
	if s.mu.room != nil && s.roomOrEndLocked() {
		close(s.mu.room)
		s.mu.room = nil
	}
}

// oddLocked says whether something has to be done that is seldom needed: the
// queue has nobody to hand it to, or it may be part of a ring that stands still.
func (s *Stage) oddLocked(ex *executor) bool {
	return (s.mu.handler == nil && s.orphanedLocked()) || (ex == nil && s.jammedLocked())
}

// settleOdd does it.
func (s *Stage) settleOdd() {
	s.mu.Lock()
	orphaned, jammed := s.mu.handler == nil && s.orphanedLocked(), s.jammedLocked()
	s.mu.Unlock()
	if jammed {
		s.unjam()
	}
	if orphaned {
		s.letterQueued()
	}
}

// startGranted uses a permit that was waited for, or passes it on: more are the
// stages that get it next.
func (s *Stage) startGranted(p *permits) (ex *executor, more []grant) {
	s.mu.Lock()
	m := &s.mu
	set, ok := s.takePermitsLocked(p)
	if ok && m.active < m.cfg.Concurrency && s.runnableLocked() && s.claimableLocked() {
		ex = s.startLocked(set)
		s.unlockAndStart()
		return ex, nil
	}
	if ok && s.jammedLocked() {
		s.mu.Unlock()
		ring := s.ring()
		s.mu.Lock()
		if len(ring) > 0 && s.mayExceedLocked() {
			s.bubbleLocked(set, ring) // unlocks
			return nil, nil
		}
	}
	more = s.releaseSet(set, m.grants)
	m.grants = nil
	s.mu.Unlock()
	return nil, more
}

// panicked counts a handler's panic and tells the hook.
func (s *Stage) panicked(e *Envelope, err *PanicError) {
	s.mu.Lock()
	s.mu.count.panics++
	s.mu.Unlock()
	info := PanicInfo{Stage: s.name, Where: "handler", Err: err}
	if e != nil {
		info.ID = e.id
	}
	s.bus.firePanic(info)
}

// refused settles e, whose handler returned err or was cancelled; again says
// that it is to be handled once more at once.
func (ex *executor) refused(e *Envelope, err error) (again bool) {
	s := ex.stage
	canceled := ex.canceled.Load() != 0
	if canceled {
		ex.forgetCancel()
		if err == nil {
			return false // it was done in spite of that
		}
	}
	o := s.outcomeOf(e, err)
	s.mu.Lock()
	if ex.claim.Load()&claimLost != 0 {
		s.mu.Unlock()
		return false // abandoned meanwhile
	}
	ex.tally.failed++
	again = s.refuseLocked(ex, e, err, o, canceled) // unlocks
	if again && e.attempt%againYield == 0 {
		runtime.Gosched()
	}
	return again
}

// againYield is after how many attempts at once the processor is given away.
const againYield = 16
