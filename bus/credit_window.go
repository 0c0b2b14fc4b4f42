package bus

import (
	"fmt"
	"math"
	"time"

	"github.com/sedabus/seda/credit"
	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/invariant"
	"github.com/sedabus/seda/reason"
)

// CreditConfig is how a stage with Full Credit grants credits. A credit is the
// right to publish one envelope: the stage grants it, and a producer knows
// before it publishes. The zero value is valid.
type CreditConfig struct {
	// Window is how many credits there are in all: those that producers hold and
	// have not spent, and a spent one until its envelope has left the stage, so
	// what is in handlers counts. Default 0 adapts it to how fast the stage gets
	// its work done; CreditNone grants none; else it is fixed, at most 1<<30. What
	// is above the Capacity is taken as that, which Stage.Credit says.
	Window int
	// TargetFactor is the wait in the stage that an adaptive window aims at, in
	// mean service times. Default 2, from 0.1 to 1000.
	TargetFactor float64
	// Exclusive is how many credits a producer may keep in hand although others
	// wait for them, as long as they are not half of the window. Default 2, at
	// most 1<<20; -1 is none.
	Exclusive int
	// Lease is for how long credits are good that are not spent. Default 1 s, at
	// most 24 h.
	Lease time.Duration
	// HopReserve is how many credits publishes leave to hops that arrive from
	// other stages. Default 0 is none, but in a ring of stages what keeps it going
	// at full speed; -1 is none there either; at most 1<<30.
	HopReserve int
}

// CreditNone is the CreditConfig.Window of a stage that grants no credits.
const CreditNone = -1

const (
	defaultTargetFactor = 2
	defaultExclusive    = 2
	defaultCreditLease  = time.Second
	leastTargetFactor   = 0.1
	mostTargetFactor    = 1000
	maxExclusive        = 1 << 20
	maxCreditLease      = 24 * time.Hour
)

func (c *CreditConfig) setDefaults() {
	setDefault(&c.TargetFactor, defaultTargetFactor)
	setDefault(&c.Exclusive, defaultExclusive)
	setDefault(&c.Lease, defaultCreditLease)
}

func (c *CreditConfig) validate(where string) []error {
	errs := []error{
		checkDuration(where, "Credit.Lease", min(c.Lease, maxCreditLease)),
	}
	if c.Lease > maxCreditLease {
		errs = append(errs, fault(where, "Credit.Lease", c.Lease, "must be at most "+maxCreditLease.String()))
	}
	if c.Window < CreditNone || c.Window > maxCapacity {
		errs = append(errs, fault(where, "Credit.Window", c.Window,
			fmt.Sprintf("must be CreditNone (%d), 0 (adaptive) or up to %d", CreditNone, maxCapacity)))
	}
	if c.Exclusive < -1 || c.Exclusive > maxExclusive {
		errs = append(errs, fault(where, "Credit.Exclusive", c.Exclusive,
			fmt.Sprintf("must be -1 (none), 0 (default %d) or up to %d", defaultExclusive, maxExclusive)))
	}
	if c.HopReserve < -1 || c.HopReserve > maxCapacity {
		errs = append(errs, fault(where, "Credit.HopReserve", c.HopReserve,
			fmt.Sprintf("must be -1 (none), 0 (as a ring needs it) or up to %d", maxCapacity)))
	}
	if f := c.TargetFactor; f != 0 && !(f >= leastTargetFactor && f <= mostTargetFactor) || math.IsNaN(f) {
		errs = append(errs, fault(where, "Credit.TargetFactor", f,
			fmt.Sprintf("must be 0 (default %d) or from %v to %v", defaultTargetFactor, leastTargetFactor, mostTargetFactor)))
	}
	return errs
}

// tuneCreditLocked opens the desk, puts its settings into force, or closes it,
// as the settings of the stage say.
func (s *Stage) tuneCreditLocked() {
	m := &s.mu
	if m.cfg.Full != Credit {
		s.closeDeskLocked()
		return
	}
	if m.desk == nil {
		s.revokeLanesLocked() // leased as places: nobody would call them back any more
		m.desk = newDesk(s)
		now := s.bus.clock.Tick()
		for w := m.waiters.head; w != nil; w = w.next {
			w.acct = s.payerLocked(&w.env, w.par)
			w.since = now
			w.acct.waits.begin(now)
			s.takeTurnLocked(w)
		}
	} else {
		c := &m.cfg.Credit
		m.desk.ledger.Tune(c.Exclusive, c.Lease)
		if d := m.desk; d.lapsing != nil { // the lease may be shorter
			s.bus.timers.remove(d.lapsing)
			d.lapsing = s.bus.timers.push(s.bus.clock.Now(), (*lapse)(d))
		}
		_ = m.desk.sizer.Tune(credit.SizerConfig{TargetFactor: c.TargetFactor}) // validated
	}
	s.setWindowLocked()
}

// closeDeskLocked ends the use of credits. Publishes that wait go on waiting;
// who waits for credits in hand is refused.
func (s *Stage) closeDeskLocked() {
	m := &s.mu
	d := m.desk
	if d == nil {
		return
	}
	for w := m.waiters.head; w != nil; {
		next := w.next
		if w.want > 0 {
			s.leaveLineLocked(w)
			w.ready <- reason.NoCredit
		} else {
			s.leaveTurnLocked(w)
			w.acct = nil
		}
		w = next
	}
	for _, e := range m.edges {
		e.letAllLocked(reason.None)
	}
	for len(d.accounts) > 0 {
		d.drop(d.accounts[len(d.accounts)-1])
	}
	m.desk, m.shut = nil, 0
	s.beyond.Store(0)
	s.slack.Store(0) // or to the shedder's bound, when the lock is released
	s.feedArrivalsLocked()
	s.tellRoomLocked()
}

// setWindowLocked puts the window into force that the settings and the sizer
// say.
func (s *Stage) setWindowLocked() {
	m := &s.mu
	d, c := m.desk, &m.cfg
	asked := c.Credit.Window
	switch asked {
	case CreditNone:
		asked = 0
	case 0:
		asked = d.sizer.Window(s.bus.handlersAtMost(c.Concurrency), c.Capacity)
		if d.acquiring > 0 {
			asked = max(asked, s.windowForLocked())
		}
	}
	if faults.On(faults.CreditWindowStays) && d.window >= 0 {
		return
	}
	d.clamped = asked > c.Capacity
	window := min(asked, c.Capacity)
	beyond := int64(c.Capacity - window)
	shut := beyond + int64(s.reserveForHopsLocked(window))
	if window == d.window && beyond == s.beyond.Load() && shut == m.shut {
		return
	}
	shrunk := window < d.window
	d.window, m.shut = window, shut
	s.most.Store(int32(c.Capacity - int(shut)))
	s.beyond.Store(beyond)
	d.ledger.SetWindow(window)
	if s.shed == nil {
		s.slack.Store(beyond)
	} else {
		s.boundHopsLocked()
	}
	s.refuseTooManyLocked()
	if shrunk {
		if faults.On(faults.CreditShrinkKeeps) {
			s.free.Add(-1)
		}
		d.recallLocked()
		return
	}
	s.feedArrivalsLocked()
	s.tellRoomLocked()
}

// mostLocked is how many credits one producer can have: the window but for what
// is left to hops.
func (s *Stage) mostLocked() int {
	if s.whole != nil {
		return s.mostOfParts()
	}
	return s.mu.cfg.Capacity - int(s.mu.shut)
}

// mostEverLocked is mostLocked for an adaptive window at its largest.
func (s *Stage) mostEverLocked() int {
	if s.mu.cfg.Credit.Window != 0 || s.whole != nil {
		return s.mostLocked()
	}
	return s.mu.cfg.Capacity - s.reserveForHopsLocked(s.mu.cfg.Capacity)
}

// windowForLocked is the window that the largest Acquire which waits needs, what
// is left to hops included.
func (s *Stage) windowForLocked() int {
	most := 0
	for w := s.mu.waiters.head; w != nil; w = w.next {
		most = max(most, w.want)
	}
	window := most
	for range 64 { // what is left to hops may grow with the window
		next := min(most+s.reserveForHopsLocked(window), s.mu.cfg.Capacity)
		if next == window {
			break
		}
		window = next
	}
	return window
}

// refuseTooManyLocked answers those who wait for more credits than they can get.
func (s *Stage) refuseTooManyLocked() {
	if s.mu.cfg.Credit.Window == 0 {
		return // it is stretched for them
	}
	most := s.mostLocked()
	for w := s.mu.waiters.head; w != nil && s.mu.desk.window > 0; { // with 0 they wait for better times
		next := w.next
		if w.want > most {
			s.leaveLineLocked(w)
			w.ready <- reason.NoCredit
		}
		w = next
	}
}

// tellEvery is how often the sizer of a stage of fast handlers is told at most:
// it costs as much as some of them.
const tellEvery = 25 * time.Microsecond

// sizeWindowLocked tells the sizer what ex's claim has done.
func (s *Stage) sizeWindowLocked(ex *executor, now int64) {
	m := &s.mu
	d := m.desk
	if faults.On(faults.CreditFailKeeps) && ex.tally.failed > 0 {
		s.free.Add(-1)
	}
	n := int(ex.tally.delivered)
	took := time.Duration(max(0, now-ex.start))
	t := &d.ended
	t.N += n
	t.Service += took
	t.Squares += float64(took) * float64(took/time.Duration(n))
	if since := time.Duration(now) - t.Now; !s.slow.Load() && since >= 0 && since < tellEvery {
		return
	}
	t.Now, t.Waiting, t.Workers = time.Duration(now), s.startableLocked(), s.bus.handlersAtMost(m.cfg.Concurrency)
	d.sizer.Ended(*t)
	t.N, t.Service, t.Squares = 0, 0, 0
	if m.cfg.Credit.Window == 0 || d.edgesMade != s.bus.edgesMade.Load() {
		s.setWindowLocked()
	}
}

// starvedLocked tells the sizer of an executor that found nothing to do although
// producers wait for credits.
func (s *Stage) starvedLocked(now int64) {
	if m := &s.mu; m.waiters.n > 0 && m.cfg.Credit.Window == 0 && s.startableLocked() == 0 {
		m.desk.sizer.Starved(time.Duration(now))
		s.setWindowLocked()
	}
}

// check verifies, in the assertion build, that every credit in hand is a place
// that is taken.
func (d *desk) check() {
	unspent := 0
	for _, a := range d.accounts {
		if a.lane != nil && a.lane.c != nil {
			return // its producer may be spending
		}
		unspent += a.held
	}
	invariant.Check(unspent == d.ledger.Unspent(), "stage %q: %d credits in hand, but the ledger says %d", d.stage.name, unspent, d.ledger.Unspent())
	out := int64(d.stage.capacityNow()) - d.stage.free.Load()
	invariant.Check(int64(unspent) <= max(0, out), "stage %q: %d credits in hand, but only %d places are taken", d.stage.name, unspent, out)
}
