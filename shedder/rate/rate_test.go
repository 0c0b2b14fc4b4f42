package rate_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/rate"
)

const start = time.Hour

func policy(t testing.TB, c rate.Config) *rate.Policy {
	t.Helper()
	p, err := rate.New(c)
	require.NoError(t, err)
	return p
}

// admitted asks n times at one moment and returns how many got in.
func admitted(p *rate.Policy, n int, r shedder.Request) int {
	in := 0
	for range n {
		if v := p.Admit(&r); v.Action == shedder.Admit {
			in++
		}
	}
	return in
}

func TestZeroConfigLimitsNothing(t *testing.T) {
	p := policy(t, rate.Config{})
	assert.Equal(t, 100_000, admitted(p, 100_000, shedder.Request{Now: start, Key: "k", Sender: "s"}))
	assert.Equal(t, rate.Keys{Max: rate.DefaultMaxKeys}, p.Keys())
}

func TestBurstThenRate(t *testing.T) {
	p := policy(t, rate.Config{Rate: 10, Burst: 5})
	r := shedder.Request{Now: start}
	assert.Equal(t, 5, admitted(p, 50, r))
	r.Now += 100 * time.Millisecond
	assert.Equal(t, 1, admitted(p, 50, r))
	r.Now += time.Second
	assert.Equal(t, 5, admitted(p, 50, r), "no more than the burst after a pause")
	r.Now += 99 * time.Millisecond
	assert.Zero(t, admitted(p, 50, r))
}

func TestDefaultBurstIsASecond(t *testing.T) {
	for perSecond, burst := range map[float64]int{0.001: 1, 1: 1, 1.5: 2, 100: 100} {
		assert.Equal(t, burst, admitted(policy(t, rate.Config{Rate: perSecond}), 1000, shedder.Request{Now: start}), "%v", perSecond)
	}
}

func TestRefusalSaysWhy(t *testing.T) {
	p := policy(t, rate.Config{Rate: 4, Burst: 1, By: rate.BySender, EachRate: 2, EachBurst: 1})
	r := shedder.Request{Now: start, Sender: "a"}
	require.Equal(t, shedder.Verdict{}, p.Admit(&r))
	v := p.Admit(&r)
	assert.Equal(t, shedder.Verdict{
		Action: shedder.Refuse, Rule: rate.RuleSender, Reason: reason.Rate, Limit: 2, Value: 2, RetryAfter: 500 * time.Millisecond,
	}, v)
	r.Sender = "b"
	v = p.Admit(&r)
	assert.Equal(t, rate.RuleRate, v.Rule)
	assert.Equal(t, reason.Rate, v.Reason)
	assert.InDelta(t, 4, v.Limit, 0)
	assert.InDelta(t, 2, v.Value, 0, "what a sender's limit refused is not asked of the stage")
	assert.Equal(t, 250*time.Millisecond, v.RetryAfter)

	r.Now += v.RetryAfter
	assert.Equal(t, shedder.Admit, p.Admit(&r).Action, "the refusal by the stage cost the sender nothing, and the time told is enough")
}

// TestRetryAfterIsEnough: whoever comes back when told, alone, gets in.
func TestRetryAfterIsEnough(t *testing.T) {
	for _, perSecond := range []float64{1e-4, 0.3, 1, 7, 333.3, 1e6, rate.MaxRate} {
		p := policy(t, rate.Config{Rate: perSecond, Burst: 1})
		r := shedder.Request{Now: start}
		require.Equal(t, shedder.Admit, p.Admit(&r).Action)
		v := p.Admit(&r)
		require.Equal(t, shedder.Refuse, v.Action)
		require.Positive(t, v.RetryAfter)
		r.Now += v.RetryAfter
		require.Equal(t, shedder.Admit, p.Admit(&r).Action, "%v a second, after %v", perSecond, v.RetryAfter)
	}
}

func TestRetryAfterOfAGlacialRate(t *testing.T) {
	p := policy(t, rate.Config{Rate: 1e-12})
	r := shedder.Request{Now: start}
	require.Equal(t, shedder.Admit, p.Admit(&r).Action)
	require.Equal(t, 365*24*time.Hour, p.Admit(&r).RetryAfter, "so that it can be added to a clock")
}

func TestValueIsTheRateAskedFor(t *testing.T) {
	p := policy(t, rate.Config{Rate: 100, Burst: 10})
	r := shedder.Request{Now: start}
	var last shedder.Verdict
	for range 5000 {
		r.Now += 2 * time.Millisecond
		if v := p.Admit(&r); v.Action == shedder.Refuse {
			last = v
		}
	}
	assert.InDelta(t, 500, last.Value, 5)
}

func TestEachHasItsOwn(t *testing.T) {
	for _, by := range []rate.By{rate.ByKey, rate.BySender} {
		p := policy(t, rate.Config{By: by, EachRate: 1, EachBurst: 3})
		ask := func(name string) int {
			r := shedder.Request{Now: start, Key: name}
			if by == rate.BySender {
				r = shedder.Request{Now: start, Key: "same", Sender: name}
			}
			return admitted(p, 10, r)
		}
		assert.Equal(t, 3, ask("a"), by)
		assert.Equal(t, 3, ask("b"), by)
		assert.Zero(t, ask("a"), by)
		assert.Equal(t, 10, ask(""), "%v: without a name there is no limit for each", by)
		assert.Equal(t, 2, p.Keys().Remembered)
	}
}

func TestUndo(t *testing.T) {
	p := policy(t, rate.Config{Rate: 1, Burst: 3, By: rate.ByKey, EachRate: 1, EachBurst: 2})
	a := shedder.Request{Now: start, Key: "a"}
	for range 100 {
		require.Equal(t, shedder.Admit, p.Admit(&a).Action)
		p.Undo(&a)
	}
	assert.Equal(t, 2, admitted(p, 10, a), "both tokens of the key are there")
	assert.Equal(t, 1, admitted(p, 10, shedder.Request{Now: start, Key: "b"}), "and all three of the stage")

	p = policy(t, rate.Config{Rate: 1, Burst: 2})
	for range 100 {
		p.Undo(&a) // more than was taken
	}
	assert.Equal(t, 2, admitted(p, 10, a), "no more than the burst")
}

func TestUndoOfASharedBucket(t *testing.T) {
	p := policy(t, rate.Config{By: rate.ByKey, EachRate: 1, EachBurst: 1, MaxKeys: 1})
	require.Equal(t, 1, admitted(p, 2, shedder.Request{Now: start, Key: "a"}))
	b := shedder.Request{Now: start, Key: "b"}
	require.Equal(t, shedder.Admit, p.Admit(&b).Action)
	require.Equal(t, rate.RuleOthers, p.Admit(&b).Rule)
	p.Undo(&b)
	require.Equal(t, shedder.Admit, p.Admit(&b).Action)
}

func TestOldestIsForgottenFirst(t *testing.T) {
	p := policy(t, rate.Config{By: rate.ByKey, EachRate: 1, EachBurst: 2, MaxKeys: 2})
	ask := func(at time.Duration, key string) shedder.Action {
		return p.Admit(&shedder.Request{Now: start + at, Key: key}).Action
	}
	require.Equal(t, shedder.Admit, ask(0, "a"))
	require.Equal(t, shedder.Admit, ask(0, "b"))
	// a's burst is whole again after a second, and b was asked for since.
	require.Equal(t, shedder.Admit, ask(time.Second, "b"))
	require.Equal(t, shedder.Admit, ask(time.Second, "c"), "in a's place")
	require.Equal(t, rate.Keys{Remembered: 2, Max: 2}, p.Keys())
	require.Equal(t, shedder.Admit, ask(time.Second, "b"))
	require.Equal(t, shedder.Refuse, ask(time.Second, "b"), "b was not forgotten")
}

// TestNobodyGainsByBeingForgotten: many names in turn, as somebody would who
// knows that the table is bounded, get no more than the rates of the table's
// places and of the one bucket for all others.
func TestNobodyGainsByBeingForgotten(t *testing.T) {
	const places, burst = 8, 5
	p := policy(t, rate.Config{By: rate.ByKey, EachRate: 1, EachBurst: burst, MaxKeys: places})
	in := 0
	r := shedder.Request{Now: start}
	for range 20 {
		for i := range 1000 {
			r.Key = fmt.Sprint("name-", i)
			in += admitted(p, 1, r)
		}
	}
	assert.LessOrEqual(t, in, (places+1)*burst)
	assert.Equal(t, places, p.Keys().Remembered)
	assert.Positive(t, p.Keys().Others)

	r.Now, r.Key = start+burst*time.Second, "honest"
	assert.Equal(t, burst, admitted(p, 100, r), "a place is free again once a burst is whole")
}

func TestMemoryIsBounded(t *testing.T) {
	const keys = 1000
	p := policy(t, rate.Config{By: rate.ByKey, EachRate: rate.MaxRate, MaxKeys: keys})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := shedder.Request{Now: start}
	for i := range 20 * keys {
		r.Now += time.Second
		r.Key = fmt.Sprint("a name of some length, number ", i)
		p.Admit(&r)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	assert.Equal(t, keys, p.Keys().Remembered)
	assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(keys*1000))
	runtime.KeepAlive(p)
}

func TestTune(t *testing.T) {
	p := policy(t, rate.Config{Rate: 1, Burst: 10, By: rate.ByKey, EachRate: 1, EachBurst: 4, MaxKeys: 3})
	r := shedder.Request{Now: start, Key: "a"}
	require.Equal(t, 4, admitted(p, 10, r))
	c := p.Config()
	c.Rate, c.Burst, c.EachRate, c.EachBurst = 100, 8, 10, 2
	require.NoError(t, p.Tune(c))
	require.Equal(t, c, p.Config())
	require.Zero(t, admitted(p, 10, r), "no tokens come from nowhere")
	r.Now += 100 * time.Millisecond
	require.Equal(t, 1, admitted(p, 10, r), "at the new rate from now on")
	r.Key = "b"
	require.Equal(t, 2, admitted(p, 10, r), "a new key has the new burst")

	for _, key := range []string{"c", "d"} {
		r.Key = key
		admitted(p, 1, r)
	}
	require.Equal(t, 3, p.Keys().Remembered)
	c.MaxKeys = 1
	require.NoError(t, p.Tune(c))
	require.Equal(t, 1, p.Keys().Remembered)
	c.By = rate.BySender
	require.NoError(t, p.Tune(c))
	require.Zero(t, p.Keys().Remembered)

	before := p.Config()
	c.Rate = -1
	require.Error(t, p.Tune(c))
	require.Equal(t, before, p.Config(), "a faulty change changes nothing")

	require.NoError(t, p.Tune(rate.Config{}))
	require.Equal(t, 1000, admitted(p, 1000, r), "no limit any more")
}

func TestTuneLowersBurstOfKeyAndStage(t *testing.T) {
	p := policy(t, rate.Config{Rate: 100, Burst: 100})
	require.NoError(t, p.Tune(rate.Config{Rate: 100, Burst: 3}))
	require.Equal(t, 3, admitted(p, 100, shedder.Request{Now: start}))
}

func TestConfigFaults(t *testing.T) {
	for _, c := range []struct {
		config rate.Config
		want   []string
	}{
		{rate.Config{Rate: math.NaN()}, []string{"rate: Rate NaN: must be from 0 to 1e+09"}},
		{rate.Config{Rate: math.Inf(1), Burst: -1, MaxKeys: -5}, []string{"Rate +Inf", "Burst -1", "MaxKeys -5"}},
		{rate.Config{Rate: -0.5}, []string{"Rate -0.5"}},
		{rate.Config{Burst: rate.MaxBurst + 1}, []string{"Burst 1073741825"}},
		{rate.Config{By: 9, EachRate: 1}, []string{"By 9"}},
		{rate.Config{EachRate: 1}, []string{"EachRate 1: must be 0 where By is none"}},
		{rate.Config{By: rate.ByKey}, []string{"EachRate 0: must be above 0 where By is key"}},
		{rate.Config{By: rate.ByKey, EachRate: 1, EachBurst: -1, MaxKeys: rate.MaxMaxKeys + 1}, []string{"EachBurst -1", "MaxKeys 16777217"}},
	} {
		p, err := rate.New(c.config)
		require.Nil(t, p)
		for _, want := range c.want {
			require.ErrorContains(t, err, want)
		}
	}
}

// TestClock: clocks that stand, go back or jump neither refuse for ever nor
// let in more than the bursts and what the forward steps bring.
func TestClock(t *testing.T) {
	p := policy(t, rate.Config{Rate: 10, Burst: 10})
	r := shedder.Request{Now: start}
	require.Equal(t, 10, admitted(p, 20, r))
	r.Now = 0
	require.Zero(t, admitted(p, 20, r), "back by an hour: stands still")
	r.Now += 500 * time.Millisecond
	require.Equal(t, 5, admitted(p, 20, r), "and goes on from there")
	for _, now := range []time.Duration{math.MinInt64, math.MaxInt64, math.MinInt64, -1, 0} {
		r.Now = now
		require.LessOrEqual(t, admitted(p, 100, r), 10)
	}
	for range 10_000 { // further than a Duration can count
		r.Now = math.MinInt64
		p.Admit(&r)
		r.Now = math.MaxInt64
		require.Equal(t, 10, admitted(p, 11, r))
	}
	r.Now = math.MinInt64
	p.Admit(&r)
	r.Now += time.Second
	require.Equal(t, 10, admitted(p, 20, r))
}

// TestInFrontOfAnotherPolicy: within a shedder, who is let in by the rate and
// refused further on, or gives up waiting, costs nothing.
func TestInFrontOfAnotherPolicy(t *testing.T) {
	const burst = 5
	p := policy(t, rate.Config{Rate: 1e-6, Burst: burst, By: rate.BySender, EachRate: 1e-6, EachBurst: burst})
	fixed := &gate{open: true}
	chain, err := shedder.NewChain(p, fixed)
	require.NoError(t, err)
	s, err := shedder.New(shedder.Config{Policy: chain, Concurrency: 1})
	require.NoError(t, err)
	r := shedder.Request{Sender: "ann"}
	held, err := s.AllowRequest(r)
	require.NoError(t, err)

	fixed.open = false
	for range 100 {
		_, err := s.AllowRequest(r)
		var refused *shedder.RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, shedder.RuleFixed, refused.Rule)
	}
	fixed.open = true
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := s.Acquire(ctx, r)
			gone <- err
		}()
		for s.State(s.Now()).Promises.Outstanding < 2 {
			runtime.Gosched()
		}
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
	}
	held.Pass()
	for i := range burst + 1 {
		held, err := s.AllowRequest(r)
		if i < burst-1 {
			require.NoError(t, err, "%d", i)
			held.Pass()
			continue
		}
		var refused *shedder.RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, rate.RuleSender, refused.Rule)
		require.Equal(t, reason.Rate, refused.Reason)
	}
	require.False(t, s.Overloaded(s.Now()), "a rate is no sign of overload")
}

// gate is a policy that is open or not.
type gate struct {
	shedder.Passive

	open bool
}

func (g *gate) Admit(*shedder.Request) shedder.Verdict {
	if g.open {
		return shedder.Verdict{}
	}
	return shedder.Verdict{Action: shedder.Refuse, Rule: shedder.RuleFixed, Reason: reason.Rate}
}

func TestConcurrentTune(t *testing.T) {
	p := policy(t, rate.Config{Rate: 1000, By: rate.ByKey, EachRate: 10, MaxKeys: 10})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 2000 {
			r := shedder.Request{Now: start + time.Duration(i)*time.Millisecond, Key: fmt.Sprint(i % 20)}
			if p.Admit(&r).Action == shedder.Admit {
				p.Undo(&r)
			}
		}
	})
	for i := range 2000 {
		c := rate.Config{Rate: float64(i), By: rate.ByKey, EachRate: float64(i + 1), MaxKeys: 1 + i%20}
		assert.NoError(t, p.Tune(c))
		assert.LessOrEqual(t, p.Keys().Remembered, 1+i%20)
	}
	wg.Wait()
}

func TestState(t *testing.T) {
	p := policy(t, rate.Config{})
	var st shedder.State
	p.Inspect(start, &st)
	assert.Equal(t, shedder.State{Policy: "rate"}, st)
	assert.Zero(t, p.Bound())
	p.Done(&shedder.Done{})
}

func TestByString(t *testing.T) {
	for by, want := range map[rate.By]string{rate.ByNone: "none", rate.ByKey: "key", rate.BySender: "sender", 77: "unknown"} {
		assert.Equal(t, want, by.String())
	}
}

func TestAllocs_Admit(t *testing.T) {
	p := policy(t, rate.Config{Rate: 1, Burst: 10, By: rate.BySender, EachRate: 1, EachBurst: 10, MaxKeys: 10})
	names := []string{"a", "b", "c"}
	r := shedder.Request{Now: start}
	ask := func() {
		r.Now += time.Millisecond
		r.Sender = names[int(r.Now/time.Millisecond)%len(names)]
		if p.Admit(&r).Action == shedder.Admit {
			p.Undo(&r)
		}
		p.Admit(&r) // refused before long
	}
	ask()
	ask()
	ask()
	require.Zero(t, testing.AllocsPerRun(1000, ask))
}

func BenchmarkAdmit(b *testing.B) {
	for name, c := range map[string]rate.Config{
		"stage": {Rate: 1e6, Burst: 1},
		"each":  {Rate: 1e6, Burst: 1, By: rate.ByKey, EachRate: 1e5, MaxKeys: 1000},
	} {
		b.Run(name, func(b *testing.B) {
			p := policy(b, c)
			keys := make([]string, 500)
			for i := range keys {
				keys[i] = fmt.Sprint("key-", i)
			}
			r := shedder.Request{}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Now += 500
				r.Key = keys[i%len(keys)]
				p.Admit(&r)
			}
		})
	}
}
