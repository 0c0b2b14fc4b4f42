// Package queue holds the chunk queue: a FIFO of fixed arrays that move by
// pointer.
//
// A value is copied once, into the tail chunk. From there whole chunks change
// hands and come back empty, so that in the steady state nothing is allocated
// and little is copied. Nothing in this package is safe for concurrent use;
// the owner's lock guards it.
package queue

import (
	"sync"
	"sync/atomic"
)

// Len is the number of values in a chunk.
const Len = 64

// Chunk is an array of values of which Items[Rd:N] are present. Mark is for an
// owner that shares a chunk while it is filled.
type Chunk[T any] struct {
	next  *Chunk[T]
	Rd, N int
	Mark  atomic.Uint32
	Items []T
}

// New returns an empty chunk with room for n values. One with room for fewer
// than Len must not get into a Pool or a FIFO.
func New[T any](n int) *Chunk[T] { return &Chunk[T]{Items: make([]T, n)} }

// Size returns the number of values present.
func (c *Chunk[T]) Size() int { return c.N - c.Rd }

// Reset forgets the values, so that nothing stays reachable through c.
func (c *Chunk[T]) Reset() {
	clear(c.Items[:c.N])
	c.Rd, c.N, c.next = 0, 0, nil
}

// Append copies items[a:b] of src behind c's values; there must be room.
func (c *Chunk[T]) Append(src *Chunk[T], a, b int) {
	c.N += copy(c.Items[c.N:], src.Items[a:b])
}

// Pool recycles chunks: a few at hand, the rest through a sync.Pool, from
// which the collector takes what a burst left behind.
type Pool[T any] struct {
	free   *Chunk[T]
	n      int
	shared *sync.Pool
}

// atHand is the number of chunks that a Pool keeps for itself.
const atHand = 4

// NewShared returns the part that the Pools of one bus share.
func NewShared[T any]() *sync.Pool {
	return &sync.Pool{New: func() any { return New[T](Len) }}
}

// NewPool returns an empty pool over shared.
func NewPool[T any](shared *sync.Pool) Pool[T] { return Pool[T]{shared: shared} }

// Get returns an empty chunk.
func (p *Pool[T]) Get() *Chunk[T] {
	if c := p.free; c != nil {
		p.free, c.next = c.next, nil
		p.n--
		return c
	}
	if c, ok := p.shared.Get().(*Chunk[T]); ok {
		return c
	}
	return New[T](Len)
}

// Put takes back a chunk and forgets its values.
func (p *Pool[T]) Put(c *Chunk[T]) {
	c.Reset()
	if p.n >= atHand {
		p.shared.Put(c)
		return
	}
	c.next = p.free
	p.free = c
	p.n++
}

// FIFO is a queue of chunks. The zero value is empty; every call that may need
// or free a chunk takes the pool.
type FIFO[T any] struct {
	head, tail *Chunk[T]
	n          int
}

// Len returns the number of values.
func (q *FIFO[T]) Len() int { return q.n }

// Slot returns the place behind the last value, already counted as present;
// opened says that a new chunk was begun for it.
func (q *FIFO[T]) Slot(p *Pool[T]) (slot *T, opened bool) {
	t := q.tail
	if t == nil || t.N == Len {
		t = p.Get()
		q.link(t)
		opened = true
	}
	slot = &t.Items[t.N]
	t.N++
	q.n++
	return slot, opened
}

// Push copies *v behind the last value.
func (q *FIFO[T]) Push(p *Pool[T], v *T) {
	slot, _ := q.Slot(p)
	*slot = *v
}

// PushChunk moves c's values in and returns an empty chunk for it.
func (q *FIFO[T]) PushChunk(p *Pool[T], c *Chunk[T]) *Chunk[T] {
	size := c.Size()
	q.n += size
	// A chunk that is half empty is not worth its memory, nor a claim.
	if t := q.tail; t != nil && size <= Len/2 && Len-t.N >= size {
		t.Append(c, c.Rd, c.N)
		c.Reset()
		return c
	}
	q.link(c)
	return p.Get()
}

// Append moves all of c to the end.
func (q *FIFO[T]) Append(p *Pool[T], c *Chunk[T]) { p.Put(q.PushChunk(p, c)) }

// AppendAll moves other's values behind the last one; other is empty then.
func (q *FIFO[T]) AppendAll(other *FIFO[T]) {
	if other.head == nil {
		return
	}
	if q.tail == nil {
		q.head = other.head
	} else {
		q.tail.next = other.head
	}
	q.tail = other.tail
	q.n += other.n
	*other = FIFO[T]{}
}

// PushRange copies src.Items[a:b] behind the last value.
func (q *FIFO[T]) PushRange(p *Pool[T], src *Chunk[T], a, b int) {
	q.n += b - a
	for a < b {
		t := q.tail
		if t == nil || t.N == Len {
			t = p.Get()
			q.link(t)
		}
		k := min(b-a, Len-t.N)
		t.Append(src, a, a+k)
		a += k
	}
}

// PushFrontRange copies src.Items[a:b] before the first value, in order.
func (q *FIFO[T]) PushFrontRange(p *Pool[T], src *Chunk[T], a, b int) {
	if a >= b {
		return
	}
	q.n += b - a
	if h := q.head; h != nil && h.Rd >= b-a {
		h.Rd -= b - a
		copy(h.Items[h.Rd:], src.Items[a:b])
		return
	}
	c := p.Get()
	// At the end of the chunk, so that the next give-back finds room before it.
	c.Rd, c.N = Len-(b-a), Len
	copy(c.Items[c.Rd:], src.Items[a:b])
	c.next = q.head
	q.head = c
	if q.tail == nil {
		q.tail = c
	}
}

// Front returns the first value in place, or nil.
func (q *FIFO[T]) Front() *T {
	if q.head == nil {
		return nil
	}
	return &q.head.Items[q.head.Rd]
}

// Head returns the first chunk, or nil.
func (q *FIFO[T]) Head() *Chunk[T] { return q.head }

// Pop copies the first value to dst and removes it; there must be one.
func (q *FIFO[T]) Pop(p *Pool[T], dst *T) {
	h := q.head
	*dst = h.Items[h.Rd]
	var zero T
	h.Items[h.Rd] = zero
	h.Rd++
	q.n--
	if h.Rd == h.N {
		q.unlinkHead()
		p.Put(h)
	}
}

// Skip removes the first n values, which must be in the first chunk.
func (q *FIFO[T]) Skip(p *Pool[T], n int) {
	h := q.head
	clear(h.Items[h.Rd : h.Rd+n])
	h.Rd += n
	q.n -= n
	if h.Rd == h.N {
		q.unlinkHead()
		p.Put(h)
	}
}

// TakeHead unlinks the first chunk; there must be one.
func (q *FIFO[T]) TakeHead() *Chunk[T] {
	h := q.head
	q.n -= h.Size()
	q.unlinkHead()
	return h
}

// PopInto moves up to max values to the end of dst, as far as it has room.
func (q *FIFO[T]) PopInto(p *Pool[T], dst *Chunk[T], limit int) {
	for limit > 0 && q.head != nil && dst.N < Len {
		h := q.head
		k := min(limit, h.Size(), Len-dst.N)
		dst.Append(h, h.Rd, h.Rd+k)
		clear(h.Items[h.Rd : h.Rd+k])
		h.Rd += k
		q.n -= k
		limit -= k
		if h.Rd == h.N {
			q.unlinkHead()
			p.Put(h)
		}
	}
}

// Prepend moves other's values before the first one; other is empty then.
func (q *FIFO[T]) Prepend(other *FIFO[T]) {
	if other.head == nil {
		return
	}
	other.tail.next = q.head
	q.head = other.head
	if q.tail == nil {
		q.tail = other.tail
	}
	q.n += other.n
	*other = FIFO[T]{}
}

// All calls f for each value from the first on, until f returns false.
func (q *FIFO[T]) All(f func(*T) bool) {
	for c := q.head; c != nil; c = c.next {
		for i := c.Rd; i < c.N; i++ {
			if !f(&c.Items[i]) {
				return
			}
		}
	}
}

// RemoveIf removes the values for which f holds and returns how many.
func (q *FIFO[T]) RemoveIf(p *Pool[T], f func(*T) bool) int {
	var kept FIFO[T]
	before := q.n
	for c := q.head; c != nil; {
		for i := c.Rd; i < c.N; i++ {
			if !f(&c.Items[i]) {
				kept.Push(p, &c.Items[i])
			}
		}
		next := c.next
		p.Put(c)
		c = next
	}
	*q = kept
	return before - q.n
}

// RemoveLast copies the last value for which f holds to dst and removes it; it
// reports whether there is one. It looks at all values, the last chunk first.
func (q *FIFO[T]) RemoveLast(p *Pool[T], dst *T, f func(*T) bool) bool {
	var found, before, prev *Chunk[T] // before is what found follows
	at := -1
	look := func(c, prev *Chunk[T]) {
		for i := c.N - 1; i >= c.Rd; i-- {
			if f(&c.Items[i]) {
				found, before, at = c, prev, i
				return
			}
		}
	}
	if q.tail != nil && q.tail != q.head && q.tail.Size() > 1 {
		look(q.tail, nil) // in most cases; it is not emptied, so nobody asks what it follows
	}
	if at < 0 {
		for c := q.head; c != nil; prev, c = c, c.next {
			look(c, prev) // a later one replaces it
		}
	}
	if at < 0 {
		return false
	}
	*dst = found.Items[at]
	copy(found.Items[at:], found.Items[at+1:found.N])
	found.N--
	var zero T
	found.Items[found.N] = zero
	q.n--
	if found.Size() == 0 {
		q.unlink(found, before)
		p.Put(found)
	}
	return true
}

// unlink takes c, which follows prev or is the first, out of the list.
func (q *FIFO[T]) unlink(c, prev *Chunk[T]) {
	if prev == nil {
		q.unlinkHead()
		return
	}
	if prev.next = c.next; q.tail == c {
		q.tail = prev
	}
	c.next = nil
}

func (q *FIFO[T]) link(c *Chunk[T]) {
	c.next = nil
	if q.tail == nil {
		q.head = c
	} else {
		q.tail.next = c
	}
	q.tail = c
}

func (q *FIFO[T]) unlinkHead() {
	h := q.head
	if q.head = h.next; q.head == nil {
		q.tail = nil
	}
	h.next = nil
}
