package bus

import (
	"sync"
	"time"

	"github.com/sedabus/seda/internal/clock"
	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/timer"
)

// task is something that falls due. fire is called without a lock.
type task interface{ fire(now int64) }

// timers runs what falls due on one runtime timer, which is armed only while
// there is something to wait for: an idle bus has no goroutine and no tick.
type timers struct {
	clock *clock.Clock
	mu    struct {
		sync.Mutex
		heap    timer.Heap[task]
		timer   *time.Timer
		armed   int64 // when the timer fires; 0 is not
		running bool  // somebody fires what is due, and arms the timer afterwards
		stop    bool
	}
}

// push lets t fire at when, or at once if that has passed.
func (ts *timers) push(when int64, t task) *timer.Item[task] {
	when = max(when, 1) // so that a distance to it cannot overflow
	ts.mu.Lock()
	defer ts.mu.Unlock()
	it := ts.mu.heap.Push(when, t)
	ts.armLocked()
	return it
}

// remove takes it out again, if it is still waiting; nil is allowed.
func (ts *timers) remove(it *timer.Item[task]) {
	if it == nil {
		return
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.mu.heap.Remove(it)
}

// armLocked makes the timer fire when the first task is due.
func (ts *timers) armLocked() {
	when, ok := ts.mu.heap.Peek()
	if !ok || ts.mu.stop || ts.mu.running || (ts.mu.armed != 0 && ts.mu.armed <= when) {
		return
	}
	ts.mu.armed = when
	d := max(0, time.Duration(when-ts.clock.Now()))
	if ts.mu.timer == nil {
		ts.mu.timer = clock.AfterFunc(d, ts.run)
		return
	}
	ts.mu.timer.Reset(d)
}

// run fires what is due; it runs on the timer's goroutine and ends at once.
// Envelopes enter one after the other, in the order of their times. Everything
// else may call a user's hook, and does not hold up others meanwhile.
func (ts *timers) run() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.mu.armed = 0
	for !ts.mu.running {
		now := ts.clock.Tick()
		t, ok := ts.mu.heap.PopDue(now)
		if !ok || ts.mu.stop {
			ts.armLocked()
			return
		}
		_, ts.mu.running = t.(*delayedEnvelope)
		ts.armLocked()
		ts.mu.Unlock()
		t.fire(now)
		ts.mu.Lock()
		if _, mine := t.(*delayedEnvelope); mine {
			ts.mu.running = false
		}
	}
}

// close drops everything.
func (ts *timers) close() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.mu.stop = true
	ts.mu.heap = timer.Heap[task]{}
	if ts.mu.timer != nil {
		ts.mu.timer.Stop()
	}
}

// take removes every task for which f holds and returns them.
func (ts *timers) take(f func(task) bool) (taken []task) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var items []*timer.Item[task]
	ts.mu.heap.All(func(it *timer.Item[task]) bool {
		if f(it.Value) {
			items = append(items, it)
		}
		return true
	})
	for _, it := range items {
		v := it.Value // gone once removed
		if ts.mu.heap.Remove(it) {
			taken = append(taken, v)
		}
	}
	return taken
}

// each calls f for every task until it returns false.
func (ts *timers) each(f func(when int64, t task) bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.mu.heap.All(func(it *timer.Item[task]) bool { return f(it.When, it.Value) })
}

// watch makes sure that claims are looked at soon.
func (b *Bus) watch() {
	if b.watching.Load() || b.watching.Swap(true) {
		return
	}
	b.timers.push(b.clock.Coarse()+int64(watchAfter), (*watchdog)(b))
}

// watchdog looks for executors that are held up in a handler. It sets the rest
// of the claim free, and calls the stage slow, so that others are started
// beside it and publishers are woken for every place.
type watchdog Bus

func (w *watchdog) fire(int64) {
	b := (*Bus)(w)
	b.watching.Store(false)
	again := false
	for _, s := range b.stagesNow() {
		if !faults.On(faults.WatchdogBlind) && s.watchClaims() {
			again = true
		}
	}
	if again {
		b.watch()
	}
}

// watchClaims reports whether there still are claims to look at.
func (s *Stage) watchClaims() (again bool) {
	var jobs []job
	s.mu.Lock()
	for _, ex := range s.mu.execs {
		if !ex.working || s.mu.topic != nil {
			continue
		}
		w := ex.claim.Load()
		if w != ex.seen || ex.seenAt != ex.start {
			ex.seen, ex.seenAt = w, ex.start
			again = true
			continue
		}
		if claimSettled(w) == claimLim(w) || (ex.single && claimCur(w) < claimLim(w)) {
			again = again || claimCur(w) < claimLim(w) // not started yet: its handler may still be held up
			continue
		}
		// One handler has taken longer than a look's distance.
		if !ex.heldUp {
			ex.heldUp = true
			s.mu.heldUp++
		}
		s.becomeSlowLocked()
		if s.mu.cfg.Batch == 0 {
			s.mu.batch = 1
		}
		if j, ok := s.takeBackFrom(ex); ok {
			jobs = append(jobs, j)
		}
	}
	if jobs != nil || s.slow.Load() {
		s.helpLocked()
		s.feedWaitersLocked()
	}
	s.unlockAndStart()
	s.runJobs(jobs)
	return again
}
