package bus

import (
	"context"

	"github.com/sedabus/seda/reason"
)

// AwaitRoom waits until a publish would find room, whatever the full policy,
// and returns nil; so a producer can wait before it reads its source. With
// Credit, Producer.Acquire says more: what it has got stays. It takes
// no place: others may be quicker, and in a stage of fast handlers it may return
// up to two milliseconds late. It returns ctx's error if that ends first,
// and ErrClosed once the bus takes nothing in any more.
func (s *Stage) AwaitRoom(ctx context.Context) error {
	if ctx == nil {
		return fault(s.where(), "ctx", "nil", "must not be nil")
	}
	if s.parts != nil {
		return s.awaitRoomInParts(ctx)
	}
	for {
		if err := ctx.Err(); err != nil {
			return overBecause(ctx)
		}
		s.mu.Lock()
		s.helpLocked()
		if s.roomOrEndLocked() {
			closed := s.shutToLocked(ctx)
			s.unlockAndStart()
			if closed {
				return s.refusal(reason.Closed, nil)
			}
			return nil
		}
		if s.mu.room == nil {
			s.mu.room = make(chan struct{})
		}
		room := s.mu.room
		s.unlockAndStart()
		select {
		case <-room:
		case <-ctx.Done():
		}
	}
}

// roomOrEndLocked says whether who waits for room has to look again.
func (s *Stage) roomOrEndLocked() bool {
	m := &s.mu
	return m.closed || m.draining || (s.free.Load() > m.shut && m.waiters.n == 0 && m.arrivals.Len() == 0 && s.grantsLocked())
}
