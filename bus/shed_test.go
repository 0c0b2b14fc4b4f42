package bus_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
	"github.com/sedabus/seda/shedder"
)

// asked is a policy that keeps what it was told and answers with verdict.
type asked struct {
	mu      sync.Mutex
	asks    []shedder.Request
	undone  int
	done    []shedder.Done
	bound   int
	verdict shedder.Verdict
}

func (a *asked) Admit(r *shedder.Request) shedder.Verdict {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asks = append(a.asks, *r)
	return a.verdict
}

func (a *asked) Undo(*shedder.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.undone++
}

func (a *asked) Done(d *shedder.Done) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done = append(a.done, *d)
}

func (a *asked) Bound() int                          { return a.bound }
func (*asked) Inspect(time.Duration, *shedder.State) {}

// shell returns a shedder around p.
func shell(t *testing.T, p shedder.Policy) *shedder.Shedder {
	t.Helper()
	s, err := shedder.New(shedder.Config{Policy: p})
	require.NoError(t, err)
	return s
}

func TestShedderIsAskedOncePerItinerary(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		first, second := &asked{}, &asked{}
		c := bus.StageConfig{Shedder: shell(t, first), Retry: retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: time.Second}}
		s := bustest.Stage(t, b, "s", c, func(_ context.Context, e *bus.Envelope) error {
			if e.Attempt() < 3 {
				return errFails
			}
			return nil
		})
		bustest.Stage(t, b, "next", bus.StageConfig{Shedder: shell(t, second)}, acknowledge)
		bustest.Start(t, b)
		_, err := s.Call(t.Context(), &bus.Envelope{Slip: bus.Via("next", "s", "next")})
		require.NoError(t, err)
		require.Len(t, first.asks, 2, "at the door, and as a later stage; neither for retries nor for hops")
		require.Len(t, second.asks, 2)
		require.False(t, first.asks[0].Later)
		require.True(t, first.asks[1].Later && second.asks[0].Later && second.asks[1].Later)
		_, err = s.PublishAfter(t.Context(), time.Hour, &bus.Envelope{})
		require.NoError(t, err)
		require.Len(t, first.asks, 3)
		require.Equal(t, time.Hour, first.asks[2].Transit, "a later publish is asked for at the publish")
		require.True(t, first.asks[2].Later)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Len(t, first.asks, 3)
		b.Pause(bus.Hold{})
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrPaused)
		require.Len(t, first.asks, 3, "what is refused before is not asked for")
	})
}

func TestShedderIsToldTheLoad(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		a := &asked{}
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Shedder: shell(t, a), Concurrency: 2, Capacity: 10}, gate.Handler(nil))
		bustest.Start(t, b)
		time.Sleep(time.Second)
		for range 3 {
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
			synctest.Wait()
		}
		_, err := s.PublishAfter(t.Context(), time.Hour, &bus.Envelope{})
		require.NoError(t, err)
		e := bus.Envelope{Key: "k", Meta: &bus.Meta{Sender: "me"}}
		e.SetDeadline(time.Now().Add(time.Minute))
		require.NoError(t, s.TryPublish(&e))
		r := a.asks[4]
		require.Equal(t, time.Minute, r.Deadline-r.Now)
		require.Equal(t, []string{"k", "me"}, []string{r.Key, r.Sender})
		require.Equal(t, shedder.Load{Waiting: 1, Ahead: 1, Busy: 2, Concurrency: 2, Capacity: 10}, r.Load, "what is delayed is not queued")
		require.Empty(t, a.done)
		time.Sleep(time.Second)
		gate.Open()
		synctest.Wait()
		n, last := 0, shedder.Done{}
		for _, d := range a.done {
			n += d.N
			last = d
		}
		require.Equal(t, 4, n)
		require.Zero(t, last.Waiting)
		require.GreaterOrEqual(t, a.done[0].Service, time.Second)
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		require.Zero(t, a.asks[5].Deadline)
		s.Suspend(bus.Hold{})
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		require.True(t, a.asks[6].Held)
		s.Resume("")
	})
}

func TestVerdictReachesTheCaller(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		a := &asked{}
		s := bustest.Stage(t, b, "s", bus.StageConfig{Shedder: shell(t, a)}, acknowledge)
		bustest.Start(t, b)
		for why, matches := range map[reason.Reason][]error{
			reason.Shed:         {bus.ErrShed},
			reason.ShedDeadline: {bus.ErrShed, bus.ErrExpired},
			reason.Rate:         {bus.ErrShed},
			reason.NoCredit:     {bus.ErrNoCredit},
		} {
			a.verdict = shedder.Verdict{Action: shedder.Refuse, Reason: why, Rule: "mine", Limit: 10, Value: 12.5, RetryAfter: 3 * time.Second}
			err := s.Publish(t.Context(), &bus.Envelope{})
			require.ErrorIs(t, err, bus.ErrRejected)
			for _, m := range matches {
				require.ErrorIs(t, err, m)
			}
			r, ok := errors.AsType[*bus.RejectedError](err)
			require.True(t, ok)
			require.Equal(t, []any{"s", "s", why, shedder.Rule("mine"), 10.0, 12.5, 3 * time.Second}, []any{r.Stage, r.At, r.Reason, r.Rule, r.Limit, r.Value, r.RetryAfter})
			a.verdict.RetryAfter = time.Minute
			require.Error(t, s.TryPublish(&bus.Envelope{}))
			require.Equal(t, 3*time.Second, r.RetryAfter, "an error is not written to later")
		}
		a.verdict = shedder.Verdict{}
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 1, st.Accepted)
		require.EqualValues(t, 2, st.Refused[reason.ShedDeadline])
	})
}
