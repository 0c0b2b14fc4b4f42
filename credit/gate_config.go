package credit

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

const (
	defaultCapacity = 1 << 16
	maxWorkers      = 1 << 20
)

// GateConfig holds the settings of a [Gate]. The zero value is valid: its window
// adapts to what GOMAXPROCS workers get done.
type GateConfig struct {
	// Config are the settings of the books. A Window of 0 adapts by itself, see
	// [Gate.SetWindow] for one that is 0.
	Config
	// Size says how.
	Size Sizing
	// Now returns the time since any instant; nil is the monotonic clock. It is
	// called with the gate locked and must not call the gate.
	Now func() time.Duration
}

// Sizing is how a window adapts, and its bound.
type Sizing struct {
	SizerConfig
	// Workers is how many units of work are in service at once: up to 1048576;
	// 0 is GOMAXPROCS.
	Workers int
	// Capacity is the largest window, set or adapted: up to 1073741824; 0 is
	// 65536. What is set above it is taken as it, and [GateState.Note] says so.
	Capacity int
}

// Validate returns all faults of c at once, each with field, value and bound.
// They match [ErrInvalid].
func (c *GateConfig) Validate() error {
	var faults []error
	if c.Size.Workers < 0 || c.Size.Workers > maxWorkers {
		faults = append(faults, fmt.Errorf("%w: Sizing.Workers is %d: 0 to %d", ErrInvalid, c.Size.Workers, maxWorkers))
	}
	if c.Size.Capacity < 0 || c.Size.Capacity > maxWindow {
		faults = append(faults, fmt.Errorf("%w: Sizing.Capacity is %d: 0 to %d", ErrInvalid, c.Size.Capacity, maxWindow))
	}
	return errors.Join(append(faults, c.Config.Validate(), c.Size.validate())...)
}

// withDefaults returns s with its defaults filled in.
func (s *Sizing) withDefaults() Sizing {
	d := *s
	if d.Workers == 0 {
		d.Workers = runtime.GOMAXPROCS(0)
	}
	if d.Capacity == 0 {
		d.Capacity = defaultCapacity
	}
	return d
}
