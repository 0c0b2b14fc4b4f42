package bus

import (
	"context"
	"sync/atomic"

	"github.com/sedabus/seda/internal/queue"
)

// producerOfParts is Stage.Producer in sharded mode: a handle that has one of its
// own for each part that it publishes to. What has no key goes to one of them.
func (s *Stage) producerOfParts() *Producer {
	return &Producer{stage: s, home: s.bus.spread.turn(len(s.parts)), parts: make([]atomic.Pointer[Producer], len(s.parts))}
}

func (p *Producer) partFor(e *Envelope) *Producer {
	if e.Key == "" {
		return p.atHome()
	}
	s := p.stage
	to := p.part(s.partOfKey(e.Key, 0).home.index)
	if s.holdsCredit.Load() {
		p.moveCredit(to)
	}
	return to
}

// atHome is the part of what has no key.
func (p *Producer) atHome() *Producer { return p.part(p.stage.partAt(p.home).home.index) }

// part is the producer's handle of the i-th part.
func (p *Producer) part(i int) *Producer {
	if part := p.parts[i].Load(); part != nil {
		return part
	}
	part := p.stage.parts[i].Producer()
	part.batch.owner = p
	part.acct.weight, part.acct.class = p.weight, max(p.class, part.acct.class)
	if !p.parts[i].CompareAndSwap(nil, part) { // Credits may be called from anywhere
		part.Close()
	}
	return p.parts[i].Load()
}

func (p *Producer) closeParts() {
	for i := range p.parts {
		if part := p.parts[i].Load(); part != nil {
			part.Close()
		}
	}
}

// strays says whether some envelope of the batch belongs to another part.
func (b *Batch) strays() bool {
	if b.owner == nil {
		return false
	}
	for i := range b.c.N {
		if e := &b.c.Items[i]; e.Key != "" && b.owner.partFor(e).stage != b.stage {
			return true
		}
	}
	return false
}

// publishByKey publishes each envelope of the batch to the part of its key. The
// order is kept within a part, and so for each key.
func (b *Batch) publishByKey(ctx context.Context) (accepted int, err error) {
	n := b.c.N
	var ways [queue.Len]*Producer
	for i := range n {
		ways[i] = b.owner.partFor(&b.c.Items[i])
	}
	all := b.c
	b.c = nil // its part may be one of the ways
	var errs [queue.Len]error
	for i := range n {
		way := ways[i]
		if way == nil {
			continue
		}
		var at [queue.Len]int
		one := way.Begin(queue.Len)
		for j := i; j < n; j++ {
			if ways[j] == way {
				at[one.Len()] = j
				*one.Next() = all.Items[j]
				ways[j] = nil
			}
		}
		k, _ := one.publish(ctx)
		accepted += k
		for m, verdict := range one.Errs() {
			errs[at[m]] = verdict
		}
	}
	all.Reset()
	b.bus().chunks.Put(all)
	b.errs = append(b.errs[:0], errs[:n]...)
	return accepted, b.tidyErrs()
}

// tidyErrs returns the first refusal, and forgets the verdicts if there is none.
func (b *Batch) tidyErrs() error {
	for _, verdict := range b.errs {
		if verdict != nil {
			return verdict
		}
	}
	b.errs = b.errs[:0]
	return nil
}

func (b *Batch) bus() *Bus { return b.stage.bus }
