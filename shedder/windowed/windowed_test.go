package windowed_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/windowed"
)

func policy(t testing.TB, c windowed.Config) *windowed.Policy {
	t.Helper()
	p, err := windowed.New(c)
	require.NoError(t, err)
	return p
}

// rig drives a policy in a bubble, with the times of the bubble.
type rig struct {
	t      *testing.T
	p      *windowed.Policy
	origin time.Time
	load   shedder.Load
	guards shedder.Guards
}

// in runs a case in a bubble of its own.
func in(t *testing.T, c windowed.Config, workers int, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(&rig{t: t, p: policy(t, c), origin: time.Now(), load: shedder.Load{Concurrency: workers}})
	})
}

func (r *rig) now() time.Duration { return time.Since(r.origin) + time.Hour }

// done tells of n completions every so often for so long.
func (r *rig) done(n int, service, every, during time.Duration) {
	r.t.Helper()
	for end := r.now() + during; r.now() < end; {
		time.Sleep(every)
		r.p.Done(&shedder.Done{
			Now: r.now(), N: n, Service: time.Duration(n) * service, Shortest: service, Longest: service,
			Guards: &r.guards, Load: r.load,
		})
	}
}

// ask asks with all workers busy and so many waiting.
func (r *rig) ask(waiting int) shedder.Verdict {
	q := shedder.Request{Now: r.now(), Guards: &r.guards, Load: r.load}
	q.Busy, q.Waiting, q.Ahead = r.load.Concurrency, waiting, waiting
	return r.p.Admit(&q)
}

// limit is how many can wait before one is refused.
func (r *rig) limit() int {
	r.t.Helper()
	for waiting := range 100_000 {
		if r.ask(waiting).Action == shedder.Refuse {
			return waiting
		}
	}
	r.t.Fatal("no limit")
	return 0
}

// saturate is four workers that are always busy for 10 ms each.
func (r *rig) saturate() { r.done(1, 10*time.Millisecond, 2500*time.Microsecond, time.Second) }

func TestRule(t *testing.T) {
	in(t, windowed.Config{}, 4, func(r *rig) {
		r.saturate()
		assert.Equal(t, 48, r.limit(), "12 service times' worth")
		v := r.ask(48)
		assert.Equal(t, shedder.Verdict{
			Action: shedder.Refuse, Rule: windowed.RuleWindow, Reason: reason.Shed, Limit: 52, Value: 52,
			Wait: 122_500 * time.Microsecond, Service: 10 * time.Millisecond, RetryAfter: 2500 * time.Microsecond,
		}, v)
		assert.Equal(t, 48, r.p.Bound())
		var st shedder.State
		r.p.Inspect(r.now(), &st)
		assert.Equal(t, "windowed", st.Policy)
		assert.True(t, st.Warm)
		assert.InEpsilon(t, 400, st.DrainRate, 0.05)
		assert.Equal(t, 10*time.Millisecond, st.Service)
		assert.Equal(t, 48, st.Bound)
		assert.Equal(t, 120*time.Millisecond, st.Target)
	})
	in(t, windowed.Config{Factor: 3, Slack: 10, MaxWait: 1000}, 4, func(r *rig) {
		r.saturate()
		assert.Equal(t, 18, r.limit(), "two more times the product of 4, and the slack")
	})
	in(t, windowed.Config{Factor: 3, Slack: 10, MaxWait: 1000}, 1000, func(r *rig) {
		r.done(1, 10*time.Millisecond, 2500*time.Microsecond, 10*time.Second)
		assert.Equal(t, 10, r.limit(), "work that only uses 4 of 1000 workers; those free are never kept from work")
	})
}

// TestFineTimes: service times far below a millisecond count as what they are.
// In go-zero's form, a handler of 20 µs counts as one of 1 ms.
func TestFineTimes(t *testing.T) {
	in(t, windowed.Config{Factor: 3, Slack: 1, MaxWait: 1000}, 1000, func(r *rig) {
		r.done(50, 20*time.Microsecond, time.Millisecond, 10*time.Second)
		var st shedder.State
		r.p.Inspect(r.now(), &st)
		require.Equal(t, 20*time.Microsecond, st.Service)
		require.Equal(t, 1, r.limit(), "one worker does it all: 3 times that is far below 1000")
	})
}

func TestColdDecidesNothing(t *testing.T) {
	in(t, windowed.Config{}, 4, func(r *rig) {
		assert.Equal(t, shedder.Verdict{}, r.ask(100_000))
		r.done(1, time.Millisecond, time.Millisecond, 11*time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		assert.Equal(t, shedder.Verdict{}, r.ask(100_000), "11 completions, where 4 workers need 12")
		assert.Zero(t, r.p.Bound())
		var st shedder.State
		r.p.Inspect(r.now(), &st)
		assert.Equal(t, shedder.State{Policy: "windowed"}, st)
		r.done(1, time.Millisecond, time.Millisecond, time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		assert.Equal(t, shedder.Refuse, r.ask(100_000).Action)
	})
	in(t, windowed.Config{Samples: 3}, 4, func(r *rig) {
		r.done(1, time.Millisecond, time.Millisecond, 3*time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		assert.Equal(t, shedder.Refuse, r.ask(100_000).Action)
	})
}

// TestFreeWorkerIsNeverIdle: whatever was measured, work gets to a free worker.
func TestFreeWorkerIsNeverIdle(t *testing.T) {
	in(t, windowed.Config{Slack: 1, MaxWait: 0.001}, 16, func(r *rig) {
		r.done(1, time.Nanosecond, time.Millisecond, time.Second)
		for busy := range 16 {
			q := shedder.Request{Now: r.now(), Guards: &r.guards, Load: r.load}
			q.Busy = busy
			require.Equal(t, shedder.Admit, r.p.Admit(&q).Action)
		}
		require.Equal(t, 1, r.limit(), "and one may wait")
	})
}

// TestTrickle: bursts of 20 on a stage that gets a few units a second.
func TestTrickle(t *testing.T) {
	in(t, windowed.Config{}, 4, func(r *rig) {
		for range 100 {
			r.done(1, time.Millisecond, 300*time.Millisecond, 3*time.Second)
			for i := range 20 {
				require.NotEqual(t, shedder.Refuse, r.ask(i).Action)
			}
		}
	})
}

// TestSameMoments: one very quick completion in a lull, as of a health check,
// does not set the service time; nor does a burst of completions raise what is
// allowed beyond what the workers can do.
func TestSameMoments(t *testing.T) {
	in(t, windowed.Config{}, 4, func(r *rig) {
		r.saturate()
		r.done(1, 100*time.Nanosecond, 250*time.Millisecond, 500*time.Millisecond)
		require.Equal(t, 10*time.Millisecond, r.ask(0).Service)
		r.saturate()
		before := r.limit()
		r.done(100, 10*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond)
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, before, r.limit())
	})
}

// TestSlowerService: when service takes three times as long, the window's lower
// figure goes after its length, and the limit in jobs stays.
func TestSlowerService(t *testing.T) {
	in(t, windowed.Config{Window: time.Second}, 4, func(r *rig) {
		r.saturate()
		require.Equal(t, 48, r.limit())
		r.done(1, 30*time.Millisecond, 7500*time.Microsecond, 1200*time.Millisecond)
		require.Equal(t, 30*time.Millisecond, r.ask(0).Service)
		require.Equal(t, 48, r.limit())
	})
}

// TestRecoversByItself: a limit is reached, the backlog goes, and the next is
// let in at once: nothing latches.
func TestRecoversByItself(t *testing.T) {
	in(t, windowed.Config{}, 4, func(r *rig) {
		r.saturate()
		for range 10_000 {
			require.Equal(t, shedder.Refuse, r.ask(60).Action)
		}
		require.Equal(t, shedder.Admit, r.ask(0).Action)
	})
}

// TestAllFail: work that only fails is measured as any other.
func TestAllFail(t *testing.T) {
	in(t, windowed.Config{}, 4, func(r *rig) {
		for range 400 {
			time.Sleep(2500 * time.Microsecond)
			r.p.Done(&shedder.Done{Now: r.now(), N: 1, Failed: 1, Service: 10 * time.Millisecond, Load: r.load})
		}
		require.Equal(t, 48, r.limit())
	})
}

// TestStuck: when nothing ends any more, what is known still bounds the queue
// after the window has run empty; idle, it is forgotten.
func TestStuck(t *testing.T) {
	in(t, windowed.Config{}, 4, func(r *rig) {
		r.saturate()
		for range 60 {
			time.Sleep(time.Second)
			require.Equal(t, 48, r.limit())
		}
		q := shedder.Request{Now: r.now(), Load: r.load}
		time.Sleep(time.Second)
		q.Now = r.now()
		require.Equal(t, shedder.Verdict{}, r.p.Admit(&q))
		require.Equal(t, shedder.Verdict{}, r.ask(100_000), "cold again")
	})
}

func TestGate(t *testing.T) {
	open := false
	in(t, windowed.Config{Gate: func(time.Duration) bool { return open }}, 4, func(r *rig) {
		r.saturate()
		require.Equal(t, shedder.Admit, r.ask(1000).Action)
		require.Zero(t, r.p.Bound())
		open = true
		require.Equal(t, shedder.Refuse, r.ask(1000).Action)
	})
}

func TestGuards(t *testing.T) {
	in(t, windowed.Config{}, 4, func(r *rig) {
		r.saturate()
		r.guards.MaxTarget = 25 * time.Millisecond
		require.Equal(t, 10, r.limit())
		require.Equal(t, shedder.RuleTarget, r.ask(10).Rule)
		require.Equal(t, 10, r.p.Bound())
		r.guards.MaxTarget = 1
		require.Equal(t, 1, r.limit())
		r.guards.MaxTarget = time.Hour
		require.Equal(t, 48, r.limit())
		require.Equal(t, windowed.RuleWindow, r.ask(48).Rule)

		r.guards = shedder.Guards{Baseline: 5 * time.Millisecond, MaxTarget: 25 * time.Millisecond}
		require.Equal(t, 20, r.limit())
		require.Equal(t, shedder.RuleTarget, r.ask(20).Rule)
		r.guards.MaxTarget = 0
		v := r.ask(1000)
		require.Equal(t, shedder.RuleBaseline, v.Rule)
		require.Equal(t, 5*time.Millisecond, v.Service)
	})
}

func TestClasses(t *testing.T) {
	in(t, windowed.Config{}, 4, func(r *rig) {
		r.saturate()
		ask := func(ahead, evictable int) shedder.Verdict {
			q := shedder.Request{Now: r.now(), Classes: 2, Load: r.load}
			q.Busy, q.Waiting, q.Ahead, q.Evictable = 4, 48, ahead, evictable
			return r.p.Admit(&q)
		}
		v := ask(10, 38)
		require.Equal(t, shedder.PushOut, v.Action)
		require.Equal(t, windowed.RuleWindow, v.Rule)
		require.Equal(t, shedder.Refuse, ask(48, 0).Action)
		require.Equal(t, shedder.Refuse, ask(48, 1).Action, "to push out what is behind would not help")
	})
}

// TestInbound: what others have accepted for this stage counts as in flight.
func TestInbound(t *testing.T) {
	in(t, windowed.Config{}, 4, func(r *rig) {
		r.saturate()
		r.load.Inbound = 40
		require.Equal(t, 8, r.limit())
	})
}

// TestClock: a policy's clock that stands, jumps or goes back, and a window's
// clock that stands, never give a limit that keeps a free worker idle, and the
// limit is back once both clocks go on.
func TestClock(t *testing.T) {
	in(t, windowed.Config{}, 4, func(r *rig) {
		tell := func(now time.Duration) {
			r.p.Done(&shedder.Done{Now: now, N: 4, Service: 40 * time.Millisecond, Load: r.load})
		}
		for _, now := range []time.Duration{0, math.MaxInt64, math.MinInt64, -1, 1, math.MaxInt64 - 1} {
			for range 10 {
				tell(now)
			}
			for _, at := range []time.Duration{0, math.MaxInt64, math.MinInt64, now} {
				q := shedder.Request{Now: at, Load: r.load}
				q.Busy = 3
				require.Equal(t, shedder.Admit, r.p.Admit(&q).Action)
				q.Busy, q.Waiting, q.Ahead = 4, math.MaxInt32, math.MaxInt32
				v := r.p.Admit(&q)
				require.GreaterOrEqual(t, v.Wait, time.Duration(0))
				require.GreaterOrEqual(t, v.RetryAfter, time.Duration(0))
			}
		}
		time.Sleep(10 * time.Second)
		r.saturate()
		require.Equal(t, 48, r.limit())
	})
	// A bucket that is out of date by the policy's clock does not count, though
	// the window has it.
	in(t, windowed.Config{}, 4, func(r *rig) {
		r.saturate()
		q := shedder.Request{Now: r.now() + time.Minute, Load: r.load}
		q.Waiting, q.Ahead = 1000, 1000
		require.Equal(t, shedder.Refuse, r.p.Admit(&q).Action, "work that waits: what was known still holds")
		q.Now, q.Waiting, q.Ahead = q.Now+time.Minute, 0, 0
		r.p.Admit(&q)
		require.Zero(t, r.p.Bound(), "idle: it is forgotten")
	})
	// The policy's clock goes on while the window's stands, as in a simulation
	// without a bubble: all is in one bucket, whose rate stays right.
	in(t, windowed.Config{}, 1000, func(r *rig) {
		for i := range 4000 {
			r.p.Done(&shedder.Done{Now: time.Duration(i) * 2500 * time.Microsecond, N: 1, Service: 10 * time.Millisecond, Load: r.load})
		}
		var st shedder.State
		r.p.Inspect(10*time.Second, &st)
		require.InEpsilon(t, 400, st.DrainRate, 0.1)
		require.Equal(t, 10*time.Millisecond, st.Service)
	})
}

func TestBadNumbers(t *testing.T) {
	in(t, windowed.Config{}, 0, func(r *rig) {
		for _, d := range []shedder.Done{
			{},
			{N: -1, Service: -1},
			{N: math.MaxInt, Service: math.MinInt64},
			{N: 1, Service: math.MaxInt64},
			{N: 100, Load: shedder.Load{Waiting: math.MaxInt, Busy: math.MinInt, Concurrency: -5}},
		} {
			d.Now = r.now()
			r.p.Done(&d)
			time.Sleep(time.Second)
		}
		for _, l := range []shedder.Load{
			{},
			{Busy: math.MinInt, Ahead: math.MinInt, Waiting: math.MinInt, Inbound: math.MinInt, Concurrency: math.MinInt},
			{Busy: 1 << 30, Ahead: 1 << 30, Waiting: 1 << 30, Evictable: 1 << 30, Inbound: 1 << 30, Concurrency: 1 << 30},
		} {
			v := r.p.Admit(&shedder.Request{Now: r.now(), Load: l})
			assert.GreaterOrEqual(t, v.Wait, time.Duration(0))
			assert.False(t, math.IsNaN(v.Limit) || math.IsNaN(v.Value))
			assert.GreaterOrEqual(t, r.p.Bound(), 0)
		}
		r.p.Undo(&shedder.Request{})
	})
}

func TestConfigFaults(t *testing.T) {
	d, err := windowed.New(windowed.Config{})
	require.NoError(t, err)
	c := d.Config()
	require.Equal(t, windowed.DefaultWindow, c.Window)
	require.Equal(t, windowed.DefaultBuckets, c.Buckets)
	_, err = windowed.New(windowed.Config{
		Window: -1, Buckets: -1, Factor: 0.5, Slack: -1, MaxWait: math.NaN(), Samples: -1,
	})
	for _, want := range []string{"Window -1ns", "Buckets -1", "Factor 0.5", "Slack -1", "MaxWait NaN", "Samples -1"} {
		require.ErrorContains(t, err, want)
	}
	_, err = windowed.New(windowed.Config{Window: 10 * time.Millisecond})
	require.ErrorContains(t, err, "a bucket must be 1ms or more")
	_, err = windowed.New(windowed.Config{Factor: math.Inf(1), MaxWait: math.Inf(1)})
	require.ErrorContains(t, err, "Factor +Inf")
	require.ErrorContains(t, err, "MaxWait +Inf")
}

func TestAllocs_AdmitAndDone(t *testing.T) {
	p := policy(t, windowed.Config{Window: 20 * time.Millisecond, Buckets: 2})
	r := shedder.Request{Load: shedder.Load{Busy: 1, Concurrency: 1}}
	d := shedder.Done{N: 1, Service: time.Millisecond, Load: r.Load}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		r.Now += time.Millisecond
		r.Waiting, r.Ahead = r.Waiting+1, r.Ahead+1
		p.Admit(&r)
		d.Now = r.Now
		p.Done(&d)
	}))
}

func BenchmarkPolicy(b *testing.B) {
	for name, waiting := range map[string]int{"admit": 0, "refuse": 1000} {
		b.Run(name, func(b *testing.B) {
			p := policy(b, windowed.Config{})
			load := shedder.Load{Busy: 4, Concurrency: 4}
			now := time.Duration(0)
			for range 4000 {
				now += time.Millisecond
				p.Done(&shedder.Done{Now: now, N: 1, Service: time.Millisecond, Load: load})
			}
			r := shedder.Request{Now: now, Load: load}
			r.Waiting, r.Ahead = waiting, waiting
			b.ReportAllocs()
			for b.Loop() {
				r.Now += 100
				p.Admit(&r)
			}
		})
	}
	b.Run("done", func(b *testing.B) {
		p := policy(b, windowed.Config{})
		d := shedder.Done{N: 1, Service: time.Millisecond, Load: shedder.Load{Busy: 4, Concurrency: 4}}
		b.ReportAllocs()
		for b.Loop() {
			d.Now += 100
			p.Done(&d)
		}
	})
}
