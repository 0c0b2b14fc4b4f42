package bus

import (
	"sync/atomic"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/spin"
)

// permits is the bus-wide limit of executors at once. There is one way to one:
// acquire, or wait in the FIFO until release passes one on. A stage that has
// none running finds one reserved as long as the limit allows.
type permits struct {
	waits atomic.Int32 // length of the queue, for a cheap look
	over  atomic.Bool  // more run than a lowered limit allows
	mu    struct {
		spin.Mutex
		limit   int // 0 is none
		running int
		idle    int // stages with a handler and none running
		queue   []*Stage
	}
}

// acquire takes a permit for s, or lines it up for one.
func (p *permits) acquire(s *Stage) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.freeLocked(s) {
		p.takeLocked(s)
		return true
	}
	if !s.permitQueued {
		s.permitQueued = true
		p.mu.queue = append(p.mu.queue, s)
		p.waits.Store(int32(len(p.mu.queue)))
	}
	return false
}

// freeLocked says whether s may have one more: the first if any is left, a
// further one only if the stages without one keep theirs.
func (p *permits) freeLocked(s *Stage) bool {
	if p.mu.limit == 0 {
		return true
	}
	if s.permits == 0 || faults.On(faults.NoShare) {
		return p.mu.running < p.mu.limit
	}
	return p.mu.running+p.mu.idle < p.mu.limit
}

func (p *permits) takeLocked(s *Stage) {
	if s.permits == 0 && s.counted {
		p.mu.idle--
	}
	s.permits++
	p.mu.running++
}

// release gives a permit of s back and returns the stage that gets it, or nil.
func (p *permits) release(s *Stage) *Stage {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.permits--
	p.mu.running--
	if s.permits == 0 && s.counted {
		p.mu.idle++
	}
	p.checkOverLocked()
	return p.grantLocked()
}

// grantLocked passes a free permit to the first in line that may have one.
func (p *permits) grantLocked() *Stage {
	for i, s := range p.mu.queue {
		if faults.On(faults.PermitLost) || !p.freeLocked(s) {
			continue
		}
		copy(p.mu.queue[i:], p.mu.queue[i+1:])
		last := len(p.mu.queue) - 1
		p.mu.queue[last] = nil
		p.mu.queue = p.mu.queue[:last]
		p.waits.Store(int32(last))
		s.permitQueued = false
		p.takeLocked(s)
		return s
	}
	return nil
}

// wanted says whether a stage waits for a permit, or too many are out.
func (p *permits) wanted() bool { return p.waits.Load() > 0 || p.over.Load() }

func (p *permits) checkOverLocked() {
	if over := p.mu.limit > 0 && p.mu.running > p.mu.limit; over != p.over.Load() {
		p.over.Store(over)
	}
}

// setLimit changes the limit and returns the stages that get permits by it.
func (p *permits) setLimit(n int) (grants []*Stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.limit = n
	p.checkOverLocked()
	for {
		s := p.grantLocked()
		if s == nil {
			return grants
		}
		grants = append(grants, s)
	}
}

// count enters s among the stages that keep a reserved share, or takes it out
// and returns the stage that gets a permit by that, or nil.
func (p *permits) count(s *Stage, on bool) (grant *Stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.counted == on {
		return nil
	}
	s.counted = on
	switch {
	case s.permits > 0:
	case on:
		p.mu.idle++
	default:
		p.mu.idle--
		return p.grantLocked()
	}
	return nil
}
