// Package demo runs a three-stage pipeline under an open-loop load and shows
// what a bounded bus does below, at and above its capacity.
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
	DefaultCapacity    = 128
	DefaultConcurrency = 4
	DefaultService     = 2 * time.Millisecond
	DefaultDuration    = 4 * time.Second
	DefaultSeed        = 1
	DefaultSpeed       = 1.0
	DefaultLoad        = 1.0

	MaxCapacity    = 1 << 24
	MaxConcurrency = 1 << 16
	MinService     = 10 * time.Microsecond
	MaxService     = time.Minute
	MinDuration    = 10 * time.Millisecond
	MaxDuration    = 24 * time.Hour
	MinFactor      = 1e-3 // of speed and load
	MaxFactor      = 1e6  // of speed and load
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
	}
	if c.Trace == nil || c.Duration != 0 {
		errs = append(errs, within("duration", c.Duration, MinDuration, MaxDuration))
	}
	if c.Trace != nil {
		errs = append(errs, factor("speed", c.Speed), factor("load", c.Load))
	}
	return errors.Join(errs...)
}

func within[T int | time.Duration](name string, v, least, most T) error {
	if v < least || v > most {
		return fmt.Errorf("--%s is %v, must be from %v to %v", name, v, least, most)
	}
	return nil
}

func factor(name string, v float64) error {
	if !(v >= MinFactor && v <= MaxFactor) {
		return fmt.Errorf("--%s is %v, must be from %v to %v", name, v, MinFactor, int(MaxFactor))
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
