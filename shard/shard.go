package shard

import (
	"container/list"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sedabus/seda/internal/queue"
	"github.com/sedabus/seda/internal/spin"
	"github.com/sedabus/seda/internal/timer"
)

// What became of an item that was given to a shard.
const (
	accepted = iota
	full
	sealed // the world is about to be replaced, or closed
)

// States of a loop.
const (
	running = iota
	parked
)

// Shard is one of the shards of a [Runtime], as its handlers see it. It is valid
// during the call and must only be used by the goroutine of the call; a change
// of the number of shards replaces all of them.
type Shard[T any] struct {
	rt    *Runtime[T]
	world *world[T]
	index int

	// Written by any goroutine.
	_     [cacheLine]byte
	state atomic.Uint32 // running or parked; whoever turns it to running sends to wake
	wake  chan struct{}
	in    inbox[T]
	_     [cacheLine]byte

	// Owned by the loop; by whoever stopped the world while it stands.
	moved     queue.FIFO[entry[T]] // from before a change of the number; goes first
	transit   queue.FIFO[entry[T]] // from other shards
	local     queue.FIFO[entry[T]] // from this one
	plain     queue.FIFO[entry[T]] // from outside, without a producer
	active    []*lane[T]           // of producers that have something, or just had
	pool      queue.Pool[entry[T]]
	out       []*queue.Chunk[entry[T]] // by shard, what goes there next
	dirty     []int                    // the shards with one
	run       run[T]
	length    int    // of the next run
	free      bool   // the item in hand may still pass its place on
	key       uint64 // hash of the item in hand
	delta     int64  // what inside does not know yet
	freed     int    // places of the mailbox that it does not know of yet
	now       int64  // as of the end of the last run
	flushed   int64  // when out was empty last
	at, left  int    // where the next item without a key goes, and for how many more
	delayed   timer.Heap[entry[T]]
	alarm     *time.Timer
	armed     int64 // when the alarm goes off, 0 for never
	count     Counters
	published struct {
		sync.Mutex
		Counters
	}

	braked atomic.Bool           // takes nothing from outside
	busy   atomic.Int64          // since when the loop is in a run, or 0
	note   atomic.Int64          // see Note
	goid   atomic.Uint64         // the loop's goroutine
	here   atomic.Pointer[fence] // where the loop arrived last

	stall struct { // the watch's own
		since, told int64
	}
}

// inbox is where others leave what a shard shall handle.
type inbox[T any] struct {
	pending atomic.Bool // there is something; set with the lock held
	mu      struct {
		spin.Mutex
		sealed  bool // nothing comes in from outside any more
		pool    queue.Pool[entry[T]]
		transit queue.FIFO[entry[T]]
		plain   queue.FIFO[entry[T]]
		held    int        // accepted for plain and not known to be handled
		waiting list.List  // of *waiter, first come first served
		ready   []*lane[T] // not active yet
		lanes   []*lane[T] // all
	}
}

// waiter is a Push that waits for room.
type waiter[T any] struct {
	e       entry[T]
	place   *list.Element
	granted bool
	ready   chan struct{} // closed when granted
}

func newShard[T any](rt *Runtime[T], w *world[T], index int) *Shard[T] {
	s := &Shard[T]{
		rt: rt, world: w, index: index, wake: make(chan struct{}, 1),
		pool: queue.NewPool[entry[T]](rt.shared), out: make([]*queue.Chunk[entry[T]], w.layout.Shards()),
		length: 1, at: index, left: rt.cfg.Spread,
	}
	s.in.mu.pool = queue.NewPool[entry[T]](rt.shared)
	return s
}

// Index returns the shard's number, from 0 on.
func (s *Shard[T]) Index() int { return s.index }

// Layout returns the layout that the shard is part of.
func (s *Shard[T]) Layout() *Layout { return s.world.layout }

// Key returns the hash with which the item in hand came, 0 if it has no key.
func (s *Shard[T]) Key() uint64 { return s.key }

// Note says what the handler is at, in numbers of the caller's choice, for
// [Stall] and [Snapshot].
func (s *Shard[T]) Note(n int64) { s.note.Store(n) }

// Send gives v to the shard of the key with that hash, or to one after the other
// if the hash is 0; it never waits. The first Send of each item passes the item's
// place on and is never refused, so that a pipeline always ends; from twice
// [Config.Transit] on, further ones return [ErrFull].
//
// hot: 0 allocs, no time; a lock for each chunk of 64 that goes to another shard.
func (s *Shard[T]) Send(hash uint64, v T) error {
	if !s.room() {
		return ErrFull
	}
	s.Forward(hash, v)
	return nil
}

// Keep is [Shard.Send] of an item without a key that stays on this shard.
func (s *Shard[T]) Keep(v T) error {
	if !s.room() {
		return ErrFull
	}
	s.count.Kept++
	s.delta++
	slot, _ := s.local.Slot(&s.pool)
	slot.hash, slot.v = 0, v
	return nil
}

// room tells whether one more item may be sent.
func (s *Shard[T]) room() bool {
	if s.free {
		s.free = false
		return true
	}
	return s.rt.inside.Load()+s.delta < 2*int64(s.rt.cfg.Transit)
}

// Forward is [Shard.Send] that is never refused: the caller keeps the number of
// items bounded.
//
// hot: 0 allocs, no time; a lock for each chunk of 64 that goes to another shard.
func (s *Shard[T]) Forward(hash uint64, v T) {
	s.delta++
	to := s.target(hash)
	if to == s.index {
		s.count.Kept++
		slot, _ := s.local.Slot(&s.pool)
		slot.hash, slot.v = hash, v
		return
	}
	s.count.Sent++
	c := s.out[to]
	if c == nil {
		c = s.pool.Get()
		s.out[to] = c
		s.dirty = append(s.dirty, to)
	}
	slot := &c.Items[c.N]
	slot.hash, slot.v = hash, v
	if c.N++; c.N == queue.Len {
		s.hand(to)
	}
}

// After gives v to the shard of its key once d is over. It allocates. What is
// not due when the runtime is closed is dropped and stands in the report; a
// change of the number of shards takes it along. The caller keeps the number of
// such items bounded.
func (s *Shard[T]) After(d time.Duration, hash uint64, v T) {
	now := s.rt.clk.Now()
	when := int64(math.MaxInt64)
	if wait := int64(max(d, 0)); wait < when-now {
		when = now + wait
	}
	s.delayed.Push(when, entry[T]{hash, v})
}

// target returns the index of a hash's shard.
func (s *Shard[T]) target(hash uint64) int {
	if hash != 0 {
		return s.world.layout.Of(hash)
	}
	if s.left--; s.left < 0 {
		s.left = s.rt.cfg.Spread - 1
		if s.at++; s.at >= len(s.world.shards) {
			s.at = 0
		}
	}
	return s.at
}

// hand gives the chunk for another shard over. The empty one that comes back goes
// to the pool: a chunk for each pair of shards would be too much.
func (s *Shard[T]) hand(to int) {
	c, in := s.out[to], &s.world.shards[to].in
	if c == nil || c.N == 0 {
		return
	}
	in.mu.Lock()
	empty := in.mu.transit.PushChunk(&in.mu.pool, c)
	first := in.raise()
	in.mu.Unlock()
	s.out[to] = empty
	if first {
		s.world.shards[to].kick()
	}
}

// flush gives everything for other shards over.
func (s *Shard[T]) flush() {
	for _, to := range s.dirty {
		s.hand(to)
		s.pool.Put(s.out[to])
		s.out[to] = nil
	}
	s.dirty = s.dirty[:0]
	s.flushed = s.now
}

// raise sets pending and tells whether the caller has to wake the loop; the lock
// is held.
func (in *inbox[T]) raise() bool {
	if in.pending.Load() {
		return false // whoever set it wakes it
	}
	in.pending.Store(true)
	return true
}

// kick wakes the loop if it is parked.
func (s *Shard[T]) kick() {
	if s.state.Load() == parked && s.state.CompareAndSwap(parked, running) {
		s.wake <- struct{}{} // there is room: one token for each change of state
	}
}

// post puts e into the mailbox; if that is full and w is given, w queues up.
func (s *Shard[T]) post(e *entry[T], w *waiter[T]) int {
	in := &s.in
	in.mu.Lock()
	switch {
	case in.mu.sealed:
		in.mu.Unlock()
		return sealed
	case in.mu.held < s.rt.cfg.Mailbox && in.mu.waiting.Len() == 0:
		in.mu.plain.Push(&in.mu.pool, e)
		in.mu.held++
	case w == nil:
		in.mu.Unlock()
		return full
	default:
		w.place = in.mu.waiting.PushBack(w)
	}
	first := in.raise()
	in.mu.Unlock()
	if first {
		s.kick()
	}
	if w != nil && w.place != nil {
		return full
	}
	return accepted
}

// giveUp takes w out of the line and tells whether it was still there.
func (s *Shard[T]) giveUp(w *waiter[T]) bool {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	if !w.granted && w.place != nil {
		s.in.mu.waiting.Remove(w.place)
	}
	return !w.granted
}

// outside returns how many items from outside wait, of those that are counted.
func (s *Shard[T]) outside() int {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	n := s.in.mu.held
	for _, l := range s.in.mu.lanes {
		n += l.size()
	}
	return n
}
