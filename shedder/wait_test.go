package shedder_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// acquirer runs Acquire in goroutines and notes in which order they get places.
type acquirer struct {
	t     *testing.T
	s     *shedder.Shedder
	mu    sync.Mutex // several may get places at once
	got   []string
	out   map[string]shedder.Promise
	fault map[string]error
}

func newAcquirer(t *testing.T, c shedder.Config) *acquirer {
	t.Helper()
	if c.Policy == nil {
		c.Policy = &script{}
	}
	return &acquirer{t: t, s: newShedder(t, c), out: map[string]shedder.Promise{}, fault: map[string]error{}}
}

// start calls Acquire and waits until it returned or waits.
func (a *acquirer) start(ctx context.Context, name string, r shedder.Request) {
	a.t.Helper()
	go func() {
		p, err := a.s.Acquire(ctx, r)
		a.mu.Lock()
		defer a.mu.Unlock()
		if err != nil {
			a.fault[name] = err
			return
		}
		a.got = append(a.got, name)
		a.out[name] = p
	}()
	synctest.Wait()
}

// sleep lets others go on; what the test has read before is read before.
func (a *acquirer) sleep(d time.Duration) {
	a.mu.Lock()
	a.mu.Unlock() //nolint:staticcheck // it is for the order only
	time.Sleep(d)
	synctest.Wait()
}

func (a *acquirer) pass(name string) {
	a.t.Helper()
	p, ok := a.out[name]
	require.True(a.t, ok, "%s has no place", name)
	p.Pass()
	synctest.Wait()
}

func (a *acquirer) state() shedder.State {
	a.t.Helper()
	st := a.s.State(a.s.Now())
	requireAccount(a.t, st)
	return st
}

func class(c int) shedder.Request { return shedder.Request{Class: c, Classes: 4} }

func TestAcquireHoldsTheLimitHighestClassFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAcquirer(t, shedder.Config{Concurrency: 1})
		ctx := t.Context()
		a.start(ctx, "first", class(3))
		for _, w := range []struct {
			name  string
			class int
		}{{"c1", 2}, {"c2", 2}, {"b1", 1}, {"a1", 0}, {"b2", 1}, {"d1", 3}} {
			a.start(ctx, w.name, class(w.class))
		}
		require.Equal(t, []string{"first"}, a.got)
		st := a.state()
		require.Equal(t, 7, st.Promises.Outstanding)
		for _, name := range []string{"first", "a1", "b1", "b2", "c1", "c2", "d1"} {
			require.Equal(t, name, a.got[len(a.got)-1])
			a.pass(name)
		}
		require.Len(t, a.got, 7)
		require.Zero(t, a.state().Promises.Outstanding)
	})
}

func TestAcquireMeasuresServiceApartFromWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{}
		a := newAcquirer(t, shedder.Config{Policy: p, Concurrency: 1})
		a.start(t.Context(), "a", class(0))
		a.start(t.Context(), "b", class(0))
		a.sleep(10 * milli)
		a.pass("a")
		a.sleep(3 * milli)
		a.pass("b")
		require.Equal(t, []time.Duration{10 * milli, 0}, []time.Duration{p.told[0].Service, p.told[0].Wait})
		require.Equal(t, []time.Duration{3 * milli, 10 * milli}, []time.Duration{p.told[1].Service, p.told[1].Wait})
	})
}

// The load that the policy sees: its own class and the higher ones are ahead,
// the lower ones can be pushed out.
func TestAcquireDescribesTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{}
		a := newAcquirer(t, shedder.Config{Policy: p, Concurrency: 1, Guards: shedder.Guards{Exempt: []int{2}}})
		for i, c := range []int{0, 0, 1, 1, 2, 3} {
			a.start(t.Context(), fmt.Sprint(i), class(c))
		}
		var seen shedder.Load
		p.admit = func(r *shedder.Request) shedder.Verdict {
			seen = r.Load
			return refuse(r)
		}
		a.start(t.Context(), "x", class(1))
		require.Equal(t, shedder.Load{Waiting: 5, Ahead: 3, Evictable: 1, Busy: 1, Concurrency: 1}, seen)
		require.ErrorIs(t, a.fault["x"], shedder.ErrShed)
		_, err := a.s.AllowRequest(class(1))
		require.ErrorIs(t, err, shedder.ErrShed)
		require.Equal(t, shedder.Load{Waiting: 5, Ahead: 5, Busy: 1, Concurrency: 1}, seen, "Allow pushes nobody out")
		for _, name := range []string{"0", "1", "2", "3", "4", "5"} {
			a.pass(name)
		}
	})
}

func TestAcquirePushesOutTheNewestOfTheLowestClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := shedder.NewFixed(4)
		require.NoError(t, err)
		a := newAcquirer(t, shedder.Config{Policy: f, Concurrency: 1, Guards: shedder.Guards{Exempt: []int{3}}})
		ctx := t.Context()
		a.start(ctx, "busy", class(3))
		a.start(ctx, "c1", class(2))
		a.start(ctx, "c2", class(2))
		a.start(ctx, "d1", class(3))
		a.start(ctx, "c3", class(2))
		require.ErrorIs(t, a.fault["c3"], shedder.ErrShed, "none below but those that are exempt")
		a.start(ctx, "a1", class(0))
		require.Nil(t, a.fault["d1"], "its class is exempt")
		require.ErrorIs(t, a.fault["c2"], shedder.ErrShed)
		refused, ok := errors.AsType[*shedder.RefusedError](a.fault["c2"])
		require.True(t, ok)
		require.Equal(t, shedder.RulePushedOut, refused.Rule)
		require.Equal(t, reason.PushedOut, refused.Reason)
		require.ErrorContains(t, refused, "a higher class took its place")
		st := a.state()
		require.EqualValues(t, 1, st.PushedOut)
		require.EqualValues(t, 1, st.Promises.PushedOut)
		for _, name := range []string{"busy", "a1", "c1", "d1"} {
			a.pass(name)
		}
		require.Zero(t, a.state().Promises.Outstanding)
	})
}

func TestAcquireGivesThePlaceBackWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{}
		a := newAcquirer(t, shedder.Config{Policy: p, Concurrency: 1})
		a.start(t.Context(), "busy", class(0))
		cause := errors.New("the caller hung up")
		ctx, cancel := context.WithCancelCause(t.Context())
		a.start(ctx, "gone", class(0))
		a.start(t.Context(), "next", class(0))
		cancel(cause)
		synctest.Wait()
		err := a.fault["gone"]
		require.ErrorIs(t, err, cause)
		require.NotErrorIs(t, err, shedder.ErrShed)
		require.NotErrorIs(t, err, shedder.ErrDeadline)
		require.ErrorContains(t, err, "the caller hung up")
		require.Equal(t, 1, p.undone, "the policy takes the admission back")
		st := a.state()
		require.EqualValues(t, 1, st.Promises.Canceled)
		require.Equal(t, 2, st.Promises.Outstanding)

		_, err = a.s.Acquire(ctx, class(0))
		require.ErrorIs(t, err, cause, "a context that is over is not asked about")
		require.Equal(t, 3, p.asked)
		a.pass("busy")
		a.pass("next")
		require.Zero(t, a.state().Promises.Outstanding)
		require.Len(t, p.told, 2)
	})
}

func TestAcquireDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen time.Duration
		p := &script{admit: func(r *shedder.Request) shedder.Verdict { seen = r.Deadline; return shedder.Verdict{} }}
		a := newAcquirer(t, shedder.Config{Policy: p, Concurrency: 1})
		a.start(t.Context(), "busy", class(0))
		begin := a.s.Now()

		ctx, cancel := context.WithTimeout(t.Context(), 20*milli)
		defer cancel()
		a.start(ctx, "by context", shedder.Request{})
		require.Equal(t, begin+20*milli, seen, "the policy hears of the context's deadline")
		a.start(ctx, "by request", shedder.Request{Deadline: begin + 10*milli})
		require.Equal(t, begin+10*milli, seen)
		a.start(ctx, "by context first", shedder.Request{Deadline: begin + 30*milli})
		require.Equal(t, begin+20*milli, seen)

		a.sleep(10 * milli)
		require.ErrorIs(t, a.fault["by request"], shedder.ErrDeadline)
		require.ErrorIs(t, a.fault["by request"], context.DeadlineExceeded)
		require.NotErrorIs(t, a.fault["by request"], shedder.ErrShed)
		require.Len(t, a.fault, 1)
		a.sleep(10 * milli)
		for _, name := range []string{"by context", "by context first"} {
			require.ErrorIs(t, a.fault[name], shedder.ErrDeadline)
			require.ErrorIs(t, a.fault[name], context.DeadlineExceeded)
		}
		require.EqualValues(t, 3, a.state().Promises.Canceled)
		_, err := a.s.Acquire(t.Context(), shedder.Request{Deadline: 1})
		require.ErrorIs(t, err, shedder.ErrDeadline)
		_, err = a.s.Acquire(ctx, shedder.Request{})
		require.ErrorIs(t, err, shedder.ErrDeadline)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		a.pass("busy")
		require.EqualValues(t, 2, a.state().Promises.Expired)
	})
}

func TestAcquireDropsTheDoomedAtTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAcquirer(t, shedder.Config{Concurrency: 1})
		a.start(t.Context(), "warm", class(0))
		a.sleep(10 * milli)
		a.pass("warm") // 10 ms is the shortest service time

		a.start(t.Context(), "busy", class(0))
		begin := a.s.Now()
		a.start(t.Context(), "late", shedder.Request{Deadline: begin + 19*milli})
		a.start(t.Context(), "just", shedder.Request{Deadline: begin + 20*milli})
		a.start(t.Context(), "any", class(0))
		a.sleep(10 * milli)
		a.pass("busy")
		require.ErrorIs(t, a.fault["late"], shedder.ErrDeadline)
		require.ErrorIs(t, a.fault["late"], shedder.ErrShed, "it was predicted")
		require.Equal(t, []string{"warm", "busy", "just"}, a.got)
		require.EqualValues(t, 1, a.state().Promises.Doomed)
		a.pass("just")
		a.pass("any")

		a.start(t.Context(), "busy", class(0))
		a.s.Kill(true)
		a.start(t.Context(), "late again", shedder.Request{Deadline: a.s.Now() + 19*milli})
		a.sleep(10 * milli)
		a.pass("busy")
		require.Equal(t, "late again", a.got[len(a.got)-1], "killed: no prediction drops anything")
		a.pass("late again")
		require.Zero(t, a.state().Promises.Outstanding)
	})
}

func TestAcquireFollowsConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAcquirer(t, shedder.Config{Concurrency: 1})
		for i := range 8 {
			a.start(t.Context(), fmt.Sprint(i), class(0))
		}
		require.Len(t, a.got, 1)
		set := func(n int) {
			require.NoError(t, a.s.Tune(func(c *shedder.Config) { c.Concurrency = n }))
			synctest.Wait()
		}
		set(4)
		require.Len(t, a.got, 4, "at once")
		set(1)
		for i := range 3 {
			a.pass(fmt.Sprint(i))
			require.Len(t, a.got, 4, "what is out of the limit goes first")
		}
		a.pass("3")
		require.Len(t, a.got, 5)
		set(0)
		a.pass("4")
		require.Len(t, a.got, 5, "no concurrency, no place")
		set(100)
		require.Len(t, a.got, 8)
		for i := range 3 {
			a.pass(fmt.Sprint(5 + i))
		}
		require.Zero(t, a.state().Promises.Outstanding)
	})
}

// Promises of Allow take places, but are never held back.
func TestAcquireBesideAllow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAcquirer(t, shedder.Config{Concurrency: 2})
		p1, p2, p3 := mustAllow(t, a.s), mustAllow(t, a.s), mustAllow(t, a.s)
		a.start(t.Context(), "a", class(0))
		require.Empty(t, a.got)
		p3.Pass()
		require.Empty(t, a.got, "two are still in service")
		p1.Pass()
		synctest.Wait()
		require.Equal(t, []string{"a"}, a.got)
		p4 := mustAllow(t, a.s)
		p4.Pass() // out of turn, and the last that started is known exactly
		a.pass("a")
		p2.Pass()
		require.Zero(t, a.state().Promises.Outstanding)
	})
}

func TestAcquireReusesItsSlotsWithoutStaleWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAcquirer(t, shedder.Config{Concurrency: 1})
		for i := range 100 {
			busy, waits := fmt.Sprint("busy", i), fmt.Sprint("waits", i)
			a.start(t.Context(), busy, class(0))
			ctx, cancel := context.WithCancel(t.Context())
			a.start(ctx, waits, class(0))
			if i%2 == 0 {
				a.out[busy].Pass() // its turn and the end of its context at once
				cancel()
			} else {
				cancel()
				a.out[busy].Pass()
			}
			synctest.Wait()
			if p, ok := a.out[waits]; ok {
				p.Pass()
			}
			require.Zero(t, a.state().Promises.Outstanding)
		}
	})
}

func TestAcquireSurvivesAPolicyThatPanicsInUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{undo: func(r *shedder.Request) {
			require.Equal(t, shedder.Load{Concurrency: 1, Busy: 1}, r.Load, "the shedder's own account")
			require.Equal(t, "me", r.Sender)
			panic("undo")
		}}
		a := newAcquirer(t, shedder.Config{Policy: p, Concurrency: 1})
		a.start(t.Context(), "busy", class(0))
		ctx, cancel := context.WithCancel(t.Context())
		a.start(ctx, "gone", shedder.Request{Sender: "me", Load: shedder.Load{Inbound: 9, Capacity: 9, Waiting: 9}})
		cancel()
		synctest.Wait()
		require.ErrorIs(t, a.fault["gone"], context.Canceled)
		require.EqualValues(t, 1, a.state().Panics)
		require.Equal(t, "undo", a.state().LastPanic)
		a.pass("busy")
		require.Zero(t, a.state().Promises.Outstanding)
	})
}
