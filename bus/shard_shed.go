package bus

import (
	"sync/atomic"

	"github.com/sedabus/seda/shedder"
)

// One shedder stands for a stage in sharded mode: it is told of the work of all
// parts together. A part leaves what it has in hand where its siblings can read
// it without its lock.

// partLoad is what a part has in hand, as of the last time its lock was released.
type partLoad struct{ waiting, busy atomic.Int32 }

// shareShedder lets a part use the shedder of its whole.
func (s *Stage) shareShedder(whole *Stage) {
	if whole.shed == nil {
		return
	}
	s.shed, s.door = whole.shed, whole.door
	s.laneless.Store(true)
}

// noteLoadLocked leaves what the part has in hand.
func (s *Stage) noteLoadLocked() {
	if s.shed == nil {
		return
	}
	s.load.waiting.Store(int32(s.startableLocked()))
	s.load.busy.Store(int32(s.mu.executed))
}

// addSiblings makes the load of a part that of its stage.
func (s *Stage) addSiblings(l *shedder.Load) {
	info := s.whole.info.Load()
	l.Capacity = info.capacity
	l.Concurrency = s.bus.handlersAtMost(info.concurrency)
	for _, p := range s.whole.parts {
		if p != s {
			l.Waiting += int(p.load.waiting.Load())
			l.Busy += int(p.load.busy.Load())
		}
	}
}

// partAsked is the part whose shedder is asked about e, which comes from s.
func (s *Stage) partAsked(to *Stage, e *Envelope) *Stage {
	if to == nil || to.parts == nil {
		return to
	}
	if s.home != nil && e.Key == "" {
		return s.sibling(to)
	}
	return to.partOf(e)
}

// boundOfPart is what the siblings leave of a bound.
func (s *Stage) boundOfPart(bound int) int {
	for _, p := range s.whole.parts {
		if p != s {
			bound -= int(p.load.waiting.Load())
		}
	}
	return max(1, bound)
}
