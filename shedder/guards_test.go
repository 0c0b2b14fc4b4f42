package shedder_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

func guarded(t *testing.T, g shedder.Guards) *shedder.Shedder {
	t.Helper()
	return newShedder(t, shedder.Config{Policy: refusing(), Guards: g})
}

func TestGuardExempt(t *testing.T) {
	s := guarded(t, shedder.Guards{Exempt: []int{0, 2}})
	for class, want := range []shedder.Rule{shedder.RuleExempt, shedder.RuleBound, shedder.RuleExempt, shedder.RuleBound} {
		v := s.Decide(&shedder.Request{Class: class, Classes: 4})
		require.Equal(t, want, v.Rule)
		require.Equal(t, want == shedder.RuleBound, v.Action == shedder.Refuse)
		if want == shedder.RuleExempt {
			require.Equal(t, reason.None, v.Reason)
			require.Equal(t, 10.0, v.Limit, "the figures are those that the policy refused with")
		}
	}
	for _, class := range []int{-1, 8, math.MaxInt} {
		require.Equal(t, shedder.Refuse, s.Decide(&shedder.Request{Class: class}).Action)
	}
	st := s.State(0)
	require.EqualValues(t, 2, st.Rails)
	requireAccount(t, st)
}

func TestGuardFloorInFlight(t *testing.T) {
	s := guarded(t, shedder.Guards{FloorInFlight: 10})
	decide := func(waiting, busy int) shedder.Verdict {
		return s.Decide(&shedder.Request{Load: shedder.Load{Waiting: waiting, Busy: busy}})
	}
	require.Equal(t, shedder.RuleFloor, decide(5, 4).Rule)
	require.Equal(t, shedder.Refuse, decide(6, 4).Action)
	require.Equal(t, shedder.RuleBound, decide(6, 4).Rule)
}

func TestGuardFloorRate(t *testing.T) {
	for _, c := range []struct{ rate, offered float64 }{{100, 1000}, {2, 50}, {0.5, 20}, {100, 50}, {5000, 20000}} {
		s := guarded(t, shedder.Guards{FloorRate: c.rate})
		const seconds = 20
		admitted, n := 0, int(c.offered*seconds)
		for i := range n {
			now := time.Duration(float64(i) / c.offered * float64(time.Second))
			v := s.Decide(&shedder.Request{Now: now})
			if v.Action == shedder.Admit {
				require.Equal(t, shedder.RuleFloor, v.Rule)
				admitted++
			}
		}
		want := min(c.rate, c.offered) * seconds
		require.InDelta(t, want, admitted, max(2, want/50), "rate %v", c.rate)
	}
}

// What the policy admits counts for the floor as well.
func TestGuardFloorRateCountsAllAdmissions(t *testing.T) {
	p := &script{}
	s := newShedder(t, shedder.Config{Policy: p, Guards: shedder.Guards{FloorRate: 100}})
	for i := range 1000 {
		p.admit = nil
		r := &shedder.Request{Now: time.Duration(i) * milli}
		s.Decide(r)
		p.admit = refuse
		v := s.Decide(r)
		if i > 20 {
			require.Equal(t, shedder.Refuse, v.Action, "1000 a second are admitted: more than the floor")
		}
	}
}

func TestGuardFloorRateAndAClockThatJumps(t *testing.T) {
	s := guarded(t, shedder.Guards{FloorRate: 10})
	for _, now := range []time.Duration{0, 1 << 62, -1 << 62, -1 << 63, 1<<63 - 1, 0} {
		for range 10 {
			s.Decide(&shedder.Request{Now: now})
		}
	}
	requireAccount(t, s.State(0))
	require.Equal(t, shedder.Refuse, s.Decide(&shedder.Request{}).Action)
	require.Equal(t, shedder.RuleFloor, s.Decide(&shedder.Request{Now: 200 * milli}).Rule, "it goes on after the jumps")
}

func TestGuardMaxShare(t *testing.T) {
	for _, share := range []float64{0.01, 0.3, 0.999, 1} {
		s := guarded(t, shedder.Guards{MaxShare: share})
		shed, run := 0, 0
		for i := range 10_000 {
			v := s.Decide(&shedder.Request{})
			if v.Action == shedder.Refuse {
				shed++
			} else {
				require.Equal(t, shedder.RuleShare, v.Rule)
			}
			require.LessOrEqual(t, float64(shed), share*float64(i+1)+1e-6)
		}
		require.InDelta(t, share*10_000, shed, 2)

		// After a quiet time a burst may be shed, but not for long.
		p := &script{}
		require.NoError(t, s.Tune(func(c *shedder.Config) { c.Policy = p }))
		for range 100_000 {
			s.Decide(&shedder.Request{})
		}
		p.admit = refuse
		for n := 1; n <= 1000; n++ {
			if s.Decide(&shedder.Request{}).Action == shedder.Refuse {
				run++
			}
			require.LessOrEqual(t, float64(run), share*float64(n+100)+1+1e-6, "of %d", n)
		}
	}
}

func TestGuardsReachThePolicyAndAreTunedLive(t *testing.T) {
	var seen shedder.Guards
	p := &script{
		admit: func(r *shedder.Request) shedder.Verdict { seen = *r.Guards; return refuse(r) },
		done:  func(d *shedder.Done) { seen = *d.Guards },
	}
	s := newShedder(t, shedder.Config{Policy: p, Guards: shedder.Guards{MaxTarget: 5 * milli}})
	s.Decide(&shedder.Request{})
	require.Equal(t, 5*milli, seen.MaxTarget)
	require.NoError(t, s.Tune(func(c *shedder.Config) { c.Guards = shedder.Guards{Baseline: milli, Exempt: []int{0}} }))
	s.Done(&shedder.Done{N: 1})
	require.Equal(t, shedder.Guards{Baseline: milli, Exempt: []int{0}}, seen)
	require.Equal(t, shedder.RuleExempt, s.Decide(&shedder.Request{}).Rule)
	require.NoError(t, s.Tune(func(c *shedder.Config) { c.Guards = shedder.Guards{} }))
	require.Equal(t, shedder.Refuse, s.Decide(&shedder.Request{}).Action)
}

// The rails of the adaptive law name themselves.
func TestGuardMaxTargetOfTheAdaptiveLaw(t *testing.T) {
	s := newShedder(t, shedder.Config{})
	warm(s)
	r := &shedder.Request{Now: 200 * milli, Load: shedder.Load{Waiting: 3, Ahead: 3, Busy: 4, Concurrency: 4}}
	require.Equal(t, shedder.Admit, s.Decide(r).Action)
	require.NoError(t, s.Tune(func(c *shedder.Config) { c.Guards.MaxTarget = milli / 2 }))
	v := s.Decide(r)
	require.Equal(t, shedder.Refuse, v.Action)
	require.Equal(t, shedder.RuleTarget, v.Rule)
}
