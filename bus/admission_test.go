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
)

// asked is an admission that keeps what it was told and answers with verdict.
type asked struct {
	mu      sync.Mutex
	loads   []bus.Load
	verdict bus.Verdict
}

func (a *asked) Admit(l bus.Load) bus.Verdict {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loads = append(a.loads, l)
	return a.verdict
}

func TestAdmissionIsAskedOncePerItinerary(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		first, second := &asked{}, &asked{}
		c := bus.StageConfig{Admission: first, Retry: retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: time.Second}}
		s := bustest.Stage(t, b, "s", c, func(_ context.Context, e *bus.Envelope) error {
			if e.Attempt() < 3 {
				return errFails
			}
			return nil
		})
		bustest.Stage(t, b, "next", bus.StageConfig{Admission: second}, acknowledge)
		bustest.Start(t, b)
		_, err := s.Call(t.Context(), &bus.Envelope{Slip: bus.Via("next", "s", "next")})
		require.NoError(t, err)
		require.Len(t, first.loads, 1, "neither for retries nor for hops")
		require.Empty(t, second.loads)
		_, err = s.PublishAfter(t.Context(), time.Hour, &bus.Envelope{})
		require.NoError(t, err)
		require.Len(t, first.loads, 2)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Len(t, first.loads, 2, "a later publish is asked for at the publish")
		b.Pause(bus.Hold{})
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrPaused)
		require.Len(t, first.loads, 2, "what is refused before is not asked for")
	})
}

func TestAdmissionIsToldTheLoad(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		a := &asked{}
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Admission: a, Concurrency: 2, Capacity: 10}, gate.Handler(nil))
		bustest.Start(t, b)
		time.Sleep(time.Second)
		for range 3 {
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
			synctest.Wait()
		}
		_, err := s.PublishAfter(t.Context(), time.Hour, &bus.Envelope{})
		require.NoError(t, err)
		e := bus.Envelope{Key: "k", Meta: &bus.Meta{Class: "gold", Sender: "me"}}
		e.SetDeadline(time.Now().Add(time.Minute))
		require.NoError(t, s.TryPublish(&e))
		l := a.loads[4]
		require.Equal(t, time.Minute, l.Deadline-l.Now)
		l.Now, l.Deadline = 0, 0
		require.Equal(t, bus.Load{
			Stage: "s", Class: "gold", Key: "k", Sender: "me",
			Queued: 1, Busy: 2, Concurrency: 2, Capacity: 10,
		}, l, "what is delayed is not queued")
		time.Sleep(time.Second)
		gate.Open()
		synctest.Wait()
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		l = a.loads[5]
		require.Zero(t, l.Deadline)
		require.EqualValues(t, 4, l.Done)
		require.Positive(t, l.Service)
	})
}

func TestVerdictReachesTheCaller(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		a := &asked{}
		s := bustest.Stage(t, b, "s", bus.StageConfig{Admission: a}, acknowledge)
		bustest.Start(t, b)
		for why, matches := range map[reason.Reason][]error{
			reason.Shed:         {bus.ErrShed},
			reason.ShedDeadline: {bus.ErrShed, bus.ErrExpired},
			reason.Rate:         {bus.ErrShed},
			reason.NoCredit:     {bus.ErrNoCredit},
		} {
			a.verdict = bus.Verdict{Reason: why, Limit: 10, Value: 12.5, RetryAfter: 3 * time.Second}
			err := s.Publish(t.Context(), &bus.Envelope{})
			require.ErrorIs(t, err, bus.ErrRejected)
			for _, m := range matches {
				require.ErrorIs(t, err, m)
			}
			r, ok := errors.AsType[*bus.RejectedError](err)
			require.True(t, ok)
			require.Equal(t, []any{"s", why, 10.0, 12.5, 3 * time.Second}, []any{r.Stage, r.Reason, r.Limit, r.Value, r.RetryAfter})
			a.verdict.RetryAfter = time.Minute
			require.Error(t, s.TryPublish(&bus.Envelope{}))
			require.Equal(t, 3*time.Second, r.RetryAfter, "an error is not written to later")
		}
		a.verdict = bus.Verdict{}
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 1, st.Accepted)
		require.EqualValues(t, 2, st.Refused[reason.ShedDeadline])
	})
}
