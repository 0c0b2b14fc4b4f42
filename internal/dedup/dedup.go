// Package dedup remembers the latest keys, so that a key given twice is
// noticed.
package dedup

import "strings"

// none ends a list of slots.
const none = -1

// Window remembers up to n keys and forgets the one it learnt first when a new
// one needs the room. Seeing a key again does not make it younger. The Window
// keeps copies of its keys, so that a key cut from a large text does not keep
// the text alive; a forgotten key is released at once. Every method takes O(1),
// but for Resize.
//
// A Window is not safe for concurrent use: its owner locks.
type Window struct {
	limit int
	slots []slot         // grows on demand up to limit
	index map[string]int // key to slot
	first int            // the key learnt first, or none
	last  int            // the key learnt last, or none
	free  int            // unused slots, chained by next
}

// slot holds one key and its neighbours in the order in which keys were learnt.
type slot struct {
	key        string
	prev, next int
}

// New returns an empty Window of n keys. With n of 0 or less it remembers
// nothing. Memory is taken as keys come.
func New(n int) *Window {
	return &Window{limit: max(n, 0), index: make(map[string]int), first: none, last: none, free: none}
}

// Len returns the number of keys remembered.
func (w *Window) Len() int { return len(w.index) }

// Seen reports whether key is in the window. If not, key is added, and the key
// learnt first leaves if the window was full.
func (w *Window) Seen(key string) bool {
	if _, ok := w.index[key]; ok {
		return true
	}
	if w.limit == 0 {
		return false
	}
	if len(w.index) >= w.limit {
		w.remove(w.first)
	}
	w.add(strings.Clone(key))
	return false
}

// Forget removes key, so that it counts as new again. It reports whether the
// key was there.
func (w *Window) Forget(key string) bool {
	i, ok := w.index[key]
	if ok {
		w.remove(i)
	}
	return ok
}

// Resize makes n the number of keys remembered, as in [New]. A smaller window
// keeps the keys learnt last and gives the memory of the others back.
func (w *Window) Resize(n int) {
	n = max(n, 0)
	if n >= w.limit {
		w.limit = n
		return
	}
	skip := len(w.index) - n
	small := New(n)
	for i := w.first; i != none; i = w.slots[i].next {
		if skip > 0 {
			skip--
			continue
		}
		small.add(w.slots[i].key)
	}
	*w = *small
}

// add learns a key that is not in the window, which has room for it.
func (w *Window) add(key string) {
	i := w.free
	if i == none {
		i = len(w.slots)
		w.slots = append(w.slots, slot{})
	} else {
		w.free = w.slots[i].next
	}
	w.slots[i] = slot{key: key, prev: w.last, next: none}
	if w.last == none {
		w.first = i
	} else {
		w.slots[w.last].next = i
	}
	w.last = i
	w.index[key] = i
}

// remove forgets the key in slot i and frees the slot.
func (w *Window) remove(i int) {
	s := w.slots[i]
	delete(w.index, s.key)
	if s.prev == none {
		w.first = s.next
	} else {
		w.slots[s.prev].next = s.next
	}
	if s.next == none {
		w.last = s.prev
	} else {
		w.slots[s.next].prev = s.prev
	}
	w.slots[i] = slot{next: w.free}
	w.free = i
}
