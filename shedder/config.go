package shedder

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/sedabus/seda/internal/names"
)

const (
	maxConcurrency = 1 << 20
	maxClasses     = 8
)

// Config configures a [Shedder]. The zero value is valid for a stage of the
// bus. All of it can be changed live with [Shedder.Tune].
type Config struct {
	// Name is shown in errors: empty, or a name of ASCII letters, digits, '_',
	// '-' and '.'.
	Name string
	// Policy is the admission law; nil is a new [Adaptive]. It must not be shared
	// between shedders, and nobody else may call it.
	Policy Policy
	// Adaptive are the settings of that Adaptive; not used with another Policy.
	Adaptive AdaptiveConfig
	// Mode says whether refusals are real; the default is On.
	Mode Mode
	// Guards are rails around the policy's decisions; the default is none.
	Guards Guards
	// Concurrency is how many units are in service at once, for use without the
	// bus, which knows it: the number of workers or connections, or GOMAXPROCS
	// for work that only computes. 0 to 1048576; with 0, [Shedder.Allow] and
	// [Shedder.Acquire] fail with [ErrConcurrency].
	Concurrency int
}

// validate returns all faults of c, each with field, value and bound.
func (c *Config) validate() error {
	var faults []error
	fault := func(bad bool, field string, value any, bound string) {
		if bad {
			faults = append(faults, fmt.Errorf("%w: Config.%s is %v: %s", ErrInvalid, field, value, bound))
		}
	}
	if c.Name != "" {
		if err := names.Check(c.Name); err != nil {
			faults = append(faults, fmt.Errorf("%w: Config.Name: %w", ErrInvalid, err))
		}
	}
	fault(c.Mode > Off, "Mode", uint8(c.Mode), "must be On, Observe or Off")
	fault(c.Concurrency < 0 || c.Concurrency > maxConcurrency, "Concurrency", c.Concurrency, fmt.Sprintf("0 to %d", maxConcurrency))
	if err := c.Adaptive.validate(); err != nil {
		faults = append(faults, fmt.Errorf("%w: Config.Adaptive: %w", ErrInvalid, err))
	}
	g := &c.Guards
	fault(g.FloorInFlight < 0, "Guards.FloorInFlight", g.FloorInFlight, "0 or more; 0 is none")
	fault(!(g.FloorRate >= 0) || math.IsInf(g.FloorRate, 1), "Guards.FloorRate", g.FloorRate, "0 or more a second and finite; 0 is none")
	fault(g.MaxTarget < 0, "Guards.MaxTarget", g.MaxTarget, "0 or more; 0 is none")
	fault(!(g.MaxShare >= 0 && g.MaxShare <= 1), "Guards.MaxShare", g.MaxShare, "a part from 0 to 1; 0 is none")
	fault(g.Baseline < 0, "Guards.Baseline", g.Baseline, "0 or more; 0 is none")
	for i, class := range g.Exempt {
		if i == maxClasses {
			fault(true, "Guards.Exempt", fmt.Sprintf("a list of %d", len(g.Exempt)), fmt.Sprintf("at most %d classes", maxClasses))
			break
		}
		fault(class < 0 || class >= maxClasses, fmt.Sprintf("Guards.Exempt[%d]", i), class, fmt.Sprintf("a class from 0 to %d", maxClasses-1))
	}
	return errors.Join(faults...)
}

// clone returns a copy that shares nothing that can be changed.
func (c *Config) clone() Config {
	out := *c
	out.Guards.Exempt = slices.Clone(c.Guards.Exempt)
	return out
}

// Config returns the settings in force.
func (s *Shedder) Config() Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.cfg.clone()
}

// Tune changes settings while the shedder works: change gets a copy of those in
// force. Either all of the change takes effect or, if it returns an error, none:
// all faults come at once. change may call the shedder, except for Tune itself.
//
// A higher Concurrency starts those who wait in [Shedder.Acquire] at once; a
// lower one takes effect as promises are settled. Changed settings of the
// Adaptive keep what it has measured; another Policy starts without knowledge.
func (s *Shedder) Tune(change func(*Config)) error {
	if change == nil {
		return fmt.Errorf("%w: Tune without a function", ErrInvalid)
	}
	s.tuning.Lock()
	defer s.tuning.Unlock()
	c := s.Config()
	change(&c)
	c = c.clone() // the caller may keep what it was given
	if err := c.validate(); err != nil {
		return err
	}
	return s.apply(&c)
}

// apply puts valid settings in force.
func (s *Shedder) apply(c *Config) error {
	adaptive, err := NewAdaptive(c.Adaptive)
	if err != nil {
		return err
	}
	now := s.Now()
	guards := c.Guards // requests point to it: a new one each time, never changed
	s.mu.Lock()
	s.mu.guards = &guards
	switch {
	case c.Policy != nil:
		s.mu.policy, s.mu.adaptive = c.Policy, nil
	case s.mu.adaptive == nil:
		s.mu.policy, s.mu.adaptive = adaptive, adaptive
	case c.Adaptive != s.mu.cfg.Adaptive:
		err = s.mu.adaptive.Tune(c.Adaptive)
	}
	s.mu.cfg = *c
	s.mu.rails.set(&guards)
	s.exempt.Store(uint32(s.mu.rails.exempt))
	for { // the kill switch may be thrown meanwhile
		old := s.gate.Load()
		if s.gate.CompareAndSwap(old, uint32(gate(old)&^gateMode|gate(c.Mode))) {
			break
		}
	}
	s.mu.errs = refusals{} // they hold the old name
	s.startLocked(s.mu.slots.tick(now))
	s.renewBound()
	s.mu.Unlock()
	return err
}
