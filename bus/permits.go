package bus

import (
	"cmp"
	"slices"
	"sync/atomic"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/spin"
)

// permits is the bus-wide limit of executors at once. There is one way to one:
// acquire, or wait in the FIFO until release passes one on. A stage that has
// none running finds one reserved as long as the limit allows.
type permits struct {
	kind    permitKind
	waits   atomic.Int32 // length of the queue, for a cheap look
	over    atomic.Bool  // more run than a lowered limit allows
	limited atomic.Bool  // there is a limit
	mu      struct {
		spin.Mutex
		limit   int // 0 is none
		running int
		idle    int // stages with a handler and none running
		queue   []*Stage
	}
}

// permitBook is what permits know of a stage; guarded by permits.mu.
type permitBook struct {
	held    int
	queued  bool // in line for one
	counted bool // keeps a reserved share
}

func (p *permits) book(s *Stage) *permitBook { return &s.permits[p.kind] }

// share is where it is counted what s holds: with the bus's permits the parts of
// a stage in sharded mode are one.
func (p *permits) share(s *Stage) *permitBook {
	if p.kind == ofBus && s.whole != nil {
		s = s.whole
	}
	return &s.permits[p.kind]
}

// adopt counts a permit that s uses already.
func (p *permits) adopt(s *Stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takeLocked(s)
	p.checkOverLocked()
}

// permitKind says what a permit is for.
type permitKind uint8

const (
	ofBus   permitKind = iota // to run at all: MaxHandlers
	ofShard                   // to run in the shard's loop
	ofWhole                   // to run for a stage: its Concurrency, over the shards
	permitKinds
)

// permitSet is what an executor holds; nil is none.
type permitSet struct{ shard, whole, bus *permits }

func (p *permitSet) put(one *permits) {
	switch {
	case one == nil:
	case one.kind == ofBus:
		p.bus = one
	case one.kind == ofShard:
		p.shard = one
	default:
		p.whole = one
	}
}

// loops says whether the executor runs in the shard's loop.
func (p *permitSet) loops() bool { return p.shard != nil }

// wanted says whether another stage waits for one of them.
func (p *permitSet) wanted() bool {
	return (p.shard != nil && p.shard.wanted()) || (p.whole != nil && p.whole.wanted()) || (p.bus != nil && p.bus.wanted())
}

// grant is a permit that was passed on to a stage that waited for it.
type grant struct {
	s *Stage
	p *permits
}

// releaseSet gives s's permits back and appends who gets them.
func (s *Stage) releaseSet(set permitSet, grants []grant) []grant {
	for _, p := range [...]*permits{set.bus, set.whole, set.shard} {
		if p != nil {
			if to := p.release(s); to != nil {
				grants = append(grants, grant{to, p})
			}
		}
	}
	return grants
}

// settleGrants lets those who got permits use them; then is an executor that the
// caller has to run, if it may.
func settleGrants(grants []grant, inline bool) (then *executor) {
	for len(grants) > 0 {
		last := len(grants) - 1
		g := grants[last]
		ex, more := g.s.startGranted(g.p)
		grants = append(grants[:last], more...)
		switch {
		case ex == nil:
		case inline && then == nil && ex.permit.loops():
			then = ex
		default:
			go ex.loop()
		}
	}
	return then
}

// acquire takes a permit for s, or lines it up for one.
func (p *permits) acquire(s *Stage) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.freeLocked(s) {
		p.takeLocked(s)
		return true
	}
	if k := p.book(s); !k.queued {
		k.queued = true
		at := len(p.mu.queue)
		for s.whole != nil && at > 0 && byTicket(s, p.mu.queue[at-1]) < 0 {
			at--
		}
		p.mu.queue = slices.Insert(p.mu.queue, at, s)
		p.waits.Store(int32(len(p.mu.queue)))
	}
	return false
}

// try is acquire that does not line s up.
func (p *permits) try(s *Stage) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	ok := p.freeLocked(s)
	if ok {
		p.takeLocked(s)
	}
	return ok
}

// freeLocked says whether s may have one more: the first if any is left, a
// further one only if the stages without one keep theirs.
func (p *permits) freeLocked(s *Stage) bool {
	if p.mu.limit == 0 {
		return true
	}
	if p.share(s).held == 0 || faults.On(faults.NoShare) {
		return p.mu.running < p.mu.limit
	}
	return p.mu.running+p.mu.idle < p.mu.limit
}

func (p *permits) takeLocked(s *Stage) {
	k := p.share(s)
	if k.held == 0 && k.counted {
		p.mu.idle--
	}
	k.held++
	p.mu.running++
	if p.kind == ofBus && s.whole != nil && len(p.mu.queue) > 1 {
		p.stepBackLocked(s.whole)
	}
}

// stepBackLocked moves the parts of a stage that has just got a permit behind the
// other stages: it takes turns with them as if it were one.
func (p *permits) stepBackLocked(whole *Stage) {
	for _, s := range p.mu.queue {
		if s.whole == whole {
			s.ticket.Store(whole.bus.tickets.Add(1))
		}
	}
	slices.SortStableFunc(p.mu.queue, byTicket)
}

// byTicket is the order of those who wait in sharded mode. They keep their place
// when they have to wait for something else first.
func byTicket(a, b *Stage) int { return cmp.Compare(a.ticket.Load(), b.ticket.Load()) }

// release gives a permit of s back and returns the stage that gets it, or nil.
func (p *permits) release(s *Stage) *Stage {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.share(s)
	k.held--
	p.mu.running--
	if k.held == 0 && k.counted {
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
		p.book(s).queued = false
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
	p.limited.Store(n > 0)
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
	k := p.share(s)
	if k.counted == on {
		return nil
	}
	k.counted = on
	switch {
	case k.held > 0:
	case on:
		p.mu.idle++
	default:
		p.mu.idle--
		return p.grantLocked()
	}
	return nil
}
