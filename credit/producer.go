package credit

import (
	"context"
	"fmt"
	"runtime"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/reason"
)

// Producer is one producer's hand at a [Gate]. Each has its own share of the
// credits, so those that work independently have one each. It is safe for
// concurrent use. Its calls are served in the order in which they began to wait.
//
// A producer that is not needed any more is closed; one that is collected
// without that is closed when its credits are needed.
type Producer struct{ m *member }

// Producer adds a producer. The error matches [ErrInvalid] or is [ErrClosed].
func (g *Gate) Producer(c AccountConfig) (*Producer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closed {
		return nil, ErrClosed
	}
	g.reapLocked()
	a, err := g.mu.ledger.Open(c)
	if err != nil {
		return nil, err
	}
	b := &member{gate: g, acct: a}
	a.Tag = b
	g.mu.surplus = true // the exclusive ones of the others may be fewer
	g.pumpLocked()
	p := &Producer{m: b}
	runtime.AddCleanup(p, (*member).forget, b)
	return p, nil
}

// forget notes that the producer was collected. It runs on the collector's
// goroutine and so does no more than that.
func (b *member) forget() {
	b.orphan.Store(true)
	b.gate.orphans.Store(true)
}

// Acquire returns nil once n more credits are in hand, all or none. It waits for
// them until ctx ends: the error then matches [ErrNoCredit] and the cause. It is
// a [LimitError] if there are fewer in all, also when that comes about later,
// and [ErrClosed] once the producer or the gate is closed.
func (p *Producer) Acquire(ctx context.Context, n int) error { return p.get(ctx, n, false) }

// Use spends one credit: one in hand, else the next that the producer is
// granted, together with a batch ahead. It waits and fails like Acquire.
//
// hot: 0 allocs, time once in half a batch with credits in hand
func (p *Producer) Use(ctx context.Context) error {
	if p.spend(ctx) {
		return nil
	}
	return p.get(ctx, 1, true)
}

// spendLocked spends a credit in hand. When half a batch is left it fetches the
// next one, as long as nobody waits: so a producer runs dry only when there are
// too few credits.
func (g *Gate) spendLocked(a *Account) bool {
	m := &g.mu
	if m.ledger.Spend(a, 1) != 1 {
		return false
	}
	if a.Unspent() == m.ledger.cfg.Batch/2 && m.waiters == 0 && !m.paused {
		if more := m.ledger.Ahead(a, m.ledger.Free()); more > 0 {
			m.ledger.Grant(a, more, g.now())
			m.surplus = true
		}
	}
	return true
}

// spend spends a credit in hand.
func (p *Producer) spend(ctx context.Context) bool {
	if p == nil || p.m == nil || ctx == nil || ctx.Err() != nil {
		return false
	}
	g := p.m.gate
	g.mu.Lock()
	ok := g.spendLocked(p.m.acct)
	g.mu.Unlock()
	return ok
}

// get waits for n credits.
func (p *Producer) get(ctx context.Context, n int, spend bool) error {
	if ctx == nil {
		return fmt.Errorf("%w: the context is nil", ErrInvalid)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrNoCredit, context.Cause(ctx))
	}
	w, err := p.enter(n, spend, true)
	if w == nil {
		return err
	}
	defer runtime.KeepAlive(p) // or it could be collected, and closed, while it waits
	select {
	case err = <-w.ready:
		return err
	case <-ctx.Done():
	}
	g := p.m.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case err = <-w.ready: // its turn came at the same time
		return err
	default:
	}
	g.leaveLocked(p.m, w)
	if !faults.On(faults.CreditAsleep) {
		g.pumpLocked() // it may have held up others
	}
	return fmt.Errorf("%w: %w", ErrNoCredit, context.Cause(ctx))
}

// TryAcquire is Acquire that never waits: the error is [ErrNoCredit], also when
// others wait.
func (p *Producer) TryAcquire(n int) error {
	_, err := p.enter(n, false, false)
	return err
}

// TryUse is Use that never waits: the error is [ErrNoCredit], also when others
// wait and it has none in hand.
//
// hot: 0 allocs, time once in half a batch with credits in hand
func (p *Producer) TryUse() error {
	_, err := p.enter(1, true, false)
	return err
}

// enter gets n credits at once, or, if it may wait, a waiter that will get them.
func (p *Producer) enter(n int, spend, wait bool) (*waiter, error) {
	if p == nil || p.m == nil {
		return nil, fmt.Errorf("%w: a Producer is made by Gate.Producer", ErrInvalid)
	}
	if n <= 0 {
		return nil, fmt.Errorf("%w: %d credits: 1 or more", ErrInvalid, n)
	}
	b, g := p.m, p.m.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	defer runtime.KeepAlive(p)
	m := &g.mu
	if b.acct.closed {
		return nil, ErrClosed
	}
	if spend && g.spendLocked(b.acct) {
		return nil, nil
	}
	if limit := g.limitLocked(); n > limit {
		return nil, &LimitError{Want: n, Limit: limit}
	}
	if m.waiters == 0 && !m.paused && g.atOnceLocked(b.acct, n, spend) {
		return nil, nil
	}
	if !wait {
		return nil, ErrNoCredit
	}
	w := &waiter{n: n, spend: spend, since: g.now(), ready: make(chan error, 1)}
	b.queue.push(w)
	m.waiters++
	if b.queue.head == w {
		m.ledger.Want(b.acct, n)
	}
	g.pumpLocked()
	return w, nil
}

// atOnceLocked grants n credits if they can be had without waiting.
func (g *Gate) atOnceLocked(a *Account, n int, spend bool) bool {
	m := &g.mu
	now := g.now()
	if m.ledger.Free() < n && !g.gatherLocked(n, now) {
		return false
	}
	g.grantLocked(a, n, now)
	if spend {
		m.ledger.Spend(a, 1)
	} else {
		m.ledger.Hold(a, n)
	}
	return true
}

// Return hands n unspent credits back, or as many as are in hand.
func (p *Producer) Return(n int) {
	if p == nil || p.m == nil {
		return
	}
	g := p.m.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.ledger.Return(p.m.acct, n) > 0 {
		g.pumpLocked()
	}
	runtime.KeepAlive(p)
}

// Credits returns how many unspent credits are in hand.
func (p *Producer) Credits() int {
	if p == nil || p.m == nil {
		return 0
	}
	g := p.m.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.m.acct.Unspent()
}

// Counts returns where the producer's credits have gone.
func (p *Producer) Counts() Counts {
	if p == nil || p.m == nil {
		return Counts{}
	}
	g := p.m.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.m.acct.Counts()
}

// Blocked says whether [Producer.TryUse] would fail now, and why: so a producer
// knows before it makes work. To be told when there is credit again, call
// [Producer.Acquire].
func (p *Producer) Blocked() (Blocked, bool) {
	if p == nil || p.m == nil {
		return Blocked{Reason: reason.Closed}, true
	}
	b, g := p.m, p.m.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	m := &g.mu
	var s Blocked
	if w := b.queue.head; w != nil {
		s.Since, s.Want = w.since, w.n
	}
	switch {
	case b.acct.closed:
		return Blocked{Reason: reason.Closed}, true
	case b.acct.Unspent() > 0:
		return Blocked{}, false
	case m.paused:
		if s.Want == 0 {
			s.Since = m.since
		}
		s.Reason = reason.Paused
		return s, true
	case m.waiters == 0 && g.withinReachLocked():
		return Blocked{}, false
	}
	s.Reason = reason.NoCredit
	return s, true
}

// withinReachLocked says whether gatherLocked would find a credit.
func (g *Gate) withinReachLocked() bool {
	l := g.mu.ledger
	free, now := l.Window()-l.Used()-l.Unspent(), g.now()
	for a := range l.All() {
		if free > 0 {
			break
		}
		free += a.Unspent() - l.Keep(a, now)
	}
	return free > 0
}

// Close ends the producer: its unspent credits go back, and who waits gets
// [ErrClosed]. Closing it again does nothing.
func (p *Producer) Close() {
	if p == nil || p.m == nil {
		return
	}
	g := p.m.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if !p.m.acct.closed {
		g.closeLocked(p.m)
		g.pumpLocked()
	}
	runtime.KeepAlive(p)
}
