package shard

import (
	"runtime"
	"time"

	"github.com/sedabus/seda/internal/clock"
)

// rest is what a loop does that found nothing: it looks again for a while, as
// configured, then parks. A parked loop has given everything back and over.
func (s *Shard[T]) rest() {
	defer func() { s.now = s.rt.clk.Now() }() // no run has begun yet
	s.busy.Store(0)
	s.intake(true)
	s.dropLanes(0)
	if s.wanted() {
		return
	}
	for range s.rt.cfg.Idle.Spin {
		if s.wanted() {
			return
		}
	}
	for range s.rt.cfg.Idle.Yield {
		if runtime.Gosched(); s.wanted() {
			return
		}
	}
	s.count.Parks++
	s.publish()
	s.state.Store(parked)
	s.arm() // after the mark, so that an alarm that goes off at once wakes it
	if s.wanted() && s.state.CompareAndSwap(parked, running) {
		return
	}
	if s.rt.closed.Load() {
		select {
		case s.rt.quiet <- struct{}{}:
		default:
		}
	}
	<-s.wake
}

// wanted tells whether there is something for the loop. Work that it must not
// take now is nothing; whoever lifts the brake wakes it.
func (s *Shard[T]) wanted() bool {
	if s.in.pending.Load() || s.rt.fence.Load() != nil || s.waits()-s.plain.Len() > 0 {
		return true
	}
	return len(s.active)+s.plain.Len() > 0 && s.rt.inside.Load() < int64(s.rt.cfg.Transit)
}

// waits returns how many items the loop has taken over.
func (s *Shard[T]) waits() int {
	return s.moved.Len() + s.transit.Len() + s.local.Len() + s.plain.Len()
}

// arm sets the alarm for the first of the delayed items.
func (s *Shard[T]) arm() {
	when, ok := s.delayed.Peek()
	if !ok {
		when = 0
	}
	if when == s.armed && when == 0 {
		return
	}
	s.armed = when
	switch {
	case when == 0:
		s.alarm.Stop()
	case s.alarm == nil:
		s.alarm = clock.AfterFunc(time.Duration(when-s.rt.clk.Now()), s.kick)
	default:
		s.alarm.Reset(time.Duration(when - s.rt.clk.Now()))
	}
}
