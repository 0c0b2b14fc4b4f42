package shedder_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

const milli = time.Millisecond

func TestNewReturnsAllFaultsAtOnce(t *testing.T) {
	_, err := shedder.New(shedder.Config{
		Name: "a b", Mode: 9, Concurrency: -1, Adaptive: shedder.AdaptiveConfig{FloorJobs: -1},
		Guards: shedder.Guards{
			FloorInFlight: -1, FloorRate: math.NaN(), MaxTarget: -1, MaxShare: 1.5, Baseline: -1, Exempt: []int{0, 8},
		},
	})
	require.ErrorIs(t, err, shedder.ErrInvalid)
	for _, field := range []string{
		"Name", "Mode is 9", "Concurrency is -1: 0 to 1048576", "FloorInFlight is -1", "FloorRate is NaN", "MaxTarget",
		"MaxShare is 1.5: a part from 0 to 1", "Baseline", "FloorJobs", "Exempt[1] is 8: a class from 0 to 7",
	} {
		require.ErrorContains(t, err, field)
	}
}

func TestAttachOnce(t *testing.T) {
	s := newShedder(t, shedder.Config{Concurrency: 1})
	require.NoError(t, s.Attach())
	require.ErrorIs(t, s.Attach(), shedder.ErrAttached)
	_, err := s.Allow()
	require.ErrorIs(t, err, shedder.ErrAttached)
}

func TestModes(t *testing.T) {
	for _, c := range []struct {
		name           string
		mode           shedder.Mode
		kill           bool
		action         shedder.Action
		asked          int
		shed, admitted uint64
	}{
		{"on", shedder.On, false, shedder.Refuse, 1, 1, 0},
		{"observe", shedder.Observe, false, shedder.Admit, 1, 1, 0},
		{"off", shedder.Off, false, shedder.Admit, 0, 0, 1},
		{"killed", shedder.On, true, shedder.Admit, 0, 0, 1},
		{"observe killed", shedder.Observe, true, shedder.Admit, 0, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := refusing()
			p.bound = 7
			s := newShedder(t, shedder.Config{Policy: p, Mode: c.mode})
			s.Kill(c.kill)
			r := &shedder.Request{Now: 5 * ms}
			v := s.Decide(r)
			require.Equal(t, c.action, v.Action)
			s.Undo(r)
			require.Zero(t, p.undone, "what the policy did not admit is not taken back")
			s.Done(&shedder.Done{Now: 6 * ms, N: 1, Service: 5 * ms, Shortest: 5 * ms, Longest: 5 * ms})
			require.Len(t, p.told, 1, "it learns whatever the mode")

			st := s.State(6 * ms)
			requireAccount(t, st)
			require.Equal(t, c.asked, p.asked)
			require.Equal(t, c.shed, st.Shed)
			require.Equal(t, c.admitted, st.Admitted)
			require.Equal(t, c.mode, st.Mode)
			require.Equal(t, c.kill, st.Killed)
			if c.asked > 0 {
				require.Equal(t, shedder.RuleBound, v.Rule)
				require.Equal(t, reason.Shed, v.Reason)
				require.Equal(t, 5*milli, st.At)
				require.Equal(t, 11.0, st.Last.Value)
			}
			real := c.action == shedder.Refuse
			require.Equal(t, real, s.Bound() == 7)
			require.Equal(t, real, s.Overloaded(6*milli))
			require.Equal(t, real, s.Doomed(0, 4*milli), "a prediction drops only while shedding is on")
			require.True(t, s.Doomed(5*milli, 4*milli), "what has passed has passed")
			require.False(t, s.Doomed(0, 5*milli))
			require.False(t, s.Doomed(math.MaxInt64, 0), "0 is no deadline")
		})
	}
}

func TestPanickingPolicyAdmitsAndIsCounted(t *testing.T) {
	p := &script{
		admit: func(*shedder.Request) shedder.Verdict { panic("admit broke") },
		done:  func(*shedder.Done) { panic("done broke") },
		undo:  func(*shedder.Request) { panic("undo broke") },
	}
	s := newShedder(t, shedder.Config{Policy: p, Concurrency: 1})
	r := &shedder.Request{}
	v := s.Decide(r)
	require.Equal(t, shedder.Admit, v.Action)
	require.Equal(t, shedder.RulePanic, v.Rule)
	s.Undo(r)
	require.Zero(t, p.undone, "the policy did not admit it")
	s.Done(&shedder.Done{N: 1})
	st := s.State(0)
	require.EqualValues(t, 2, st.Panics)
	require.Equal(t, "done broke", st.LastPanic)

	promise, err := s.Allow()
	require.NoError(t, err)
	promise.Pass()
	st = s.State(s.Now())
	require.EqualValues(t, 4, st.Panics)
	require.Zero(t, st.Promises.Outstanding)
	requireAccount(t, st)

	p.admit = nil
	s.Decide(r)
	s.Undo(r)
	require.EqualValues(t, 5, s.State(0).Panics)
}

func TestTheDefaultPolicyIsAdaptiveAndIsTunedLive(t *testing.T) {
	s := newShedder(t, shedder.Config{})
	now := time.Duration(0)
	for range 100 {
		now += milli
		s.Decide(&shedder.Request{Now: now, Load: shedder.Load{Busy: 1, Concurrency: 1}})
		s.Done(&shedder.Done{Now: now, N: 1, Service: milli, Shortest: milli, Longest: milli, Load: shedder.Load{Concurrency: 1}})
	}
	before := s.State(now)
	require.Equal(t, "adaptive", before.Policy)
	require.True(t, before.Warm)
	require.InDelta(t, float64(milli), float64(before.Service), 1000)

	require.NoError(t, s.Tune(func(c *shedder.Config) {
		require.Nil(t, c.Policy)
		c.Adaptive.TargetFactor = 500
		c.Name = "other"
	}))
	after := s.State(now)
	require.Equal(t, before.Service, after.Service, "what was measured is kept")
	require.Greater(t, after.Target, before.Target)
	require.Equal(t, 500.0, s.Config().Adaptive.TargetFactor)
}

func TestTuneIsAllOrNothing(t *testing.T) {
	s := newShedder(t, shedder.Config{Name: "a", Concurrency: 3, Guards: shedder.Guards{Exempt: []int{1}}})
	before := s.Config()
	err := s.Tune(func(c *shedder.Config) {
		c.Mode = shedder.Off
		c.Concurrency = -1
		c.Adaptive.FloorJobs = -1
		c.Guards.Exempt[0] = 2
	})
	require.ErrorIs(t, err, shedder.ErrInvalid)
	require.ErrorContains(t, err, "Concurrency")
	require.ErrorContains(t, err, "FloorJobs")
	require.Equal(t, before, s.Config())
	require.ErrorIs(t, s.Tune(nil), shedder.ErrInvalid)

	var kept []int
	require.NoError(t, s.Tune(func(c *shedder.Config) {
		c.Mode = shedder.Observe
		kept = []int{3}
		c.Guards.Exempt = kept
		require.Equal(t, "a", s.Config().Name, "change may call the shedder")
	}))
	kept[0] = 9
	require.Equal(t, []int{3}, s.Config().Guards.Exempt)
	require.Equal(t, shedder.Observe, s.State(0).Mode)

	panicked := func() { _ = s.Tune(func(*shedder.Config) { panic("x") }) }
	require.Panics(t, panicked)
	require.NoError(t, s.Tune(func(*shedder.Config) {}), "a change that panics leaves no lock")

	p := &script{}
	require.NoError(t, s.Tune(func(c *shedder.Config) { c.Policy = p }))
	s.Decide(&shedder.Request{})
	require.Equal(t, 1, p.asked)
	require.NoError(t, s.Tune(func(c *shedder.Config) { c.Policy = nil }))
	require.Equal(t, "adaptive", s.State(0).Policy)
}
