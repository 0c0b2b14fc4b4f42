package shedder

import "time"

// phase is where a slot's unit of work is.
type phase uint8

const (
	free    phase = iota // nobody's
	started              // in service
	passing              // admitted by Allow: counted as waiting until a place is free
	waiting              // in Acquire

	// These were in Acquire, were told no, and are counted no more.

	pushedOut // a higher class took the place
	doomed    // at its turn the deadline could not be met
	expired   // at its turn the deadline had passed
)

// slot is one unit of work that is out.
type slot struct {
	prev, next uint32 // in its list; 0 is none
	gen        uint32 // goes up when the slot is given back
	phase      phase
	class      uint8
	exact      bool // from Acquire: its start is known, not modelled
	arrived    time.Duration
	start      time.Duration
	deadline   time.Duration
	sender     string
	key        string
	wake       chan struct{} // of one; made when the slot first waits
}

// slots is the account of use without the bus: a slab, so that a promise costs
// no memory, with a generation in each slot, so that a promise that is settled
// twice is known. Slot 0 is not used.
type slots struct {
	slab []slot
	free uint32 // list by next
	now  time.Duration

	started list
	passing list
	waiting [maxClasses]list
	waits   int // in all of waiting

	expired uint64 // refused without asking: the deadline or context was over
	account Promises
}

// maxSlots bounds what is out at once.
const maxSlots = 1 << 24

func (sl *slots) init() { sl.slab = make([]slot, 1, 64) }

// tick makes readings of several goroutines' clocks one sequence.
func (sl *slots) tick(now time.Duration) time.Duration {
	sl.now = max(sl.now, now)
	return sl.now
}

// describe fills in what is in hand. Places that are taken although Concurrency
// was lowered stay in service. Here and elsewhere on this path structs are
// filled in field by field: a copy of a struct that was just made has to wait
// for the stores that made it.
func (sl *slots) describe(l *Load, concurrency int) {
	w := sl.passing.n + sl.waits
	l.Waiting, l.Ahead, l.Evictable, l.Busy, l.Concurrency = w, w, 0, sl.started.n, concurrency
}

// full says that as many are out as ever can be.
func (sl *slots) full() bool { return sl.free == 0 && len(sl.slab) > maxSlots }

// take returns a new slot.
func (sl *slots) take() uint32 {
	if i := sl.free; i != 0 {
		sl.free = sl.slab[i].next
		sl.slab[i].next = 0
		return i
	}
	sl.slab = append(sl.slab, slot{gen: 1})
	return uint32(len(sl.slab) - 1)
}

// give gives a slot back that is in no list.
func (sl *slots) give(i uint32) {
	s := &sl.slab[i]
	s.phase, s.next, sl.free = free, sl.free, i
	if s.gen++; s.gen == 0 {
		s.gen = 1 // the zero Promise has none
	}
	if s.sender != "" || s.key != "" {
		s.sender, s.key = "", ""
	}
}

// list is a double list of slots by index.
type list struct {
	head, tail uint32
	n          int
}

func (sl *slots) push(l *list, i uint32) {
	s := &sl.slab[i]
	s.prev, s.next = l.tail, 0
	if l.tail == 0 {
		l.head = i
	} else {
		sl.slab[l.tail].next = i
	}
	l.tail = i
	l.n++
}

func (sl *slots) remove(l *list, i uint32) {
	s := &sl.slab[i]
	if s.prev == 0 {
		l.head = s.next
	} else {
		sl.slab[s.prev].next = s.next
	}
	if s.next == 0 {
		l.tail = s.prev
	} else {
		sl.slab[s.next].prev = s.prev
	}
	s.prev, s.next = 0, 0
	l.n--
}

// wait puts a slot behind those of its class.
func (sl *slots) wait(i uint32) {
	s := &sl.slab[i]
	s.phase = waiting
	sl.push(&sl.waiting[s.class], i)
	sl.waits++
}

// unwait takes it out.
func (sl *slots) unwait(i uint32) {
	sl.remove(&sl.waiting[sl.slab[i].class], i)
	sl.waits--
}

// begin starts a slot that is in no list.
func (sl *slots) begin(i uint32, now time.Duration) {
	s := &sl.slab[i]
	s.phase, s.start = started, now
	sl.push(&sl.started, i)
}

// next is who gets the next free place: who passes already, then the waiting by
// class; 0 is nobody.
func (sl *slots) next() uint32 {
	if sl.passing.n > 0 {
		return sl.passing.head
	}
	if sl.waits > 0 {
		for c := range sl.waiting {
			if i := sl.waiting[c].head; i != 0 {
				return i
			}
		}
	}
	return 0
}

// below is how many wait in the classes lower than class that can be pushed
// out, and how many in all of those.
func (sl *slots) below(class int, ra *rails) (evictable, behind int) {
	if sl.waits == 0 {
		return 0, 0
	}
	for c := class + 1; c < maxClasses; c++ {
		n := sl.waiting[c].n
		behind += n
		if !ra.exempts(c) {
			evictable += n
		}
	}
	return evictable, behind
}

// newestBelow is who is pushed out for class; 0 is nobody.
func (sl *slots) newestBelow(class int, ra *rails) uint32 {
	for c := maxClasses - 1; c > class; c-- {
		if i := sl.waiting[c].tail; i != 0 && !ra.exempts(c) {
			return i
		}
	}
	return 0
}

// startLocked fills the places that are free.
func (s *Shedder) startLocked(now time.Duration) {
	sl := &s.mu.slots
	for sl.started.n < s.mu.cfg.Concurrency {
		i := sl.next()
		if i == 0 {
			return
		}
		w := &sl.slab[i]
		if w.phase == passing {
			sl.remove(&sl.passing, i)
			sl.begin(i, now)
			continue
		}
		if s.Doomed(now, w.deadline) {
			why := doomed
			if now > w.deadline {
				why = expired
			}
			s.endLocked(i, why)
			sl.account.Doomed++
			continue
		}
		sl.unwait(i)
		sl.begin(i, now)
		w.rouse()
	}
}

// endLocked tells one that waits no.
func (s *Shedder) endLocked(i uint32, why phase) {
	sl := &s.mu.slots
	sl.unwait(i)
	w := &sl.slab[i]
	w.phase = why
	w.rouse()
}

// rouse never waits: the channel has room for the one call that a slot gets.
func (w *slot) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
