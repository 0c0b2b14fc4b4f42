package bus

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/sedabus/seda/internal/names"
	"github.com/sedabus/seda/reason"
)

// ProducerConfig is what a producer of a stage with Full Credit may say of
// itself. The zero value is valid.
type ProducerConfig struct {
	// Weight is its share of the credits while there are too few for all: twice
	// the weight, twice the rate. Default 1, at most 1000.
	Weight int
	// Class is the priority class in whose turn it waits for credits. Default ""
	// is the stage's last one.
	Class string
}

const maxWeight = 1000

// NewProducer is [Stage.Producer] with settings. The error names all that are
// out of their bounds.
func (s *Stage) NewProducer(c ProducerConfig) (*Producer, error) {
	class, err := s.checkProducer(&c)
	if err != nil {
		return nil, err
	}
	p := s.Producer()
	p.setCredit(c.Weight, class)
	return p, nil
}

func (s *Stage) checkProducer(c *ProducerConfig) (class int, err error) {
	s.mu.Lock()
	classes := s.mu.cfg.Classes
	s.mu.Unlock()
	if err = checkInt(s.where(), "Weight", c.Weight, maxWeight); err != nil {
		return 0, err
	}
	class = max(0, len(classes)-1)
	if c.Class == "" {
		return class, nil
	}
	if err := names.Check(c.Class); err != nil {
		return 0, fault(s.where(), "Class", fmt.Sprintf("%q", c.Class), err.Error())
	}
	for i := range classes {
		if classes[i].Name == c.Class {
			return i, nil
		}
	}
	return 0, fault(s.where(), "Class", c.Class, "must be one of the stage's Classes")
}

// Acquire waits until the producer has n further credits in hand, all at once:
// the next n publishes with it find room without waiting. They are good for
// CreditConfig.Lease; what is not spent then goes back, as it does with Close,
// when the stage is suspended and when the bus is paused. Those who wait are
// served by class, then by weight, then first come first served.
//
// It needs a stage with Full Credit and, as n, 1 to its window less what is left
// to hops; an adaptive window grows for n, up to the capacity. Else, and when the
// producer is closed meanwhile, the error matches ErrInvalid. It returns ctx's
// error with ErrNoCredit if that ends first, ErrNoCredit when a fixed window
// shrinks below n, and ErrClosed once the bus takes nothing in any more.
func (p *Producer) Acquire(ctx context.Context, n int) error {
	if p.parts != nil {
		return p.atHome().Acquire(ctx, n)
	}
	s, a := p.stage, p.acct
	if ctx == nil {
		return s.refuse(reason.Invalid, errNilContext)
	}
	if g := gates(s.gates.Load()); g&gatesOfBus != 0 {
		if why, cause := s.check(ctx, nil, g&gatesOfBus, s.bus.isInside(ctx)); why != reason.None {
			return s.refuse(why, cause)
		}
	}
	if ctx.Err() != nil {
		return s.refuse(reason.Canceled, overBecause(ctx))
	}
	s.gatherFor(a, n)
	s.mu.Lock()
	if err := s.checkAcquireLocked(a, n); err != nil {
		s.unlockAndStart()
		return s.refuse(reason.Invalid, err)
	}
	if s.shutToLocked(ctx) {
		s.unlockAndStart()
		return s.refuse(reason.Closed, nil)
	}
	if s.acquireLocked(a, n) {
		s.unlockAndStart()
		return nil
	}
	if s.mu.waiters.n >= s.mu.cfg.MaxWaiters {
		s.unlockAndStart()
		return s.refuse(reason.NoCredit, nil)
	}
	w, _ := s.bus.waiters.Get().(*waiter)
	w.want, w.acct, w.reserve, w.inside = n, a, false, s.bus.isInside(ctx)
	s.lineUpLocked(w)
	if n > s.mostLocked() && s.mu.cfg.Credit.Window == 0 {
		s.setWindowLocked()
		s.serveLocked()
	}
	err := s.waitInLine(ctx, w)
	runtime.KeepAlive(p)
	return err
}

// TryAcquire is Acquire that never waits: without enough free credits it is
// refused with ErrNoCredit and has none more.
func (p *Producer) TryAcquire(n int) error {
	if p.parts != nil {
		return p.atHome().TryAcquire(n)
	}
	s, a := p.stage, p.acct
	if g := gates(s.gates.Load()); g&gatesOfBus != 0 {
		if why, cause := s.check(nil, nil, g&gatesOfBus, false); why != reason.None { //nolint:staticcheck // no context: never waits
			return s.refuse(why, cause)
		}
	}
	s.gatherFor(a, n)
	s.mu.Lock()
	if err := s.checkAcquireLocked(a, n); err != nil {
		s.unlockAndStart()
		return s.refuse(reason.Invalid, err)
	}
	ok, draining := false, s.mu.draining
	if !draining {
		ok = s.acquireLocked(a, n)
	}
	s.unlockAndStart()
	runtime.KeepAlive(p)
	switch {
	case draining:
		return s.refuse(reason.Closed, nil)
	case !ok:
		return s.refuse(reason.NoCredit, nil)
	}
	return nil
}

// checkAcquireLocked says what is wrong with a request for n credits.
func (s *Stage) checkAcquireLocked(a *account, n int) error {
	d := s.mu.desk
	switch {
	case d == nil:
		return fault(s.where(), "Full", s.mu.cfg.Full, "must be credit to acquire credits")
	case a.closed:
		return fault(s.where(), "Producer", "closed", "must be open to acquire credits")
	case n < 1 || n > max(1, s.mostEverLocked()) && s.mu.cfg.Credit.Window != CreditNone:
		return fault(s.where(), "n", n, fmt.Sprintf("must be from 1 to %d, the most credits that the stage can grant, but for those left to hops", s.mostEverLocked()))
	}
	return nil
}

// acquireLocked grants a n credits at once if there are as many and nobody waits
// for them.
func (s *Stage) acquireLocked(a *account, n int) bool {
	d := s.mu.desk
	if a.led == nil {
		d.open(a)
	}
	for again := false; ; again = true {
		if s.mu.waiters.n == 0 && s.mu.arrivals.Len() == 0 && d.grantLocked(a, n, n) > 0 {
			a.holdLocked(n)
			return true
		}
		if again {
			return false
		}
		s.helpLocked() // others may hold what they do not need
	}
}

// Return gives n of the producer's unspent credits back, or as many as it has,
// and returns how many.
func (p *Producer) Return(n int) int {
	if p.parts != nil {
		return p.returnOfParts(n)
	}
	s, a := p.stage, p.acct
	s.mu.Lock()
	if n = max(0, n); a.led != nil {
		a.foldLocked()
		n = min(n, a.held)
		a.returnLocked(n)
		s.feedArrivalsLocked()
		s.tellRoomLocked()
	} else {
		n = 0
	}
	s.unlockAndStart()
	return n
}

// Credits returns how many credits the producer has in hand: that many
// publishes find room without waiting. Of those that Acquire did not get, some
// may be called back when others wait for them. It is 0 in a stage without
// Credit. Unlike the other methods it may be called from any goroutine.
func (p *Producer) Credits() int {
	if p.parts != nil {
		return p.creditsOfParts()
	}
	s := p.stage
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.acct.unspentLocked()
}

// Blocked says whether a producer has to wait for credits, why, and for how
// long it has waited.
type Blocked struct {
	// Reason is why a publish would wait now: no_credit, paused for an admission
	// that is paused, or closed; none if it would not.
	Reason reason.Reason
	// Why says more to people, such as who has suspended the stage.
	Why string
	// Waits says that it is waiting, since then.
	Waits bool
	Since time.Time
	// Total is how long it has waited so far in all.
	Total time.Duration
}

// Blocked says whether a publish with the producer would wait now, and why. It
// may be called from any goroutine.
func (p *Producer) Blocked() Blocked {
	if p.parts != nil {
		return p.blockedOfParts()
	}
	s, a := p.stage, p.acct
	now := s.bus.clock.Now()
	g := gates(s.gates.Load())
	var b Blocked
	s.mu.Lock()
	b.Total, b.Waits = a.waits.at(now), a.waits.n > 0
	if b.Waits {
		b.Since = s.bus.clock.Wall(a.waits.since)
	}
	switch {
	case g&gateClosed != 0 || s.mu.closed:
		b.Reason = reason.Closed
	case g&gatePaused != 0:
		b.Reason = reason.Paused
	case s.mu.desk != nil && a.unspentLocked() == 0 && !s.roomOrEndLocked():
		b.Reason, b.Why = reason.NoCredit, s.whyNoCreditLocked()
	}
	s.mu.Unlock()
	return b
}

// whyNoCreditLocked says to people why the stage grants no credit now.
func (s *Stage) whyNoCreditLocked() string {
	m := &s.mu
	d := m.desk
	switch {
	case len(m.holds.list) > 0:
		h := &m.holds.list[0]
		return fmt.Sprintf("the stage is suspended by %s: %s", h.By, h.Why)
	case d.windowNow() <= 0:
		return "the window is 0: the stage grants no credits"
	case m.arrivals.Len() > 0:
		return fmt.Sprintf("%d hops from other stages wait for room and come first", m.arrivals.Len())
	case m.waiters.n > 0:
		return fmt.Sprintf("%d others wait for the %d credits of the window", m.waiters.n, d.windowNow())
	default:
		return fmt.Sprintf("all %d credits of the window are out", d.windowNow())
	}
}
