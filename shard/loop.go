package shard

import (
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/sedabus/seda/internal/queue"
)

// A run is the items that a loop handles between two readings of the clock. Its
// length adapts to handlers: what is slow is handled one by one, so that a stall
// is seen and what was sent leaves at once.
const (
	maxRun     = 64
	shortRun   = 50 * time.Microsecond  // a run below may double
	longRun    = 100 * time.Microsecond // a run above is cut to this
	flushAfter = 20 * time.Microsecond  // within a turn

	plainRuns  = 4 // of the mailbox in a turn
	emptyTurns = 8 // after which a lane is dropped
)

// run is what the loop has in hand. The counters move before each call, so that a
// panic or Goexit costs the one item.
type run[T any] struct {
	fifo   *queue.FIFO[entry[T]] // or
	lane   *lane[T]              // or neither: Turn
	inside bool                  // its items count in Runtime.inside
	plain  bool                  // its items hold places of the mailbox
	done   int                   // items whose call has begun
	ended  bool                  // the last call returned
}

// loop runs the shard until a fence ends it. A handler that ends its goroutine
// gets the shard a new one.
func (s *Shard[T]) loop() {
	over := false
	defer func() {
		if over {
			s.rt.loops.Done()
		} else {
			go s.loop()
		}
	}()
	s.pin()
	s.goid.Store(goroutine())
	s.now = s.rt.clk.Now()
	for {
		if f := s.rt.fence.Load(); f != nil {
			if s.arrive(f) {
				over = true
				return
			}
			continue
		}
		if !s.turn() {
			s.rest()
		}
	}
}

// pin binds the loop as configured. The goroutine stays locked to the end, so
// that the thread ends with it.
func (s *Shard[T]) pin() {
	p := &s.rt.cfg.Pin
	if p.Thread || len(p.CPUs) > 0 {
		runtime.LockOSThread()
	}
	if len(p.CPUs) > 0 {
		_ = bind(p.CPUs[s.index%len(p.CPUs)]) // New has asked; a processor that is gone since must not end the loop
	}
}

// turn does some of everything there is and tells whether there was anything.
func (s *Shard[T]) turn() bool {
	if s.moved.Len() > 0 { // older than all the rest
		s.end(s.drain(&s.moved, s.moved.Len()))
		if s.moved.Len() == 0 {
			s.world.unsettled.Add(-1)
		}
		return true
	}
	worked := s.due()
	s.intake(false)
	worked = s.drain(&s.transit, s.transit.Len()) || worked
	worked = s.drain(&s.local, s.local.Len()) || worked
	if s.brake() {
		s.count.Brakes++
	} else {
		worked = s.fromOutside() || worked
	}
	if s.rt.cfg.Turn != nil && s.rt.fence.Load() == nil {
		worked = s.callTurn() || worked
	}
	s.end(worked)
	return worked
}

// fromOutside handles a run of each lane and a few of the mailbox.
func (s *Shard[T]) fromOutside() (worked bool) {
	for i := range s.active {
		worked = s.runLane(s.active[i]) || worked
		s.flushLate()
	}
	s.dropLanes(emptyTurns)
	for i := range plainRuns {
		if s.plain.Len() == 0 || i > 0 && s.length == 1 {
			break
		}
		worked = s.runFIFO(run[T]{fifo: &s.plain, plain: true}, s.length) || worked
		s.flushLate()
	}
	return worked
}

// end closes a turn: what was sent leaves, and the books are brought up to date.
func (s *Shard[T]) end(worked bool) {
	if len(s.dirty) > 0 {
		s.flush()
	}
	if s.delta != 0 {
		s.rt.crossing(s.world, s.delta)
		s.delta = 0
	}
	if worked {
		s.count.Turns++
		s.publish()
	}
}

func (s *Shard[T]) publish() {
	s.published.Lock()
	s.published.Counters = s.count
	s.published.Unlock()
}

func (s *Shard[T]) flushLate() {
	if len(s.dirty) > 0 && s.now-s.flushed > int64(flushAfter) {
		s.flush()
	}
}

// drain handles n items of q, which count as inside.
func (s *Shard[T]) drain(q *queue.FIFO[entry[T]], n int) (worked bool) {
	for n > 0 {
		if !s.runFIFO(run[T]{fifo: q, inside: true}, min(n, s.length)) {
			break // the world shall stand
		}
		n -= s.run.done
		worked = true
		s.flushLate()
	}
	return worked
}

// runFIFO handles up to limit items of the first chunk and tells whether it
// handled any.
func (s *Shard[T]) runFIFO(r run[T], limit int) bool {
	c := r.fifo.Head()
	s.run = r
	s.busy.Store(s.now)
	s.handle(c.Items[c.Rd : c.Rd+min(limit, c.Size())])
	return s.run.done > 0
}

// runLane handles up to a run of a lane's items and tells whether it handled any.
func (s *Shard[T]) runLane(l *lane[T]) bool {
	n := min(int(l.tail.Load()&^sealBit-l.rd), s.length)
	if n == 0 {
		l.idle++
		return false
	}
	l.idle = 0
	from := int(l.rd & l.mask)
	s.run = run[T]{lane: l}
	s.busy.Store(s.now)
	s.handle(l.slots[from:min(from+n, len(l.slots))])
	return s.run.done > 0
}

// handle calls the handler for items until the world shall stand.
func (s *Shard[T]) handle(items []entry[T]) {
	defer s.settle()
	call, fence := s.rt.cfg.Handle, &s.rt.fence
	for i := range items {
		if fence.Load() != nil {
			break
		}
		s.run.done = i + 1
		s.free = true
		s.key = items[i].hash
		call(s, &items[i].v)
	}
	s.run.ended = true
}

// callTurn calls Turn and tells whether there is more.
func (s *Shard[T]) callTurn() (more bool) {
	s.run = run[T]{}
	s.busy.Store(s.now)
	defer s.settle()
	s.free, s.key = false, 0
	more = s.rt.cfg.Turn(s)
	s.run.ended = true
	return more
}

// settle is deferred by each run: it takes what was handled out of its queue,
// after a panic or Goexit too, and fits the length of runs to what they take.
func (s *Shard[T]) settle() {
	r := &s.run
	if !r.ended {
		s.failed(recover())
	}
	n := r.done
	switch {
	case n == 0:
	case r.fifo != nil:
		r.fifo.Skip(&s.pool, n)
	case r.lane != nil:
		r.lane.consumed(n, s.rt.scrub)
	}
	if r.inside {
		s.delta -= int64(n)
	}
	if r.plain {
		s.freed += n
	}
	s.count.Handled += uint64(n)
	now := s.rt.clk.Now()
	took := time.Duration(now - s.now)
	s.now = now
	s.count.Longest = max(s.count.Longest, took)
	if stall := s.rt.cfg.Stall; stall > 0 && took >= stall {
		s.count.Stalls++
	}
	switch {
	case n == 0:
	case took > longRun:
		s.length = max(1, min(s.length, int(int64(longRun)*int64(n)/int64(took))))
	case took < shortRun && n >= s.length:
		s.length = min(2*s.length, maxRun)
	}
}

// consumed moves the lane's head on and wakes a producer that waits, once half
// of the lane is free.
func (l *lane[T]) consumed(n int, scrub bool) {
	if scrub {
		from := l.rd & l.mask
		clear(l.slots[from : from+uint64(n)])
	}
	l.rd += uint64(n)
	l.head.Store(l.rd)
	if l.waiting.Load() && l.tail.Load()&^sealBit-l.rd <= (l.mask+1)/2 && l.waiting.CompareAndSwap(true, false) {
		select {
		case l.room <- struct{}{}:
		default:
		}
	}
}

// failed counts and tells of a call that did not return.
func (s *Shard[T]) failed(value any) {
	p := Panic{Shard: s.index, Value: value, Goexit: value == nil}
	if p.Goexit {
		s.count.Exits++
	} else {
		s.count.Panics++
		p.Stack = debug.Stack()
	}
	if s.rt.cfg.OnPanic == nil {
		return
	}
	defer func() { _ = recover() }() // a hook's fault is not the shard's
	s.rt.cfg.OnPanic(p)
}

// due forwards the delayed items that are due.
func (s *Shard[T]) due() (any bool) {
	for s.delayed.Len() > 0 {
		e, ok := s.delayed.PopDue(s.now)
		if !ok {
			break
		}
		s.count.Fired++
		s.Forward(e.hash, e.v)
		any = true
	}
	return any
}

// intake takes over what others left in the inbox and gives back the places of
// what was handled: at once while handlers are slow, else a quarter of the mailbox
// at a time, or all of them.
func (s *Shard[T]) intake(all bool) {
	in := &s.in
	all = all || s.length == 1
	if !in.pending.Load() && (s.freed == 0 || !all && s.freed < max(1, s.rt.cfg.Mailbox/4)) {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.pending.Load() {
		in.pending.Store(false)
	}
	s.transit.AppendAll(&in.mu.transit)
	s.plain.AppendAll(&in.mu.plain)
	s.active = append(s.active, in.mu.ready...)
	clear(in.mu.ready)
	in.mu.ready = in.mu.ready[:0]
	in.mu.held -= s.freed
	s.freed = 0
	for !in.mu.sealed && in.mu.held < s.rt.cfg.Mailbox && in.mu.waiting.Len() > 0 {
		w, _ := in.mu.waiting.Remove(in.mu.waiting.Front()).(*waiter[T])
		s.plain.Push(&s.pool, &w.e)
		in.mu.held++
		w.granted = true
		close(w.ready)
	}
}

// brake tells whether handlers have sent so much that nothing may come in from
// outside. The mark stands before the second look, so that whoever takes the
// number below the bound sees it, or this sees the number.
func (s *Shard[T]) brake() bool {
	bound := int64(s.rt.cfg.Transit)
	if s.rt.inside.Load()+s.delta < bound {
		if s.braked.Load() {
			s.braked.Store(false)
		}
		return false
	}
	s.braked.Store(true)
	return s.rt.inside.Load()+s.delta >= bound
}

// dropLanes lets go of lanes that were empty for so many turns. A producer that
// publishes after the mark is gone puts its lane before the loop again; what it
// published before, the second look finds.
func (s *Shard[T]) dropLanes(turns int) {
	kept := s.active[:0]
	for _, l := range s.active {
		if l.idle < turns || l.size() > 0 {
			kept = append(kept, l)
			continue
		}
		l.idle = 0
		l.ready.Store(false)
		switch {
		case l.tail.Load()&^sealBit != l.rd:
			if l.ready.CompareAndSwap(false, true) {
				kept = append(kept, l)
			}
		case l.closed.Load():
			s.forget(l)
		}
	}
	clear(s.active[len(kept):])
	s.active = kept
}

// forget takes the lane of a closed producer off the list.
func (s *Shard[T]) forget(l *lane[T]) {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	if i := slices.Index(s.in.mu.lanes, l); i >= 0 {
		s.in.mu.lanes = slices.Delete(s.in.mu.lanes, i, i+1)
	}
}
