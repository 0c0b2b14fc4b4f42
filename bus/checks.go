package bus

import "github.com/sedabus/seda/internal/invariant"

// checkLocked verifies, in the assertion build, what must hold whenever the
// stage's lock is released. Work that is on its way between two books, such as
// a hop that is just parking, is in neither, so the account is an inequality
// here; Stats.Check makes it exact when nothing is moving.
func (s *Stage) checkLocked() {
	m := &s.mu
	c := &m.count
	depth := s.depthLocked() - m.claimed
	for _, ex := range m.execs {
		if w := ex.claim.Load(); ex.working && !ex.single {
			depth += claimLim(w) - claimCur(w)
		}
	}
	invariant.Check(m.active >= 0 && m.executed >= 0 && m.claimed >= 0 && m.laned >= 0 && m.delayed >= 0 &&
		m.postponed >= 0 && m.journaled >= 0 && m.excess >= 0,
		"stage %q: a gauge below zero: active %d, executed %d, claimed %d, laned %d, delayed %d, postponed %d, journaled %d, excess %d",
		s.name, m.active, m.executed, m.claimed, m.laned, m.delayed, m.postponed, m.journaled, m.excess)
	invariant.Check(c.entered >= c.left() && int64(c.entered-c.left()) >= int64(depth),
		"stage %q: entered %d, left %d, depth %d: something is counted twice", s.name, c.entered, c.left(), depth)
	if m.keyed != nil {
		m.keyed.check(s.name)
	}
	if m.desk != nil {
		m.desk.check()
	}
	invariant.Check(c.end[1].total() <= c.copies, "stage %q: more copies ended than were made", s.name)
	invariant.Check(s.free.Load() <= int64(s.capacityNow()) || s.whole != nil,
		"stage %q: %d places free of %d: one was given back twice", s.name, s.free.Load(), s.capacityNow())
}

// check verifies the counts of a small ordered queue.
func (k *keyed) check(stage string) {
	n, aside := 0, 0
	for i := range k.slots {
		n += k.slots[i].q.Len()
		if len(k.slots[i].held) > checkedKeys {
			return
		}
		for _, side := range k.slots[i].held {
			n += side.Len()
			if side.delayed {
				aside += side.Len()
			}
		}
	}
	invariant.Check(n == k.n && aside == k.aside,
		"stage %q: %d queued and %d aside are counted as %d and %d", stage, n, aside, k.n, k.aside)
}

// checkedKeys bounds what a check costs.
const checkedKeys = 16
