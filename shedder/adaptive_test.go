package shedder_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

const ms = time.Millisecond

func newAdaptive(t testing.TB, c shedder.AdaptiveConfig) *shedder.Adaptive {
	t.Helper()
	a, err := shedder.NewAdaptive(c)
	require.NoError(t, err)
	return a
}

// warmed returns an Adaptive that has seen n units of the given service time
// end, one every service/workers, with nothing waiting; the time is after that.
func warmed(t testing.TB, workers int, service time.Duration, n int) (*shedder.Adaptive, time.Duration) {
	t.Helper()
	a := newAdaptive(t, shedder.AdaptiveConfig{})
	now := time.Duration(0)
	for range n {
		now += max(service/time.Duration(workers), 1)
		a.Done(done(now, service, shedder.Load{Concurrency: workers}))
	}
	return a, now
}

func done(now, service time.Duration, l shedder.Load) *shedder.Done {
	return &shedder.Done{
		Now: now, N: 1, Service: service, Squares: float64(service) * float64(service),
		Shortest: service, Longest: service, Load: l,
	}
}

// ask is a request at a stage of the given workers, all busy if any wait.
func ask(now time.Duration, workers, waiting int) *shedder.Request {
	l := shedder.Load{Waiting: waiting, Ahead: waiting, Concurrency: workers}
	if waiting > 0 {
		l.Busy = workers
	}
	return &shedder.Request{Now: now, Load: l}
}

func TestNewAdaptiveNamesEveryFault(t *testing.T) {
	_, err := shedder.NewAdaptive(shedder.AdaptiveConfig{
		TargetFactor: math.NaN(), FloorJobs: -1, BurstFactor: math.Inf(1), BurstJobs: 1e9, Spend: -1,
		MinTarget: -1, Budget: -1, Deviations: 11, Warm: -1, Senders: 2e6,
	})
	for _, field := range []string{
		"TargetFactor: NaN", "FloorJobs: -1", "BurstFactor: +Inf", "BurstJobs: 1e+09", "Spend: -1",
		"MinTarget: -1ns", "Budget: -1ns", "Deviations: 11", "Warm: -1", "Senders: 2e+06",
	} {
		require.ErrorContains(t, err, field)
	}
}

func TestAdaptiveTuneIsAllOrNothing(t *testing.T) {
	a, now := warmed(t, 16, 5*ms, 100)
	before := a.Config()
	require.Error(t, a.Tune(shedder.AdaptiveConfig{TargetFactor: 4, FloorJobs: -1}))
	require.Equal(t, before, a.Config())
	bound := a.Bound()
	require.NoError(t, a.Tune(shedder.AdaptiveConfig{BurstFactor: 32}))
	require.Equal(t, 2*bound, a.Bound())
	require.Equal(t, shedder.Admit, a.Admit(ask(now, 16, bound+1)).Action)
}

func TestAdaptiveRefusesAboveTheBoundWithEverythingFilledIn(t *testing.T) {
	a, now := warmed(t, 16, 5*ms, 100)
	bound := a.Bound()
	v := a.Admit(ask(now, 16, bound-1))
	require.Equal(t, shedder.Admit, v.Action)
	require.InDelta(t, float64(bound)*5/16*1e6, float64(v.Wait), 1e3)
	require.Equal(t, 5*ms, v.Service)
	v = a.Admit(ask(now, 16, bound))
	require.Equal(t, shedder.Refuse, v.Action)
	require.Equal(t, shedder.RuleBound, v.Rule)
	require.Equal(t, reason.Shed, v.Reason)
	require.InDelta(t, bound, v.Limit, 1)
	require.InDelta(t, bound, v.Value, 0)
	require.Positive(t, v.Wait)
	require.Equal(t, 5*ms, v.Service)
	require.GreaterOrEqual(t, v.RetryAfter, v.Wait)
	require.Zero(t, v.RetryAfter&(v.RetryAfter-1), "a power of two")
}

func TestAllocsAdmitAndDone(t *testing.T) {
	a, now := warmed(t, 16, 5*ms, 100)
	full := ask(now, 16, 1<<20)
	full.Sender = "me"
	full.Classes, full.Class, full.Share = 4, 1, 0.05
	full.Deadline = now + time.Hour
	free := ask(now, 16, 3)
	free.Sender = "me"
	d := done(now, 5*ms, free.Load)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now += ms
		full.Now, free.Now, d.Now = now, now, now
		a.Admit(full)
		a.Admit(free)
		a.Done(d)
	}))
}
