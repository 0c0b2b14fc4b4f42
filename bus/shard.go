package bus

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/sedabus/seda/internal/layout"
)

// In sharded mode a stage is the whole of its parts, one a shard. A part is a
// stage by itself, with its own queue, lock and executors. What the parts of one
// shard run, they run one after the other, on one goroutine at a time: the
// shard's only permit passes between them.

// runLoop is one shard: what its permit stands for.
type runLoop struct {
	index   int
	permits permits
}

// initShards makes the shards of a bus in sharded mode.
func (b *Bus) initShards() {
	n := b.cfg.Shards
	if n == 0 {
		return
	}
	for i := range n {
		sh := &runLoop{index: i}
		sh.permits.mu.limit, sh.permits.kind = 1, ofShard
		b.shards = append(b.shards, sh)
	}
	b.layout.Store(layout.NewLayout(n))
	b.spread.init(n)
}

// split makes the parts of a new stage.
func (b *Bus) split(s *Stage, c StageConfig) error {
	if len(b.shards) == 0 {
		return nil
	}
	s.limits.kind = ofWhole
	s.homes.Store(int32(b.homesFor(&c)))
	s.limitParts(&c)
	c.Shedder = nil // the parts share the whole's
	for i, sh := range b.shards {
		part, err := b.newStage(s.name, s.configOfPart(&c, i), s.index)
		if err != nil {
			return err
		}
		part.home, part.whole, part.blocking = sh, s, c.Blocking
		part.shareShedder(s)
		if c.Delivery == PubSub {
			part.mu.topic = newTopic(part)
			part.countLocked(true)
		}
		s.parts = append(s.parts, part)
	}
	s.setGateLocked(gateSharded, true)
	return nil
}

// homesFor is on how many shards a stage has its work.
func (b *Bus) homesFor(c *StageConfig) int {
	n := len(b.shards)
	switch {
	case c.Order == InOrder:
		return 1
	case c.Pull || c.anyShard:
		return n
	default:
		return min(n, c.Concurrency)
	}
}

// configOfPart is what the i-th part of a stage is set to.
func (s *Stage) configOfPart(c *StageConfig, i int) StageConfig {
	own := *c
	homes := int(s.homes.Load())
	i = (i - s.index%len(s.bus.shards) + len(s.bus.shards)) % len(s.bus.shards) // the i-th of its homes
	own.Capacity = 0
	if i < homes {
		own.Capacity = shareOf(c.Capacity, i, homes)
	}
	own.Credit = creditOfPart(c.Credit, i, homes)
	if c.Delivery != PubSub && !c.Pull && !c.Blocking && c.Concurrency <= homes {
		own.Concurrency = 1
	}
	return own
}

// shardDefaults fills in what means something else in sharded mode: a stage
// whose Concurrency is not set has one handler a shard.
func (b *Bus) shardDefaults(c *StageConfig) {
	if len(b.shards) == 0 || c.Concurrency != 0 {
		return
	}
	c.anyShard = true
	if c.Delivery != PubSub && c.Order != InOrder {
		c.Concurrency = len(b.shards)
	}
}

// workers are the stages that do s's work: its parts, or itself.
func (s *Stage) workers() []*Stage {
	if s.parts != nil {
		return s.parts
	}
	return []*Stage{s}
}

// nextFor is the next stage of e, which is s's: in sharded mode a part of it.
func (s *Stage) nextFor(e *Envelope) *Stage {
	return s.partAhead(e.Slip.resolve(s.bus), e)
}

// partAhead is the part of to, a next stage, that e goes to: the one on the same
// shard, unless e has a new key, or one of the two stages has fewer homes.
func (s *Stage) partAhead(to *Stage, e *Envelope) *Stage {
	if s.home == nil || to == nil || to.parts == nil {
		return to
	}
	if e.Meta == nil || e.Meta.rekey == nil {
		if n := int32(len(to.parts)); s.whole.homes.Load() == n {
			if to.homes.Load() == n {
				return to.parts[s.home.index]
			}
			return to.partAt(s.home.index)
		}
		return to.partOfKey(e.Key, e.id)
	}
	return to.partOfKey(*e.Meta.rekey, e.id)
}

// partAt is the part for what belongs to the i-th shard. A stage with fewer homes
// has them from another shard on than its neighbours.
func (s *Stage) partAt(i int) *Stage {
	homes := int(s.homes.Load())
	if homes == len(s.parts) {
		return s.parts[i]
	}
	return s.parts[(s.index+i%homes)%len(s.parts)]
}

// partOfKey is the part of those with that key; what has none is spread in runs
// of a few envelopes.
func (s *Stage) partOfKey(key string, id uint64) *Stage {
	if key == "" {
		return s.partAt(int(id / spreadRun % uint64(len(s.parts))))
	}
	return s.partAt(s.bus.layout.Load().Of(layout.Hash(key)))
}

// spreadRun is how many envelopes without a key go to the same shard in a row.
const spreadRun = 16

// spreadLot is that for publishes to stages of fast handlers.
const spreadLot = 1024

// partFor is the part that e is published to.
func (s *Stage) partFor(e *Envelope) *Stage {
	if e.Key == "" {
		if s.parts[0].slow.Load() {
			return s.partAt(s.bus.spread.turn(len(s.parts))) // each handler is to have some
		}
		return s.partAt(s.bus.spread.pick())
	}
	return s.partOfKey(e.Key, 0)
}

// partOf is the part for what comes from nowhere: dead letters and redrives.
func (s *Stage) partOf(e *Envelope) *Stage {
	if s == nil || s.parts == nil {
		return s
	}
	return s.partFor(e)
}

// sibling is the part of to for what comes from s's shard, or to itself.
func (s *Stage) sibling(to *Stage) *Stage {
	if to == nil || to.parts == nil || s.home == nil {
		return to
	}
	return to.partAt(s.home.index)
}

// leads says whether s speaks for its stage: it is no part, or the first one.
func (s *Stage) leads() bool { return s.home == nil || s.home.index == 0 }

func (s *Stage) publishPart(ctx context.Context, e *Envelope, par *parent) error {
	part := s.partFor(e)
	if part.gates.Load() != 0 || e.deadline != 0 || s.bus.cloggedFor(e) || par != nil {
		return part.publishSlow(ctx, e, par)
	}
	if ctx != nil && ctx.Err() != nil {
		return part.Publish(ctx, e)
	}
	return part.enter(ctx, e, nil)
}

// spread spreads work without a key over the shards. Who publishes on the same
// processor publishes a run of envelopes to the same shard, as long as the
// collector lets it.
type spread struct {
	n    int
	next atomic.Uint32
	pool sync.Pool
}

// spreadState is what is left of a processor's run to one shard.
type spreadState struct{ to, left int }

func (p *spread) init(n int) {
	p.n = n
	p.pool.New = func() any { return &spreadState{to: p.turn(n) - 1} }
}

// pick returns the shard of one envelope.
func (p *spread) pick() int {
	r, ok := p.pool.Get().(*spreadState)
	if !ok {
		return 0
	}
	if r.left--; r.left < 0 {
		r.left = spreadLot - 1
		if r.to++; r.to >= p.n {
			r.to = 0
		}
	}
	to := r.to
	p.pool.Put(r)
	return to
}

// turn is the shard of the next producer.
func (p *spread) turn(n int) int { return int(p.next.Add(1)) % n }

// eachPart calls f for all parts.
func (s *Stage) eachPart(f func(*Stage)) {
	for _, p := range s.parts {
		f(p)
	}
}

// ofParts joins the errors of f for all parts.
func (s *Stage) ofParts(f func(*Stage) error) error {
	var errs []error
	for _, p := range s.parts {
		errs = append(errs, f(p))
	}
	return errors.Join(errs...)
}

// shareOf is the i-th of n parts of what there is.
func shareOf(whole, i, n int) int {
	share := whole / n
	if i < whole%n {
		share++
	}
	return share
}
