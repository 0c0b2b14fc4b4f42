package bus

import (
	"context"
	"time"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/timer"
	"github.com/sedabus/seda/reason"
)

// pullState is what a stage used for pulling has beside its queue, guarded by
// Stage.mu.
type pullState struct {
	claimer *executor // makes the claims; never runs
	out     map[uint64]*Lease
	waiting receiverList
	most    int // that was ever out at once
}

func newPullState() *pullState { return &pullState{out: map[uint64]*Lease{}} }

// receiver is a consumer that waits in Receive.
type receiver struct {
	ready      chan struct{}
	next, prev *receiver
	queued     bool
}

// receiverList is a FIFO of receivers.
type receiverList struct {
	head, tail *receiver
	n          int
}

func (l *receiverList) push(r *receiver) {
	r.prev, r.next, r.queued = l.tail, nil, true
	if l.tail == nil {
		l.head = r
	} else {
		l.tail.next = r
	}
	l.tail = r
	l.n++
}

func (l *receiverList) remove(r *receiver) {
	if r.prev == nil {
		l.head = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.tail = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.next, r.prev, r.queued = nil, nil, false
	l.n--
}

// Lease is a delivery that a pull consumer holds until it settles it with Ack,
// Nack, RetryAfter or DeadLetter. The first settlement counts; a further one
// is ErrSettled, and one after the lease has lapsed ErrLeaseExpired. Its
// methods are safe for concurrent use.
type Lease struct {
	stage *Stage
	env   Envelope
	start int64
	slot  *keySlot
	key   string

	// Guarded by stage.mu.
	until   int64 // 0 is no limit
	keeps   bool  // its place is given back when it is settled
	state   leaseState
	expires *timer.Item[task]
}

type leaseState uint8

const (
	leaseHeld leaseState = iota
	leaseSettled
	leaseLapsed
	leaseLost // the bus was closed, or it was cancelled by id
)

// Envelope returns the envelope. It is valid until the settlement, and after
// that as long as nobody writes to it.
func (l *Lease) Envelope() *Envelope { return &l.env }

// Receive hands out the next envelope of a stage with Pull, waiting until
// there is one, MaxOutstanding allows it and the stage is not suspended. It
// returns ctx's error when that ends first, and ErrClosed once the bus is
// closed, or drained by a shutdown.
func (s *Stage) Receive(ctx context.Context) (*Lease, error) {
	var one [1]*Lease
	_, err := s.ReceiveBatch(ctx, one[:])
	return one[0], err
}

// TryReceive is Receive that returns ErrEmpty instead of waiting.
func (s *Stage) TryReceive() (*Lease, error) {
	var one [1]*Lease
	try := s.tryReceive
	if s.parts != nil {
		try = s.tryReceiveFromParts
	}
	n, err := try(one[:])
	if err == nil && n == 0 {
		return nil, ErrEmpty
	}
	return one[0], err
}

// ReceiveBatch waits like Receive for the first envelope and fills dst with
// what is there, at least one and at most len(dst).
func (s *Stage) ReceiveBatch(ctx context.Context, dst []*Lease) (int, error) {
	if ctx == nil || len(dst) == 0 {
		return 0, fault(s.where(), "Receive", "a nil context or an empty destination", "must not be")
	}
	if s.parts != nil {
		return s.receiveFromParts(ctx, dst)
	}
	var r *receiver
	for {
		if err := ctx.Err(); err != nil {
			if r != nil {
				s.leaveReceivers(r) // it was woken
			}
			return 0, err
		}
		n, err := s.tryReceive(dst)
		if n > 0 || err != nil {
			return n, err
		}
		if r == nil {
			r = &receiver{ready: make(chan struct{}, 1)}
		}
		s.mu.Lock()
		if s.pullEndedLocked() == nil && !s.pullReadyLocked() {
			s.mu.pull.waiting.push(r)
		} else {
			r.ready <- struct{}{}
		}
		s.unlockAndStart()
		select {
		case <-r.ready:
		case <-ctx.Done():
			s.leaveReceivers(r)
			return 0, ctx.Err()
		}
	}
}

// leaveReceivers takes r off the list; a wake that it got meanwhile goes to
// the next one.
func (s *Stage) leaveReceivers(r *receiver) {
	s.mu.Lock()
	if r.queued {
		s.mu.pull.waiting.remove(r)
	} else {
		s.wakeReceiversLocked()
	}
	s.unlockAndStart()
}

// pullEndedLocked returns why there will be nothing to receive any more.
func (s *Stage) pullEndedLocked() error {
	m := &s.mu
	if m.pull == nil {
		return fault(s.where(), "Pull", false, "must be set to use Receive")
	}
	if m.closed {
		return s.refusal(reason.Closed, nil)
	}
	return nil
}

// pullReadyLocked says whether a receive would find something.
func (s *Stage) pullReadyLocked() bool {
	m := &s.mu
	return len(m.pull.out) < m.cfg.MaxOutstanding && s.runnableLocked() && s.bus.state() > stateNew && s.claimableLocked()
}

// wakeReceiversLocked wakes as many receivers as may find something.
func (s *Stage) wakeReceiversLocked() {
	p := s.mu.pull
	if p.waiting.n == 0 {
		return
	}
	if !s.pullReadyLocked() {
		return
	}
	for n := s.mu.due.Len() + s.queuedLocked() + s.heldLocked(); n > 0 && p.waiting.n > 0; n-- {
		r := p.waiting.head
		p.waiting.remove(r)
		r.ready <- struct{}{}
	}
}

// wakeAllReceiversLocked wakes everyone who waits, to look at the state.
func (s *Stage) wakeAllReceiversLocked() {
	if s.mu.pull == nil {
		return
	}
	for p := s.mu.pull; p.waiting.n > 0 && !faults.On(faults.ReceiversAsleep); {
		r := p.waiting.head
		p.waiting.remove(r)
		r.ready <- struct{}{}
	}
}

// tryReceive fills dst with what is there.
func (s *Stage) tryReceive(dst []*Lease) (n int, err error) {
	now := s.bus.clock.Tick()
	var expired []Envelope
	s.mu.Lock()
	if err = s.pullEndedLocked(); err == nil {
		for n < len(dst) && s.pullReadyLocked() {
			l := s.leaseLocked(now, &expired)
			if l == nil {
				break
			}
			if l.stage != nil {
				dst[n] = l
				n++
			}
		}
	}
	s.unlockAndStart()
	for i := range expired {
		s.dropped(&expired[i], reason.Expired)
	}
	return n, err
}

// leaseLocked claims one envelope. It returns nil when there is none, and an
// empty lease for one whose deadline has passed.
func (s *Stage) leaseLocked(now int64, expired *[]Envelope) *Lease {
	m := &s.mu
	if m.pull.claimer == nil {
		m.pull.claimer = &executor{stage: s}
	}
	ex := m.pull.claimer
	m.batch = 1
	if !s.claimLocked(ex, now, false) {
		return nil
	}
	l := &Lease{stage: s, env: ex.c.Items[ex.c.Rd], start: now, slot: ex.slot, key: ex.key, keeps: ex.keeps}
	l.env.disp = dispAck
	m.executed--
	ex.working = false
	ex.leaveWayLocked() // a consumer may take long
	ex.c.Reset()
	ex.c, ex.slot, ex.holding = nil, nil, false
	ex.claim.Store(0)
	if l.env.deadline != 0 && s.bus.expired(l.env.deadline, now) {
		s.endLocked(&l.env, Dropped, reason.Expired)
		s.releaseKeyLocked(l)
		s.releaseKeptLocked(l)
		*expired = append(*expired, l.env)
		return &Lease{}
	}
	m.count.delivered++
	m.pull.out[l.env.id] = l
	m.maxInFlight = max(m.maxInFlight, len(m.pull.out))
	m.pull.most = max(m.pull.most, len(m.pull.out))
	s.armLeaseLocked(l, m.cfg.Lease, now)
	return l
}

func (s *Stage) armLeaseLocked(l *Lease, d time.Duration, now int64) {
	s.bus.timers.remove(l.expires)
	l.expires, l.until = nil, 0
	if d > 0 {
		l.until = now + int64(min(d, maxDuration))
		l.expires = s.bus.timers.push(l.until, &leaseEnd{l})
	}
}

func (s *Stage) releaseKeyLocked(l *Lease) {
	if l.slot != nil {
		s.mu.keyed.release(l.slot, l.key)
		l.slot = nil
	}
}

// leaseEnd gives a delivery back whose lease has lapsed; that costs an attempt.
type leaseEnd struct{ l *Lease }

func (t *leaseEnd) fire(int64) {
	s := t.l.stage
	s.mu.Lock()
	if t.l.state != leaseHeld {
		s.mu.Unlock()
		return
	}
	t.l.state = leaseLapsed
	s.mu.count.lapsed++
	s.settleLeaseLocked(t.l, errLeaseLapsed, outcome{}) // unlocks
}

var errLeaseLapsed = &causeError{"bus: lease lapsed", ErrLeaseExpired}

// settle ends the lease with what err says.
func (l *Lease) settle(err error) error {
	s := l.stage
	o := s.outcomeOf(&l.env, err)
	s.mu.Lock()
	switch l.state {
	case leaseSettled:
		s.mu.Unlock()
		return ErrSettled
	case leaseLapsed:
		s.mu.count.late++
		s.mu.Unlock()
		return ErrLeaseExpired
	case leaseLost:
		s.mu.count.late++
		closed := s.mu.closed
		s.mu.Unlock()
		if !closed {
			return errCanceledByID
		}
		return s.refusal(reason.Closed, nil)
	case leaseHeld:
	}
	l.state = leaseSettled
	s.settleLeaseLocked(l, err, o) // unlocks
	return nil
}

// settleLeaseLocked takes the lease off the books and acts on err, which asks
// for o. It unlocks s.mu.
func (s *Stage) settleLeaseLocked(l *Lease, err error, o outcome) {
	m := &s.mu
	now := s.bus.clock.Tick()
	s.bus.timers.remove(l.expires)
	delete(m.pull.out, l.env.id)
	m.svc.Add(now-l.start, 1)
	if s.shed != nil {
		defer s.shed.Done(s.leaseDoneLocked(l, now, err)) // without the lock
	}
	e := l.env // the consumer may still read its own
	if l.state == leaseLapsed {
		e.flags |= flagRedelive
	}
	if err == nil {
		s.releaseKeyLocked(l)
		s.unlockAndStart()
		s.ackOne(&e, l.keeps)
		return
	}
	v := s.judgeLocked(&e, err, o, false)
	switch v.do {
	case judgeAgain, judgeLater:
		e.attempt = saturate(e.attempt)
		e.flags |= flagRequeued
		if !l.keeps {
			s.free.Add(-1)
		}
		if v.do == judgeAgain {
			m.due.Push(&m.pool, &e) // its key stays held
			s.unlockAndStart()
			return
		}
		if m.keyed != nil {
			m.keyed.delay(e.Key, true)
		}
		m.delayed++
		s.bus.timers.push(now+int64(v.delay), &delayedEnvelope{stage: s, env: e, retry: true})
		s.unlockAndStart()
		s.journalDelay(&e, v.delay)
	case judgeDrop:
		s.endLocked(&e, Dropped, v.why)
		s.releaseKeyLocked(l)
		s.releaseKeptLocked(l)
		s.unlockAndStart()
		s.dropped(&e, v.why)
	case judgeLetter:
		s.releaseKeyLocked(l)
		s.releaseKeptLocked(l)
		s.unlockAndStart()
		s.toLetter(&e, letterCause{why: v.why, stage: s.name, err: err})
	}
}

// releaseKeptLocked gives back the place that a delivery has kept.
func (s *Stage) releaseKeptLocked(l *Lease) {
	if l.keeps {
		s.releaseAsideLocked(1)
	}
}

// ackOne settles one acknowledged envelope outside a claim, and gives its place
// back if it has kept it.
func (s *Stage) ackOne(e *Envelope, keeps bool) {
	c, _ := s.bus.chunks.Get().(*chunk)
	c.Items[0], c.N = *e, 1
	var t tally
	s.settleChunk(c, 0, 1, &reservations{}, &t)
	c.Reset()
	s.bus.chunks.Put(c)
	s.mu.Lock()
	s.mu.count.hopped += t.hopped
	s.mu.count.end[0].completed += t.completed[0]
	s.mu.count.end[1].completed += t.completed[1]
	if keeps {
		s.releaseAsideLocked(1)
	}
	s.unlockAndStart()
	s.bus.settled()
}

// Ack acknowledges the delivery.
func (l *Lease) Ack() error { return l.settle(nil) }

// Nack refuses the delivery: the retry policy decides. A nil err is allowed;
// one of RetryAfter, DeadLetter or Discard does what it says.
func (l *Lease) Nack(err error) error {
	if err == nil {
		err = errNack
	}
	return l.settle(err)
}

// RetryAfter gives the delivery back for a further attempt after d, without
// calling it a failure.
func (l *Lease) RetryAfter(d time.Duration) error { return l.settle(RetryAfter(d)) }

// DeadLetter gives the envelope up.
func (l *Lease) DeadLetter(why string) error { return l.settle(DeadLetter(why)) }

// Extend lets the lease end d from now instead; 0 or less is without end.
func (l *Lease) Extend(d time.Duration) error {
	s := l.stage
	s.mu.Lock()
	defer s.mu.Unlock()
	switch l.state {
	case leaseSettled:
		return ErrSettled
	case leaseLapsed, leaseLost:
		return ErrLeaseExpired
	case leaseHeld:
	}
	s.armLeaseLocked(l, d, s.bus.clock.Now())
	return nil
}
