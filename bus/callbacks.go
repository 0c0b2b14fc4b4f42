package bus

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sedabus/seda/internal/clock"
	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/queue"
)

// callbacks runs completion callbacks in the order of the ends, on a goroutine
// that exists while there are any.
type callbacks struct {
	bus    *Bus
	chunks *sync.Pool
	left   atomic.Int64 // added and not begun

	mu struct {
		sync.Mutex
		todo    queue.FIFO[callback]
		pool    queue.Pool[callback]
		running bool
		idle    chan struct{} // closed when nothing is left; nil while nobody waits
		room    chan struct{} // closed when there is room again; nil while nobody waits
	}
	cur *queue.Chunk[callback] // owned by the goroutine that runs
}

type callback struct {
	f func(Result)
	r Result
}

const (
	// callbacksBound is how many callbacks may wait before executors give the
	// goroutine that runs them a chance to catch up.
	callbacksBound = 1 << 13
	// callbacksGrace is how long an executor waits for that at a time. It has an
	// end because a callback may itself wait for the executor.
	callbacksGrace = 10 * time.Millisecond
)

func (c *callbacks) init(b *Bus) {
	c.bus = b
	c.chunks = queue.NewShared[callback]()
	c.mu.pool = queue.NewPool[callback](c.chunks)
}

// add queues one callback.
func (c *callbacks) add(f func(Result), r Result) {
	c.left.Add(1)
	c.mu.Lock()
	slot, _ := c.mu.todo.Slot(&c.mu.pool)
	*slot = callback{f, r}
	c.startUnlock()
}

// addAll queues a chunk of callbacks and empties it.
func (c *callbacks) addAll(cs *queue.Chunk[callback]) *queue.Chunk[callback] {
	c.left.Add(int64(cs.Size()))
	c.mu.Lock()
	cs = c.mu.todo.PushChunk(&c.mu.pool, cs)
	c.startUnlock()
	return cs
}

func (c *callbacks) startUnlock() {
	start := !c.mu.running
	c.mu.running = true
	c.mu.Unlock()
	if start {
		go c.run() // ends when there is nothing left to call
	}
}

func (c *callbacks) run() {
	ended := false
	defer func() {
		if !ended && !faults.On(faults.CallbackDies) { // a callback called Goexit: another goroutine goes on
			go c.run()
		}
	}()
	for c.fill() {
		for c.cur.Rd < c.cur.N {
			cb := c.cur.Items[c.cur.Rd]
			c.cur.Items[c.cur.Rd] = callback{}
			c.cur.Rd++
			c.left.Add(-1)
			c.bus.contain("callback", cb.r.Stage, cb.r.ID, func() { cb.f(cb.r) })
		}
	}
	ended = true
	c.bus.settled()
}

// fill takes what has come meanwhile; it reports false when nothing is left.
func (c *callbacks) fill() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cur != nil && c.cur.Rd < c.cur.N {
		return true
	}
	if c.cur != nil {
		c.mu.pool.Put(c.cur)
		c.cur = nil
	}
	if c.mu.room != nil && c.left.Load() < callbacksBound/2 {
		close(c.mu.room)
		c.mu.room = nil
	}
	if c.mu.todo.Len() > 0 {
		c.cur = c.mu.todo.TakeHead()
		return true
	}
	c.mu.running = false
	if c.mu.idle != nil {
		close(c.mu.idle)
		c.mu.idle = nil
	}
	return false
}

// throttle lets the callbacks catch up for a moment if too many wait. No lock
// is held.
func (c *callbacks) throttle() {
	if c.left.Load() < callbacksBound {
		return
	}
	c.mu.Lock()
	if c.mu.room == nil {
		c.mu.room = make(chan struct{})
	}
	room := c.mu.room
	c.mu.Unlock()
	t := clock.NewTimer(callbacksGrace)
	defer t.Stop()
	select {
	case <-room:
	case <-t.C:
	}
}

// pending is the number of callbacks that have not begun.
func (c *callbacks) pending() int { return int(c.left.Load()) }

// idle says whether no callback is left, nor running.
func (c *callbacks) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.mu.running
}

// wait returns when no callback is left, when ctx has ended or when cut is
// closed, and whether none is left.
func (c *callbacks) wait(ctx context.Context, cut <-chan struct{}) bool {
	c.mu.Lock()
	if !c.mu.running {
		c.mu.Unlock()
		return true
	}
	if c.mu.idle == nil {
		c.mu.idle = make(chan struct{})
	}
	idle := c.mu.idle
	c.mu.Unlock()
	select {
	case <-idle:
		return true
	case <-ctx.Done():
	case <-cut:
	}
	return c.idle()
}

// gathered collects the callbacks of a settled chunk.
type gathered struct{ c *queue.Chunk[callback] }

func (g *gathered) add(b *Bus, f func(Result), r Result) {
	if g.c == nil {
		g.c, _ = b.callbacks.chunks.Get().(*queue.Chunk[callback])
	}
	g.c.Items[g.c.N] = callback{f, r}
	if g.c.N++; g.c.N == queue.Len {
		g.c = b.callbacks.addAll(g.c)
	}
}

func (g *gathered) flush(b *Bus) {
	if g.c == nil {
		return
	}
	if g.c.N > 0 {
		g.c = b.callbacks.addAll(g.c)
	}
	b.callbacks.chunks.Put(g.c)
	g.c = nil
}
