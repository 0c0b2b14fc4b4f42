// Package timer holds things that fall due: a heap ordered by time, first in
// first out among equal times.
package timer

// minCap is the capacity below which the backing array is never shrunk.
const minCap = 64

// Heap holds values, each with the time at which it falls due; times are plain
// numbers on any one scale. The zero Heap is empty and ready. Push, Remove and
// PopDue take O(log n). A value that left the Heap is not kept alive by it, and
// the backing array shrinks as the Heap empties.
//
// A Heap is not safe for concurrent use: its owner locks.
type Heap[T any] struct {
	items []*Item[T]
	seq   uint64 // number of the latest Push
}

// Item is a value in a Heap, and the handle to take it out again.
type Item[T any] struct {
	// When is the time at which the item falls due. It is read-only: to move
	// an item, Remove it and Push its value anew.
	When int64
	// Value is what was pushed. It is cleared when the item leaves its heap,
	// so that a handle kept for long keeps nothing alive.
	Value T

	seq uint64
	pos int // place in items; of no meaning once the item has left
}

func (it *Item[T]) before(other *Item[T]) bool {
	if it.When != other.When {
		return it.When < other.When
	}
	return it.seq < other.seq
}

// Len returns the number of items.
func (h *Heap[T]) Len() int { return len(h.items) }

// Push adds v, due at when, and returns its handle.
func (h *Heap[T]) Push(when int64, v T) *Item[T] {
	h.seq++
	it := &Item[T]{When: when, Value: v, seq: h.seq, pos: len(h.items)}
	h.items = append(h.items, it)
	h.up(it.pos)
	return it
}

// Peek returns the time of the earliest item; ok is false if there is none.
func (h *Heap[T]) Peek() (when int64, ok bool) {
	if len(h.items) == 0 {
		return 0, false
	}
	return h.items[0].When, true
}

// PopDue takes out the earliest item if it is due at now or before, and
// returns its value.
func (h *Heap[T]) PopDue(now int64) (v T, ok bool) {
	if len(h.items) == 0 || h.items[0].When > now {
		return v, false
	}
	v = h.items[0].Value
	h.removeAt(0)
	return v, true
}

// Remove takes it out and reports whether it was in the heap. It may be called
// with an item that is nil, has left, or belongs to another heap: it then
// returns false. Read it.Value before.
func (h *Heap[T]) Remove(it *Item[T]) bool {
	if it == nil || it.pos >= len(h.items) || h.items[it.pos] != it {
		return false
	}
	h.removeAt(it.pos)
	return true
}

// All calls yield for each item, in no particular order, until yield returns
// false; it can be ranged over. The heap must not be changed meanwhile.
func (h *Heap[T]) All(yield func(*Item[T]) bool) {
	for _, it := range h.items {
		if !yield(it) {
			return
		}
	}
}

func (h *Heap[T]) removeAt(pos int) {
	it := h.items[pos]
	last := len(h.items) - 1
	h.set(pos, h.items[last])
	h.items[last] = nil
	h.items = h.items[:last]
	if pos < last {
		h.down(pos)
		h.up(pos)
	}
	var zero T
	it.Value = zero
	h.shrink()
}

// shrink halves the backing array once three quarters of it are unused, so
// that a burst is given back and a steady load never pays for it.
func (h *Heap[T]) shrink() {
	if c := cap(h.items); c > minCap && len(h.items) <= c/4 {
		h.items = append(make([]*Item[T], 0, c/2), h.items...)
	}
}

func (h *Heap[T]) set(pos int, it *Item[T]) {
	h.items[pos] = it
	it.pos = pos
}

func (h *Heap[T]) up(pos int) {
	it := h.items[pos]
	for pos > 0 {
		parent := (pos - 1) / 2
		if !it.before(h.items[parent]) {
			break
		}
		h.set(pos, h.items[parent])
		pos = parent
	}
	h.set(pos, it)
}

func (h *Heap[T]) down(pos int) {
	it := h.items[pos]
	for {
		child := 2*pos + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && h.items[right].before(h.items[child]) {
			child = right
		}
		if !h.items[child].before(it) {
			break
		}
		h.set(pos, h.items[child])
		pos = child
	}
	h.set(pos, it)
}
