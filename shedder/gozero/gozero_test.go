package gozero_test

import (
	"math"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/zeromicro/go-zero/core/load"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/gozero"
)

func TestMain(m *testing.M) {
	gozero.Silence()
	os.Exit(m.Run())
}

func policy(t testing.TB, c gozero.Config) *gozero.Policy {
	t.Helper()
	p, err := gozero.New(c)
	require.NoError(t, err)
	return p
}

// bed is a stage of one worker that holds what the policy lets in.
type bed struct {
	p      *gozero.Policy
	origin time.Time
	held   int
}

func (b *bed) now() time.Duration { return time.Since(b.origin) }

func (b *bed) load() shedder.Load {
	busy := min(1, b.held)
	return shedder.Load{Waiting: b.held - busy, Ahead: b.held - busy, Busy: busy, Concurrency: 1}
}

func (b *bed) ask() shedder.Verdict {
	v := b.p.Admit(&shedder.Request{Now: b.now(), Load: b.load()})
	if v.Action == shedder.Admit {
		b.held++
	}
	return v
}

func (b *bed) done(n, failed int) {
	b.held -= n
	b.p.Done(&shedder.Done{Now: b.now(), N: n, Failed: failed, Load: b.load()})
}

// flying is how many go-zero has let in, as a refusal tells.
func (b *bed) flying(t *testing.T) float64 {
	t.Helper()
	v := b.ask()
	require.Equal(t, shedder.Refuse, v.Action)
	return v.Value
}

// overload works for two seconds, one unit a millisecond, and then lets the
// backlog grow until go-zero refuses.
func (b *bed) overload(t *testing.T) {
	t.Helper()
	for range 2000 {
		b.ask()
		time.Sleep(time.Millisecond)
		b.done(1, 0)
	}
	for range 1000 {
		b.ask()
		if b.ask().Action == shedder.Refuse {
			return
		}
		time.Sleep(time.Millisecond)
		b.done(1, 0)
	}
	t.Fatal("go-zero never refuses")
}

func TestRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{p: policy(t, gozero.Config{CPUThreshold: -1}), origin: time.Now()}
		b.overload(t)
		assert.Equal(t, shedder.Verdict{
			Action: shedder.Refuse, Rule: gozero.RuleGoZero, Reason: reason.Shed, Value: float64(b.held), RetryAfter: time.Second,
		}, b.ask())
		b.done(b.held, 0)
		assert.Equal(t, shedder.Admit, b.ask().Action)
	})
}

// TestGate: with go-zero's own threshold, a stage that leaves the processor
// alone is never protected, as it is there. 999 is never reached here.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{p: policy(t, gozero.Config{CPUThreshold: 999}), origin: time.Now()}
		for range 2000 {
			require.Equal(t, shedder.Admit, b.ask().Action)
			require.Equal(t, shedder.Admit, b.ask().Action)
			time.Sleep(time.Millisecond)
			b.done(1, 0)
		}
	})
}

// TestCancelledWorkIsForgotten: what ended without being told of does not count
// for ever.
func TestCancelledWorkIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{p: policy(t, gozero.Config{CPUThreshold: -1}), origin: time.Now()}
		b.overload(t)
		before := b.flying(t)
		require.Greater(t, before, 2.0)
		b.held--
		assert.InDelta(t, before-1, b.flying(t), 0)
		b.held = 0
		for range 50 {
			b.ask()
			b.done(b.held, b.held)
		}
		assert.Equal(t, shedder.Admit, b.ask().Action)
	})
}

func TestUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{p: policy(t, gozero.Config{CPUThreshold: -1}), origin: time.Now()}
		r := &shedder.Request{Load: shedder.Load{Busy: 1, Waiting: 1000, Concurrency: 1}}
		for range 1000 {
			require.Equal(t, shedder.Admit, b.p.Admit(r).Action)
			b.p.Undo(r)
		}
		b.p.Undo(r) // of nothing
		for range 500 {
			require.Equal(t, shedder.Admit, b.ask().Action, "nothing that was taken back counts")
			time.Sleep(time.Millisecond)
			b.done(1, 0)
		}
		b.overload(t)
	})
}

func TestDoneOfNothing(t *testing.T) {
	p := policy(t, gozero.Config{})
	for _, d := range []shedder.Done{{}, {N: 1000}, {N: -1}, {N: math.MaxInt, Failed: -5, Load: shedder.Load{Waiting: math.MaxInt, Busy: math.MaxInt}}} {
		p.Done(&d)
	}
	assert.Equal(t, shedder.Admit, p.Admit(&shedder.Request{}).Action)
	assert.Zero(t, p.Bound())
	var st shedder.State
	p.Inspect(0, &st)
	assert.Equal(t, shedder.State{Policy: "gozero"}, st)
}

// TestQueue: promises are kept in order while the ring grows and turns.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy(t, gozero.Config{})
		held := 0
		for i := range 300 {
			for range i % 7 {
				p.Admit(&shedder.Request{Load: shedder.Load{Waiting: held, Concurrency: 1}})
				held++
			}
			n := min(held, i%5)
			held -= n
			p.Done(&shedder.Done{N: n, Failed: n / 2, Load: shedder.Load{Waiting: held, Concurrency: 1}})
		}
		require.Greater(t, held, 100)
	})
}

func TestConfigFaults(t *testing.T) {
	_, err := gozero.New(gozero.Config{Window: -1, Buckets: -1, CPUThreshold: 1000})
	for _, want := range []string{"Window -1ns", "Buckets -1", "CPUThreshold 1000"} {
		require.ErrorContains(t, err, want)
	}
	_, err = gozero.New(gozero.Config{Window: time.Hour, CPUThreshold: -2})
	require.ErrorContains(t, err, "a bucket must be from 1ms to 1s")
	require.ErrorContains(t, err, "CPUThreshold -2")
}

// refuse is a policy that refuses everything.
type refuse struct{ shedder.Passive }

func (refuse) Admit(*shedder.Request) shedder.Verdict {
	return shedder.Verdict{Action: shedder.Refuse, Rule: shedder.RuleBound, Limit: 3, Value: 4, RetryAfter: time.Second}
}

func TestWrap(t *testing.T) {
	s, err := shedder.New(shedder.Config{Concurrency: 2})
	require.NoError(t, err)
	w, err := gozero.Wrap(s)
	require.NoError(t, err)
	for _, end := range []func(load.Promise){load.Promise.Pass, load.Promise.Fail} {
		p, err := w.Allow()
		require.NoError(t, err)
		require.Equal(t, 1, s.State(s.Now()).Promises.Outstanding)
		end(p)
		require.Zero(t, s.State(s.Now()).Promises.Outstanding)
	}

	require.NoError(t, s.Tune(func(c *shedder.Config) { c.Policy = refuse{} }))
	for range 3 {
		p, err := w.Allow()
		require.Nil(t, p)
		require.ErrorIs(t, err, load.ErrServiceOverloaded)
		require.ErrorIs(t, err, shedder.ErrShed)
		require.NotErrorIs(t, err, shedder.ErrDeadline)
		var refused *shedder.RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, time.Second, refused.RetryAfter)
	}

	require.NoError(t, s.Tune(func(c *shedder.Config) { c.Concurrency = 0 }))
	p, err := w.Allow()
	require.NoError(t, err, "a shedder that cannot decide lets work in")
	p.Pass()
	_, err = gozero.Wrap(s)
	require.ErrorContains(t, err, "Concurrency of 0")
	_, err = gozero.Wrap(nil)
	require.ErrorContains(t, err, "Shedder is nil")
}

func TestAllocs_WrappedRefusal(t *testing.T) {
	s, err := shedder.New(shedder.Config{Policy: refuse{}, Concurrency: 1})
	require.NoError(t, err)
	w, err := gozero.Wrap(s)
	require.NoError(t, err)
	// A new error at most every 10 ms.
	require.Less(t, testing.AllocsPerRun(1000, func() { _, _ = w.Allow() }), 1.0)
}

func BenchmarkAllow(b *testing.B) {
	s, err := shedder.New(shedder.Config{Concurrency: 4})
	require.NoError(b, err)
	ours, err := gozero.Wrap(s)
	require.NoError(b, err)
	for name, w := range map[string]load.Shedder{"ours": ours, "go-zero": load.NewAdaptiveShedder()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if p, err := w.Allow(); err == nil {
					p.Pass()
				}
			}
		})
	}
}
