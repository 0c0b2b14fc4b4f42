package bus

import "sync/atomic"

// What an executor needs in sharded mode: the shard's permit to run in its loop,
// or one of the whole's to run beside it; both where the stage has fewer handlers
// than homes; and the bus's if there is a limit. A stage holds none while it waits
// for another one, so no two can wait for each other.

// limits are what a whole keeps of its Concurrency.
type limits struct {
	permits             // of all its executors
	beside  atomic.Bool // there are more than homes: some run beside the loops
}

// countLocked enters s among the stages that keep a reserved share of the bus's
// permits, or takes it out and returns who gets a permit by that.
func (s *Stage) countLocked(on bool) []grant {
	if to := s.bus.permits.count(s, on); to != nil {
		return []grant{{to, &s.bus.permits}}
	}
	return nil
}

// takePermitsLocked takes the permits for one more executor beside have, which
// was granted, or is nil. If one is missing it lines s up for that, once.
func (s *Stage) takePermitsLocked(have *permits) (set permitSet, ok bool) {
	m := &s.mu
	if have == nil && m.lined && s.home != nil {
		return permitSet{}, false
	}
	m.lined = false
	if s.home != nil && s.ticket.Load() == 0 {
		s.ticket.Store(s.bus.tickets.Add(1))
	}
	set.put(have)
	if (s.home == nil || s.takeOwnLocked(&set)) && s.takeOfBusLocked(&set) {
		s.ticket.Store(0)
		return set, true
	}
	m.grants = s.releaseSet(set, m.grants)
	return permitSet{}, false
}

func (s *Stage) takeOfBusLocked(set *permitSet) bool {
	b := &s.bus.permits
	if set.bus == nil && (s.home == nil || b.limited.Load()) {
		if !b.acquire(s) {
			s.mu.lined = true
			return false
		}
		set.bus = b
	}
	return true
}

// takeOwnLocked takes what a part needs beside the bus's permit.
func (s *Stage) takeOwnLocked(set *permitSet) bool {
	l, loop := &s.whole.limits, &s.home.permits
	if set.whole == nil && l.limited.Load() {
		if !l.acquire(s) {
			s.mu.lined = true
			return false
		}
		set.whole = &l.permits
	}
	switch beside := s.blocking || l.beside.Load(); {
	case s.blocking:
	case s.mu.looping:
		return beside && set.shard == nil
	case set.shard != nil:
	case beside:
		if loop.try(s) {
			set.shard = loop
		}
	case loop.acquire(s):
		set.shard = loop
	default:
		s.mu.lined = true
		return false
	}
	return true
}

// limitParts puts a stage's Concurrency into force for what its parts run
// together. Where it is not set there is one handler a shard, and nothing to
// count.
func (s *Stage) limitParts(c *StageConfig) {
	n, l := c.Concurrency, &s.limits
	if c.Pull || c.Delivery == PubSub || (c.anyShard && !c.Blocking) {
		n = 0
	}
	l.beside.Store(n > int(s.homes.Load()))
	counted := l.limited.Load()
	grants := l.setLimit(n)
	if n > 0 && !counted {
		s.eachPart((*Stage).adopt)
	}
	for _, p := range grants {
		settleGrants([]grant{{p, &l.permits}}, false)
	}
}

// adopt counts the executors that a part has started while nothing was counted.
func (s *Stage) adopt() {
	s.mu.Lock()
	for _, ex := range s.mu.execs {
		if ex.permit.whole == nil {
			ex.permit.whole = &s.whole.limits.permits
			s.whole.limits.adopt(s)
		}
	}
	s.unlockAndStart()
}
