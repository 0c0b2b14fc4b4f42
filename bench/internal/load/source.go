package load

import (
	"math"
	"runtime"
	"sync/atomic"
)

// Msg is what every system carries: one cache line of 64 bytes.
//
// Systems that move values copy it at every hand-over. Systems that move
// pointers take it from Source.NextRef: a message of a ring that belongs to
// the producer, written there once and read by the consumer in place, so that
// the same 64 bytes cross from the producer's core to the consumer's.
type Msg struct {
	// ID is unique in a run.
	ID uint64
	// Seq counts the messages of one producer from 1.
	Seq uint64
	// Key is below Spec.Keys, or 0.
	Key uint32
	// Prod is the index of the producer.
	Prod uint32
	// slot and gen name the place in the producer's ring, see NextRef.
	slot, gen uint32
	// Data is the body. Stages before the last count in Data[0].
	Data [4]uint64
}

const (
	// padding keeps fields of different goroutines off a shared pair of lines.
	padding = 128
	// checkEvery is how many messages pass between two looks at the stop flag.
	checkEvery = 16
)

// Source makes the messages of one producer. It belongs to the goroutine of
// that producer; only the counter of sent messages is read by others.
type Source struct {
	_ [padding]byte

	n       uint64 // messages made
	recheck uint64 // more must be asked when n gets here
	until   uint64 // never make more than this
	sum     uint64 // of all IDs
	room    uint64 // in order: messages up to this one have a free place
	keyMask uint32
	prod    uint32
	pos     uint32 // not in order: the place to try next
	mask    uint32 // the places in use are 0 to mask
	inOrder bool
	msg     Msg // what Next returns
	ring    ring
	run     *Run

	_ [padding]byte
	// sent is a lagging copy of n, stored by the producer and read by the
	// sampler of memory statistics.
	sent atomic.Uint64
	_    [padding]byte
}

// ring is the reusable messages of a producer. A message may be overwritten
// only after its last handler is done with it:
//
//   - in order (one producer, consumers that see everything in order) each
//     consumer stores how far it got, now and then, and the producer compares
//     that with its own count before it needs the place again;
//   - otherwise each place has a generation: the producer raises its own copy
//     when it fills the place, the handler stores the same number in done when
//     it is finished. Places still in use are skipped, and the ring grows
//     while there are too many of them. It starts small, so that its messages
//     stay in the cache as long as few are in flight.
type ring struct {
	msgs []Msg
	gens []uint32        // owned by the producer
	done []atomic.Uint32 // stored by handlers, read by the producer
}

func newSource(r *Run, prod int, messages uint64) *Source {
	s := &Source{prod: uint32(prod), run: r, until: messages, inOrder: r.spec.InOrder()}
	if messages == 0 {
		s.until = math.MaxUint64
	}
	if k := r.spec.Keys; k > 0 {
		s.keyMask = uint32(k - 1)
	}
	n := ringSize(r.spec)
	s.ring = ring{msgs: make([]Msg, n)}
	s.mask = uint32(n - 1)
	if !s.inOrder {
		s.mask = min(s.mask, firstPlaces-1)
		s.ring.gens = make([]uint32, n)
		s.ring.done = make([]atomic.Uint32, n)
	}
	s.ring.touch()
	return s
}

// touch writes to all of the ring's memory, so that the kernel has given it out
// before the time of a run counts: a system that moves values has no ring.
func (r *ring) touch() {
	for i := range r.msgs {
		r.msgs[i].gen = 1
		r.msgs[i].gen = 0
	}
	for i := range r.gens {
		r.gens[i] = 0
		r.done[i].Store(0)
	}
}

const (
	// firstPlaces is how many places a ring starts with, a power of two.
	firstPlaces = 256
	// claimed is how many messages a handler may have taken from its queue.
	claimed = 64
	// maxSkip is how many places in use are skipped before the ring grows.
	maxSkip = 16
)

// ringSize is the greatest size of a ring, a power of two: all that can be in
// flight, since one producer may have published all of it. So a producer waits
// in the system it measures and not for its ring.
func ringSize(s Spec) int {
	visits := s.Stages
	if s.Subscribers > 1 {
		visits++ // the copies wait behind the stage that makes them
	}
	want := visits*(s.Capacity+s.Concurrency*claimed) + checkEvery
	n := firstPlaces
	for n < want {
		n *= 2
	}
	return n
}

// Next returns the next message, or nil when the producer shall end. The
// message is overwritten by the next call: for systems that move values.
func (s *Source) Next() *Msg {
	if s.n >= s.recheck && !s.more() {
		return nil
	}
	s.n++
	m := &s.msg
	s.fill(m)
	return m
}

// NextRef is Next for systems that move pointers: the message stays as it is
// until its handler has reported it to the Run. It yields while the places of
// all messages are taken.
func (s *Source) NextRef() *Msg {
	if s.n >= s.recheck && !s.more() {
		return nil
	}
	s.n++
	var i uint32
	if s.inOrder {
		if s.n > s.room {
			s.awaitRoom()
		}
		i = uint32(s.n) & s.mask
	} else {
		i = s.pos
		if s.ring.done[i].Load() != s.ring.gens[i] {
			i = s.awaitPlace()
		}
		s.pos = (i + 1) & s.mask
		s.ring.gens[i]++
	}
	m := &s.ring.msgs[i]
	s.fill(m)
	if !s.inOrder {
		m.slot, m.gen = i, s.ring.gens[i]
	}
	return m
}

// Sent is the number of messages made so far; exact when the producer ended.
func (s *Source) Sent() uint64 { return s.sent.Load() }

func (s *Source) fill(m *Msg) {
	m.ID = s.n<<8 | uint64(s.prod)
	m.Seq = s.n
	m.Key = (uint32(s.n)*7 + s.prod*8) & s.keyMask
	m.Prod = s.prod
	s.sum += m.ID
}

// more is asked every few messages and tells whether to go on.
func (s *Source) more() bool {
	s.sent.Store(s.n)
	if s.n >= s.until || s.run.stop.Load() {
		return false
	}
	s.recheck = min(s.n+checkEvery, s.until)
	return true
}

// awaitRoom waits until every consumer is past the message whose place is
// wanted now.
func (s *Source) awaitRoom() {
	for {
		low := uint64(math.MaxUint64)
		for _, t := range s.run.tallies {
			low = min(low, t.progress.Load())
		}
		s.room = low + uint64(len(s.ring.msgs))
		if s.n <= s.room {
			return
		}
		runtime.Gosched()
	}
}

// awaitPlace finds a place that is not in use.
func (s *Source) awaitPlace() uint32 {
	for {
		for range maxSkip {
			s.pos = (s.pos + 1) & s.mask
			if s.ring.done[s.pos].Load() == s.ring.gens[s.pos] {
				return s.pos
			}
		}
		if places := s.mask + 1; int(places) < len(s.ring.msgs) {
			s.mask += places
			return places // the first of the new half, never used
		}
		runtime.Gosched()
	}
}
