package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/sedabus/seda/internal/clock"
)

// lastPatience is how long a Close that has no more time waits for loops to come
// to the end of their items, to say which did not.
const lastPatience = 100 * time.Millisecond

// Report is what [Runtime.Close] left.
type Report struct {
	// Left is how many accepted items were not handled. If shards were stuck, what
	// they handled since their last turn, at most, counts too.
	Left int
	// Delayed is how many items of [Shard.After] were not due; of stuck shards
	// none are counted.
	Delayed int
	// Stuck are the shards whose handler did not return. They end when it does.
	Stuck []int
}

// Close refuses what comes from outside, waits until all is handled, what
// handlers send included, and ends the loops. What is delayed and not due is
// dropped. If ctx ends first, each loop ends after the item in hand, and the error
// matches [ErrCut] and the cause; with a handler that does not return that takes
// up to 0.2 s more. Close may be called often and from many goroutines; all get
// the same report. Called by a handler it begins to close and returns [ErrInside].
func (rt *Runtime[T]) Close(ctx context.Context) (Report, error) {
	rt.begin.Do(func() {
		rt.closed.Store(true)
		close(rt.closing)
		go rt.drain() // ends when all is handled, or no Close has time left and no OnResize runs
	})
	if rt.onLoop() {
		return Report{}, ErrInside
	}
	select {
	case <-rt.done:
		return rt.closedReport()
	case <-ctx.Done():
	}
	rt.cutOnce.Do(func() {
		rt.why = context.Cause(ctx)
		close(rt.cut)
	})
	t := clock.NewTimer(2 * lastPatience)
	defer t.Stop()
	select {
	case <-rt.done:
		return rt.closedReport()
	case <-t.C: // OnResize does not return
		return Report{Left: rt.pending()}, fmt.Errorf("%w: %w", ErrCut, context.Cause(ctx))
	}
}

func (rt *Runtime[T]) closedReport() (Report, error) {
	r := rt.report
	if r.Left > 0 || len(r.Stuck) > 0 {
		return r, fmt.Errorf("%w: %d items left, %d shards stuck: %w", ErrCut, r.Left, len(r.Stuck), rt.why)
	}
	return r, nil
}

// drain waits until everything is handled, then ends the loops.
func (rt *Runtime[T]) drain() {
	rt.admin <- struct{}{} // for ever: nobody changes the world any more
	w := rt.cur.Load()
	for _, s := range w.shards {
		s.seal()
		s.kick()
	}
	for {
		select {
		case <-rt.cut:
			rt.finish(w, rt.cutOff(w))
			return
		case <-rt.quiet:
		}
		if !rt.still(w) {
			continue
		}
		// All seem to sleep; while they stand it can be proven.
		f := rt.stop(w, lastPatience, rt.cut, nil)
		if f == nil {
			continue
		}
		if rt.pending() == 0 {
			rt.finish(w, f)
			return
		}
		rt.lower(f, false)
	}
}

// still tells whether all loops sleep, with nothing under way between them.
func (rt *Runtime[T]) still(w *world[T]) bool {
	for _, s := range w.shards {
		if s.state.Load() != parked {
			return false
		}
	}
	return rt.inside.Load() == 0
}

// cutOff raises the last fence and waits a moment for the loops.
func (rt *Runtime[T]) cutOff(w *world[T]) *fence {
	f := rt.raise(w)
	t := clock.NewTimer(lastPatience)
	defer t.Stop()
	select {
	case <-f.all:
	case <-t.C:
	}
	return f
}

// finish writes the report and ends the loops, those that are still to arrive
// included.
func (rt *Runtime[T]) finish(w *world[T], f *fence) {
	for _, s := range w.shards {
		if s.here.Load() != f {
			rt.report.Stuck = append(rt.report.Stuck, s.index)
			continue
		}
		rt.report.Delayed += s.delayed.Len()
		if s.alarm != nil {
			s.alarm.Stop()
		}
	}
	rt.report.Left = rt.pending()
	rt.watch.stop()
	rt.lower(f, true)
	if len(rt.report.Stuck) == 0 {
		rt.loops.Wait()
	}
	close(rt.done)
}
