package demo

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/cmd/sedactl/internal/trace"
)

// never is a stop that does not come; nil, as a channel of another bubble would
// hold the clock up.
var never chan struct{}

func config(policy bus.FullPolicy) Config {
	return Config{
		Policy: policy, Capacity: 128, Concurrency: 4, Service: 4 * time.Millisecond,
		Duration: 2 * time.Second, Seed: 1, Speed: 1, Load: 1, Budget: 20,
	}
}

func TestRunBelowAtAndAboveCapacity(t *testing.T) {
	t.Parallel()
	for _, policy := range policies {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				frames := 0
				var last Frame
				s, err := Run(t.Context(), config(policy), never, View{
					Every: 100 * time.Millisecond,
					Show: func(f *Frame) {
						frames++
						last = *f
						checkMoment(t, policy, f)
					},
				})
				require.NoError(t, err)
				assert.Equal(t, EndComplete, s.End)
				checkAccount(t, s)

				// Virtual time is exact: 4 servers at 4 ms are 1,000 a second.
				assert.InDelta(t, 1000, s.Capacity, 30)
				require.Len(t, s.Sides, 2)
				without, with := s.Sides[0], s.Sides[1]
				assert.False(t, without.Shedding)
				assert.True(t, with.Shedding)
				for i, l := range loads {
					off, on := without.Phases[i], with.Phases[i]
					assert.True(t, off.Whole)
					assert.InDelta(t, l.factor*s.Capacity, off.Rate, 0.01)
					// A Poisson count: 4 deviations.
					want := off.Rate * 2 * l.part
					assert.InDelta(t, want, float64(off.Offered), 4*math.Sqrt(want), off.Name)
					assert.Equal(t, off.Offered, on.Offered, "the same arrivals for both")
					assert.Equal(t, off.Rate, on.Rate)
				}
				for _, p := range []Outcome{without.Phases[0], with.Phases[0]} {
					assert.Zero(t, p.Refused.Total()+p.Dropped.Total(), "half the load fits")
					assert.InDelta(t, p.Rate, p.Goodput, 0.1*p.Rate)
					assert.InDelta(t, 1, p.OfPossible, 0.001)
				}
				for i := 2; i < len(loads); i++ {
					checkOverload(t, policy, s.Capacity, 2*loads[i].part, &without.Phases[i], &with.Phases[i])
				}

				assert.Greater(t, frames, 60, "one each tenth of a second")
				require.Len(t, last.Sides, 2)
				for i, side := range last.Sides {
					assert.Equal(t, s.Sides[i].Account, side.Account, "the last frame shows the end")
					assert.Equal(t, s.Sides[i].Shedding, side.Sheds)
					require.Len(t, side.Stages, 3)
					assert.Equal(t, 3*128, side.Room)
				}
				assert.Empty(t, last.Note)
				for _, p := range last.Phases {
					assert.Equal(t, stateDone, p.State)
				}
			})
		})
	}
}

// checkMoment checks what a frame tells of the last second.
func checkMoment(t *testing.T, policy bus.FullPolicy, f *Frame) {
	t.Helper()
	for i := range f.Sides {
		s := &f.Sides[i]
		work := &s.Stages[1]
		assert.Less(t, work.Rate, 1150.0, "what is done now, not so far")
		depth := 0
		for _, st := range s.Stages {
			depth += st.Depth
		}
		assert.Equal(t, depth, s.Depth)
		if p := f.Phases[1]; p.State == stateRuns && p.Part > 0.6 {
			assert.InDelta(t, 500, work.Rate, 125)
			assert.InDelta(t, 500, s.InTime, 125)
			assert.InDelta(t, 500, s.Possible, 125)
			assert.Less(t, work.P99, 30*time.Millisecond)
			assert.Empty(t, s.Refused)
		}
		if p := f.Phases[3]; p.State == stateRuns && p.Part > 0.7 {
			assert.InDelta(t, 1000, work.Rate, 60)
			assert.InDelta(t, 1000, s.Possible, 40, "no more than the capacity")
			switch {
			case s.Sheds:
				assert.Greater(t, s.InTime, 900.0)
				assert.Less(t, s.P99, 80*time.Millisecond)
				assert.Positive(t, s.Refused["work bound"])
			case policy != bus.DropOldest:
				assert.Less(t, s.InTime, 200.0)
				assert.Greater(t, s.P50, 80*time.Millisecond, "without the waits of the phases before")
			}
		}
	}
}

// checkOverload checks a phase above the capacity: what is done is the same
// without and with shedding, but only with shedding it is done in time.
func checkOverload(t *testing.T, policy bus.FullPolicy, capacity, length float64, off, on *Outcome) {
	t.Helper()
	for _, p := range []*Outcome{off, on} {
		assert.Equal(t, p.Completed, p.InTime+p.Late, p.Name)
		done := float64(p.Completed) / (length + p.BacklogMS/1000)
		assert.InDelta(t, capacity, done, 0.05*capacity, "%s: the bottleneck is busy all the time", p.Name)
	}
	assert.Greater(t, on.OfPossible, 0.95, on.Name)
	assert.InDelta(t, on.OfPossible*capacity, on.Goodput, 0.05*capacity, on.Name)
	if policy != bus.DropOldest { // that serves who came last, at the cost of what was accepted
		assert.Less(t, off.OfPossible, 0.35, off.Name)
		assert.Greater(t, off.WaitP50MS, 80.0, "%s: longer than the budget", off.Name)
	}
	assert.Less(t, on.WaitP99MS, 80.0, on.Name)
	assert.GreaterOrEqual(t, off.Depth, 128)
	assert.Less(t, on.Depth, 64)
	assert.InDelta(t, float64(off.Depth)/capacity*1000, off.BacklogMS, 20, "%s: what is left takes its time", off.Name)
	assert.Less(t, on.BacklogMS, off.BacklogMS/2)
	checkLosses(t, policy, float64(off.Offered)-float64(off.Depth)-capacity*length, off)

	assert.Equal(t, on.Refused["shed"], on.Shed.Total(), "all that was shed has a rule")
	assert.Positive(t, on.Shed["work bound"], "the bottleneck sheds at the first door")
	assert.InDelta(t, float64(on.Offered)-capacity*length, float64(on.Refused.Total()), 0.05*float64(on.Offered))
	assert.Equal(t, on.Refused.Total(), on.Shed.Total(), "no queue is ever full")
	assert.Zero(t, on.Dropped.Total())
}

// checkLosses checks what a phase above the capacity lost without shedding, and
// how.
func checkLosses(t *testing.T, policy bus.FullPolicy, surplus float64, p *Outcome) {
	t.Helper()
	assert.Empty(t, p.Shed)
	lost := p.Refused
	switch policy {
	case bus.DropOldest:
		assert.Zero(t, p.Refused.Total())
		lost = p.Dropped
		assert.Equal(t, lost.Total(), lost["evicted"])
	case bus.DropNewest:
		assert.Zero(t, p.Dropped.Total())
		assert.Equal(t, lost.Total(), lost["newest"])
	default:
		assert.Zero(t, p.Dropped.Total())
		assert.Equal(t, lost.Total(), lost["full"])
	}
	assert.InDelta(t, surplus, float64(lost.Total()), 0.05*float64(p.Offered), "what finds no room and cannot be done")
}

// checkAccount checks the sums of a run that was not cut.
func checkAccount(t *testing.T, s *Summary) {
	t.Helper()
	assert.True(t, s.Balanced())
	for i := range s.Sides {
		a := s.Sides[i].Account
		assert.True(t, a.Balanced)
		assert.Zero(t, a.Pending)
		assert.Positive(t, a.Accepted)
		var accepted, refused uint64
		for _, p := range s.Sides[i].Phases {
			assert.Equal(t, p.Offered, p.Accepted+p.Refused.Total(), p.Name)
			assert.Equal(t, p.Accepted, p.Completed+p.DeadLettered+p.Dropped.Total()+p.Abandoned, p.Name)
			accepted += p.Accepted
			refused += p.Refused.Total()
		}
		assert.LessOrEqual(t, accepted, a.Accepted, "the calibration is part of the account")
		assert.Equal(t, refused, a.Refused.Total(), "nothing is refused or shed while it calibrates")
	}
}

func TestRunWithDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := config(bus.Reject)
		c.Deadlines, c.Duration = true, time.Second
		s, err := Run(t.Context(), c, never, View{})
		require.NoError(t, err)
		checkAccount(t, s)
		off, on := s.Sides[0].Phases[2], s.Sides[1].Phases[2]
		assert.Positive(t, off.Dropped["discarded"], "started, but not done in time")
		assert.Equal(t, off.Accepted, off.InTime+off.Dropped.Total())
		assert.Zero(t, off.Late)
		assert.LessOrEqual(t, off.WaitP99MS, 83.0, "what waited longer is not started")
		assert.Less(t, off.OfPossible, 0.5, "what is started has no time left to be done")
		assert.Greater(t, on.OfPossible, 0.95)
		assert.LessOrEqual(t, float64(on.Dropped.Total()), 0.001*float64(on.Accepted))
	})
}

func TestRunOneSideOnly(t *testing.T) {
	t.Parallel()
	for shed, sheds := range map[Shedding]bool{ShedOn: true, ShedOff: false} {
		t.Run(shed.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := config(bus.Reject)
				c.Shed, c.Duration = shed, 500*time.Millisecond
				var last Frame
				s, err := Run(t.Context(), c, never, View{Every: time.Second, Show: func(f *Frame) { last = *f }})
				require.NoError(t, err)
				checkAccount(t, s)
				require.Len(t, s.Sides, 1)
				assert.Equal(t, sheds, s.Sides[0].Shedding)
				require.Len(t, last.Sides, 1)
				assert.Equal(t, sheds, last.Sides[0].Sheds)
				assert.Equal(t, sheds, s.Sides[0].Phases[2].Shed.Total() > 0)
			})
		})
	}
}

func TestRunDrainsWhenStopped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after  time.Duration
		phases int // that have begun
	}{
		"at once":                {0, 0},
		"in the calibration":     {200 * time.Millisecond, 0},
		"below capacity":         {2 * time.Second, 1},
		"above capacity":         {5500 * time.Millisecond, 3},
		"when all is over, late": {time.Hour, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				stop := make(chan struct{})
				timer := time.AfterFunc(c.after, func() { close(stop) })
				defer timer.Stop()
				noted, last := false, ""
				s, err := Run(t.Context(), config(bus.Reject), stop, View{
					Every: 20 * time.Millisecond,
					Show: func(f *Frame) {
						noted, last = noted || strings.HasPrefix(f.Note, "stopping"), f.Note
					},
				})
				require.NoError(t, err)
				require.Len(t, s.Sides, 2)
				if c.after == time.Hour {
					assert.Equal(t, EndComplete, s.End)
					assert.False(t, noted)
					return
				}
				assert.Equal(t, EndDrained, s.End)
				assert.Empty(t, last, "it has stopped")
				for _, side := range s.Sides {
					assert.Len(t, side.Phases, c.phases)
					a := side.Account
					assert.True(t, a.Balanced)
					assert.Zero(t, a.Pending)
					assert.Equal(t, a.Accepted, a.Completed, "all that was under way was done")
					for i, p := range side.Phases {
						assert.Equal(t, i < c.phases-1, p.Whole, "the last one was cut short")
					}
				}
				if c.after > 5*time.Second {
					assert.True(t, noted, "there is a backlog to drain")
				}
			})
		})
	}
}

func TestRunIsCutWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := config(bus.Reject)
		c.Service, c.Duration = time.Second, time.Minute
		stop := make(chan struct{})
		defer time.AfterFunc(100*time.Second, func() { close(stop) }).Stop()
		ctx, cut := context.WithTimeout(t.Context(), 100100*time.Millisecond)
		defer cut()
		s, err := Run(ctx, c, stop, View{})
		require.NoError(t, err)
		assert.Equal(t, EndCut, s.End)
		require.Len(t, s.Sides, 2)
		for _, side := range s.Sides {
			a := side.Account
			assert.True(t, a.Balanced)
			assert.Zero(t, a.Pending)
			assert.Positive(t, a.Abandoned)
			require.NotEmpty(t, side.Phases)
			p := side.Phases[len(side.Phases)-1]
			assert.False(t, p.Whole)
			assert.Equal(t, a.Abandoned, p.Abandoned)
			assert.Equal(t, p.Accepted, p.Completed+p.Abandoned)
		}
	})
}

func recorded(n int, gap time.Duration) *trace.Trace {
	t := &trace.Trace{}
	at := time.Date(2023, 11, 16, 18, 17, 3, 0, time.UTC)
	for i := range n {
		t.Rows = append(t.Rows, trace.Row{At: at.Add(time.Duration(i) * gap), Context: 100, Generated: 1 + i%20})
	}
	return t
}

func TestRunPlaysATrace(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		trace     *trace.Trace
		speed     float64
		load      float64
		length    time.Duration
		completed int
		busy      float64 // of the servers, while it lasts; 0 is not known
	}{
		"as recorded":      {recorded(400, 10*time.Millisecond), 1, 0.5, 0, 400, 0.5},
		"ten times faster": {recorded(400, 10*time.Millisecond), 10, 1, 0, 400, 1},
		"a part of it":     {recorded(400, 10*time.Millisecond), 1, 0.5, time.Second, 100, 0},
		"one row":          {recorded(1, 0), 1, 1, 0, 1, 0},
		"no tokens":        {&trace.Trace{Rows: make([]trace.Row, 5)}, 1, 1, 0, 5, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := config(bus.Reject)
				cfg.Capacity, cfg.Trace, cfg.File = 1000, c.trace, "t.csv"
				cfg.Speed, cfg.Load, cfg.Duration = c.speed, c.load, c.length
				cfg.Shed = ShedOff // every row is to be completed
				begin := time.Now()
				s, err := Run(t.Context(), cfg, never, View{})
				require.NoError(t, err)
				took := time.Since(begin)
				checkAccount(t, s)
				assert.Zero(t, s.Capacity)
				require.Len(t, s.Sides, 1)
				require.Len(t, s.Sides[0].Phases, 1)
				assert.Equal(t, uint64(c.completed), s.Sides[0].Phases[0].Completed)
				require.NotNil(t, s.Trace)
				assert.Equal(t, len(c.trace.Rows), s.Trace.Rows)
				if c.busy > 0 {
					work := unMS(s.Trace.PerTokenMS) * time.Duration(c.trace.Generated())
					assert.InDelta(t, c.busy, float64(work)/4/float64(unMS(s.Trace.SpanMS)), 0.01)
					assert.GreaterOrEqual(t, took, unMS(s.Trace.SpanMS))
				}
			})
		})
	}
}

// A trace that is too much for the pipeline, with and without shedding.
func TestRunComparesOnATrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := config(bus.Reject)
		cfg.Capacity, cfg.Trace, cfg.File = 1000, recorded(2000, time.Millisecond), "t.csv"
		cfg.Load, cfg.Duration = 2, 0
		s, err := Run(t.Context(), cfg, never, View{})
		require.NoError(t, err)
		checkAccount(t, s)
		mean := unMS(s.Trace.PerTokenMS) * time.Duration(cfg.Trace.Generated()) / 2000
		assert.InDelta(t, 20*float64(mean), float64(unMS(s.Settings.BudgetMS)), float64(time.Millisecond), "of the trace's mean service time")
		off, on := s.Sides[0].Phases[0], s.Sides[1].Phases[0]
		assert.Equal(t, uint64(2000), off.Offered)
		assert.Equal(t, uint64(2000), on.Offered)
		assert.InDelta(t, 0.5, on.OfPossible, 0.05, "of the offered, as the capacity is not known")
		assert.Less(t, off.OfPossible, 0.1)
	})
}

func TestRunRefusesASettingOutOfBounds(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*Config)
		want   []string
	}{
		"capacity":    {func(c *Config) { c.Capacity = 0 }, []string{"--capacity is 0, must be from 1 to 16777216"}},
		"concurrency": {func(c *Config) { c.Concurrency = -1 }, []string{"--concurrency is -1, must be from 1 to 65536"}},
		"service":     {func(c *Config) { c.Service = time.Nanosecond }, []string{"--service is 1ns, must be from 10µs to 1m0s"}},
		"duration":    {func(c *Config) { c.Duration = 0 }, []string{"--duration is 0s, must be from 10ms to 24h0m0s"}},
		"speed": {
			func(c *Config) { c.Trace, c.Speed = recorded(1, 0), math.NaN() },
			[]string{"--speed is NaN, must be from 0.001 to 1000000"},
		},
		"load": {
			func(c *Config) { c.Trace, c.Load = recorded(1, 0), -1 },
			[]string{"--load is -1, must be from 0.001 to 1000000"},
		},
		"budget":      {func(c *Config) { c.Budget = 0.5 }, []string{"--budget is 0.5, must be from 1 to 1000000"}},
		"all at once": {func(c *Config) { *c = Config{} }, []string{"--capacity", "--concurrency", "--service", "--duration", "--budget"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(bus.Reject)
			c.change(&cfg)
			s, err := Run(t.Context(), cfg, never, View{})
			assert.Nil(t, s)
			for _, want := range c.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"block", "reject", "drop-newest", "drop-oldest"}, Policies())
	for _, name := range Policies() {
		p, err := ParsePolicy(name)
		require.NoError(t, err)
		assert.Equal(t, name, p.String())
	}
	_, err := ParsePolicy("wait")
	assert.EqualError(t, err, `--policy is "wait", must be one of block, reject, drop-newest, drop-oldest`)
}

func TestSheddings(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"both", "on", "off"}, Sheddings())
	for _, name := range Sheddings() {
		s, err := ParseShedding(name)
		require.NoError(t, err)
		assert.Equal(t, name, s.String())
	}
	_, err := ParseShedding("maybe")
	require.EqualError(t, err, `--shed is "maybe", must be one of both, on, off`)
	assert.Equal(t, "unknown", Shedding(99).String())
}

func TestNapKeepsTheMean(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n napper
		n.owed.Store(int64(5 * time.Millisecond)) // as if a nap had ended late
		begin := time.Now()
		for range 3 {
			require.NoError(t, n.nap(t.Context(), 2*time.Millisecond))
		}
		assert.Equal(t, time.Millisecond, time.Since(begin), "what was owed has been made good")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, n.nap(ctx, time.Hour), context.DeadlineExceeded)
		assert.Zero(t, n.owed.Load())
	})
}
