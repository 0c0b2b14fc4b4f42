package credit

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sedabus/seda/internal/drain"
	faults "github.com/sedabus/seda/internal/fault"
)

// SizerConfig holds the settings of a [Sizer]. The zero value is valid.
type SizerConfig struct {
	// TargetFactor is how long work waits in a stage whose producers always have
	// more, in mean service times: 0.1 to 1000; 0 is 2.
	TargetFactor float64
	// MinTarget is the least such wait, for service times of microseconds: 1 ns to
	// an hour; 0 is 1 ms.
	MinTarget time.Duration
}

func (c *SizerConfig) validate() error {
	var found []error
	if f := c.TargetFactor; f != 0 && !(f >= 0.1 && f <= 1000) {
		found = append(found, fmt.Errorf("%w: SizerConfig.TargetFactor is %v: 0 or 0.1 to 1000", ErrInvalid, f))
	}
	if c.MinTarget < 0 || c.MinTarget > time.Hour {
		found = append(found, fmt.Errorf("%w: SizerConfig.MinTarget is %v: 0 to %v", ErrInvalid, c.MinTarget, time.Hour))
	}
	return errors.Join(found...)
}

// withDefaults returns c with its defaults filled in.
func (c *SizerConfig) withDefaults() SizerConfig {
	d := *c
	if d.TargetFactor == 0 {
		d.TargetFactor = 2
	}
	if d.MinTarget == 0 {
		d.MinTarget = time.Millisecond
	}
	return d
}

// Sizer says how large the window of a stage should be: as many credits as keep
// its workers busy, and a queue that is worked off in the target,
//
//	window = W + ceil(rate * target) + ceil(rate * tau)
//
// for W workers. The drain rate and the service time are estimated as the
// shedder does it, and the target is the shedder's for standing overload, so
// that the two agree. tau is how long a credit is on its way from the end of
// one unit of work to the next: it grows while workers starve and falls while
// they do not.
//
// What waits is counted in the long-term service time where that is shorter: a
// stage whose dependency got slow has no longer a queue in time than before.
//
// A Sizer is for one goroutine at a time. It takes any number and any clock.
type Sizer struct {
	cfg     SizerConfig
	service drain.Service
	leaving drain.Departures
	workers int // as last seen
	rate    float64

	tau    float64       // in ns
	ends   time.Duration // of the interval under way
	hungry bool          // something starved in it
	window int           // as last said
	due    bool          // it is to be found anew
}

// Sample is what a Sizer is told of work that ended.
type Sample struct {
	Now     time.Duration
	N       int           // units that ended
	Service time.Duration // their service times, the sum
	Squares float64       // and the sum of their squares, in ns²
	Waiting int           // what waits to be started
	Workers int           // how many work at once at most
}

// SizerState is a reading of a Sizer.
type SizerState struct {
	Warm    bool          // enough has ended to know the service time
	Service time.Duration // mean service time
	Rate    float64       // units a second that the stage gets done; 0 until warm
	Target  time.Duration // wait that the window allows for; 0 until warm
	Tau     time.Duration // how long a credit is taken to be on its way
}

const (
	firstTau = 100 * float64(time.Microsecond)
	leastTau = 20 * float64(time.Microsecond)
	mostTau  = 10 * float64(time.Millisecond)
	keepTau  = 0.99 // of it, after an interval in which nothing starved
	// targets is the length of an interval, in targets: a window that grew has
	// had its effect by then.
	targets = 5
)

// NewSizer returns a Sizer that knows nothing yet. The error lists all faults
// of c and matches [ErrInvalid].
func NewSizer(c SizerConfig) (*Sizer, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Sizer{cfg: c.withDefaults(), tau: firstTau, workers: 1, due: true}, nil
}

// Tune replaces the settings and keeps what was measured. After an error
// nothing has changed.
func (s *Sizer) Tune(c SizerConfig) error {
	if err := c.validate(); err != nil {
		return err
	}
	s.cfg = c.withDefaults()
	s.due = true
	return nil
}

// Ended tells of work that has ended.
//
// hot: 0 allocs
func (s *Sizer) Ended(d Sample) {
	if d.N <= 0 {
		return
	}
	s.turn(d.Now)
	s.employ(d.Workers)
	w := float64(s.workers)
	most := math.Inf(1)
	if s.rate > 0 {
		most = drain.Outlier * (float64(d.N) + w) / s.rate
	}
	s.service.Add(d.N, float64(d.Service), d.Squares, max(drain.ServiceWindow*w, drain.ServiceFloor))
	s.leaving.Add(d.Now, d.N, d.Waiting, s.departures(), most)
	was := s.rate
	s.rate = s.drain()
	s.due = s.due || (was > 0) != (s.rate > 0)
}

// employ takes a changed number of workers over.
func (s *Sizer) employ(workers int) {
	workers = min(max(workers, 1), maxWindow)
	if workers != s.workers {
		s.workers = workers
		s.leaving.Reset()
		s.rate = s.drain()
		s.due = true
	}
}

// departures is how many of them are remembered.
func (s *Sizer) departures() float64 {
	return max(drain.DepartureWindow*float64(s.workers), drain.DepartureFloor)
}

// drain returns the drain rate in units a nanosecond, 0 until it is known.
func (s *Sizer) drain() float64 {
	if s.service.Seen < min(s.workers, 1<<20)+drain.Warm {
		return 0
	}
	n := s.departures()
	return s.leaving.Drain(float64(s.workers), s.service.Mean(), n, s.service.Noise(drain.Chance, n))
}

// Starved tells that a worker found nothing to do while producers waited for
// credits: those were on their way for longer than the window allows for.
func (s *Sizer) Starved(now time.Duration) {
	s.turn(now)
	s.leaving.Idle()
	if !s.hungry && !faults.On(faults.SizerDeaf) { // at most once an interval: a larger window needs time to take effect
		s.hungry, s.due = true, true
		s.tau = min(2*s.tau, mostTau)
	}
}

// turn begins a new interval when it is time.
func (s *Sizer) turn(now time.Duration) {
	length := time.Duration(targets * s.target())
	if left := float64(s.ends) - float64(now); left > 0 && left <= float64(length) {
		return
	}
	if now >= s.ends && !s.hungry {
		s.tau = max(s.tau*keepTau, leastTau)
	}
	s.hungry, s.due = false, true
	s.ends = now + length
	if s.ends < now {
		s.ends = math.MaxInt64
	}
}

// target returns the wait to allow for, in ns.
func (s *Sizer) target() float64 {
	usual := 0.0
	if mean := s.service.Mean(); mean > 0 {
		n := max(drain.ServiceWindow*float64(s.workers), drain.ServiceFloor)
		usual = s.service.Usual(mean, s.service.Noise(drain.Chance, n))
	}
	return max(s.cfg.TargetFactor*usual, float64(s.cfg.MinTarget))
}

// Window returns how many credits there should be with that many workers and
// room for capacity units of work: one more than workers at least, and capacity
// at most. While too little has ended to know, it is four times the workers and
// at least 64 more than those.
//
// It is found anew once in five targets, when workers starve, and when something
// was set; and it stays what it was while it would change by an eighth or less.
// So the noise of the estimates does not move it with every unit of work.
//
// hot: 0 allocs
func (s *Sizer) Window(workers, capacity int) int {
	s.employ(workers)
	if s.due {
		s.due = false
		s.resize()
	}
	return max(min(s.window, capacity), 0)
}

// resize finds the window.
func (s *Sizer) resize() {
	w := float64(s.workers)
	want := max(4*w, w+64)
	if s.rate > 0 {
		want = max(w+math.Ceil(s.rate*s.target())+math.Ceil(s.rate*s.tau), w+1)
	}
	next := int(min(want, maxWindow))
	if diff := max(next-s.window, s.window-next); diff > max(1, s.window/8) || s.window <= s.workers {
		s.window = next
	}
}

// State returns a reading.
func (s *Sizer) State() SizerState {
	st := SizerState{Service: time.Duration(s.service.Mean()), Tau: time.Duration(s.tau)}
	if s.rate > 0 {
		st.Warm, st.Rate, st.Target = true, s.rate*1e9, time.Duration(s.target())
	}
	return st
}
