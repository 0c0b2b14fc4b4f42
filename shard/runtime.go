package shard

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sedabus/seda/internal/clock"
	"github.com/sedabus/seda/internal/queue"
)

// cacheLine keeps what different processors write apart.
const cacheLine = 64

// entry is what queues hold: an item and the hash of its key, 0 for none.
type entry[T any] struct {
	hash uint64
	v    T
}

// Runtime is a number of shards, each with one loop that handles items one after
// the other. A key's items are handled by one shard, in the order in which one
// producer or one handler gave them. Its methods are safe for concurrent use.
type Runtime[T any] struct {
	cfg    Config[T] // with defaults; immutable
	scrub  bool      // handled slots are cleared, so that they keep nothing alive
	clk    *clock.Clock
	shared *sync.Pool // what the chunk pools of all shards share

	cur    atomic.Pointer[world[T]]
	fence  atomic.Pointer[fence] // not nil: loops stop at the next item
	closed atomic.Bool           // no intake from outside

	_      [cacheLine]byte
	inside atomic.Int64 // sent by handlers and not yet handled; each loop adds its share once a turn
	_      [cacheLine]byte

	admin   chan struct{} // holds a token while somebody changes or ends the world
	caller  atomic.Uint64 // the goroutine that runs OnResize
	closing chan struct{} // closed with closed
	begin   sync.Once     // of the closing
	quiet   chan struct{} // a hint that a loop parked while closing
	cut     chan struct{} // closed when a Close had no more time
	cutOnce sync.Once
	why     error         // the cause of the cut; written before cut is closed
	done    chan struct{} // closed when the last loop was told to end
	report  Report        // written before done is closed
	loops   sync.WaitGroup

	totals struct {
		sync.Mutex          // also held while cur is replaced, so that no count is seen twice
		gone       Counters // of shards that are no more
		resizes    uint64
	}
	watch watch
}

// world is the shards of one layout. A change of the number replaces it whole.
type world[T any] struct {
	layout   *Layout
	shards   []*Shard[T]
	replaced chan struct{} // closed when the next world has taken over
	// unsettled is the number of shards that still have what the change moved.
	unsettled atomic.Int32
}

// New returns a runtime whose shards run. It must be ended with [Runtime.Close].
// The errors match [ErrInvalid] or [ErrAffinity].
func New[T any](cfg Config[T]) (*Runtime[T], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(cfg.Pin.CPUs) > 0 {
		if err := canBind(cfg.Pin.CPUs); err != nil {
			return nil, err
		}
	}
	rt := &Runtime[T]{
		cfg:     cfg.withDefaults(),
		scrub:   pointers(reflect.TypeFor[T]()),
		clk:     clock.New(),
		shared:  queue.NewShared[entry[T]](),
		admin:   make(chan struct{}, 1),
		closing: make(chan struct{}),
		quiet:   make(chan struct{}, 1),
		cut:     make(chan struct{}),
		done:    make(chan struct{}),
	}
	w := rt.newWorld(NewLayout(rt.cfg.Shards))
	rt.cur.Store(w)
	rt.start(w)
	if rt.cfg.Stall > 0 {
		rt.watch.arm(rt.cfg.Stall/2, rt.lookForStalls)
	}
	return rt, nil
}

func (rt *Runtime[T]) newWorld(l *Layout) *world[T] {
	w := &world[T]{layout: l, shards: make([]*Shard[T], l.Shards()), replaced: make(chan struct{})}
	for i := range w.shards {
		w.shards[i] = newShard(rt, w, i)
	}
	return w
}

// start starts the loops; each ends when a fence tells it so.
func (rt *Runtime[T]) start(w *world[T]) {
	for _, s := range w.shards {
		rt.loops.Add(1)
		go s.loop()
	}
}

// Layout returns the layout of this moment.
func (rt *Runtime[T]) Layout() *Layout { return rt.cur.Load().layout }

// TryPush gives v to the shard of the key with that hash, or spreads it if the
// hash is 0, and never waits. It returns [ErrFull] or [ErrClosed]. Items that one
// goroutine pushes with one key are handled in that order.
//
// hot: 0 allocs, no time.
func (rt *Runtime[T]) TryPush(hash uint64, v T) error {
	if rt.closed.Load() {
		return ErrClosed
	}
	e := entry[T]{hash, v}
	switch rt.cur.Load().shardOf(hash).post(&e, nil) {
	case accepted:
		return nil
	case sealed:
		if rt.closed.Load() {
			return ErrClosed
		}
	}
	return ErrFull
}

// Push is [Runtime.TryPush] that waits for room until ctx ends, behind those that
// wait already. It then returns an error that matches [ErrFull] and the cause; if
// ctx was over at once, the cause alone. In a handler it waits a millisecond at
// most, then returns [ErrInside]. It allocates where it waits.
func (rt *Runtime[T]) Push(ctx context.Context, hash uint64, v T) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e := entry[T]{hash, v}
	for {
		if rt.closed.Load() {
			return ErrClosed
		}
		w := rt.cur.Load()
		s := w.shardOf(hash)
		r := s.post(&e, nil)
		if r == accepted {
			return nil
		}
		wt := &waiter[T]{e: e, ready: make(chan struct{})}
		if r == full {
			r = s.post(&e, wt)
		}
		if r == accepted {
			return nil
		}
		if again, err := rt.await(ctx, w, s, wt); !again {
			return err
		}
	}
}

// insideAfter is after how long a wait makes sure that it is not in a handler,
// which costs a microsecond or two.
const insideAfter = time.Millisecond

// await waits until wt, which is in line at s unless that is sealed, is granted;
// again says to begin anew.
func (rt *Runtime[T]) await(ctx context.Context, w *world[T], s *Shard[T], wt *waiter[T]) (again bool, err error) {
	look := clock.NewTimer(insideAfter)
	defer look.Stop()
	for !again && err == nil {
		select {
		case <-wt.ready:
			return false, nil
		case <-w.replaced:
			again = true
		case <-rt.closing:
			err = ErrClosed
		case <-ctx.Done():
			err = fullError(ctx)
		case <-look.C:
			if rt.onLoop() {
				err = ErrInside
			}
		}
	}
	if s.giveUp(wt) { // else it was granted in the same moment
		return again, err
	}
	return false, nil
}

// fullError is the end of a wait.
func fullError(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrFull, context.Cause(ctx)) }

// shardOf returns the shard of a hash; one at random for 0, so that pushers
// without a key do not all meet at one lock.
func (w *world[T]) shardOf(hash uint64) *Shard[T] {
	if hash == 0 {
		return w.shards[rand.Uint64N(uint64(len(w.shards)))]
	}
	return w.shards[w.layout.Of(hash)]
}

// onLoop tells whether the caller is a loop, or runs OnResize. It costs a
// microsecond or two, and a lock that all of the process shares.
func (rt *Runtime[T]) onLoop() bool {
	id := goroutine()
	if rt.caller.Load() == id {
		return true
	}
	for _, s := range rt.cur.Load().shards {
		if s.goid.Load() == id {
			return true
		}
	}
	return false
}

// goroutine returns the number of the calling goroutine.
func goroutine() uint64 {
	var b [64]byte
	text := strings.TrimPrefix(string(b[:runtime.Stack(b[:], false)]), "goroutine ")
	number, _, _ := strings.Cut(text, " ")
	id, _ := strconv.ParseUint(number, 10, 64) // 0, which is nobody's, if the format should change
	return id
}

// pending is what was accepted and not yet handled: exact while nothing moves,
// else as of the last turn of each shard.
func (rt *Runtime[T]) pending() int {
	n := rt.inside.Load()
	for _, s := range rt.cur.Load().shards {
		n += int64(s.outside())
	}
	return int(max(n, 0))
}

// crossing adds to the number inside and lifts the brake of those that wait for
// it to fall below the bound.
func (rt *Runtime[T]) crossing(w *world[T], delta int64) {
	now, bound := rt.inside.Add(delta), int64(rt.cfg.Transit)
	if now < bound && now-delta >= bound {
		for _, s := range w.shards {
			if s.braked.Load() {
				s.kick()
			}
		}
	}
}

// pointers tells whether values of t can keep other memory alive.
func pointers(t reflect.Type) bool {
	switch k := t.Kind(); {
	case k <= reflect.Complex128: // and Invalid, which no type parameter is
		return false
	case k == reflect.Array:
		return t.Len() > 0 && pointers(t.Elem())
	case k == reflect.Struct:
		for f := range t.Fields() {
			if pointers(f.Type) {
				return true
			}
		}
		return false
	}
	return true
}

// watch is the timer of the stall detector.
type watch struct {
	mu struct {
		sync.Mutex
		timer *time.Timer
		over  bool
	}
}

// arm calls f after d unless the watch is over.
func (w *watch) arm(d time.Duration, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mu.over {
		w.mu.timer = clock.AfterFunc(d, f)
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.over = true; w.mu.timer != nil {
		w.mu.timer.Stop()
	}
}
