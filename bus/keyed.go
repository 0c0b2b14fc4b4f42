package bus

import (
	"hash/maphash"
	"runtime"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/queue"
)

// keyed is the queue of an ordered stage, guarded by Stage.mu. Keys are spread
// over slots, each a FIFO. While handlers are fast an executor owns a slot for
// the length of its claim, which costs nothing by key. While they are slow, or
// when a key is held by a retry, claims are of one envelope and hold just its
// key, so that the other keys of the slot pass.
type keyed struct {
	slots []keySlot
	seed  maphash.Seed
	ready slotList
	n     int  // envelopes in all slots and side lists
	aside int  // of them: follow a retry that waits for its time, while other keys pass
	stuck bool // a slot that has something was not offered again: its next stage had no room
}

// keySlots is the number of slots of a stage ordered by key. Slots are for fast
// handlers, of which no more than GOMAXPROCS run at once: four for each keep
// them busy, and more would make claims smaller.
func keySlots() int {
	n := leastSlots
	for n < 4*runtime.GOMAXPROCS(0) && n < mostSlots {
		n *= 2
	}
	return n
}

const (
	leastSlots = 8
	mostSlots  = 64
)

type keySlot struct {
	q     fifo
	held  map[string]*followers // keys that are being handled or retried
	busy  bool                  // owned by an executor
	ready bool                  // in the ready list
	next  *keySlot
}

// followers are the envelopes of a key that is held, in a side list.
type followers struct {
	fifo
	delayed bool // it is held by a retry that waits for its time
}

// slotList is a FIFO of slots that may have something to start.
type slotList struct {
	head, tail *keySlot
	n          int
}

func (l *slotList) push(s *keySlot) {
	s.next, s.ready = nil, true
	if l.tail == nil {
		l.head = s
	} else {
		l.tail.next = s
	}
	l.tail = s
	l.n++
}

func (l *slotList) pop() *keySlot {
	s := l.head
	if l.head = s.next; l.head == nil {
		l.tail = nil
	}
	s.next, s.ready = nil, false
	l.n--
	return s
}

func newKeyed(o Order) *keyed {
	n := 1
	if o == ByKey {
		n = keySlots()
	}
	return &keyed{slots: make([]keySlot, n), seed: maphash.MakeSeed()}
}

// orderKey is the key under which e is held: with one slot all share one.
func (k *keyed) orderKey(key string) string {
	if len(k.slots) == 1 {
		return ""
	}
	return key
}

func (k *keyed) slotOf(key string) *keySlot {
	if len(k.slots) == 1 {
		return &k.slots[0]
	}
	return &k.slots[maphash.String(k.seed, key)%uint64(len(k.slots))]
}

func (k *keyed) push(p *queue.Pool[Envelope], e *Envelope) {
	*k.place(p, e.Key) = *e
}

// place returns the place for an envelope of that key, counted as queued.
func (k *keyed) place(p *queue.Pool[Envelope], key string) *Envelope {
	slot := k.slotOf(key)
	if faults.On(faults.KeysMixed) {
		slot = &k.slots[k.n%len(k.slots)]
	}
	e, _ := slot.q.Slot(p)
	k.n++
	k.offer(slot)
	return e
}

// pushAll empties q into the slots.
func (k *keyed) pushAll(p *queue.Pool[Envelope], q *fifo) {
	for q.Len() > 0 {
		c := q.TakeHead()
		for i := c.Rd; i < c.N; i++ {
			k.push(p, &c.Items[i])
		}
		p.Put(c)
	}
}

// offer lists slot if it may have something to start.
func (k *keyed) offer(slot *keySlot) {
	if !slot.busy && !slot.ready && slot.q.Len() > 0 {
		k.ready.push(slot)
	}
}

// offerAll lists every slot again: room may have come for a next stage.
func (k *keyed) offerAll() {
	k.stuck = false
	for i := range k.slots {
		k.offer(&k.slots[i])
	}
}

// claim makes ex's claim from the first slot that has something to start.
func (k *keyed) claim(s *Stage, ex *executor, force bool) bool {
	s.spreadLanes()
	for k.ready.n > 0 {
		slot := k.ready.pop()
		if s.mu.batch > 1 && len(slot.held) == 0 {
			if k.claimSlot(s, ex, slot, force) {
				return true
			}
		} else if k.claimOne(s, ex, slot, force) {
			return true
		}
	}
	return false
}

// claimSlot claims several envelopes and with them the slot.
func (k *keyed) claimSlot(s *Stage, ex *executor, slot *keySlot, force bool) bool {
	head := slot.q.Head()
	if head == nil {
		return false
	}
	n := s.allowedLocked(ex, head, min(s.mu.batch, head.Size()), force)
	if n == 0 {
		k.stuck = true
		return false // offered again when the next stage has room
	}
	s.claimHead(ex, &slot.q, n)
	k.n -= n
	slot.busy = true
	ex.slot, ex.holding = slot, false
	return true
}

// claimOne claims the first envelope whose key is not held, and its key.
func (k *keyed) claimOne(s *Stage, ex *executor, slot *keySlot, force bool) bool {
	p := &s.mu.pool
	for e := slot.q.Front(); e != nil; e = slot.q.Front() {
		key := k.orderKey(e.Key)
		if side, held := slot.held[key]; held {
			side.Push(p, e)
			if side.delayed {
				k.aside++
			}
			var drop Envelope
			slot.q.Pop(p, &drop)
			continue
		}
		if s.allowedLocked(ex, slot.q.Head(), 1, force) == 0 {
			k.stuck = true
			return false
		}
		slot.q.Pop(p, ex.soloSlot())
		k.n--
		slot.hold(key)
		ex.slot, ex.holding, ex.key = slot, true, key
		k.offer(slot)
		return true
	}
	return false
}

func (slot *keySlot) hold(key string) {
	if slot.held == nil {
		slot.held = map[string]*followers{}
	}
	if slot.held[key] == nil {
		slot.held[key] = new(followers)
	}
}

// release lets key's followers go on, before what came later.
func (k *keyed) release(slot *keySlot, key string) {
	side := slot.held[key]
	delete(slot.held, key)
	if side != nil {
		if side.delayed {
			k.aside -= side.Len()
		}
		slot.q.Prepend(&side.fifo)
	}
	k.offer(slot)
}

// finish ends ex's claim of a slot or a key.
func (k *keyed) finish(ex *executor) {
	slot := ex.slot
	if ex.holding {
		k.release(slot, ex.key)
	} else if !ex.passed {
		slot.busy = false
		k.offer(slot)
	}
	ex.slot, ex.holding, ex.passed, ex.retries = nil, false, false, false
}

// keepOnlyKey turns ex's claim of a slot into one of the key that it is
// handling, so that others can go on with the slot.
func (k *keyed) keepOnlyKey(ex *executor, key string) {
	key = k.orderKey(key)
	ex.slot.hold(key)
	ex.holding, ex.key = true, key
	ex.slot.busy = false
	k.offer(ex.slot)
}

// holdForRetry leaves the key of ex's envelope held while it waits for its
// retry. The rest of the claim has been put back.
func (k *keyed) holdForRetry(ex *executor, key string) {
	if ex.holding {
		ex.holding, ex.passed = false, true // the hold goes to the retry
		return
	}
	ex.slot.hold(k.orderKey(key))
	ex.retries = true
}

// delay says whether key is held by a retry that waits for its time. In a stage
// with one order for all its followers are the whole queue, and wait like it.
func (k *keyed) delay(key string, on bool) {
	if len(k.slots) == 1 {
		return
	}
	side := k.slotOf(key).held[key]
	if side == nil || side.delayed == on {
		return
	}
	if side.delayed = on; on {
		k.aside += side.Len()
	} else {
		k.aside -= side.Len()
	}
}

// evict takes the oldest envelope that was never started.
func (k *keyed) evict(p *queue.Pool[Envelope], victim *Envelope) bool {
	var from *fifo
	var late bool // it follows a retry
	consider := func(q *fifo, delayed bool) {
		if e := q.Front(); e != nil && (from == nil || e.before(from.Front())) {
			from, late = q, delayed
		}
	}
	for i := range k.slots {
		consider(&k.slots[i].q, false)
		for _, side := range k.slots[i].held {
			consider(&side.fifo, side.delayed)
		}
	}
	if from == nil {
		return false
	}
	from.Pop(p, victim)
	k.n--
	if late {
		k.aside--
	}
	return true
}

// before says whether e entered before o: the clock is coarse, so that ids
// decide between those of one tick.
func (e *Envelope) before(o *Envelope) bool {
	return e.entered < o.entered || (e.entered == o.entered && e.id < o.id)
}

// drain empties the queue into f.
func (k *keyed) drain(p *queue.Pool[Envelope], f func(*Envelope)) {
	for i := range k.slots {
		slot := &k.slots[i]
		for _, side := range slot.held {
			drainFIFO(&side.fifo, p, f)
		}
		drainFIFO(&slot.q, p, f)
	}
	k.n, k.aside = 0, 0
}

func drainFIFO(q *fifo, p *queue.Pool[Envelope], f func(*Envelope)) {
	var e Envelope
	for q.Len() > 0 {
		q.Pop(p, &e)
		f(&e)
	}
}
