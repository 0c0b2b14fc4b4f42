package shard

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/sedabus/seda/internal/clock"
)

// sealBit in a lane's tail says that nothing more is published in it. Both are
// set by one atomic operation each, so an item is either published before the
// seal, and taken along, or its push fails and finds the next world.
const sealBit = 1 << 63

// lane is a ring with one producer and one loop.
type lane[T any] struct {
	shard *Shard[T]
	slots []entry[T]
	mask  uint64
	room  chan struct{} // wakes the producer

	_    [cacheLine]byte
	wr   uint64        // the producer's: tail without the seal
	seen uint64        // the producer's: head when it last looked
	tail atomic.Uint64 // published by the producer's compare-and-swap

	_    [cacheLine]byte
	head atomic.Uint64 // published by the loop once a run
	rd   uint64        // the loop's: head
	idle int           // the loop's: turns in which it was empty

	_       [cacheLine]byte
	ready   atomic.Bool // the loop knows of it, or is being told
	waiting atomic.Bool // the producer waits for room
	closed  atomic.Bool // the producer was closed
	listed  bool        // in the inbox's list; guarded by its lock
	_       [cacheLine]byte
}

// size returns how many items wait.
func (l *lane[T]) size() int {
	head := l.head.Load() // first: tail never falls behind it
	return int(l.tail.Load()&^sealBit - head)
}

// tell puts the lane before its loop, after something was published.
func (l *lane[T]) tell() {
	if !l.ready.CompareAndSwap(false, true) {
		return
	}
	in := &l.shard.in
	in.mu.Lock()
	in.mu.ready = append(in.mu.ready, l)
	first := in.raise()
	in.mu.Unlock()
	if first {
		l.shard.kick()
	}
}

// Producer pushes items through lanes of its own, one for each shard it pushes
// to: without a lock, and many times faster than [Runtime.Push] when several
// push. It is used by one goroutine at a time. Items of one producer and key are
// handled in the order of the pushes.
type Producer[T any] struct {
	rt       *Runtime[T]
	world    *world[T]
	lanes    []*lane[T] // by shard
	at, left int        // where the next item without a key goes, and for how many more
	timer    *time.Timer
	closed   bool
}

// Producer returns a new producer. Close it when it is no longer used, for the
// memory of its lanes.
func (rt *Runtime[T]) Producer() *Producer[T] {
	p := &Producer[T]{rt: rt}
	p.renew()
	return p
}

// renew enters the world of this moment.
func (p *Producer[T]) renew() {
	w := p.rt.cur.Load()
	if w == p.world {
		return
	}
	p.world = w
	p.lanes = make([]*lane[T], len(w.shards))
	p.at = int(goroutine() % uint64(len(w.shards))) // so that not all begin at the same
	p.left = p.rt.cfg.Spread
}

// lane returns the lane to the shard of a hash; nil if the world is sealed.
func (p *Producer[T]) lane(hash uint64) *lane[T] {
	i := p.at
	if hash != 0 {
		i = p.world.layout.Of(hash)
	} else if p.left--; p.left < 0 {
		p.left = p.rt.cfg.Spread - 1
		if i++; i >= len(p.lanes) {
			i = 0
		}
		p.at = i
	}
	if l := p.lanes[i]; l != nil {
		return l
	}
	return p.open(i)
}

func (p *Producer[T]) open(i int) *lane[T] {
	s, size := p.world.shards[i], p.rt.cfg.Lane
	l := &lane[T]{shard: s, slots: make([]entry[T], size), mask: uint64(size - 1), room: make(chan struct{}, 1), listed: true}
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	if s.in.mu.sealed {
		return nil
	}
	s.in.mu.lanes = append(s.in.mu.lanes, l)
	p.lanes[i] = l
	return l
}

// TryPush gives v to the shard of the key with that hash, or spreads it if the
// hash is 0, and never waits. It returns [ErrFull] or [ErrClosed].
//
// hot: 0 allocs, no locks, no time.
func (p *Producer[T]) TryPush(hash uint64, v T) error {
	if p.closed || p.rt.closed.Load() {
		return ErrClosed
	}
	l := p.lane(hash)
	if l == nil {
		return p.tryAgain(hash, v)
	}
	if l.wr-l.seen > l.mask {
		if l.seen = l.head.Load(); l.wr-l.seen > l.mask {
			if p.stale() {
				return p.tryAgain(hash, v)
			}
			return ErrFull
		}
	}
	slot := &l.slots[l.wr&l.mask]
	slot.hash, slot.v = hash, v
	if !l.tail.CompareAndSwap(l.wr, l.wr+1) {
		return p.tryAgain(hash, v)
	}
	l.wr++
	if !l.ready.Load() {
		l.tell()
	}
	return nil
}

// stale tells whether the producer's world was replaced.
func (p *Producer[T]) stale() bool { return p.world != p.rt.cur.Load() }

// tryAgain is TryPush after a seal: once more if the next world is there.
func (p *Producer[T]) tryAgain(hash uint64, v T) error {
	if p.rt.closed.Load() {
		return ErrClosed
	}
	if !p.stale() {
		return ErrFull
	}
	p.renew()
	return p.TryPush(hash, v)
}

// Push is [Producer.TryPush] that waits for room until ctx ends. It then returns
// an error that matches [ErrFull] and the cause; if ctx was over at once, the
// cause alone. In a handler it waits a millisecond at most, then returns
// [ErrInside].
//
// hot: 0 allocs, no locks, no time where there is room.
func (p *Producer[T]) Push(ctx context.Context, hash uint64, v T) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for {
		err := p.TryPush(hash, v)
		if err != ErrFull { //nolint:errorlint // TryPush returns it as it is
			return err
		}
		if err := p.wait(ctx, hash); err != nil {
			return err
		}
	}
}

// PushBatch pushes items of one key, or without, and waits for room until ctx
// ends. It returns how many were accepted, from the first on, and why not more,
// as [Producer.Push] does. What is accepted is published in as few steps as there
// are free stretches of the lane. A batch without a key counts as one item for
// [Config.Spread].
func (p *Producer[T]) PushBatch(ctx context.Context, hash uint64, items []T) (n int, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	for n < len(items) {
		if p.closed || p.rt.closed.Load() {
			return n, ErrClosed
		}
		if p.stale() {
			p.renew()
		}
		k := 0
		if l := p.lane(hash); l != nil {
			k = l.publish(hash, items[n:])
		}
		n += k
		if k == 0 {
			if err := p.wait(ctx, hash); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// publish copies as many items as there is room for, and returns how many.
func (l *lane[T]) publish(hash uint64, items []T) int {
	free := l.mask + 1 - (l.wr - l.seen)
	if free < uint64(len(items)) {
		l.seen = l.head.Load()
		free = l.mask + 1 - (l.wr - l.seen)
	}
	k := min(free, uint64(len(items)))
	if k == 0 {
		return 0
	}
	for i := range k {
		slot := &l.slots[(l.wr+i)&l.mask]
		slot.hash, slot.v = hash, items[i]
	}
	if !l.tail.CompareAndSwap(l.wr, l.wr+k) {
		return 0
	}
	l.wr += k
	if !l.ready.Load() {
		l.tell()
	}
	return int(k)
}

// patientYields is how often a producer gives the processor away before it parks.
const patientYields = 4

// wait returns nil when it is worth trying again.
func (p *Producer[T]) wait(ctx context.Context, hash uint64) error {
	i := p.at
	if hash != 0 {
		i = p.world.layout.Of(hash)
	}
	l := p.lanes[i]
	var room chan struct{}
	if l != nil && l.tail.Load()&sealBit == 0 {
		for range patientYields {
			runtime.Gosched()
			if l.wr-l.head.Load() <= l.mask {
				return nil
			}
		}
		room = l.room
		l.waiting.Store(true)
		defer l.waiting.Store(false)
		if l.wr-l.head.Load() <= l.mask {
			return nil
		}
	}
	if p.timer == nil {
		p.timer = clock.NewTimer(insideAfter)
	} else {
		p.timer.Reset(insideAfter)
	}
	defer p.timer.Stop()
	for {
		select {
		case <-room:
			return nil
		case <-p.world.replaced:
			p.renew()
			return nil
		case <-p.rt.closing:
			return ErrClosed
		case <-ctx.Done():
			return fullError(ctx)
		case <-p.timer.C:
			if p.rt.onLoop() {
				return ErrInside
			}
		}
	}
}

// Close ends the producer. What it pushed is handled.
func (p *Producer[T]) Close() {
	if p.closed {
		return
	}
	p.closed = true
	for _, l := range p.lanes {
		if l != nil {
			l.closed.Store(true)
			l.tell()
		}
	}
	p.lanes = nil
}
