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
		Policy: policy, Capacity: 64, Concurrency: 4, Service: 4 * time.Millisecond,
		Duration: 2 * time.Second, Seed: 1, Speed: 1, Load: 1,
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
						checkMoment(t, f)
					},
				})
				require.NoError(t, err)
				assert.Equal(t, EndComplete, s.End)
				checkAccount(t, s)

				// Virtual time is exact: 4 servers at 4 ms are 1,000 a second.
				assert.InDelta(t, 1000, s.Capacity, 30)
				require.Len(t, s.Phases, 3)
				low, high := s.Phases[0], s.Phases[2]
				for i, p := range s.Phases {
					assert.True(t, p.Whole)
					assert.InDelta(t, factors[i]*s.Capacity, p.Rate, 0.01)
					// A Poisson count: 4 deviations.
					want := p.Rate * 2
					assert.InDelta(t, want, float64(p.Offered), 4*math.Sqrt(want), p.Name)
				}
				assert.Zero(t, low.Refused.Total()+low.Dropped.Total(), "half the load fits")
				assert.InDelta(t, low.Rate, low.Goodput, 0.1*low.Rate)
				assert.InDelta(t, s.Capacity, high.Goodput, 0.05*s.Capacity, "overload costs no goodput")
				assert.Greater(t, high.WaitP50MS, 5*low.WaitP50MS+1)
				checkLosses(t, policy, high)

				assert.Greater(t, frames, 60, "one each tenth of a second")
				assert.Equal(t, s.Account, last.Account, "the last frame shows the end")
				require.Len(t, last.Stages, 3)
				assert.Empty(t, last.Note)
				for _, p := range last.Phases {
					assert.Equal(t, stateDone, p.State)
				}
			})
		})
	}
}

// checkMoment checks what a frame tells of the last second.
func checkMoment(t *testing.T, f *Frame) {
	t.Helper()
	work := f.Stages[1]
	assert.Less(t, work.Rate, 1150.0, "what is done now, not so far")
	if p := f.Phases[1]; p.State == stateRuns && p.Part > 0.6 {
		assert.InDelta(t, 500, work.Rate, 125)
		assert.Less(t, work.P99, 30*time.Millisecond)
	}
	if p := f.Phases[3]; p.State == stateRuns && p.Part > 0.6 {
		assert.InDelta(t, 1000, work.Rate, 60)
		assert.Greater(t, work.P50, 10*time.Millisecond, "without the waits of the phases before")
	}
}

// checkLosses checks what a phase above the capacity lost, and how.
func checkLosses(t *testing.T, policy bus.FullPolicy, p Outcome) {
	t.Helper()
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
	assert.InDelta(t, float64(p.Offered)/2, float64(lost.Total()), 0.1*float64(p.Offered), "half of it is too much")
}

// checkAccount checks the sums of a run that was not cut.
func checkAccount(t *testing.T, s *Summary) {
	t.Helper()
	a := s.Account
	assert.True(t, a.Balanced)
	assert.Zero(t, a.Pending)
	assert.Positive(t, a.Accepted)
	var phases uint64
	for _, p := range s.Phases {
		assert.Equal(t, p.Offered, p.Accepted+p.Refused.Total(), p.Name)
		assert.Equal(t, p.Accepted, p.Completed+p.DeadLettered+p.Dropped.Total()+p.Abandoned, p.Name)
		phases += p.Accepted
	}
	assert.LessOrEqual(t, phases, a.Accepted, "the calibration is part of the account")
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
		"when all is over, late": {time.Hour, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				stop := make(chan struct{})
				timer := time.AfterFunc(c.after, func() { close(stop) })
				defer timer.Stop()
				noted := false
				s, err := Run(t.Context(), config(bus.Reject), stop, View{
					Every: 5 * time.Millisecond,
					Show:  func(f *Frame) { noted = noted || strings.HasPrefix(f.Note, "stopping") },
				})
				require.NoError(t, err)
				assert.Len(t, s.Phases, c.phases)
				if c.after == time.Hour {
					assert.Equal(t, EndComplete, s.End)
					assert.False(t, noted)
					return
				}
				assert.Equal(t, EndDrained, s.End)
				a := s.Account
				assert.True(t, a.Balanced)
				assert.Zero(t, a.Pending)
				assert.Equal(t, a.Accepted, a.Completed, "all that was under way was done")
				for i, p := range s.Phases {
					assert.Equal(t, i < len(s.Phases)-1, p.Whole, "the last one was cut short")
				}
				if c.after > time.Second {
					assert.True(t, noted)
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
		a := s.Account
		assert.True(t, a.Balanced)
		assert.Zero(t, a.Pending)
		assert.Positive(t, a.Abandoned)
		require.NotEmpty(t, s.Phases)
		p := s.Phases[len(s.Phases)-1]
		assert.False(t, p.Whole)
		assert.Equal(t, a.Abandoned, p.Abandoned)
		assert.Equal(t, p.Accepted, p.Completed+p.Abandoned)
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
				begin := time.Now()
				s, err := Run(t.Context(), cfg, never, View{})
				require.NoError(t, err)
				took := time.Since(begin)
				checkAccount(t, s)
				assert.Zero(t, s.Capacity)
				require.Len(t, s.Phases, 1)
				assert.Equal(t, uint64(c.completed), s.Phases[0].Completed)
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
		"all at once": {func(c *Config) { *c = Config{} }, []string{"--capacity", "--concurrency", "--service", "--duration"}},
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
