package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
)

// reply answers with the payload.
func reply(_ context.Context, e *bus.Envelope) error {
	e.Reply(e.Payload)
	return nil
}

func TestCallReturnsTheReply(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, reply)
		bustest.Stage(t, b, "silent", bus.StageConfig{}, acknowledge)
		bustest.Stage(t, b, "last", bus.StageConfig{Retry: retry.Policy{MaxAttempts: 2}}, func(_ context.Context, e *bus.Envelope) error {
			e.Reply(fmt.Sprint("last of ", e.Payload, ", attempt ", e.Attempt()))
			if e.Attempt() == 1 {
				return errFails
			}
			return nil
		})
		bustest.Start(t, b)
		n, err := bus.CallAs[int](t.Context(), s, &bus.Envelope{Payload: 42})
		require.NoError(t, err)
		require.Equal(t, 42, n)
		var viaCallback bus.Result
		r, err := s.Call(t.Context(), &bus.Envelope{
			Payload: 1, Slip: bus.Via("silent"), Meta: &bus.Meta{ID: "text"}, OnDone: func(r bus.Result) { viaCallback = r },
		})
		require.NoError(t, err)
		require.Equal(t, bus.Result{ID: r.ID, TextID: "text", End: bus.Completed, Stage: "silent", Reply: 1, Attempts: 1}, r, "the last reply that was set")
		synctest.Wait()
		require.Equal(t, r.ID, viaCallback.ID)
		text, err := bus.CallAs[string](t.Context(), s, &bus.Envelope{Payload: 2, Slip: bus.Via("silent", "last")})
		require.NoError(t, err)
		require.Equal(t, "last of 2, attempt 2", text)
		shown, err := bus.CallAs[fmt.Stringer](t.Context(), s, &bus.Envelope{Payload: time.Second})
		require.NoError(t, err, "an interface")
		require.Equal(t, "1s", shown.String())
		require.NoError(t, s.TryPublish(&bus.Envelope{Payload: 3}), "a reply that nobody waits for does nothing")
	})
}

func TestCallWithoutTheRightReply(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, reply)
		silent := bustest.Stage(t, b, "silent", bus.StageConfig{}, acknowledge)
		failing := bustest.Stage(t, b, "failing", bus.StageConfig{}, fails)
		drop := bustest.Stage(t, b, "drop", bus.StageConfig{}, func(context.Context, *bus.Envelope) error { return bus.Discard("old") })
		bustest.Start(t, b)
		_, err := bus.CallAs[string](t.Context(), s, &bus.Envelope{Payload: 1})
		require.ErrorIs(t, err, bus.ErrType)
		require.ErrorContains(t, err, "int")
		_, err = bus.CallAs[string](t.Context(), silent, &bus.Envelope{})
		require.ErrorIs(t, err, bus.ErrType)
		_, err = bus.CallAs[string](t.Context(), failing, &bus.Envelope{})
		require.ErrorIs(t, err, errFails)
		end, ok := errors.AsType[*bus.EndError](err)
		require.True(t, ok)
		require.Equal(t, bus.DeadLettered, end.Result.End)
		require.Equal(t, reason.Attempts, end.Result.Reason)
		_, err = bus.CallAs[string](t.Context(), drop, &bus.Envelope{})
		end, ok = errors.AsType[*bus.EndError](err)
		require.True(t, ok)
		require.Equal(t, bus.Dropped, end.Result.End)
		_, err = bus.CallAs[string](t.Context(), s, nil)
		require.ErrorIs(t, err, bus.ErrInvalid)
		_, err = s.Call(nil, &bus.Envelope{}) //nolint:staticcheck // what bad input gets
		require.ErrorIs(t, err, bus.ErrInvalid)
	})
}

func TestCallWhoseContextEnds(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1}, func(_ context.Context, e *bus.Envelope) error {
			e.Reply("too late")
			return gate.Wait(context.Background())
		})
		bustest.Start(t, b)
		cause := errors.New("the client has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		var got ended
		time.AfterFunc(time.Second, func() { cancel(cause) })
		r, err := s.Call(ctx, &bus.Envelope{OnDone: got.add})
		require.ErrorIs(t, err, cause)
		require.NotErrorIs(t, err, bus.ErrRejected, "it was accepted")
		require.Zero(t, r)
		require.Len(t, s.InFlight(), 1, "the envelope lives on")

		deadline, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err = s.Call(deadline, &bus.Envelope{OnDone: got.add})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = s.Call(deadline, &bus.Envelope{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, bus.ErrRejected)
		gate.Open()
		synctest.Wait()
		require.Len(t, got.results, 2)
		require.Equal(t, bus.Completed, got.results[0].End)
		require.Equal(t, reason.Expired, got.results[1].Reason, "the deadline of the context was its own")
		bustest.RequireBalanced(t, b)
	})
}

func TestCallTakesTheDeadlineOver(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			if d, ok := e.Deadline(); ok {
				e.Reply(time.Until(d))
			}
			return nil
		})
		bustest.Start(t, b)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		e := bus.Envelope{}
		left, err := bus.CallAs[time.Duration](ctx, s, &e)
		require.NoError(t, err)
		require.Equal(t, time.Minute, left)
		_, ok := e.Deadline()
		require.False(t, ok, "the caller's envelope is not written to")
		e.SetDeadline(time.Now().Add(time.Second))
		left, err = bus.CallAs[time.Duration](ctx, s, &e)
		require.NoError(t, err)
		require.Equal(t, time.Second, left, "its own stands")
		r, err := s.Call(t.Context(), &bus.Envelope{})
		require.NoError(t, err)
		require.Nil(t, r.Reply)
	})
}

func TestCallIsAnsweredAtTheEndOfTheBus(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			_ = gate.Wait(context.Background())
			e.Reply("late")
			return nil
		})
		bustest.Start(t, b)
		answers := make(chan bus.Result, 2)
		for range 2 { // one in the handler, one queued
			go func() {
				r, err := s.Call(context.Background(), &bus.Envelope{})
				if err != nil {
					t.Error(err)
				}
				answers <- r
			}()
			synctest.Wait()
		}
		require.ErrorIs(t, b.Close(), bus.ErrNotDrained)
		for range 2 {
			r := <-answers
			require.Equal(t, bus.Abandoned, r.End)
			require.Equal(t, reason.Shutdown, r.Reason)
			require.Nil(t, r.Reply)
		}
		gate.Open()
	})
}

func TestCallOfATopic(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		topic := bustest.Stage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
		for name, h := range map[string]bus.Handler{"good": reply, "bad": fails} {
			_, err := topic.Subscribe(name, bus.StageConfig{}, bus.LagWait, h)
			require.NoError(t, err)
		}
		bustest.Start(t, b)
		r, err := topic.Call(t.Context(), &bus.Envelope{})
		require.NoError(t, err)
		require.Equal(t, bus.DeadLettered, r.End)
		failed := 0
		for _, c := range r.Copies {
			require.Equal(t, c.Stage == "topic.bad", c.End == bus.DeadLettered, c.Stage)
			if c.End == bus.DeadLettered {
				failed++
			}
		}
		require.Equal(t, 1, failed)
		require.NoError(t, topic.Unsubscribe("bad"))
		r, err = topic.Call(t.Context(), &bus.Envelope{})
		require.NoError(t, err)
		require.Equal(t, bus.Completed, r.End)
	})
}

// Two stages that call each other from inside need no more than what they have.
func TestCallFromInside(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		inner := bustest.Stage(t, b, "inner", bus.StageConfig{}, reply)
		outer := bustest.Stage(t, b, "outer", bus.StageConfig{}, func(ctx context.Context, e *bus.Envelope) error {
			n, err := bus.CallAs[int](ctx, inner, &bus.Envelope{Payload: e.Payload})
			e.Reply(n + 1)
			return err
		})
		bustest.Start(t, b)
		for i := range 100 {
			n, err := bus.CallAs[int](t.Context(), outer, &bus.Envelope{Payload: i})
			require.NoError(t, err)
			require.Equal(t, i+1, n)
		}
	})
}
