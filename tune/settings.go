package tune

import (
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/retry"
	"github.com/sedabus/seda/shedder"
)

func stageTable() []setting[bus.StageConfig] {
	type c = bus.StageConfig
	return []setting[c]{
		intOf("capacity", "envelopes", func(c *c) *int { return &c.Capacity }),
		intOf("concurrency", "handlers", func(c *c) *int { return &c.Concurrency }),
		intOf("batch", "envelopes", func(c *c) *int { return &c.Batch }),
		intOf("egress_cap", "envelopes", func(c *c) *int { return &c.EgressCap }),
		wordOf("full", func(c *c) *bus.FullPolicy { return &c.Full }, bus.Block, bus.Reject, bus.DropNewest, bus.DropOldest, bus.Credit),
		durationOf("hop_timeout", func(c *c) *time.Duration { return &c.HopTimeout }),
		durationOf("handler_timeout", func(c *c) *time.Duration { return &c.HandlerTimeout }),
		intOf("max_waiters", "publishers", func(c *c) *int { return &c.MaxWaiters }),
		intOf("max_outstanding", "deliveries", func(c *c) *int { return &c.MaxOutstanding }),
		durationOf("pull_lease", func(c *c) *time.Duration { return &c.Lease }),
		intOf("retry_max_attempts", "attempts", func(c *c) *int { return &c.Retry.MaxAttempts }),
		wordOf("retry_kind", func(c *c) *retry.Kind { return &c.Retry.Kind }, retry.Immediate, retry.Constant, retry.Exponential),
		durationOf("retry_base", func(c *c) *time.Duration { return &c.Retry.Base }),
		durationOf("retry_cap", func(c *c) *time.Duration { return &c.Retry.Cap }),
		numberOf("retry_factor", "", func(c *c) *float64 { return &c.Retry.Factor }),
		durationOf("retry_max_elapsed", func(c *c) *time.Duration { return &c.Retry.MaxElapsed }),
		numberOf("retry_budget", "retries per delivery", func(c *c) *float64 { return &c.Retry.Budget }),
	}
}

func creditTable() []setting[bus.StageConfig] {
	type c = bus.StageConfig
	return []setting[c]{
		intOf("window", "credits", func(c *c) *int { return &c.Credit.Window }),
		numberOf("target_factor", "mean service times", func(c *c) *float64 { return &c.Credit.TargetFactor }),
		intOf("exclusive", "credits", func(c *c) *int { return &c.Credit.Exclusive }),
		durationOf("lease", func(c *c) *time.Duration { return &c.Credit.Lease }),
		intOf("hop_reserve", "credits", func(c *c) *int { return &c.Credit.HopReserve }),
	}
}

func busTable() []setting[bus.Config] {
	type c = bus.Config
	return []setting[c]{
		intOf("max_handlers", "handlers", func(c *c) *int { return &c.MaxHandlers }),
		intOf("letters_max_count", "letters", func(c *c) *int { return &c.DeadLetters.MaxCount }),
		durationOf("letters_max_age", func(c *c) *time.Duration { return &c.DeadLetters.MaxAge }),
	}
}

func shedderTable() []setting[shedder.Config] {
	type c = shedder.Config
	return []setting[c]{
		wordOf(modeSetting, func(c *c) *shedder.Mode { return &c.Mode }, shedder.On, shedder.Observe, shedder.Off),
		intOf("floor_in_flight", "envelopes", func(c *c) *int { return &c.Guards.FloorInFlight }),
		numberOf("floor_rate", "per second", func(c *c) *float64 { return &c.Guards.FloorRate }),
		durationOf("max_target", func(c *c) *time.Duration { return &c.Guards.MaxTarget }),
		numberOf("max_share", "share of requests, 0 to 1", func(c *c) *float64 { return &c.Guards.MaxShare }),
		durationOf("baseline", func(c *c) *time.Duration { return &c.Guards.Baseline }),
		numberOf("target_factor", "mean service times", func(c *c) *float64 { return &c.Adaptive.TargetFactor }),
		durationOf("min_target", func(c *c) *time.Duration { return &c.Adaptive.MinTarget }),
		numberOf("burst_factor", "mean service times", func(c *c) *float64 { return &c.Adaptive.BurstFactor }),
		intOf("floor_jobs", "envelopes", func(c *c) *int { return &c.Adaptive.FloorJobs }),
		intOf("burst_jobs", "envelopes", func(c *c) *int { return &c.Adaptive.BurstJobs }),
	}
}

// modeSetting goes back to the embedder's value when its lease runs out, unless
// the write says otherwise: nobody forgets that shedding is off.
const modeSetting = "mode"

// ask is one setting of a write.
type ask struct {
	i int
	v value
}

// resource is a set of settings that change together or not at all.
type resource interface {
	len() int
	row(i int) (name, unit string, k kind)
	read() []value
	// check returns all values as they would be in force.
	check(asks []ask) ([]value, error)
	apply(asks []ask) error
}

type settings[C any] struct {
	table    []setting[C]
	config   func() C
	checkFor func(func(*C)) (C, error)
	tune     func(func(*C)) error
}

func (s *settings[C]) len() int { return len(s.table) }

func (s *settings[C]) row(i int) (name, unit string, k kind) {
	return s.table[i].name, s.table[i].unit, s.table[i].kind
}

func (s *settings[C]) values(c *C) []value {
	out := make([]value, len(s.table))
	for i := range s.table {
		out[i] = s.table[i].get(c)
	}
	return out
}

func (s *settings[C]) read() []value {
	c := s.config()
	return s.values(&c)
}

func (s *settings[C]) change(asks []ask, bad *error) func(*C) {
	return func(c *C) {
		for _, a := range asks {
			if err := s.table[a.i].set(c, a.v); err != nil && *bad == nil {
				*bad = fieldError{s.table[a.i].name, a.v.s, err}
			}
		}
	}
}

func (s *settings[C]) check(asks []ask) ([]value, error) {
	var bad error
	c, err := s.checkFor(s.change(asks, &bad))
	if bad != nil {
		return nil, bad
	}
	if err != nil {
		return nil, err
	}
	return s.values(&c), nil
}

// apply is called with what check has taken.
func (s *settings[C]) apply(asks []ask) error {
	var bad error
	if err := s.tune(s.change(asks, &bad)); err != nil {
		return err
	}
	return bad
}

// find returns the resource of that name, or nil.
func (a *API) find(name, part string) resource {
	if name == "" {
		return &settings[bus.Config]{busTable(), a.bus.Config, a.bus.CheckTune, a.bus.Tune}
	}
	s, ok := a.bus.Lookup(name)
	if !ok {
		return nil
	}
	switch part {
	case "":
		return &settings[bus.StageConfig]{stageTable(), s.Config, s.CheckTune, s.Tune}
	case "credit":
		return &settings[bus.StageConfig]{creditTable(), s.Config, s.CheckTune, s.Tune}
	}
	if sh := s.Shedder(); sh != nil {
		return &settings[shedder.Config]{shedderTable(), sh.Config, sh.CheckTune, sh.Tune}
	}
	return nil
}
