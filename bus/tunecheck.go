package bus

import (
	"fmt"

	"github.com/sedabus/seda/reason"
)

// CheckTune returns the settings that Tune would put into force, defaults filled
// in, and the error that it would return. It changes nothing.
func (s *Stage) CheckTune(change func(*StageConfig)) (StageConfig, error) {
	if change == nil {
		return StageConfig{}, fault(s.where(), "change", "nil", "must not be nil")
	}
	s.bus.tuning.Lock()
	defer s.bus.tuning.Unlock()
	old := s.Config()
	return s.planTune(&old, change)
}

// planTune returns what change makes of the settings in force, if that is
// allowed. The caller holds b.tuning.
func (s *Stage) planTune(old *StageConfig, change func(*StageConfig)) (StageConfig, error) {
	next := s.Config() // shares nothing with old
	change(&next)
	if err := next.validate(s.name); err != nil {
		return next, err
	}
	next.anyShard = next.anyShard && next.Concurrency == old.Concurrency
	s.bus.shardDefaults(&next)
	next = next.withDefaults()
	if diff := frozenDiff(old, &next); len(diff) > 0 {
		return next, fmt.Errorf("%w: %s: %v cannot change while it lives", ErrConflict, s.where(), diff)
	}
	if s.bus.state() >= stateClosed {
		return next, s.refusal(reason.Closed, nil)
	}
	return next, nil
}

// CheckTune returns the settings that Tune would put into force, defaults filled
// in, and the error that it would return. It changes nothing.
func (b *Bus) CheckTune(change func(*Config)) (Config, error) {
	if change == nil {
		return Config{}, fault("config", "change", "nil", "must not be nil")
	}
	b.tuning.Lock()
	defer b.tuning.Unlock()
	return b.planTune(change)
}

// planTune is Stage.planTune for the bus's settings.
func (b *Bus) planTune(change func(*Config)) (Config, error) {
	old := b.Config()
	next := old
	change(&next)
	if err := next.validate(); err != nil {
		return next, err
	}
	next.setDefaults()
	if next.Name != old.Name || next.Shards != old.Shards || next.Grace != old.Grace || next.Journal != old.Journal ||
		next.Tracer != old.Tracer || next.Logger != old.Logger || !next.Hooks.same(&old.Hooks) ||
		!sameFunc(next.NewShedder, old.NewShedder) {
		return next, fmt.Errorf("%w: only MaxHandlers and DeadLetters can change while the bus lives", ErrConflict)
	}
	if b.state() >= stateClosed {
		return next, fmt.Errorf("bus %q: %w", b.cfg.Name, ErrClosed)
	}
	return next, nil
}

// Phase returns where the bus is in its life: "new", "running", "draining" or
// "closed".
func (b *Bus) Phase() string {
	switch b.state() {
	case stateNew:
		return "new"
	case stateRunning:
		return "running"
	case stateDraining:
		return "draining"
	}
	return "closed"
}
