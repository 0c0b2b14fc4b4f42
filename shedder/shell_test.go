package shedder_test

import (
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

func tell(s *shedder.Shedder, now, service time.Duration) {
	s.Done(&shedder.Done{Now: now, N: 1, Service: service, Shortest: service, Longest: service})
}

// The shortest service time is that of a sliding window of eight units, not of
// the latest completion.
func TestDoomedByTheShortestOfLate(t *testing.T) {
	s := newShedder(t, shedder.Config{Policy: &script{}})
	require.False(t, s.Doomed(0, 1), "nothing is known")
	now := time.Second
	tell(s, now, 2*milli)
	tell(s, now, 8*milli)
	require.False(t, s.Doomed(now, now+2*milli))
	require.True(t, s.Doomed(now, now+2*milli-1))
	require.True(t, s.Doomed(now, now))
	for range 7 {
		now += 50 * milli
		tell(s, now, 5*milli)
	}
	require.False(t, s.Doomed(now, now+2*milli), "7 units later the 2 ms still count")
	for range 200 { // all work takes longer now; the unit is 10 times that
		now += 5 * milli
		tell(s, now, 5*milli)
	}
	require.InDelta(t, float64(50*milli), float64(s.Unit()), float64(2*milli))
	require.True(t, s.Doomed(now, now+5*milli-1), "the 2 ms are more than 8 units ago")
	require.False(t, s.Doomed(now, now+5*milli))
	now += time.Hour
	require.True(t, s.Doomed(now, now+5*milli-1), "what was seen last counts when nothing ends")
	tell(s, now, 7*milli)
	require.True(t, s.Doomed(now, now+7*milli-1))

	tell(s, now-30*time.Minute, 9*milli) // the clock jumps back
	for i := range 500 {
		tell(s, now-30*time.Minute+time.Duration(i)*9*milli, 9*milli)
	}
	require.True(t, s.Doomed(0, 9*milli-1), "the window goes on with the clock that jumped")

	tell(s, now, -5)
	require.False(t, s.Doomed(0, 1), "a service time below 0 counts as 0")
	require.True(t, s.Doomed(math.MaxInt64, 5))
	require.False(t, s.Doomed(math.MinInt64, math.MaxInt64))
	require.True(t, s.Doomed(5, -5), "before the clock began is long ago")
}

func TestUnit(t *testing.T) {
	for _, c := range []struct{ service, unit time.Duration }{
		{0, 10 * milli}, {20 * time.Microsecond, 10 * milli}, {100 * milli, time.Second}, {math.MaxInt64, time.Hour}, {math.MinInt64, 10 * milli},
	} {
		s := newShedder(t, shedder.Config{Policy: &script{}})
		require.Equal(t, 10*milli, s.Unit())
		tell(s, 1, c.service)
		require.Equal(t, c.unit, s.Unit())
	}
	s := newShedder(t, shedder.Config{Policy: &script{}})
	s.Done(&shedder.Done{N: 1000, Service: 1000 * 2 * milli})
	s.Done(&shedder.Done{N: 1, Service: 2 * milli})
	require.Equal(t, 20*milli, s.Unit(), "a mean of units, not of calls")
}

func TestOverloadedForAUnit(t *testing.T) {
	p := refusing()
	s := newShedder(t, shedder.Config{Policy: p})
	require.False(t, s.Overloaded(0))
	require.False(t, s.Overloaded(math.MinInt64))
	tell(s, 0, 2*milli) // a unit of 20 ms
	now := time.Minute
	s.Decide(&shedder.Request{Now: now})
	require.True(t, s.Overloaded(now))
	require.True(t, s.Overloaded(now-milli), "another thread's reading")
	require.True(t, s.Overloaded(now+20*milli-1))
	require.False(t, s.Overloaded(now+20*milli))
	require.False(t, s.Overloaded(0), "the clock jumped")
	require.False(t, s.Overloaded(math.MinInt64))
	s.Decide(&shedder.Request{Now: now + 15*milli})
	require.True(t, s.Overloaded(now+34*milli))
	s.Decide(&shedder.Request{Now: 5})
	require.True(t, s.Overloaded(5), "it follows a clock that jumped back")

	for _, v := range []shedder.Verdict{
		{Action: shedder.Refuse, Reason: reason.Rate},
		{Action: shedder.Refuse, Reason: reason.ShedDeadline},
	} {
		p.admit = func(*shedder.Request) shedder.Verdict { return v }
		s.Decide(&shedder.Request{Now: 2 * now})
		require.False(t, s.Overloaded(2*now), "%s is no sign of overload", v.Reason)
	}
	s.Decide(&shedder.Request{Now: 2 * now, Load: shedder.Load{Waiting: 1}})
	require.True(t, s.Overloaded(2*now), "the wait is why the deadline is missed")
}

func TestNonsenseOfAPolicyIsPutRight(t *testing.T) {
	var v shedder.Verdict
	p := &script{admit: func(*shedder.Request) shedder.Verdict { return v }, bound: -5}
	s := newShedder(t, shedder.Config{Policy: p})
	v = shedder.Verdict{Action: 200}
	require.Equal(t, shedder.Admit, s.Decide(&shedder.Request{}).Action)
	v = shedder.Verdict{Action: shedder.Refuse, Reason: 250, RetryAfter: -1, Limit: math.NaN()}
	got := s.Decide(&shedder.Request{})
	require.Equal(t, reason.Shed, got.Reason)
	require.Zero(t, got.RetryAfter)
	tell(s, 0, 1)
	require.Zero(t, s.Bound())
	requireAccount(t, s.State(0))
}

// A policy that ends the goroutine takes its caller with it, but not the lock.
func TestGoexitInAPolicyLeavesTheShedderUsable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{}
		s := newShedder(t, shedder.Config{Policy: p, Concurrency: 1})
		waits, kept := mustAllow(t, s), mustAllow(t, s)
		r := &shedder.Request{}
		s.Decide(r)
		p.admit = func(*shedder.Request) shedder.Verdict { runtime.Goexit(); return shedder.Verdict{} }
		p.done = func(*shedder.Done) { runtime.Goexit() }
		p.undo = func(*shedder.Request) { runtime.Goexit() }
		var wg sync.WaitGroup
		for _, f := range []func(){
			func() { s.Decide(&shedder.Request{}) },
			func() { s.Undo(r) },
			func() { tell(s, 1, 1) },
			func() { _, _ = s.Allow() },
			func() { _, _ = s.Acquire(t.Context(), shedder.Request{}) },
			func() { waits.Pass() },
		} {
			wg.Go(f)
		}
		wg.Wait()
		p.admit, p.done = nil, nil
		kept.Pass()
		require.NoError(t, s.CheckSlots())
		st := s.State(s.Now())
		requireAccount(t, st)
		require.Zero(t, st.Promises.Outstanding)
		require.Zero(t, st.Panics)
		mustAllow(t, s).Pass()
	})
}

func TestTuneRenewsTheNameInErrors(t *testing.T) {
	s := newShedder(t, shedder.Config{Name: "old", Policy: refusing(), Concurrency: 1})
	_, err := s.Allow()
	require.ErrorContains(t, err, `"old"`)
	require.NoError(t, s.Tune(func(c *shedder.Config) { c.Name = "new" }))
	_, err = s.Allow()
	require.ErrorContains(t, err, `"new"`)
}

func TestErrorsOfManyRulesAreAllTold(t *testing.T) {
	var rule shedder.Rule
	p := &script{admit: func(*shedder.Request) shedder.Verdict { return shedder.Verdict{Action: shedder.Refuse, Rule: rule} }}
	s := newShedder(t, shedder.Config{Policy: p, Concurrency: 1})
	for range 3 {
		for _, rule = range []shedder.Rule{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
			_, err := s.Allow()
			require.ErrorContains(t, err, "rule "+string(rule)+")")
		}
	}
}

func TestNames(t *testing.T) {
	require.Equal(t, []string{"on", "observe", "off", "unknown"},
		[]string{shedder.On.String(), shedder.Observe.String(), shedder.Off.String(), shedder.Mode(9).String()})
	require.Equal(t, []string{"admit", "push_out", "refuse", "unknown"},
		[]string{shedder.Admit.String(), shedder.PushOut.String(), shedder.Refuse.String(), shedder.Action(9).String()})
}
