package bus_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
)

// marking is middleware that notes its way in and out.
func marking(log *[]string, name string) bus.Middleware {
	return func(h bus.Handler) bus.Handler {
		return func(ctx context.Context, e *bus.Envelope) error {
			*log = append(*log, name+" in")
			err := h(ctx, e)
			*log = append(*log, name+" out")
			return err
		}
	}
}

func TestFirstMiddlewareIsTheOutermost(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var log []string
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, nil)
		topic := bustest.Stage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
		handle := func(context.Context, *bus.Envelope) error {
			log = append(log, "handler")
			return nil
		}
		require.NoError(t, s.Handle(handle, marking(&log, "a"), marking(&log, "b"), marking(&log, "c")))
		_, err := topic.Subscribe("sub", bus.StageConfig{}, bus.LagWait, handle, marking(&log, "a"), marking(&log, "b"))
		require.NoError(t, err)
		bustest.Start(t, b)
		_, err = s.Call(t.Context(), &bus.Envelope{})
		require.NoError(t, err)
		require.Equal(t, []string{"a in", "b in", "c in", "handler", "c out", "b out", "a out"}, log)
		log = nil
		_, err = topic.Call(t.Context(), &bus.Envelope{})
		require.NoError(t, err)
		require.Equal(t, []string{"a in", "b in", "handler", "b out", "a out"}, log)
	})
}

// Middleware may answer in the handler's place and change its answer.
func TestMiddlewareDecides(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, nil)
		filter := func(h bus.Handler) bus.Handler {
			return func(ctx context.Context, e *bus.Envelope) error {
				if e.Payload == "unwanted" {
					return bus.Discard("filtered")
				}
				if h(ctx, e) != nil {
					return bus.DeadLetter("as middleware says")
				}
				return nil
			}
		}
		require.NoError(t, s.Handle(fails, filter))
		bustest.Start(t, b)
		r, err := s.Call(t.Context(), &bus.Envelope{Payload: "unwanted"})
		require.NoError(t, err)
		require.Equal(t, reason.Discarded, r.Reason)
		r, err = s.Call(t.Context(), &bus.Envelope{})
		require.NoError(t, err)
		require.Equal(t, reason.Handler, r.Reason)
	})
}

func TestTypedHandlers(t *testing.T) {
	type order struct{ n int }
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Retry: retry.Policy{MaxAttempts: 5}}, bus.Typed(func(_ context.Context, o *order, e *bus.Envelope) error {
			e.Reply(o.n)
			return nil
		}))
		face := bustest.Stage(t, b, "face", bus.StageConfig{}, bus.Typed(func(_ context.Context, err error, e *bus.Envelope) error {
			e.Reply(err.Error())
			return nil
		}))
		bustest.Start(t, b)
		n, err := bus.CallAs[int](t.Context(), s, &bus.Envelope{Payload: &order{7}})
		require.NoError(t, err)
		require.Equal(t, 7, n)
		text, err := bus.CallAs[string](t.Context(), face, &bus.Envelope{Payload: errFails})
		require.NoError(t, err)
		require.Equal(t, errFails.Error(), text)
		for _, wrong := range []any{nil, order{7}, "text"} {
			r, err := s.Call(t.Context(), &bus.Envelope{Payload: wrong})
			require.NoError(t, err)
			require.Equal(t, bus.DeadLettered, r.End)
			require.Equal(t, reason.Type, r.Reason)
			require.Equal(t, 1, r.Attempts, "trying again would not help")
			require.ErrorIs(t, r.Err, bus.ErrType)
			require.ErrorContains(t, r.Err, "order")
		}
	})
}

func TestBoolHandlers(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Retry: retry.Policy{MaxAttempts: 3}}, bus.Bool(func(_ context.Context, e *bus.Envelope) bool {
			return e.Attempt() == 2 || e.Payload == true
		}))
		never := bustest.Stage(t, b, "never", bus.StageConfig{}, bus.Bool(func(context.Context, *bus.Envelope) bool { return false }))
		bustest.Start(t, b)
		for payload, attempts := range map[bool]int{true: 1, false: 2} {
			r, err := s.Call(t.Context(), &bus.Envelope{Payload: payload})
			require.NoError(t, err)
			require.Equal(t, bus.Completed, r.End)
			require.Equal(t, attempts, r.Attempts)
		}
		r, err := never.Call(t.Context(), &bus.Envelope{})
		require.NoError(t, err)
		require.Equal(t, reason.Attempts, r.Reason)
	})
}
