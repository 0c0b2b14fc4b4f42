package shedder_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

func mustAllow(t testing.TB, s *shedder.Shedder) shedder.Promise {
	t.Helper()
	p, err := s.Allow()
	require.NoError(t, err)
	return p
}

func TestAllowNeedsConcurrency(t *testing.T) {
	s := newShedder(t, shedder.Config{Policy: &script{}})
	_, err := s.Allow()
	require.ErrorIs(t, err, shedder.ErrConcurrency)
	require.NotErrorIs(t, err, shedder.ErrShed)
	require.ErrorContains(t, err, "GOMAXPROCS", "it says how to choose")
	_, err = s.Acquire(t.Context(), shedder.Request{})
	require.ErrorIs(t, err, shedder.ErrConcurrency)
	require.NoError(t, s.Tune(func(c *shedder.Config) { c.Concurrency = 1 }))
	mustAllow(t, s).Pass()
	requireAccount(t, s.State(s.Now()))
}

func TestPromiseTellsThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{}
		s := newShedder(t, shedder.Config{Policy: p, Concurrency: 2})
		for _, c := range []struct {
			end          func(shedder.Promise)
			told, failed int
		}{
			{shedder.Promise.Pass, 1, 0},
			{shedder.Promise.Fail, 1, 1},
			{shedder.Promise.Drop, 0, 0},
			{func(p shedder.Promise) { p.Done(nil) }, 1, 0},
			{func(p shedder.Promise) { p.Done(errors.New("x")) }, 1, 1},
			{func(p shedder.Promise) { p.Done(context.DeadlineExceeded) }, 1, 1},
			{func(p shedder.Promise) { p.Done(fmt.Errorf("x: %w", context.Canceled)) }, 0, 0},
			{func(p shedder.Promise) { p.Done(fmt.Errorf("x: %w", shedder.ErrShed)) }, 0, 0},
		} {
			p.told = nil
			promise := mustAllow(t, s)
			time.Sleep(5 * milli)
			c.end(promise)
			require.Len(t, p.told, c.told)
			if c.told > 0 {
				d := p.told[0]
				require.Equal(t, c.failed, d.Failed)
				require.Equal(t, 1, d.N)
				require.Equal(t, 5*milli, d.Service)
				require.Equal(t, []time.Duration{5 * milli, 5 * milli, 0}, []time.Duration{d.Shortest, d.Longest, d.Wait})
				require.InDelta(t, 25e12, d.Squares, 1)
				require.Equal(t, shedder.Load{Concurrency: 2}, d.Load)
			}
		}
		st := s.State(s.Now())
		requireAccount(t, st)
		require.EqualValues(t, 8, st.Promises.Settled)
		require.Zero(t, st.Promises.Outstanding)
	})
}

// The load is the shedder's own account, and service is apart from wait.
func TestAllowModelsAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []shedder.Load
		p := &script{admit: func(r *shedder.Request) shedder.Verdict {
			seen = append(seen, r.Load)
			return shedder.Verdict{}
		}}
		s := newShedder(t, shedder.Config{Policy: p, Concurrency: 2})
		var promises []shedder.Promise
		for range 6 {
			promises = append(promises, mustAllow(t, s))
		}
		for i, l := range seen {
			require.Equal(t, min(i, 2), l.Busy)
			require.Equal(t, max(0, i-2), l.Waiting)
			require.Equal(t, l.Waiting, l.Ahead)
			require.Equal(t, 2, l.Concurrency)
		}
		// Two workers, 10 ms each, all arrived at 0.
		for i := 0; i < 6; i += 2 {
			time.Sleep(10 * milli)
			promises[i].Pass()
			promises[i+1].Pass()
		}
		for i, d := range p.told {
			require.Equal(t, 10*milli, d.Service, "unit %d", i)
			require.Equal(t, time.Duration(i/2)*10*milli, d.Wait, "unit %d", i)
		}
	})
}

// The work behind need not be first come, first served: the sum of the service
// times is still that of the workers' busy time.
func TestAllowInAnotherOrderKeepsTheMean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{}
		s := newShedder(t, shedder.Config{Policy: p, Concurrency: 2})
		var promises []shedder.Promise
		for range 20 {
			promises = append(promises, mustAllow(t, s))
		}
		for i := len(promises) - 1; i > 0; i -= 2 { // last come, first served
			time.Sleep(10 * milli)
			promises[i].Pass()
			promises[i-1].Pass()
		}
		var sum time.Duration
		for _, d := range p.told {
			require.GreaterOrEqual(t, d.Service, time.Duration(0))
			require.GreaterOrEqual(t, d.Wait, time.Duration(0))
			sum += d.Service
		}
		require.Equal(t, 20*10*milli, sum)
	})
}

func TestSettledTwiceIsIgnoredAndCounted(t *testing.T) {
	p := &script{}
	s := newShedder(t, shedder.Config{Policy: p, Concurrency: 2})
	first := mustAllow(t, s)
	first.Pass()
	first.Fail()
	again := mustAllow(t, s) // gets the same slot
	first.Drop()
	first.Done(nil)
	st := s.State(s.Now())
	require.EqualValues(t, 3, st.Promises.Twice)
	require.Equal(t, 1, st.Promises.Outstanding, "the stale promise does not end another's work")
	require.Len(t, p.told, 1)
	again.Pass()
	require.Zero(t, s.State(s.Now()).Promises.Outstanding)
	requireAccount(t, s.State(s.Now()))

	var zero shedder.Promise
	zero.Pass()
	zero.Fail()
	zero.Drop()
	zero.Done(errors.New("x"))
	require.EqualValues(t, 3, s.State(s.Now()).Promises.Twice)
}

func TestLeaksAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShedder(t, shedder.Config{Policy: &script{}, Concurrency: 1})
		_, err := s.AllowRequest(shedder.Request{Sender: "importer", Key: "k7", Class: 1, Classes: 2})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		_, err = s.AllowRequest(shedder.Request{Sender: "other"})
		require.NoError(t, err)
		mustAllow(t, s).Pass()
		time.Sleep(time.Second)

		require.Equal(t, []shedder.Leak{
			{Age: 61 * time.Second, Class: 1, Sender: "importer", Key: "k7"},
			{Age: time.Second, Sender: "other"},
		}, s.Leaks(0))
		require.Len(t, s.Leaks(time.Second), 1)
		require.Empty(t, s.Leaks(time.Hour))
		st := s.State(s.Now())
		require.Equal(t, 2, st.Promises.Outstanding)
		require.Equal(t, 61*time.Second, st.Promises.Oldest)
		for range 200 {
			mustAllow(t, s)
		}
		require.Len(t, s.Leaks(-1), 100, "a report has an end")
	})
}

func TestAllowRefusalsAreSharedAndTellAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := refusing()
		s := newShedder(t, shedder.Config{Name: "api", Policy: p, Concurrency: 1})
		_, err := s.Allow()
		require.ErrorIs(t, err, shedder.ErrShed)
		require.NotErrorIs(t, err, shedder.ErrDeadline)
		refused, ok := errors.AsType[*shedder.RefusedError](err)
		require.True(t, ok)
		require.Equal(t, &shedder.RefusedError{
			Name: "api", Rule: shedder.RuleBound, Reason: reason.Shed, Limit: 10, Value: 11, RetryAfter: 3 * milli,
		}, refused)
		require.Equal(t, `shedder "api": refused (shed, rule bound): 11 against the limit 10; retry after 3ms, send less or raise Concurrency`, err.Error())

		p.admit = func(r *shedder.Request) shedder.Verdict {
			v := refuse(r)
			v.Value = 99
			return v
		}
		time.Sleep(9 * milli)
		_, same := s.Allow()
		require.Same(t, err, same)
		time.Sleep(milli)
		_, fresh := s.Allow()
		require.ErrorContains(t, fresh, "99 against")
		require.Equal(t, 11.0, refused.Value, "what was handed out does not change")
		st := s.State(s.Now())
		require.Equal(t, 99.0, st.Last.Value)
		require.EqualValues(t, 3, st.Shed)
		requireAccount(t, st)
	})
}

func TestRecentRefusals(t *testing.T) {
	p := &script{}
	s := newShedder(t, shedder.Config{Policy: p})
	refuseAt := func(now time.Duration, rule shedder.Rule, value float64) {
		p.admit = func(*shedder.Request) shedder.Verdict {
			return shedder.Verdict{Action: shedder.Refuse, Rule: rule, Value: value}
		}
		s.Decide(&shedder.Request{Now: now})
	}
	require.Empty(t, s.State(0).Recent)
	refuseAt(0, shedder.RuleDeadline, 1)
	for i := range 1000 {
		refuseAt(time.Duration(i), shedder.RuleBound, float64(i))
	}
	refuseAt(5, shedder.RuleFair, 7)
	st := s.State(0)
	var rules []shedder.Rule
	for _, e := range st.Recent {
		rules = append(rules, e.Rule)
	}
	require.Equal(t, []shedder.Rule{shedder.RuleFair, shedder.RuleBound, shedder.RuleDeadline}, rules, "a burst washes nothing away")
	require.Equal(t, 999.0, st.Recent[1].Value)
	require.Equal(t, st.Recent[0].Verdict, st.Last)
	for i := range 100 {
		refuseAt(time.Duration(i)*2*milli, shedder.RuleBound, float64(i))
	}
	st = s.State(0)
	require.Len(t, st.Recent, 8)
	require.Equal(t, []float64{99, 98, 92}, []float64{st.Recent[0].Value, st.Recent[1].Value, st.Recent[7].Value})
}

func TestAllowRequestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{}
		s := newShedder(t, shedder.Config{Name: "api", Policy: p, Concurrency: 1})
		time.Sleep(time.Second)
		_, err := s.AllowRequest(shedder.Request{Deadline: s.Now() - 1})
		require.ErrorIs(t, err, shedder.ErrDeadline)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, shedder.ErrShed, "nothing was overloaded")
		require.Zero(t, p.asked)
		st := s.State(s.Now())
		require.EqualValues(t, 1, st.Promises.Expired)
		requireAccount(t, st)

		p.admit = func(r *shedder.Request) shedder.Verdict {
			require.Equal(t, s.Now()+5, r.Deadline)
			require.Equal(t, []any{"a", "b", 1, 2}, []any{r.Sender, r.Key, r.Class, r.Classes})
			return shedder.Verdict{Action: shedder.Refuse, Rule: shedder.RuleDeadline, Reason: reason.ShedDeadline, Limit: 5, Value: 7}
		}
		_, err = s.AllowRequest(shedder.Request{Deadline: s.Now() + 5, Sender: "a", Key: "b", Class: 1, Classes: 2})
		require.ErrorIs(t, err, shedder.ErrDeadline)
		require.ErrorIs(t, err, shedder.ErrShed)
		require.Equal(t, `shedder "api": refused (shed_deadline, rule deadline): its deadline cannot be met: 7 against the limit 5; allow more time or send less`, err.Error())
		require.False(t, s.Overloaded(s.Now()), "nothing waited: the deadline was just too tight")
	})
}

func TestAllowRequestBadInput(t *testing.T) {
	s := newShedder(t, shedder.Config{Policy: &script{}, Concurrency: 1})
	for _, r := range []shedder.Request{
		{Class: -1}, {Class: 1}, {Class: 4, Classes: 4}, {Classes: 9}, {Classes: -1}, {Share: 2}, {Share: -1}, {Class: 1 << 30, Classes: 8},
	} {
		_, err := s.AllowRequest(r)
		require.ErrorIs(t, err, shedder.ErrInvalid, "%+v", r)
		_, err = s.Acquire(t.Context(), r)
		require.ErrorIs(t, err, shedder.ErrInvalid, "%+v", r)
	}
	require.Zero(t, s.State(0).Asked)
	var none context.Context
	_, err := s.Acquire(none, shedder.Request{})
	require.ErrorIs(t, err, shedder.ErrInvalid)
	s.Decide(nil)
	s.Undo(nil)
	s.Done(nil)
	s.Done(&shedder.Done{N: -1})
}

func TestAllowPushOutWithoutAnybodyToPushOutRefuses(t *testing.T) {
	p := &script{admit: func(*shedder.Request) shedder.Verdict { return shedder.Verdict{Action: shedder.PushOut} }}
	s := newShedder(t, shedder.Config{Policy: p, Concurrency: 1})
	_, err := s.Allow()
	require.ErrorIs(t, err, shedder.ErrShed)
	require.Zero(t, s.State(0).PushedOut)

	r := &shedder.Request{Load: shedder.Load{Evictable: 1}}
	require.Equal(t, shedder.PushOut, s.Decide(r).Action)
	require.EqualValues(t, 1, s.State(0).PushedOut)
	require.NoError(t, s.Tune(func(c *shedder.Config) { c.Mode = shedder.Observe }))
	require.Equal(t, shedder.Admit, s.Decide(r).Action, "observing pushes nobody out")
}

func TestAllowOnTunedConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{}
		s := newShedder(t, shedder.Config{Policy: p, Concurrency: 1})
		a, b := mustAllow(t, s), mustAllow(t, s)
		time.Sleep(10 * milli)
		require.NoError(t, s.Tune(func(c *shedder.Config) { c.Concurrency = 2 }))
		time.Sleep(10 * milli)
		b.Pass()
		require.Equal(t, 10*milli, p.told[0].Service, "it started when there was a second place")
		require.Equal(t, 10*milli, p.told[0].Wait)
		require.NoError(t, s.Tune(func(c *shedder.Config) { c.Concurrency = 0 }))
		a.Pass()
		require.Equal(t, 20*milli, p.told[1].Service)
		requireAccount(t, s.State(s.Now()))
	})
}
