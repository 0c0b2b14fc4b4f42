package bus

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sedabus/seda/credit"
	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/queue"
	"github.com/sedabus/seda/reason"
)

// account is what one producer has at its stage's desk. Stage.mu guards it, but
// for orphan.
type account struct {
	stage  *Stage
	lane   *lane // its producer's, or nil
	par    parent
	weight int
	class  int
	plain  bool // of publishes without a Producer
	untold int  // those of them that the ledger has not heard of

	led    *credit.Account // nil until it is needed, and in a stage without Credit
	index  int             // in desk.accounts
	held   int             // credits in hand, beside those that the lane has leased
	booked int             // envelopes of the lane's open chunk that the ledger knows as spent
	turns  turnList        // who waits
	waits  blockTime
	closed bool
	orphan atomic.Bool // its producer was collected
}

func newAccount(s *Stage) *account {
	a := &account{stage: s}
	a.par.acct = a
	return a
}

// foldLocked takes what the lane has leased and not used into hand, and tells
// the ledger what it has used.
func (a *account) foldLocked() {
	l := a.lane
	if l == nil || l.c == nil || a.led == nil {
		return
	}
	for {
		w := l.c.Mark.Load()
		n, lim := int(w&laneCountMask), int(w>>laneLimShift)
		if lim <= n || l.c.Mark.CompareAndSwap(w, laneMark(n, n)) {
			a.bookLocked(n)
			a.held += max(0, lim-n)
			return
		}
	}
}

// bookLocked tells the ledger that the lane's open chunk has n envelopes.
func (a *account) bookLocked(n int) {
	a.stage.mu.desk.ledger.Spend(a.led, n-a.booked)
	a.booked = n
}

// holdLocked marks n of the credits in hand as acquired on purpose. What the lane
// has published before is booked first: else its spending would be taken from the
// mark, and the credit could be called back.
func (a *account) holdLocked(n int) {
	a.foldLocked()
	a.stage.mu.desk.ledger.Hold(a.led, n)
}

// recallLocked gives back what others may have.
func (a *account) recallLocked(now time.Duration) {
	d := a.stage.mu.desk
	if a.led == nil || a.led.Unspent() == 0 {
		return
	}
	a.foldLocked()
	a.returnLocked(a.held - d.ledger.Keep(a.led, now))
}

// returnLocked gives n of the credits in hand back.
func (a *account) returnLocked(n int) {
	if n <= 0 {
		return
	}
	a.held -= n
	a.stage.mu.desk.ledger.Return(a.led, n)
	if faults.On(faults.CreditDoubled) {
		n++
	}
	a.stage.handInLocked(n)
}

// handInLocked takes n places back that were held for nothing.
func (s *Stage) handInLocked(n int) {
	s.free.Add(int64(n))
	s.mu.excess = max(0, s.mu.excess-n)
}

// payLocked spends one that was granted.
func (a *account) payLocked() {
	a.held--
	a.stage.mu.desk.ledger.Spend(a.led, 1)
}

// unspentLocked is how many credits the producer can use without asking.
func (a *account) unspentLocked() int {
	n := a.held
	if l := a.lane; l != nil && l.c != nil && a.led != nil {
		w := l.c.Mark.Load()
		n += int(w>>laneLimShift) - int(w&laneCountMask)
	}
	return n
}

// close ends the account when its producer is closed.
func (a *account) close() {
	s := a.stage
	s.mu.Lock()
	a.closeLocked()
	s.unlockAndStart()
}

func (a *account) closeLocked() {
	if a.closed {
		return
	}
	a.closed = true
	for w := a.turns.head; w != nil; w = a.turns.head { // under way, against the rules
		if w.want > 0 {
			a.stage.leaveLineLocked(w)
			w.ready <- reason.Invalid
		} else {
			a.stage.moveTurnLocked(w)
		}
	}
	if a.led != nil {
		a.stage.mu.desk.drop(a)
		a.stage.tellRoomLocked()
	}
}

// forget notes that the account's producer was collected, see lane.forget.
func (a *account) forget() {
	a.orphan.Store(true)
	a.stage.mu.orphans.Store(true)
}

// leaseCreditLocked is lease for a stage with Credit: it fills the open chunk
// with credits in hand. It unlocks s.mu.
func (l *lane) leaseCreditLocked(ctx context.Context, e *Envelope, now int64) (leased bool, err error) {
	s, a := l.stage, &l.acct
	d := s.mu.desk
	if l.off || s.laneless.Load() || s.mu.draining {
		l.sealLocked()
		return false, s.enterFull(ctx, e, &l.par, now) // unlocks
	}
	if a.led == nil {
		d.open(a)
	}
	a.foldLocked()
	if a.held == 0 && s.mu.waiters.n == 0 && s.mu.arrivals.Len() == 0 { // else enterFull helps
		if d.grantLocked(a, 1, d.lot()) == 0 {
			s.helpLocked()
			d.grantLocked(a, 1, d.lot())
		}
	}
	if a.held == 0 {
		l.sealLocked()
		return false, s.enterFull(ctx, e, &l.par, now) // unlocks
	}
	l.openLocked()
	a.held -= l.extendLocked(a.held)
	s.unlockAndStart()
	return true, nil
}

// lot is how many credits a lane is granted at a time: a chunk's worth, and fewer
// when few are left for all.
func (d *desk) lot() int {
	s := d.stage
	share := (s.free.Load() - s.mu.shut) / int64(2*max(1, len(s.mu.lanes)))
	return int(min(max(1, share), queue.Len))
}

// blockTime adds up for how long somebody has waited.
type blockTime struct {
	since int64 // bus clock; while n > 0
	n     int
	total time.Duration
}

func (b *blockTime) begin(now int64) {
	if b.n++; b.n == 1 {
		b.since = now
	}
}

func (b *blockTime) end(now int64) {
	if b.n--; b.n == 0 {
		b.total += time.Duration(max(0, now-b.since))
	}
}

func (b *blockTime) at(now int64) time.Duration {
	if b.n == 0 {
		return b.total
	}
	return b.total + time.Duration(max(0, now-b.since))
}
