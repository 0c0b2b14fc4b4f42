package bus

import (
	"cmp"
	"context"
	"slices"
)

// What follows answers, for a stage of a bus in sharded mode, by its parts.

// gather appends what f lists for each part.
func gather[T any](s *Stage, f func(*Stage) []T) (out []T) {
	for _, p := range s.parts {
		out = append(out, f(p)...)
	}
	return out
}

func (s *Stage) inFlightOfParts() []InFlight {
	out := gather(s, (*Stage).InFlight)
	slices.SortFunc(out, func(a, b InFlight) int { return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(a.ID, b.ID)) })
	return out
}

func (s *Stage) delayedOfParts() []DelayedInfo {
	out := gather(s, (*Stage).Delayed)
	slices.SortFunc(out, func(a, b DelayedInfo) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID)) })
	return out
}

// applyToParts puts settings into force in every part.
func (s *Stage) applyToParts(old, next *StageConfig) {
	s.mu.Lock()
	s.mu.cfg = *next
	s.mu.Unlock()
	s.info.Store(&stageInfo{full: next.Full, capacity: next.Capacity, concurrency: next.Concurrency})
	for i, p := range s.parts {
		was, own := p.Config(), s.configOfPart(next, i)
		own.Capacity = was.Capacity // places are lent instead
		p.apply(&was, &own)
	}
	if next.Capacity != old.Capacity {
		s.resize(old.Capacity, next.Capacity)
	}
	s.limitParts(next)
}

// readParts adds up the readings of the parts.
func (s *Stage) readParts(dst *StageStats) {
	var one StageStats
	for i, p := range s.parts {
		p.ReadStats(&one)
		if i == 0 {
			*dst = one
			continue
		}
		dst.add(&one)
	}
	for i := range dst.Refused {
		dst.Refused[i] += s.refused[i].Load()
	}
	s.mu.Lock()
	dst.Capacity, dst.Concurrency = s.mu.cfg.Capacity, s.mu.cfg.Concurrency
	s.mu.Unlock()
}

// add adds another part's reading.
func (s *StageStats) add(o *StageStats) {
	s.Accepted += o.Accepted
	s.FromLetters += o.FromLetters
	s.FromRedrive += o.FromRedrive
	s.Entered += o.Entered
	s.CopiesMade += o.CopiesMade
	s.Hopped += o.Hopped
	s.Completed += o.Completed
	s.DeadLettered += o.DeadLettered
	s.Abandoned += o.Abandoned
	for i := range s.Dropped {
		s.Dropped[i] += o.Dropped[i]
		s.Refused[i] += o.Refused[i]
		s.Copies.Dropped[i] += o.Copies.Dropped[i]
	}
	s.Copies.Made += o.Copies.Made
	s.Copies.Completed += o.Copies.Completed
	s.Copies.DeadLettered += o.Copies.DeadLettered
	s.Copies.Abandoned += o.Copies.Abandoned
	s.Copies.Pending += o.Copies.Pending
	s.Delivered += o.Delivered
	s.Nacked += o.Nacked
	s.Retried += o.Retried
	s.Late += o.Late
	s.Panics += o.Panics
	s.Lapsed += o.Lapsed
	s.Detached += o.Detached
	s.Depth += o.Depth
	s.InFlight += o.InFlight
	s.Delayed += o.Delayed
	s.Parked += o.Parked
	s.Lagging += o.Lagging
	s.Waiters += o.Waiters
	s.Stuck += o.Stuck
	s.Executors += o.Executors
	s.MaxDepth += o.MaxDepth
	s.MaxInFlight += o.MaxInFlight
	s.OldestWaiting = max(s.OldestWaiting, o.OldestWaiting)
	s.OldestInFlight = max(s.OldestInFlight, o.OldestInFlight)
	s.Wait.h.Merge(&o.Wait.h)
	s.Service.h.Merge(&o.Service.h)
	s.Batch = max(s.Batch, o.Batch)
}

// awaitRoomInParts waits for room in the part that a publish from here goes to.
func (s *Stage) awaitRoomInParts(ctx context.Context) error {
	return s.partAt(s.bus.spread.turn(len(s.parts))).AwaitRoom(ctx)
}

// receiveFromParts fills dst from the parts in turn, or waits at all of them.
func (s *Stage) receiveFromParts(ctx context.Context, dst []*Lease) (int, error) {
	if ctx == nil || len(dst) == 0 {
		return 0, fault(s.where(), "Receive", "a nil context or an empty destination", "must not be")
	}
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := s.tryReceiveFromParts(dst)
		if n > 0 || err != nil {
			return n, err
		}
		if err := s.awaitPull(ctx); err != nil {
			return 0, err
		}
	}
}

func (s *Stage) tryReceiveFromParts(dst []*Lease) (n int, err error) {
	first := int(s.bus.spread.next.Add(1)) % len(s.parts)
	for i := range s.parts {
		got, failed := s.parts[(first+i)%len(s.parts)].tryReceive(dst[n:])
		if n += got; failed != nil {
			err = failed
		}
		if n == len(dst) {
			break
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, err
}

// awaitPull waits until some part may have something to receive.
func (s *Stage) awaitPull(ctx context.Context) error {
	ready := make(chan struct{}, len(s.parts))
	all := make([]*receiver, len(s.parts))
	for i, p := range s.parts {
		r := &receiver{ready: ready}
		all[i] = r
		p.mu.Lock()
		if p.pullEndedLocked() == nil && !p.pullReadyLocked() {
			p.mu.pull.waiting.push(r)
		} else {
			ready <- struct{}{}
		}
		p.unlockAndStart()
	}
	var err error
	select {
	case <-ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	for i, p := range s.parts {
		p.leaveReceivers(all[i])
	}
	return err
}
