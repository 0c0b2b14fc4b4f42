package shedder

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sedabus/seda/internal/clock"
	"github.com/sedabus/seda/internal/spin"
	"github.com/sedabus/seda/reason"
)

// Shedder is the concurrent shell of a [Policy]: it serialises the calls, keeps
// the account, puts the guard rails around the answers, and contains a policy
// that panics. All methods are safe for concurrent use. It has no goroutine of
// its own and needs no end.
//
// It serves either one stage of a bus, which calls Attach, Decide, Undo and
// Done, or callers that use Allow and Acquire.
type Shedder struct {
	clock    *clock.Clock
	attached atomic.Bool
	gate     atomic.Uint32 // a gate
	passed   atomic.Uint64 // admitted without asking the policy
	bound    atomic.Int64  // as the policy says
	shortest atomic.Int64  // service time of late
	unit     atomic.Int64
	exempt   atomic.Uint32 // bits of the classes in Guards.Exempt
	shedAt   atomic.Int64  // time of the latest refusal for overload; never is none
	tuning   sync.Mutex    // taken before mu; held while a change is made

	mu struct {
		spin.Mutex

		cfg      Config
		policy   Policy
		adaptive *Adaptive // the policy, if it is the default one
		guards   *Guards   // immutable
		rails    rails

		asking    bool // the policy is being called
		panics    uint64
		lastPanic string

		asked, shed, admitted, undone, pushedOut, railed uint64

		history history
		load    Load // as told with the latest Done
		learned learned

		plain Request       // of Allow; only Now and asked are ever set
		req   Request       // lent to the policy, so that a caller's stays on its stack
		done  Done          // what ended and was not told yet
		since time.Duration // when the first of it did
		slots slots
		errs  refusals
	}
}

// never is the time of what did not happen.
const never = -1 << 63

// New returns a Shedder. An error names all faults of c at once and matches
// [ErrInvalid].
func New(c Config) (*Shedder, error) {
	c = c.clone()
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Shedder{clock: clock.New()}
	s.shedAt.Store(never)
	s.unit.Store(int64(leastUnit))
	s.mu.learned.reset()
	s.mu.slots.init()
	return s, s.apply(&c)
}

// Attach claims the shedder for one stage. A second call returns [ErrAttached].
func (s *Shedder) Attach() error {
	if s.attached.Swap(true) {
		return ErrAttached
	}
	return nil
}

// Now is the time on the shedder's own clock, which Allow and Acquire use: for
// the Deadline of a request, and to read [Shedder.State] by.
func (s *Shedder) Now() time.Duration { return time.Duration(s.clock.Now()) }

// Decide says whether the unit of work that r describes is let in. It sets
// r.Guards. A refusal is a verdict with the action Refuse and a Reason; all
// others admit, with the Rule that did if it was a guard rail. In Observe the
// verdict admits and keeps the Rule and Reason for which it would be refused.
// An admission that comes to nothing is taken back with [Shedder.Undo].
//
// A policy that panics admits, and is counted. Without a policy to be asked (Off
// or killed) everything is admitted.
//
// hot: 0 allocs, one lock, no clock
func (s *Shedder) Decide(r *Request) (v Verdict) {
	if r == nil {
		return v
	}
	if gate(s.gate.Load()).closed() {
		r.asked = false
		s.passed.Add(1)
		return v
	}
	s.mu.Lock()
	s.decideLocked(r, &v)
	s.mu.Unlock()
	return v
}

// decideLocked asks the policy and the rails, and counts.
func (s *Shedder) decideLocked(r *Request, v *Verdict) {
	m := &s.mu
	r.Guards = m.guards
	if a := m.adaptive; a != nil && a.plain(r, v) {
		r.asked = true
	} else {
		r.asked = s.ask(r, v)
	}
	m.asked++
	switch {
	case !r.asked:
		*v = Verdict{Rule: RulePanic}
	case v.Action == Refuse, v.Action == PushOut && r.Evictable <= 0:
		r.asked = false
		if !s.railedLocked(r, v) {
			s.refuseLocked(r, v)
			return
		}
	case v.Action == PushOut:
		m.pushedOut++
		if !gate(s.gate.Load()).sheds() {
			v.Action = Admit
		}
	default:
		v.Action = Admit
	}
	m.admitted++
	if m.rails.on {
		m.rails.count(r.Now, false)
	}
}

// railedLocked says whether a guard rail admits what the policy refused.
func (s *Shedder) railedLocked(r *Request, v *Verdict) bool {
	m := &s.mu
	if !m.rails.on {
		return false
	}
	rule := m.rails.admit(r)
	if rule == RuleNone {
		m.rails.count(r.Now, true)
		return false
	}
	m.railed++
	v.Action, v.Rule, v.Reason, v.RetryAfter = Admit, rule, reason.None, 0
	return true
}

// refuseLocked counts and keeps a refusal.
func (s *Shedder) refuseLocked(r *Request, v *Verdict) {
	s.mu.shed++
	v.Action = Refuse
	if v.Reason == reason.None || int(v.Reason) >= reason.Count {
		v.Reason = reason.Shed
	}
	v.RetryAfter = max(0, v.RetryAfter)
	s.mu.history.keep(r.Now, v)
	if !gate(s.gate.Load()).sheds() {
		v.Action = Admit
		return
	}
	if v.Reason == reason.Shed || v.Reason == reason.ShedDeadline && r.Waiting > 0 {
		s.overloadedAt(r.Now)
	}
}

// shedAtSteps is how exact shedAt is. A store that others can see costs as much
// as a quarter of a decision.
const shedAtSteps = leastUnit / 100

// overloadedAt keeps the time of a refusal.
func (s *Shedder) overloadedAt(now time.Duration) {
	if since := now - time.Duration(s.shedAt.Load()); since < 0 || since >= shedAtSteps {
		s.shedAt.Store(int64(now))
	}
}

// ask calls the policy. False means that it panicked, and that v means nothing.
func (s *Shedder) ask(r *Request, v *Verdict) (ok bool) {
	defer s.contain()
	s.mu.asking = true
	if a := s.mu.adaptive; a != nil { // straight into v: a verdict is large
		a.admit(r, v)
	} else {
		*v = s.mu.policy.Admit(r)
	}
	s.mu.asking = false
	return true
}

// contain is deferred around each call of the policy, with the lock held.
func (s *Shedder) contain() {
	if !s.mu.asking {
		return
	}
	s.mu.asking = false
	if x := recover(); x != nil {
		s.mu.panics++
		s.mu.lastPanic = textOf(x)
		return
	}
	s.mu.Unlock() // runtime.Goexit: the caller will not come to it
}

// textOf describes what was passed to panic, without calling code of others.
func textOf(x any) string {
	switch x := x.(type) {
	case string:
		return x
	case runtime.Error:
		return x.Error()
	}
	return fmt.Sprintf("%T", x)
}

// Undo takes back the admission of r, the same that Decide was given: something
// else refused it.
//
// hot: 0 allocs, one lock, no clock
func (s *Shedder) Undo(r *Request) {
	if r == nil {
		return
	}
	s.mu.Lock()
	s.mu.undone++
	if r.asked {
		r.asked = false
		s.undo(r)
	}
	s.mu.Unlock()
}

func (s *Shedder) undo(r *Request) {
	defer s.contain()
	s.mu.asking = true
	s.mu.policy.Undo(r)
	s.mu.asking = false
}

// Done tells of ended work, whatever the mode. It sets d.Guards. A d of no units
// is ignored.
//
// hot: 0 allocs, one lock, no clock
func (s *Shedder) Done(d *Done) {
	if d == nil || d.N <= 0 {
		return
	}
	s.mu.Lock()
	s.doneLocked(d)
	s.mu.Unlock()
}

func (s *Shedder) doneLocked(d *Done) {
	d.Guards = s.mu.guards
	l := &s.mu.load
	l.Waiting, l.Ahead, l.Evictable, l.Inbound = d.Waiting, d.Ahead, d.Evictable, d.Inbound
	l.Busy, l.Concurrency, l.Capacity = d.Busy, d.Concurrency, d.Capacity
	s.mu.learned.add(d)
	change(&s.unit, int64(s.mu.learned.unit))
	change(&s.shortest, int64(s.mu.learned.shortest()))
	s.tell(d)
}

// change stores what readers without the lock see, if it is new.
func change(a *atomic.Int64, v int64) {
	if a.Load() != v {
		a.Store(v)
	}
}

func (s *Shedder) tell(d *Done) {
	defer s.contain()
	s.mu.asking = true
	s.mu.policy.Done(d)
	change(&s.bound, int64(s.mu.policy.Bound()))
	s.mu.asking = false
}

// renewBound asks the policy for its bound, with the lock held.
func (s *Shedder) renewBound() {
	defer s.contain()
	s.mu.asking = true
	change(&s.bound, int64(s.mu.policy.Bound()))
	s.mu.asking = false
}

// Bound returns how many may wait for those who do not ask, such as hops; 0 is
// no bound, as while nothing is shed: in Observe, Off, or killed.
//
// hot: 0 allocs, no locks, no clock
func (s *Shedder) Bound() int {
	if !gate(s.gate.Load()).sheds() {
		return 0
	}
	return max(0, int(s.bound.Load()))
}

// Doomed says whether work that starts now cannot meet its deadline, judged by
// the shortest service time of late (the last eight units of time, see
// [Shedder.Unit]). While nothing is shed only a deadline that has passed is
// missed. A deadline of 0 is none.
//
// hot: 0 allocs, no locks, no clock
func (s *Shedder) Doomed(now, deadline time.Duration) bool {
	if deadline == 0 {
		return false
	}
	if now > deadline || !gate(s.gate.Load()).sheds() {
		return now > deadline
	}
	left := deadline - now // wraps around below 0 when it is huge
	return left >= 0 && int64(left) < s.shortest.Load()
}

// Overloaded says whether something was shed within the last unit of time, see
// [Shedder.Unit]. A refusal for a rate, or for a deadline that could not be met
// although nothing waited, is no sign of overload.
//
// hot: 0 allocs, no locks, no clock
func (s *Shedder) Overloaded(now time.Duration) bool {
	at := s.shedAt.Load()
	if at == never || !gate(s.gate.Load()).sheds() {
		return false
	}
	// Times of several threads may be a little apart in both directions.
	since := int64(now) - at
	unit := s.unit.Load()
	return -unit < since && since < unit
}

// Sheds says whether refusals are real: the mode is On, and the shedder is not
// killed.
func (s *Shedder) Sheds() bool { return gate(s.gate.Load()).sheds() }

// Exempts says whether [Guards] keep the class from being shed: it is not pushed
// out either.
func (s *Shedder) Exempts(class int) bool {
	return class >= 0 && class < maxClasses && s.exempt.Load()&(1<<class) != 0
}

// Unit is the unit of time in which the shedder judges: ten mean service times,
// and at least 10 ms.
func (s *Shedder) Unit() time.Duration { return time.Duration(s.unit.Load()) }

// Kill stops all shedding at once, or lets it go on as the mode says. While
// killed, the policy is not asked, but goes on learning.
func (s *Shedder) Kill(on bool) {
	if on {
		s.gate.Or(uint32(killed))
		return
	}
	s.gate.And(^uint32(killed))
}
