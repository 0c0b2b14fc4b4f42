package credit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sedabus/seda/internal/clock"
	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/reason"
)

// Gate is a [Ledger] that producers wait at: it grants credits to those who are
// next, wakes them, lets leases lapse, calls credits back that others need
// more, and sizes its window. It is safe for concurrent use, starts no goroutine
// and is made by [NewGate].
//
// Credits that were granted ahead, beyond what a producer asked for, are called
// back when somebody waits, but for its exclusive ones. Those of
// [Producer.Acquire] are not before their lease is over; and that ends nothing
// as long as nobody waits for credits.
type Gate struct {
	now     func() time.Duration
	size    Sizing
	orphans atomic.Bool // a producer was collected

	mu struct {
		sync.Mutex

		ledger  *Ledger
		sizer   *Sizer
		asked   int  // window that was set
		adapts  bool // it is the sizer's
		sized   int  // the window, if no want stretches it
		surplus bool // some account may hold more than it may keep
		paused  bool
		closed  bool
		since   time.Duration // of the pause
		waiters int
		timer   *time.Timer // nil while no lease is watched
		rings   time.Duration
	}
}

// member is what the gate knows of a producer; Gate.mu guards it. It does not
// point to the Producer, which can be collected.
type member struct {
	gate   *Gate
	acct   *Account
	queue  waitList
	orphan atomic.Bool
}

// waiter is a call that waits for credits.
type waiter struct {
	n          int
	spend      bool // it is a Use
	since      time.Duration
	ready      chan error // of one
	next, prev *waiter
}

// waitList is a FIFO of the calls that wait for one producer.
type waitList struct{ head, tail *waiter }

func (l *waitList) push(w *waiter) {
	w.prev = l.tail
	if l.tail != nil {
		l.tail.next = w
	} else {
		l.head = w
	}
	l.tail = w
}

func (l *waitList) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.tail = w.prev
	}
	w.next, w.prev = nil, nil
}

// NewGate returns a Gate without producers. The error lists all faults of c and
// matches [ErrInvalid].
func NewGate(c GateConfig) (*Gate, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	ledger, err := NewLedger(c.Config)
	if err != nil {
		return nil, err
	}
	sizer, err := NewSizer(c.Size.SizerConfig)
	if err != nil {
		return nil, err
	}
	g := &Gate{now: c.Now, size: c.Size.withDefaults()}
	if g.now == nil {
		k := clock.New()
		g.now = func() time.Duration { return time.Duration(k.Now()) }
	}
	g.mu.ledger, g.mu.sizer = ledger, sizer
	g.mu.asked, g.mu.adapts = c.Window, c.Window == 0
	g.resizeLocked()
	return g, nil
}

// Done says that the work of n spent credits has ended and took that long in
// service, added up: so n credits come free, and an adaptive window learns from
// it.
//
// hot: 0 allocs, no time while the window is set and nobody waits
func (g *Gate) Done(n int, took time.Duration) {
	if n <= 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m := &g.mu
	m.ledger.Release(n)
	if m.adapts {
		g.learnLocked(n, took)
	}
	if m.waiters > 0 {
		g.pumpLocked()
	}
}

// learnLocked tells the sizer what has ended.
func (g *Gate) learnLocked(n int, took time.Duration) {
	m := &g.mu
	now, used := g.now(), m.ledger.Used()
	t := float64(took)
	m.sizer.Ended(Sample{
		Now: now, N: n, Service: took, Squares: t * t / float64(n), Waiting: max(used-g.size.Workers, 0), Workers: g.size.Workers,
	})
	if used < g.size.Workers && m.waiters > 0 {
		m.sizer.Starved(now)
	}
	g.resizeLocked()
}

// resizeLocked puts the window in force that was set or is found now.
func (g *Gate) resizeLocked() {
	m := &g.mu
	n := min(m.asked, g.size.Capacity)
	if m.adapts {
		n = m.sizer.Window(g.size.Workers, g.size.Capacity)
	}
	if m.sized = n; n != m.ledger.Window() {
		m.ledger.SetWindow(n)
		m.surplus = true // exclusive ones may be fewer
	}
}

// limitLocked is the most credits that can be asked for at once. A window of 0
// makes everybody wait until there is one.
func (g *Gate) limitLocked() int {
	if g.mu.adapts {
		return g.size.Capacity
	}
	if g.mu.sized == 0 {
		return maxWindow
	}
	return g.mu.sized
}

// pumpLocked serves those who wait while there are credits for the next of
// them, and sees to it that it is called again when that may change.
func (g *Gate) pumpLocked() {
	m := &g.mu
	if m.paused || m.closed {
		return
	}
	for {
		a := m.ledger.Next()
		if a == nil {
			return
		}
		need := a.Wanted()
		if m.adapts && need > m.ledger.Window() {
			m.ledger.SetWindow(need) // until the next resize
		}
		now := g.now()
		if m.ledger.Free() < need && !g.gatherLocked(need, now) {
			return
		}
		g.serveLocked(a, now)
	}
}

// serveLocked grants the next account what its first waiter waits for.
func (g *Gate) serveLocked(a *Account, now time.Duration) {
	m := &g.mu
	b := a.Tag.(*member) //nolint:forcetypeassert,errcheck // the gate has set it
	w := b.queue.head
	g.grantLocked(a, w.n, now)
	if w.spend {
		m.ledger.Spend(a, 1)
	} else {
		m.ledger.Hold(a, w.n)
	}
	g.leaveLocked(b, w)
	w.ready <- nil
}

// grantLocked grants a n credits, which are free, and some ahead.
func (g *Gate) grantLocked(a *Account, n int, now time.Duration) {
	m := &g.mu
	more := m.ledger.Ahead(a, m.ledger.Free()-n)
	m.ledger.Grant(a, n+more, now)
	m.surplus = m.surplus || more > 0
}

// leaveLocked takes w out of those that wait; its producer wants what the next
// one needs.
func (g *Gate) leaveLocked(b *member, w *waiter) {
	b.queue.remove(w)
	g.mu.waiters--
	n := 0
	if b.queue.head != nil {
		n = b.queue.head.n
	}
	g.mu.ledger.Want(b.acct, n)
}

// gatherLocked tries to get n credits free: from producers that were collected,
// whose lease is over, or that were granted more than they may keep. If it does
// not, it watches for the end of the next lease.
func (g *Gate) gatherLocked(n int, now time.Duration) bool {
	m := &g.mu
	g.reapLocked()
	_, next := m.ledger.Expire(now, nil)
	if m.ledger.Free() < n && m.surplus && !faults.On(faults.CreditHoarded) {
		m.surplus = false
		for a := range m.ledger.All() {
			m.ledger.Return(a, a.Unspent()-m.ledger.Keep(a, now))
			if m.ledger.Free() >= n {
				m.surplus = true // of those not looked at
				break
			}
		}
	}
	if m.ledger.Free() >= n {
		return true
	}
	if next != 0 && (m.timer == nil || m.rings > next) {
		g.watchLocked(next, now)
	}
	return false
}

// watchLocked sets the timer to next. It is the only one and belongs to the
// gate; Close stops it.
func (g *Gate) watchLocked(next, now time.Duration) {
	m := &g.mu
	g.restLocked()
	in := min(max(next-now, time.Millisecond), m.ledger.cfg.Lease) // a clock that stands must not spin
	m.rings = next
	m.timer = clock.AfterFunc(in, g.ring)
}

// ring is what the timer calls.
func (g *Gate) ring() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.timer = nil
	g.pumpLocked()
}

func (g *Gate) restLocked() {
	if g.mu.timer != nil {
		g.mu.timer.Stop()
		g.mu.timer = nil
	}
}

// reapLocked closes the accounts of producers that were collected, and says
// whether there were any.
func (g *Gate) reapLocked() bool {
	if !g.orphans.Load() || !g.orphans.Swap(false) {
		return false
	}
	for a := range g.mu.ledger.All() {
		if b, ok := a.Tag.(*member); ok && b.orphan.Load() {
			g.closeLocked(b)
		}
	}
	return true
}

// closeLocked closes the account of one producer.
func (g *Gate) closeLocked(b *member) {
	for b.queue.head != nil {
		w := b.queue.head
		g.leaveLocked(b, w)
		w.ready <- ErrClosed
	}
	g.mu.ledger.Close(b.acct)
	g.mu.surplus = true
}

// Pause stops granting: what is unspent goes back, and who asks for credits
// waits, until [Gate.Resume]. Work of spent credits goes on.
func (g *Gate) Pause() {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := &g.mu
	if m.paused || m.closed {
		return
	}
	m.paused, m.since = true, g.now()
	for a := range m.ledger.All() {
		if !faults.On(faults.CreditPauseKeeps) {
			m.ledger.Return(a, a.Unspent())
		}
	}
	g.restLocked()
}

// Resume ends a pause.
func (g *Gate) Resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.paused = false
	g.pumpLocked()
}

// SetWindow sets how many credits there are in all and ends adaptation, until
// [Gate.Adapt]. The error matches [ErrInvalid] for a number that is negative or
// above 1073741824; one above Sizing.Capacity is taken as that, which
// [GateState.Note] says. With 0 everybody waits.
//
// A smaller window takes nothing back: there are no grants until enough credits
// came back. Who waits for more than there are now in all gets a [LimitError].
func (g *Gate) SetWindow(n int) error {
	if n < 0 || n > maxWindow {
		return fmt.Errorf("%w: a window of %d: 0 to %d", ErrInvalid, n, maxWindow)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.asked, g.mu.adapts = n, false
	g.rewindLocked()
	return nil
}

// Adapt lets the window follow what the stage gets done.
func (g *Gate) Adapt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.adapts = true
	g.rewindLocked()
}

// rewindLocked puts a changed window in force.
func (g *Gate) rewindLocked() {
	if g.mu.closed {
		return
	}
	g.resizeLocked()
	limit := g.limitLocked()
	for a := range g.mu.ledger.All() {
		b := a.Tag.(*member) //nolint:forcetypeassert,errcheck // the gate has set it
		for w := b.queue.head; w != nil; {
			next := w.next
			if w.n > limit && !faults.On(faults.CreditStretched) {
				g.leaveLocked(b, w)
				w.ready <- &LimitError{Want: w.n, Limit: limit}
			}
			w = next
		}
	}
	g.pumpLocked()
}

// Close ends the gate: who waits gets [ErrClosed], and so does who comes.
// Unspent credits go back. Closing it again does nothing.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.closed = true
	g.restLocked()
	for a := range g.mu.ledger.All() {
		g.closeLocked(a.Tag.(*member)) //nolint:forcetypeassert,errcheck // the gate has set it
	}
}

// GateState is a reading of a [Gate]. All of it is of one instant:
// Granted = Spent + Returned + Expired + Outstanding.
type GateState struct {
	Counts // of all producers, closed ones included

	Window  int    // credits in all
	Asked   int    // the window that was set, if it does not adapt
	Adapts  bool   // the window adapts
	Note    string // why Window is not what was set, else ""
	Used    int    // spent, and the work has not ended
	Free    int    // to be granted
	Live    int    // producers
	Waiting int    // calls that wait
	Paused  bool
	Closed  bool
	Size    SizerState
}

// State returns a reading.
func (g *Gate) State() GateState {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := &g.mu
	if g.reapLocked() {
		g.pumpLocked()
	}
	l := m.ledger
	st := GateState{
		Counts: l.Counts(), Window: l.Window(), Adapts: m.adapts, Used: l.Used(), Free: l.Free(), Live: l.Live(),
		Waiting: m.waiters, Paused: m.paused, Closed: m.closed, Size: m.sizer.State(),
	}
	if !m.adapts {
		st.Asked = m.asked
		if m.asked > m.sized {
			st.Note = fmt.Sprintf("a window of %d was asked for; the capacity is %d", m.asked, m.sized)
		}
	}
	return st
}

// Blocked says why a producer gets no credit.
type Blocked struct {
	// Reason is reason.NoCredit, reason.Paused or reason.Closed.
	Reason reason.Reason
	// Since is by GateConfig.Now: when its longest wait began, or the pause; 0 if
	// neither is so.
	Since time.Duration
	// Want is how many credits its longest wait is for, 0 if none waits.
	Want int
}
