package shedder

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrShed is matched by every refusal.
var ErrShed = errors.New("shedder: shed")

// Mode says whether a shedder sheds.
type Mode uint8

// Modes.
const (
	On      Mode = iota // sheds
	Observe             // admits all and counts what it would shed
	Off                 // admits all
)

// Guards are rails around a policy's decisions. The zero value is none.
type Guards struct {
	// FloorInFlight admits whatever the policy says while fewer are in service
	// or wait; FloorRate while fewer a second were admitted.
	FloorInFlight int
	FloorRate     float64
	// MaxTarget caps the wait that the bound is made for.
	MaxTarget time.Duration
	// MaxShare is the largest part, 0 to 1, of recent requests that is shed; 0
	// is no limit.
	MaxShare float64
	// Baseline is a service time to be used in place of the measured one.
	Baseline time.Duration
	// Exempt lists classes, 0 the highest, that are never shed.
	Exempt []int
}

// Config configures a Shedder. The zero value is valid for a stage of the bus.
type Config struct {
	// Policy is the admission law; nil is a new Adaptive. It must not be shared.
	Policy Policy
	Mode   Mode
	Guards Guards
	// Concurrency is how many units are in service at once, for use without the
	// bus, which knows it.
	Concurrency int
}

// Shedder is the concurrent shell of a Policy. All methods are safe for
// concurrent use.
type Shedder struct {
	attached atomic.Bool
	killed   atomic.Bool
	bound    atomic.Int64
	shortest atomic.Int64

	mu struct {
		sync.Mutex

		cfg Config
	}
}

// New returns a Shedder.
func New(c Config) (*Shedder, error) {
	s := &Shedder{}
	s.mu.cfg = c
	return s, nil
}

// ErrAttached: the shedder serves a stage already.
var ErrAttached = errors.New("shedder: attached to a stage already")

// Attach claims the shedder for one stage; a second call is an error.
func (s *Shedder) Attach() error {
	if s.attached.Swap(true) {
		return ErrAttached
	}
	return nil
}

// Decide asks the policy.
func (s *Shedder) Decide(r *Request) Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.cfg.Policy == nil || s.killed.Load() {
		return Verdict{}
	}
	r.Guards = &s.mu.cfg.Guards
	return s.mu.cfg.Policy.Admit(r)
}

// Undo takes an admission back.
func (s *Shedder) Undo(r *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.cfg.Policy != nil {
		s.mu.cfg.Policy.Undo(r)
	}
}

// Done tells of ended work.
func (s *Shedder) Done(d *Done) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.cfg.Policy != nil {
		s.mu.cfg.Policy.Done(d)
		s.bound.Store(int64(s.mu.cfg.Policy.Bound()))
	}
	s.shortest.Store(int64(d.Shortest))
}

// Bound returns how many may wait for those who do not ask, such as hops; 0 is
// no bound.
func (s *Shedder) Bound() int { return int(s.bound.Load()) }

// Doomed says whether work that starts now cannot meet its deadline, judged by
// the shortest service time seen of late. A deadline of 0 is none.
func (s *Shedder) Doomed(now, deadline time.Duration) bool {
	return deadline != 0 && now+time.Duration(s.shortest.Load()) > deadline
}

// Overloaded says whether something was shed within the last unit of time: ten
// service times, and at least 10 ms.
func (s *Shedder) Overloaded(now time.Duration) bool {
	return now < 0
}

// Kill stops all shedding at once, or lets it go on.
func (s *Shedder) Kill(on bool) { s.killed.Store(on) }

// State returns what the shedder knows.
func (s *Shedder) State(now time.Duration) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	var st State
	if s.mu.cfg.Policy != nil {
		s.mu.cfg.Policy.Inspect(now, &st)
	}
	return st
}
