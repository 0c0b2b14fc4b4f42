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
	"github.com/sedabus/seda/retry"
)

// spans is a tracer that keeps what it sees; its funcs may be nil.
type spans struct {
	mu      sync.Mutex
	log     []string
	errs    []error
	misdeed func(where string)
}

type spanKey struct{}

func (s *spans) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, text)
}

func (s *spans) fail(where string) {
	if s.misdeed != nil {
		s.misdeed(where)
	}
}

func (s *spans) Publish(stage string, e *bus.Envelope) {
	s.fail("publish")
	s.add("publish " + stage)
	e.SetHeader("trace", "from the publish")
}

func (s *spans) Handle(ctx context.Context, stage string, e *bus.Envelope) (context.Context, func(error)) {
	s.fail("handle")
	id, _ := e.Header("trace")
	s.add("handle " + stage + " " + id)
	return context.WithValue(ctx, spanKey{}, stage), func(err error) {
		s.fail("done")
		s.mu.Lock()
		defer s.mu.Unlock()
		s.errs = append(s.errs, err)
	}
}

func TestTracerSeesPublishesAndCalls(t *testing.T) {
	tr := &spans{}
	bustest.Run(t, bus.Config{Tracer: tr}, func(t *testing.T, b *bus.Bus) {
		var inside []any
		s := bustest.Stage(t, b, "s", bus.StageConfig{Retry: retry.Policy{MaxAttempts: 2}, HandlerTimeout: time.Hour}, func(ctx context.Context, e *bus.Envelope) error {
			inside = append(inside, ctx.Value(spanKey{}))
			if e.Attempt() == 1 {
				return errFails
			}
			return nil
		})
		bustest.Stage(t, b, "next", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			panic(e.Payload)
		})
		bustest.Start(t, b)
		mine := &bus.Envelope{Payload: "value", Slip: bus.Via("next")}
		require.NoError(t, s.Publish(t.Context(), mine))
		synctest.Wait()
		require.Empty(t, mine.Headers, "the publisher's own envelope is not written to")
		require.Equal(t, []string{
			"publish s", "handle s from the publish", "handle s from the publish", "handle next from the publish",
		}, tr.log)
		require.Equal(t, []any{"s", "s"}, inside)
		require.Len(t, tr.errs, 3)
		require.ErrorIs(t, tr.errs[0], errFails)
		require.NoError(t, tr.errs[1])
		require.Error(t, tr.errs[2], "a panic is no success")
	})
}

// Whatever a tracer does, the work goes on and is done once.
func TestPanicsInTheTracerAreContained(t *testing.T) {
	for _, where := range []string{"publish", "handle", "done"} {
		t.Run(where, func(t *testing.T) {
			tr := &spans{misdeed: func(at string) {
				if at == where {
					panic("tracer")
				}
			}}
			bustest.Run(t, bus.Config{Tracer: tr}, func(t *testing.T, b *bus.Bus) {
				handled := 0
				s := bustest.Stage(t, b, "s", bus.StageConfig{Retry: retry.Policy{MaxAttempts: 3}}, func(ctx context.Context, _ *bus.Envelope) error {
					handled++
					return ctx.Err()
				})
				bustest.Start(t, b)
				for range 5 {
					require.NoError(t, s.TryPublish(&bus.Envelope{}))
				}
				r := bustest.Drain(t, b)
				require.Equal(t, 5, handled)
				require.EqualValues(t, 5, r.Stats.Completed)
				require.EqualValues(t, 5, r.Stats.Panics)
				require.Zero(t, r.Stats.Stages[0].Panics, "the handler is not to blame")
			})
		})
	}
}

// quiet is a tracer that gives nothing back.
type quiet struct{ _ int }

func (*quiet) Publish(string, *bus.Envelope) {}

func (*quiet) Handle(context.Context, string, *bus.Envelope) (context.Context, func(error)) {
	return nil, nil
}

func TestTracerMayReturnNothing(t *testing.T) {
	bustest.Run(t, bus.Config{Tracer: &quiet{}}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(ctx context.Context, _ *bus.Envelope) error {
			if ctx == nil {
				return errors.New("no context")
			}
			return ctx.Err()
		})
		bustest.Start(t, b)
		r, err := s.Call(t.Context(), &bus.Envelope{})
		require.NoError(t, err)
		require.Equal(t, bus.Completed, r.End)
	})
}
