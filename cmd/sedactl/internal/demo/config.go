// Package demo runs a three-stage pipeline under an open-loop load, once without
// and once with the shedder, and shows what a bounded bus does below, at and
// above its capacity.
package demo

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/cmd/sedactl/internal/trace"
)

// Bounds and defaults of the settings.
const (
	DefaultCapacity    = 1024 // the bus's own
	DefaultConcurrency = 16
	DefaultService     = 10 * time.Millisecond
	DefaultDuration    = 4 * time.Second
	DefaultSeed        = 1
	DefaultSpeed       = 1.0
	DefaultLoad        = 1.0
	DefaultBudget      = 20.0

	MaxCapacity    = 1 << 24
	MaxConcurrency = 1 << 16
	MinService     = 10 * time.Microsecond
	MaxService     = time.Minute
	MinDuration    = 10 * time.Millisecond
	MaxDuration    = 24 * time.Hour
	MinFactor      = 1e-3 // of speed and load
	MaxFactor      = 1e6  // of speed and load
	MinBudget      = 1.0  // in service times
	MaxBudget      = 1e6  // in service times
)

// Config says what to run. Every field must be set; the Default constants are
// what the command line gives.
type Config struct {
	Policy      bus.FullPolicy // of every stage
	Capacity    int            // of every stage: 1 to MaxCapacity
	Concurrency int            // of every stage: 1 to MaxConcurrency
	Service     time.Duration  // mean of the bottleneck, MinService to MaxService
	Duration    time.Duration  // of each load phase, MinDuration to MaxDuration; a trace: 0 plays all of it
	Seed        uint64         // of the arrivals and service times
	Shed        Shedding       // which pipelines run
	Budget      float64        // latency in mean service times within which work is done in time, MinBudget to MaxBudget
	Deadlines   bool           // the budget is each arrival's deadline, too

	Trace *trace.Trace // nil: Poisson arrivals
	File  string       // where the trace is from, to tell the user
	Speed float64      // how many times faster the trace is played, MinFactor to MaxFactor
	Load  float64      // of the bottleneck by the trace, MinFactor to MaxFactor; 1 is all it can do
}

// Check returns all that is wrong with the settings, by the names that they
// have on the command line, or nil.
func (c *Config) Check() error {
	errs := []error{
		within("capacity", c.Capacity, 1, MaxCapacity),
		within("concurrency", c.Concurrency, 1, MaxConcurrency),
		within("service", c.Service, MinService, MaxService),
		factor("budget", c.Budget, MinBudget, MaxBudget),
	}
	if c.Trace == nil || c.Duration != 0 {
		errs = append(errs, within("duration", c.Duration, MinDuration, MaxDuration))
	}
	if c.Trace != nil {
		errs = append(errs, factor("speed", c.Speed, MinFactor, MaxFactor), factor("load", c.Load, MinFactor, MaxFactor))
	}
	return errors.Join(errs...)
}

func within[T int | time.Duration](name string, v, least, most T) error {
	if v < least || v > most {
		return fmt.Errorf("--%s is %v, must be from %v to %v", name, v, least, most)
	}
	return nil
}

func factor(name string, v, least, most float64) error {
	if !(v >= least && v <= most) {
		return fmt.Errorf("--%s is %v, must be from %v to %v", name, v, least, int(most))
	}
	return nil
}

// policies are the full policies, in the order in which help lists them.
var policies = []bus.FullPolicy{bus.Block, bus.Reject, bus.DropNewest, bus.DropOldest}

// Policies returns the names that [ParsePolicy] knows.
func Policies() []string {
	out := make([]string, 0, len(policies))
	for _, p := range policies {
		out = append(out, p.String())
	}
	return out
}

// ParsePolicy returns the full policy of that name.
func ParsePolicy(name string) (bus.FullPolicy, error) {
	for _, p := range policies {
		if p.String() == name {
			return p, nil
		}
	}
	return 0, fmt.Errorf("--policy is %q, must be one of %s", name, strings.Join(Policies(), ", "))
}

// Shedding says which pipelines run.
type Shedding uint8

// Sheddings.
const (
	ShedBoth Shedding = iota // one without and one with shedding, side by side
	ShedOn                   // only the one with
	ShedOff                  // only the one without
)

// sheddings are their names.
var sheddings = [...]string{ShedBoth: "both", ShedOn: "on", ShedOff: "off"}

// Sheddings returns the names that [ParseShedding] knows.
func Sheddings() []string { return sheddings[:] }

// ParseShedding returns the Shedding of that name.
func ParseShedding(name string) (Shedding, error) {
	for s, n := range sheddings {
		if n == name {
			return Shedding(s), nil
		}
	}
	return 0, fmt.Errorf("--shed is %q, must be one of %s", name, strings.Join(Sheddings(), ", "))
}

// String returns the name.
func (s Shedding) String() string {
	if int(s) < len(sheddings) {
		return sheddings[s]
	}
	return "unknown"
}

// sides says of each pipeline, in the order in which they are shown, whether it
// sheds.
func (s Shedding) sides() []bool {
	switch s {
	case ShedOn:
		return []bool{true}
	case ShedOff:
		return []bool{false}
	default:
		return []bool{false, true}
	}
}
