package bus

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/sedabus/seda/internal/queue"
	"github.com/sedabus/seda/reason"
)

// Producer publishes to one stage and keeps the order of its envelopes, also
// where several are handled at once: they start in that order. It is several
// times faster than Stage.Publish where many publish at once, because it has a
// lane of its own into the stage. A stage with Classes, or that drops the
// oldest, has no lanes, and only the first 256 producers of a stage have
// one; the others publish like Stage.Publish.
//
// It belongs to one goroutine at a time.
type Producer struct {
	stage         *Stage
	lane          *lane
	acct          *account // the lane's, or one of its own
	batch         Batch
	home          int
	weight, class int                        // in sharded mode, for its parts
	parts         []atomic.Pointer[Producer] // in sharded mode, one a part; made when needed
}

// Producer returns a handle for publishing to the stage. Close it when it is
// no longer needed. One that is forgotten loses nothing: what it has published
// is handled, and once it was collected its lane is closed when the stage next
// needs room or makes a Producer.
func (s *Stage) Producer() *Producer {
	if s.parts != nil {
		return s.producerOfParts()
	}
	p := &Producer{stage: s, lane: s.newLane()}
	if p.lane != nil {
		p.acct = &p.lane.acct
		runtime.AddCleanup(p, (*lane).forget, p.lane)
	} else {
		p.acct = newAccount(s)
		runtime.AddCleanup(p, (*account).forget, p.acct)
	}
	if cl := s.mu.classes; cl != nil { // immutable, but for what it holds
		p.acct.class = len(cl.classes) - 1
	}
	p.batch.stage, p.batch.lane, p.batch.acct, p.batch.self = s, p.lane, p.acct, p
	return p
}

// Publish is Stage.Publish.
func (p *Producer) Publish(ctx context.Context, e *Envelope) error {
	s, l := p.stage, p.lane
	if ctx == nil || e == nil {
		return s.Publish(ctx, e) // says what is wrong
	}
	if p.parts != nil {
		return p.partFor(e).Publish(ctx, e)
	}
	if l == nil {
		err := s.publishSlow(ctx, e, &p.acct.par)
		runtime.KeepAlive(p)
		return err
	}
	if s.gates.Load() != 0 || e.deadline != 0 || s.bus.cloggedFor(e) {
		return s.publishSlow(ctx, e, &l.par)
	}
	if ctx.Err() != nil {
		return s.refuse(reason.Canceled, overBecause(ctx))
	}
	err := l.put(ctx, e)
	runtime.KeepAlive(p) // or the lane could be closed under way
	return err
}

// TryPublish is Stage.TryPublish.
func (p *Producer) TryPublish(e *Envelope) error {
	s, l := p.stage, p.lane
	if e == nil {
		return s.TryPublish(e) // says what is wrong
	}
	if p.parts != nil {
		return p.partFor(e).TryPublish(e)
	}
	if l == nil {
		err := s.publishSlow(nil, e, &p.acct.par) //nolint:staticcheck // no context: never waits
		runtime.KeepAlive(p)
		return err
	}
	if s.gates.Load() != 0 || e.deadline != 0 || s.bus.cloggedFor(e) {
		return s.publishSlow(nil, e, &l.par) //nolint:staticcheck // no context: never waits
	}
	err := l.put(nil, e) //nolint:staticcheck // no context: never waits
	runtime.KeepAlive(p)
	return err
}

// Close gives back what the handle holds; what it has published is safe. A
// publish after Close works like Stage.Publish.
func (p *Producer) Close() {
	if p.parts != nil {
		p.closeParts()
		return
	}
	if l := p.lane; l != nil {
		p.lane, p.batch.lane = nil, nil
		l.close()
	}
	p.acct.close()
}

// Begin returns the producer's batch for up to n envelopes, from 1 to 64;
// other values are taken as the nearest one. The batch of an earlier Begin
// that was not published is discarded.
func (p *Producer) Begin(n int) *Batch {
	if p.parts != nil {
		return p.atHome().Begin(n)
	}
	b := &p.batch
	b.limit = min(max(1, n), queue.Len)
	b.errs = b.errs[:0]
	if b.c == nil {
		b.c, _ = p.stage.bus.chunks.Get().(*chunk)
	}
	b.c.Reset()
	return b
}

// Batch is a set of envelopes that is filled in place and published in one go.
type Batch struct {
	self  *Producer
	stage *Stage
	lane  *lane
	acct  *account
	c     *chunk
	limit int
	errs  []error
	owner *Producer // in sharded mode, of which its producer is one part
}

// Next returns the next envelope to fill, empty, or nil when the batch has as
// many as Begin was told. It is valid until Publish.
func (b *Batch) Next() *Envelope {
	if b.c == nil || b.c.N >= b.limit {
		return nil
	}
	b.c.N++
	return &b.c.Items[b.c.N-1]
}

// Len returns the number of envelopes taken with Next.
func (b *Batch) Len() int {
	if b.c == nil {
		return 0
	}
	return b.c.N
}

// Publish publishes the envelopes in order and returns how many were accepted.
// It is not atomic: each has its own verdict in Errs, and err is the first
// refusal. The batch is empty afterwards; call Begin for the next one.
func (b *Batch) Publish(ctx context.Context) (accepted int, err error) {
	if b.c == nil || b.c.N == 0 {
		return 0, nil
	}
	if b.strays() {
		return b.publishByKey(ctx)
	}
	return b.publish(ctx)
}

func (b *Batch) publish(ctx context.Context) (accepted int, err error) {
	n := b.c.N
	b.errs = b.errs[:0]
	for i := 0; i < n; {
		if k := b.publishSome(ctx, i, n); k > 0 {
			accepted += k
			b.errs = append(b.errs, make([]error, k)...)
			i += k
			continue
		}
		verdict := b.self.Publish(ctx, &b.c.Items[i])
		b.errs = append(b.errs, verdict)
		if verdict == nil {
			accepted++
		} else if err == nil {
			err = verdict
		}
		i++
	}
	if err == nil {
		b.errs = b.errs[:0]
	}
	b.c.Reset()
	return accepted, err
}

// Errs returns the verdicts of the last Publish in order; nil means that all
// were accepted. It is valid until the next Begin.
func (b *Batch) Errs() []error {
	if len(b.errs) == 0 {
		return nil
	}
	return b.errs
}

// publishSome moves envelopes i to n in as a chunk, as far as there is room for
// a fair number of them and none needs a look of its own. It returns how many.
func (b *Batch) publishSome(ctx context.Context, i, n int) int {
	s := b.stage
	if ctx == nil || n-i < 2 || s.gates.Load() != 0 || s.mu.classes != nil || ctx.Err() != nil {
		return 0
	}
	for k := i; k < n; k++ {
		if e := &b.c.Items[k]; e.deadline != 0 || s.bus.cloggedFor(e) {
			return 0
		}
	}
	now := s.stamp()
	s.mu.Lock()
	m := &s.mu
	k := b.takePlacesLocked(n - i)
	if k == 0 {
		s.mu.Unlock()
		return 0
	}
	m.minFree = min(m.minFree, s.free.Load())
	if s.unwatchedLocked() {
		now = s.bus.clock.Tick()
	}
	for j := i; j < i+k; j++ {
		s.initLocked(&b.c.Items[j], nil, now)
	}
	if k == b.c.N {
		b.c = b.moveLocked(b.c)
	} else {
		part := m.pool.Get()
		part.Append(b.c, i, i+k)
		m.pool.Put(b.moveLocked(part))
	}
	s.unlockAndStart()
	return k
}

// takePlacesLocked takes up to n places, or none if there are too few.
func (b *Batch) takePlacesLocked(n int) int {
	s := b.stage
	m := &s.mu
	switch {
	case m.draining:
		return 0
	case m.desk != nil:
		return s.spendManyLocked(b.acct, n)
	case m.waiters.n > 0 || m.arrivals.Len() > 0:
		return 0
	default:
		return s.takeAtLeast(min(n, worthMoving), n)
	}
}

// worthMoving is the number of envelopes from which moving a part of a batch is
// cheaper than waiting for more room.
const worthMoving = 16

// moveLocked enters the whole chunk, behind what the producer's lane has, and
// returns an empty one.
func (b *Batch) moveLocked(c *chunk) *chunk {
	s := b.stage
	m := &s.mu
	if l := b.lane; l != nil && !l.off && !s.laneless.Load() {
		if l.unreadLocked() > 0 {
			l.sealLocked()
		}
		s.countLanedLocked(c.Size())
		c = l.full.PushChunk(&m.pool, c)
		l.listLocked()
		return c
	}
	m.count.accepted += uint64(c.Size())
	m.count.entered += uint64(c.Size())
	if m.keyed != nil {
		var one fifo
		c = one.PushChunk(&m.pool, c)
		m.keyed.pushAll(&m.pool, &one)
		return c
	}
	return m.q.PushChunk(&m.pool, c)
}
