package bus

import (
	"context"

	"github.com/sedabus/seda/reason"
)

// The places of a stage in sharded mode are one set, spread over its parts:
// what a part has is Capacity plus lent, and Stage.free is what is free of that.

// lendLot is how many places are borrowed at a time.
const lendLot = 16

// capacityNow is how many places the part has now.
func (s *Stage) capacityNow() int { return s.mu.cfg.Capacity + int(s.lent.Load()) }

// borrow takes up to n free places from the siblings and returns how many there
// were. It needs no lock: whoever has a place to spare has it in its free.
func (s *Stage) borrow(n int) int {
	if s.whole == nil {
		return 0
	}
	got := 0
	for i := range s.whole.parts {
		o := s.whole.parts[(s.home.index+1+i)%len(s.whole.parts)]
		if o == s || got == n {
			continue
		}
		k := o.takeLeaving(o.beyond.Load(), 1, n-got)
		o.lent.Add(-int64(k))
		got += k
	}
	if got > 0 {
		s.lent.Add(int64(got))
		s.free.Add(int64(got))
	}
	return got
}

// sated says that a part need not have more places although somebody wants one: it
// has work, is at it, and the work is quick, so that its own places come back
// sooner than those of others could be had.
func (s *Stage) sated() bool {
	if s.whole == nil {
		return true
	}
	if s.slow.Load() || s.idle.Load() {
		return false
	}
	share := int64(s.info.Load().capacity)
	return share+s.lent.Load()-s.free.Load() >= max(share/2, 1)
}

// payLocked gives up to n places that come back here to a capacity that was
// lowered below what the stage had, and returns how many.
func (s *Stage) payLocked(n int) int {
	for {
		owed := s.whole.owed.Load()
		if owed <= 0 {
			return 0
		}
		k := min(int64(n), owed)
		if s.whole.owed.CompareAndSwap(owed, owed-k) {
			s.lent.Add(-k)
			return int(k)
		}
	}
}

// shareRoomLocked says in the whole whether somebody waits for room here, and
// tells the siblings for which somebody does of what is free here.
func (s *Stage) shareRoomLocked() {
	m := &s.mu
	told := m.told // by a sibling: it does not tell others in turn, or that would have no end
	m.told = false
	hungry := s.wantsRoomLocked() && !s.sated()
	if hungry != s.starves.Load() {
		s.starves.Store(hungry)
		if hungry {
			s.whole.hungry.Add(1)
		} else {
			s.whole.hungry.Add(-1)
		}
	}
	switch {
	case s.whole.hungry.Load() == 0 && s.whole.wanting.Load() == 0:
	case hungry:
		if s.free.Load() <= m.shut && s.borrow(1) > 0 {
			s.feedArrivalsLocked()
			s.serveWaitingLocked()
			s.tellRoomLocked()
		}
	case !told && s.free.Load() > m.shut:
		s.offerLocked()
	}
}

// wantsRoomLocked says whether somebody waits for room here.
func (s *Stage) wantsRoomLocked() bool {
	m := &s.mu
	return m.waiters.n > 0 || m.room != nil || m.arrivals.Len() > 0 || s.upstream.wanting.Load() > 0
}

// offerLocked tells the siblings for which somebody waits of what is free here.
func (s *Stage) offerLocked() {
	for _, o := range s.whole.parts {
		if o != s && (o.starves.Load() || o.upstream.wanting.Load() > 0) {
			s.mu.notes = append(s.mu.notes, note{up: o, to: s, lend: true})
		}
	}
}

// searchLocked looks for free places in the other parts before a publish is taken
// for one that finds none: only who waits at a part that is sated need not know.
// It releases s.mu meanwhile, and reports whether the publish may still enter.
func (s *Stage) searchLocked(ctx context.Context) bool {
	if s.free.Load() > s.mu.shut || (ctx != nil && s.mu.cfg.Full == Block && s.sated()) {
		return true
	}
	s.mu.Unlock()
	s.callBack()
	s.mu.Lock()
	if s.free.Load() <= s.mu.shut {
		s.borrow(1)
	}
	return !s.shutToLocked(ctx)
}

// callBack lets all siblings give back what they hold and do not use. No lock is
// held.
func (s *Stage) callBack() {
	for _, o := range s.whole.parts {
		if o != s {
			o.mu.Lock()
			o.helpLocked()
			o.unlockAndStart()
		}
	}
}

// resize gives a whole that had a capacity of was one of want. The parts' shares
// change with it. A lower capacity takes places that nobody uses first; the others
// are owed, and given up by whichever part gets one back.
func (s *Stage) resize(was, want int) {
	fresh := max(0, want-was)
	for owed := s.owed.Load(); ; owed = s.owed.Load() {
		if k := min(owed, int64(fresh)); s.owed.CompareAndSwap(owed, owed-k) {
			fresh -= int(k) // these are in use already
			break
		}
	}
	left, homes := max(0, was-want), int(s.homes.Load())
	for i := range homes {
		p, more := s.partAt(i), shareOf(want, i, homes)-shareOf(was, i, homes)
		add := min(fresh, max(0, more))
		fresh -= add
		left -= p.reshare(more, add, min(left, max(0, -more)))
	}
	for _, p := range s.parts { // more than its part, where others have too much in use
		left -= p.reshare(0, 0, left)
	}
	s.owed.Add(int64(left))
}

// reshare changes a part's share of the capacity by more, adds that many of its
// places as free ones, and takes up to take free ones away. It returns how many it
// took.
func (s *Stage) reshare(more, add, take int) (took int) {
	s.mu.Lock()
	m := &s.mu
	m.cfg.Capacity += more
	old := s.info.Load()
	s.info.Store(&stageInfo{full: old.full, capacity: m.cfg.Capacity, concurrency: old.concurrency})
	if take > 0 {
		s.helpLocked()
		took = s.takeLeaving(0, 1, take)
	}
	s.lent.Add(int64(add - took - more))
	if add > 0 {
		s.changeCapacityLocked(add)
	}
	if m.desk != nil {
		s.setWindowLocked()
	}
	m.minFree = s.free.Load()
	s.unlockAndStart()
	return took
}

// enterByEviction enters e, for which the part has no room and nobody to evict,
// in the place of the oldest evictable envelope of a sibling. No lock is held.
func (s *Stage) enterByEviction(ctx context.Context, e *Envelope, par *parent, now int64) error {
	if s.whole == nil {
		return s.refuse(reason.Full, nil)
	}
	var victim Envelope
	for _, o := range s.whole.parts {
		if o == s {
			continue
		}
		o.mu.Lock()
		ok := o.evictLocked(&victim)
		if ok {
			o.lent.Add(-1)
		}
		o.unlockAndStart()
		if !ok {
			continue
		}
		s.mu.Lock()
		s.lent.Add(1)
		shut := s.shutToLocked(ctx)
		if shut {
			s.releaseAsideLocked(1)
		} else {
			s.admitLocked(e, par, now)
		}
		s.unlockAndStart()
		o.dropped(&victim, reason.Evicted)
		if shut {
			return s.refuse(reason.Closed, nil)
		}
		return nil
	}
	return s.refuse(reason.Full, nil)
}
