package shard

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sedabus/seda/internal/clock"
	"github.com/sedabus/seda/internal/queue"
)

// How long the shards that have come to the fence stand for one that has not: in
// the first attempt, and double in each further one. In between they run, at
// least until that one has come to the end of its handler.
const (
	firstPatience = time.Millisecond
	maxPatience   = time.Minute
	lookAgain     = time.Millisecond // doubling up to
	lookRarely    = 50 * time.Millisecond
)

// fence stops the world: each loop arrives at the end of its item, with all that
// it sent given over, and waits.
type fence struct {
	missing atomic.Int32
	all     chan struct{} // closed by the last to arrive
	resume  chan struct{} // closed with the answer in over
	over    bool          // the loops end
}

// arrive stops the loop at f and tells whether it ends.
func (s *Shard[T]) arrive(f *fence) bool {
	s.busy.Store(0)
	s.end(true)
	s.intake(true) // so that the places of what was handled are known
	s.here.Store(f)
	if f.missing.Add(-1) == 0 {
		close(f.all)
	}
	<-f.resume
	s.now = s.rt.clk.Now()
	return f.over
}

// raise puts up a fence for the loops of a world.
func (rt *Runtime[T]) raise(w *world[T]) *fence {
	f := &fence{all: make(chan struct{}), resume: make(chan struct{})}
	f.missing.Store(int32(len(w.shards)))
	rt.fence.Store(f)
	for _, s := range w.shards {
		s.kick()
	}
	return f
}

// lower takes the fence away; the loops end or go on.
func (rt *Runtime[T]) lower(f *fence, over bool) {
	f.over = over
	if !over {
		rt.fence.Store(nil)
	}
	close(f.resume)
}

// stop raises a fence and waits for all loops; nil means that they did not all
// arrive within the patience, and go on.
func (rt *Runtime[T]) stop(w *world[T], patience time.Duration, done, closing <-chan struct{}) *fence {
	f := rt.raise(w)
	t := clock.NewTimer(patience)
	defer t.Stop()
	select {
	case <-f.all:
		return f
	case <-t.C:
	case <-done:
	case <-closing:
	}
	rt.lower(f, false)
	return nil
}

// Resize changes the number of shards to n, 1 to [MaxShards]. All shards stop at
// the end of the item in hand, what waits moves to the shards of its keys, and they
// go on: nothing is lost, doubled, or handled out of its key's order. That takes
// about as long as the slowest handler; pushes wait meanwhile, and those that never
// wait return [ErrFull]. What was moved holds no places of mailboxes and lanes any
// more, and counts in [Stats.Inside]; the next Resize begins when it is handled.
//
// If a handler does not return until ctx ends, the answer is a [StalledError] with
// the shard, and everything stays as it was; the other shards hardly stand for it.
// An error of OnResize is returned as it is. Called by a handler, Resize returns
// [ErrInside]; while or after the runtime is closed, [ErrClosed].
func (rt *Runtime[T]) Resize(ctx context.Context, n int) error {
	switch {
	case n < 1 || n > MaxShards:
		return fmt.Errorf("%w: Resize to %d shards: 1 to %d", ErrInvalid, n, MaxShards)
	case rt.closed.Load():
		return ErrClosed
	case rt.onLoop():
		return ErrInside
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	select {
	case rt.admin <- struct{}{}:
	case <-rt.closing:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("shard: another change is going on: %w", context.Cause(ctx))
	}
	defer func() { <-rt.admin }()
	from := rt.cur.Load()
	if len(from.shards) == n {
		return nil
	}
	to := NewLayout(n)
	began := rt.clk.Now()
	for patience := firstPatience; ; patience = min(2*patience, maxPatience) {
		if rt.closed.Load() {
			return ErrClosed
		}
		if from.unsettled.Load() == 0 {
			if f := rt.stop(from, patience, ctx.Done(), rt.closing); f != nil {
				return rt.change(from, to, f)
			}
		}
		if err := rt.straggler(ctx, from, began); err != nil {
			return err
		}
	}
}

// straggler waits until the shard that has been in its handler longest has come
// to the end of it, and what the previous change moved is handled: else one change
// after the other could let in more and more.
func (rt *Runtime[T]) straggler(ctx context.Context, w *world[T], began int64) error {
	var last *Shard[T]
	since := rt.clk.Now()
	for _, s := range w.shards {
		if b := s.busy.Load(); b != 0 && b <= since {
			last, since = s, b
		}
	}
	for pause := lookAgain; ; pause = min(2*pause, lookRarely) {
		if ctx.Err() != nil {
			e := &StalledError{Cause: context.Cause(ctx)}
			if last != nil {
				e.Shard, e.For = last.index, time.Duration(rt.clk.Now()-since)
			} else {
				e.For = time.Duration(rt.clk.Now() - began)
			}
			return e
		}
		t := clock.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-rt.closing:
			t.Stop()
			return ErrClosed
		}
		t.Stop()
		if ctx.Err() == nil && (last == nil || last.busy.Load() != since) && w.unsettled.Load() == 0 {
			return nil
		}
	}
}

// change replaces the world, which stands at f.
func (rt *Runtime[T]) change(from *world[T], to *Layout, f *fence) error {
	agreed := false
	defer func() { // OnResize may end this goroutine
		if !agreed {
			rt.lower(f, false)
		}
	}()
	if err := rt.askResize(from.layout, to); err != nil {
		return err
	}
	agreed = true
	next := rt.newWorld(to)
	for _, s := range from.shards {
		s.seal()
		s.moveTo(next)
	}
	inside := 0
	for _, s := range next.shards {
		if n := s.moved.Len(); n > 0 {
			inside += n
			next.unsettled.Add(1)
		}
	}
	rt.inside.Store(int64(inside))
	rt.totals.Lock()
	for i, s := range from.shards {
		if i < len(next.shards) {
			next.shards[i].count = s.count
			next.shards[i].publish()
		} else {
			rt.totals.gone.add(&s.count)
		}
	}
	rt.totals.resizes++
	rt.cur.Store(next)
	rt.totals.Unlock()
	rt.fence.Store(nil)
	rt.lower(f, true)
	rt.start(next)
	close(from.replaced)
	return nil
}

// askResize calls OnResize; what it panics with refuses the change.
func (rt *Runtime[T]) askResize(from, to *Layout) (err error) {
	if rt.cfg.OnResize == nil {
		return nil
	}
	rt.caller.Store(goroutine())
	defer rt.caller.Store(0)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("shard: OnResize panicked: %v", r)
		}
	}()
	return rt.cfg.OnResize(from, to)
}

// seal lets nothing more in from outside. The loops may run.
func (s *Shard[T]) seal() {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	s.in.mu.sealed = true
	for _, l := range s.in.mu.lanes {
		l.tail.Or(sealBit)
	}
}

// moveTo moves everything to the shards of the next world, in an order that
// keeps that of each key. Both worlds stand; the shard is sealed.
func (s *Shard[T]) moveTo(next *world[T]) {
	move := func(e *entry[T]) bool {
		i := s.index % len(next.shards)
		if e.hash != 0 {
			i = next.layout.Of(e.hash)
		}
		to := next.shards[i]
		to.moved.Push(&to.pool, e)
		return true
	}
	s.in.mu.Lock() // a Push that gives up may still come by
	defer s.in.mu.Unlock()
	for _, q := range []*queue.FIFO[entry[T]]{&s.moved, &s.transit, &s.in.mu.transit, &s.local} {
		q.All(move)
	}
	for _, l := range s.in.mu.lanes {
		for end := l.tail.Load() &^ sealBit; l.rd != end; l.rd++ {
			move(&l.slots[l.rd&l.mask])
		}
	}
	s.plain.All(move)
	s.in.mu.plain.All(move)
	for it := range s.delayed.All {
		to := next.shards[s.index%len(next.shards)]
		to.delayed.Push(it.When, it.Value)
	}
	if s.alarm != nil {
		s.alarm.Stop()
	}
}
