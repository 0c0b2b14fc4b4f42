package credit

import (
	"errors"
	"fmt"
	"time"
)

// Bounds and defaults of settings.
const (
	maxWindow    = 1 << 30
	maxExclusive = 1 << 20
	maxBatch     = 1 << 16
	maxClasses   = 16
	maxWeight    = 1000
	maxLease     = 24 * time.Hour

	defaultExclusive = 2
	defaultBatch     = 16
	defaultLease     = time.Second
)

// Config holds the settings of a [Ledger]. The zero value is valid.
type Config struct {
	// Window is how many credits there are in all, spent ones whose work has not
	// ended included: 0 to 1073741824. With 0 there is none.
	Window int
	// Exclusive is how many unspent credits each live account may keep although
	// others want them, see [Ledger.Keep]: up to 1048576; 0 is 2, -1 is none.
	Exclusive int
	// Batch is how many credits a grant holds at most beyond what was wanted, see
	// [Ledger.Ahead]: up to 65536; 0 is 16, -1 is none.
	Batch int
	// Lease is for how long credits may stay unspent after the latest grant to
	// their account: up to 24 h; 0 is 1 s.
	Lease time.Duration
	// Classes are the priority classes, highest first; none is one class. At most
	// 16. The sum of the minimum shares is at most 100.
	Classes []Class
}

// Class is a priority class of accounts.
type Class struct {
	// MinShare is the percentage of the granted credits that the class gets while
	// it wants some, though a higher class wants them too: 0 to 100. With 0 it is
	// served only when no higher class wants any.
	MinShare int
}

// AccountConfig holds the settings of an [Account]. The zero value is valid.
type AccountConfig struct {
	// Weight is the share of the account against others of its class that want
	// credits too: 1 to 1000; 0 is 1.
	Weight int
	// Class is the index of its class in Config.Classes; 0 is the highest.
	Class int
}

// Validate returns all faults of c at once, each with field, value and bound.
// They match [ErrInvalid].
func (c *Config) Validate() error {
	var faults []error
	fault := func(bad bool, field string, value any, bound string) {
		if bad {
			faults = append(faults, fmt.Errorf("%w: Config.%s is %v: %s", ErrInvalid, field, value, bound))
		}
	}
	fault(c.Window < 0 || c.Window > maxWindow, "Window", c.Window, fmt.Sprintf("0 to %d", maxWindow))
	fault(c.Exclusive < -1 || c.Exclusive > maxExclusive, "Exclusive", c.Exclusive, fmt.Sprintf("-1 to %d", maxExclusive))
	fault(c.Batch < -1 || c.Batch > maxBatch, "Batch", c.Batch, fmt.Sprintf("-1 to %d", maxBatch))
	fault(c.Lease < 0 || c.Lease > maxLease, "Lease", c.Lease, fmt.Sprintf("0 to %v", maxLease))
	if len(c.Classes) > maxClasses {
		fault(true, "Classes", fmt.Sprintf("a list of %d", len(c.Classes)), fmt.Sprintf("at most %d", maxClasses))
		return errors.Join(faults...)
	}
	sum, whole := 0, true
	for i, class := range c.Classes {
		bad := class.MinShare < 0 || class.MinShare > 100
		fault(bad, fmt.Sprintf("Classes[%d].MinShare", i), class.MinShare, "0 to 100")
		whole = whole && !bad
		sum += class.MinShare
	}
	fault(whole && sum > 100, "Classes", fmt.Sprintf("minimum shares of %d in all", sum), "at most 100")
	return errors.Join(faults...)
}

// withDefaults returns c with its defaults filled in.
func (c *Config) withDefaults() Config {
	d := *c
	d.Exclusive = orDefault(c.Exclusive, defaultExclusive)
	d.Batch = orDefault(c.Batch, defaultBatch)
	if c.Lease == 0 {
		d.Lease = defaultLease
	}
	return d
}

// orDefault reads a setting for which 0 is a default and -1 is none.
func orDefault(v, standard int) int {
	if v == 0 {
		return standard
	}
	return max(v, 0)
}

// validate returns all faults of c for a ledger with that many classes.
func (c *AccountConfig) validate(classes int) error {
	var faults []error
	if c.Weight < 0 || c.Weight > maxWeight {
		faults = append(faults, fmt.Errorf("%w: AccountConfig.Weight is %d: 0 to %d", ErrInvalid, c.Weight, maxWeight))
	}
	if c.Class < 0 || c.Class >= classes {
		faults = append(faults, fmt.Errorf("%w: AccountConfig.Class is %d: 0 to %d", ErrInvalid, c.Class, classes-1))
	}
	return errors.Join(faults...)
}
