package shedder

import (
	"fmt"
	"reflect"
)

// CheckSlots returns what is wrong with the lists of the slots, for tests.
func (s *Shedder) CheckSlots() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := &s.mu.slots
	seen := make(map[uint32]string)
	walk := func(name string, l *list, want phase) error {
		n, prev := 0, uint32(0)
		for i := l.head; i != 0; i = sl.slab[i].next {
			w := &sl.slab[i]
			if seen[i] != "" || w.phase != want || w.prev != prev {
				return fmt.Errorf("slot %d in %s: also in %q, phase %d, prev %d instead of %d", i, name, seen[i], w.phase, w.prev, prev)
			}
			seen[i] = name
			prev = i
			n++
		}
		if n != l.n || l.tail != prev {
			return fmt.Errorf("%s: %d slots are counted as %d, tail %d instead of %d", name, n, l.n, l.tail, prev)
		}
		return nil
	}
	if err := walk("started", &sl.started, started); err != nil {
		return err
	}
	if err := walk("passing", &sl.passing, passing); err != nil {
		return err
	}
	waits := 0
	for c := range sl.waiting {
		if err := walk(fmt.Sprint("class ", c), &sl.waiting[c], waiting); err != nil {
			return err
		}
		waits += sl.waiting[c].n
	}
	if waits != sl.waits {
		return fmt.Errorf("%d wait and are counted as %d", waits, sl.waits)
	}
	if sl.started.n < s.mu.cfg.Concurrency && sl.passing.n+waits > 0 {
		return fmt.Errorf("a place is free: %d of %d, and %d wait", sl.started.n, s.mu.cfg.Concurrency, sl.passing.n+waits)
	}
	for i := sl.free; i != 0; i = sl.slab[i].next {
		if seen[i] != "" || sl.slab[i].phase != free {
			return fmt.Errorf("slot %d is free and in %q, phase %d", i, seen[i], sl.slab[i].phase)
		}
		seen[i] = "free"
	}
	for i := range sl.slab[1:] {
		if p := sl.slab[i+1].phase; seen[uint32(i+1)] == "" && !p.over() {
			return fmt.Errorf("slot %d is lost in phase %d", i+1, p)
		}
	}
	return nil
}

// AdmitAny is Admit without its short way.
func (a *Adaptive) AdmitAny(r *Request) (v Verdict) {
	a.admit(r, &v)
	return v
}

// AdmitPlain is Admit by its short way only; false means that it does not decide.
func (a *Adaptive) AdmitPlain(r *Request) (v Verdict, ok bool) {
	ok = a.plain(r, &v)
	return v, ok
}

// Same says that a and b know the same.
func (a *Adaptive) Same(b *Adaptive) bool {
	a.fair.latest, b.fair.latest = nil, nil
	return reflect.DeepEqual(a, b)
}
