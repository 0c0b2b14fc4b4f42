package bus

import (
	"slices"
	"time"

	"github.com/sedabus/seda/credit"
	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/invariant"
	"github.com/sedabus/seda/internal/timer"
	"github.com/sedabus/seda/reason"
)

// desk is where a stage with Full Credit keeps who holds its credits. A credit
// is a place of the stage, taken before there is an envelope for it: so what
// producers hold, what waits and what is in handlers share one count, Stage.free,
// and the window cannot be exceeded. The desk adds whose they are, who comes
// next, and when they lapse. Stage.mu guards it.
type desk struct {
	stage     *Stage
	ledger    *credit.Ledger
	sizer     *credit.Sizer
	ended     credit.Sample     // what the sizer is to be told next
	window    int               // in force
	plain     []*account        // of publishes without a Producer, one a class
	accounts  []*account        // all that have an entry in the ledger
	lapsing   *timer.Item[task] // looks for leases that are over, or nil
	acquiring int               // of those who wait: for credits to hold, for which an adaptive window grows
	clamped   bool              // the window that was asked for is above the capacity
	untold    int               // of all accounts
	blocked   time.Duration     // for how long publishes have waited, added up
	ring      []*Stage          // the rings that the stage is part of
	edgesMade uint32            // Bus.edgesMade when that was found out
	next      *Stage            // where its work goes next
	forks     bool              // there is more than one such stage
}

// newDesk returns the desk of a stage that becomes one with Credit.
func newDesk(s *Stage) *desk {
	c := &s.mu.cfg
	d := &desk{stage: s, window: -1, edgesMade: s.bus.edgesMade.Load() - 1}
	var classes []credit.Class
	for i := range c.Classes {
		classes = append(classes, credit.Class{MinShare: c.Classes[i].MinShare})
	}
	d.ledger = made(credit.NewLedger(credit.Config{
		Exclusive: c.Credit.Exclusive, Lease: c.Credit.Lease, Classes: classes,
	}))
	d.sizer = made(credit.NewSizer(credit.SizerConfig{TargetFactor: c.Credit.TargetFactor}))
	for i := range max(1, len(classes)) {
		a := newAccount(s)
		a.class, a.plain = i, true
		d.open(a)
		d.plain = append(d.plain, a)
	}
	return d
}

// made returns what was made of settings that have been validated.
func made[T any](v *T, err error) *T {
	if err != nil {
		invariant.Violated("bus: settings of credits were not validated: %v", err)
	}
	return v
}

// open gives a an entry in the ledger.
func (d *desk) open(a *account) {
	c := credit.AccountConfig{Weight: a.weight, Class: min(a.class, max(1, len(d.stage.mu.cfg.Classes))-1)}
	if faults.On(faults.CreditBiased) {
		c.Weight = 1 + len(d.accounts)
	}
	if faults.On(faults.CreditClassless) {
		c.Class = 0
	}
	a.led = made(d.ledger.Open(c))
	a.led.Tag = a
	if l := a.lane; l != nil && l.c != nil { // leased before there were credits
		w := l.c.Mark.Load()
		for !l.c.Mark.CompareAndSwap(w, laneMark(int(w&laneCountMask), int(w&laneCountMask))) {
			w = l.c.Mark.Load()
		}
		a.booked = int(w & laneCountMask)
		d.stage.free.Add(int64(w>>laneLimShift) - int64(a.booked))
	}
	a.index = len(d.accounts)
	d.accounts = append(d.accounts, a)
}

// drop takes a's entry out of the ledger; its credits go back.
func (d *desk) drop(a *account) {
	d.tellLocked()
	a.foldLocked()
	d.ledger.Close(a.led)
	if !faults.On(faults.CreditCloseKeeps) {
		d.stage.handInLocked(a.held)
	}
	a.held, a.led = 0, nil
	last := d.accounts[len(d.accounts)-1]
	d.accounts[a.index], last.index = last, a.index
	d.accounts[len(d.accounts)-1] = nil
	d.accounts = d.accounts[:len(d.accounts)-1]
}

// payerLocked is the account that pays for a publish of e.
func (s *Stage) payerLocked(e *Envelope, par *parent) *account {
	if par != nil && par.acct != nil && !par.acct.closed {
		if a := par.acct; a.led == nil {
			s.mu.desk.open(a)
		}
		return par.acct
	}
	if s.mu.classes != nil {
		return s.mu.desk.plain[s.mu.classes.classOf(e)]
	}
	return s.mu.desk.plain[0]
}

// grantsLocked says whether the stage grants credits at all now.
func (s *Stage) grantsLocked() bool {
	d := s.mu.desk
	return d == nil || (d.windowNow() > 0 && !s.mu.closed && !s.mu.holds.any())
}

// spendLocked takes the place of one publish: a credit that its producer holds,
// or a free one for which nobody waits.
func (s *Stage) spendLocked(e *Envelope, par *parent) bool {
	a := s.payerLocked(e, par)
	if a.plain {
		return s.passLocked(a)
	}
	return s.spendManyLocked(a, 1) == 1
}

// passLocked is spendLocked for a publish without a Producer, which never holds
// credits: the ledger hears of it by and by, see tellLocked.
func (s *Stage) passLocked(a *account) bool {
	if s.mu.holds.any() || s.mu.closed || !s.takeFreeLocked() {
		return false
	}
	a.untold++
	s.mu.desk.untold++
	return true
}

// tellLocked tells the ledger what passed without it: before somebody waits,
// whose turn depends on it, and before anybody reads the books.
func (d *desk) tellLocked() {
	if d.untold == 0 {
		return
	}
	d.untold = 0
	for _, a := range d.plain {
		if a.untold > 0 && a.led != nil {
			d.ledger.Pass(a.led, a.untold)
			a.untold = 0
		}
	}
}

// spendManyLocked is spendLocked for up to n publishes of one producer.
func (s *Stage) spendManyLocked(a *account, n int) int {
	d := s.mu.desk
	if a.led == nil {
		if a.closed {
			a = d.plain[len(d.plain)-1]
		} else {
			d.open(a)
		}
	}
	if a.held < n {
		a.foldLocked()
	}
	if more := n - a.held; more > 0 && s.mu.waiters.n == 0 && s.mu.arrivals.Len() == 0 {
		if d.grantLocked(a, more, more) == 0 && more > 1 {
			d.grantLocked(a, 1, more)
		}
	}
	n = min(n, a.held)
	a.held -= n
	d.ledger.Spend(a.led, n)
	return n
}

// grantLocked grants a about n of the free credits, and not fewer than least of
// them or none. It returns how many.
func (d *desk) grantLocked(a *account, least, n int) int {
	s := d.stage
	d.tellLocked()
	free := s.free.Load() - s.mu.shut
	if free < int64(least) && s.whole != nil {
		s.borrow(max(least, lendLot) - int(free))
		free = s.free.Load() - s.mu.shut
	}
	if free < int64(least) || !s.grantsLocked() {
		return 0
	}
	if !a.plain && a.lane == nil {
		n += d.ledger.Ahead(a.led, int(free)-least)
	}
	got := s.takeLeaving(s.mu.shut, least, n)
	if got == 0 {
		return 0
	}
	left := s.free.Load()
	s.mu.minFree = min(s.mu.minFree, left)
	window := d.windowNow()
	if s.whole != nil { // what siblings borrow meanwhile is not taken from what has just been got
		window = max(window, d.ledger.Unspent()+got)
	}
	if window != d.ledger.Window() {
		d.ledger.SetWindow(window)
	}
	used := s.capacityNow() - int(left) - got - d.ledger.Unspent()
	d.ledger.SetUsed(min(used, window-d.ledger.Unspent()-got)) // a hop may just have taken some
	granted := d.ledger.Grant(a.led, got, d.now())
	invariant.Check(granted == got, "stage %q: took %d places for credits, but the ledger granted %d", s.name, got, granted)
	a.held += got
	if d.lapsing == nil && !a.plain {
		d.lapsing = s.bus.timers.push(s.bus.clock.Now()+int64(s.mu.cfg.Credit.Lease), (*lapse)(d))
	}
	return got
}

// windowNow is the window with what the siblings of a part have lent, or have of
// it.
func (d *desk) windowNow() int { return d.window + int(d.stage.lent.Load()) }

// now is the time by which leases are counted.
func (d *desk) now() time.Duration {
	if d.stage.unwatchedLocked() {
		return time.Duration(d.stage.bus.clock.Tick())
	}
	return time.Duration(d.stage.stamp())
}

// serveLocked serves those who wait for credits, in the order of the ledger,
// while there are some.
func (s *Stage) serveLocked() {
	m := &s.mu
	d := m.desk
	for m.waiters.n > 0 && m.arrivals.Len() == 0 && (m.active == 0 || !faults.On(faults.CreditWaits)) {
		next := d.ledger.Next()
		if next == nil {
			return
		}
		a, _ := next.Tag.(*account)
		w := a.turns.head
		want := next.Wanted()
		if d.grantLocked(a, want, want) == 0 {
			if faults.On(faults.CreditInParts) {
				a.held += s.takeLeaving(m.shut, 1, want-1)
			}
			return
		}
		switch {
		case w.want > 0:
			a.holdLocked(w.want)
		case w.reserve:
			a.payLocked()
			m.journaled++
		default:
			a.payLocked()
			s.admitLocked(&w.env, w.par, s.stamp())
		}
		s.leaveLineLocked(w)
		w.ready <- reason.None
	}
}

// recallLocked takes back for others what producers have been granted beyond
// what they may keep.
func (d *desk) recallLocked() {
	if d.ledger.Unspent() == 0 {
		return
	}
	now := d.now()
	for _, a := range d.accounts {
		a.recallLocked(now)
	}
}

// handBackLocked takes all credits back that are not spent: the stage, or the
// bus, takes nothing in for a while.
func (s *Stage) handBackLocked() {
	d := s.mu.desk
	if d == nil || faults.On(faults.CreditHoldKeeps) {
		return
	}
	for _, a := range d.accounts {
		a.foldLocked()
		a.returnLocked(a.held)
	}
}

// reapLocked closes the accounts of producers that were collected.
func (d *desk) reapLocked() {
	for _, a := range slices.Backward(d.accounts) {
		if a.orphan.Load() {
			a.closed = true
			d.drop(a)
		}
	}
}

// lapse is the timer that ends leases.
type lapse desk

func (t *lapse) fire(now int64) {
	d := (*desk)(t)
	s := d.stage
	s.mu.Lock()
	if s.mu.desk != d || faults.On(faults.CreditNeverLapses) { // the policy has changed
		s.mu.Unlock()
		return
	}
	s.reapLanesLocked()
	at := time.Duration(now)
	for _, a := range d.accounts {
		if d.ledger.Keep(a.led, at) == 0 {
			a.foldLocked()
		}
	}
	lost, next := d.ledger.Expire(at, func(l *credit.Account, n int) {
		if a, ok := l.Tag.(*account); ok {
			a.held -= n
		}
	})
	s.bus.timers.remove(d.lapsing) // one that was set meanwhile
	d.lapsing = nil
	if next != 0 {
		d.lapsing = s.bus.timers.push(int64(next), t)
	}
	s.releaseAsideLocked(lost)
	s.unlockAndStart()
}
