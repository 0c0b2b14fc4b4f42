package bus_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
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

func keyed(key string) *bus.Envelope { return &bus.Envelope{Meta: &bus.Meta{Idempotency: key}} }

func TestDuplicatesAreRefused(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		handled := 0
		count := func(context.Context, *bus.Envelope) error { handled++; return nil }
		s := bustest.Stage(t, b, "s", bus.StageConfig{DedupWindow: 10}, count)
		off := bustest.Stage(t, b, "off", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		require.NoError(t, s.Publish(t.Context(), keyed("a")))
		for name, publish := range map[string]func() error{
			"publish": func() error { return s.Publish(t.Context(), keyed("a")) },
			"try":     func() error { return s.TryPublish(keyed("a")) },
			"later":   func() error { _, err := s.PublishAfter(t.Context(), time.Hour, keyed("a")); return err },
			"call":    func() error { _, err := s.Call(t.Context(), keyed("a")); return err },
			"batch":   func() error { _, err := s.PublishBatch(t.Context(), []bus.Envelope{*keyed("a")}, nil); return err },
		} {
			err := publish()
			require.ErrorIs(t, err, bus.ErrDuplicate, name)
			require.ErrorIs(t, err, bus.ErrRejected, name)
			synctest.Wait() // also when the first has long ended
		}
		for range 3 {
			require.NoError(t, s.TryPublish(keyed("")), "without a key there is nothing to compare")
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
			require.NoError(t, off.TryPublish(keyed("a")))
		}
		require.NoError(t, s.TryPublish(keyed("b")))
		synctest.Wait()
		require.Equal(t, 8, handled)
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 5, st.Stages[0].Refused[reason.Duplicate])
	})
}

func TestDedupNeverEatsARetry(t *testing.T) {
	c := bus.StageConfig{DedupWindow: 10, Retry: retry.Policy{MaxAttempts: 5, Kind: retry.Constant, Base: time.Second}}
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		attempts := 0
		s := bustest.Stage(t, b, "s", c, func(_ context.Context, e *bus.Envelope) error {
			if attempts++; attempts == 1 {
				e.Push("s") // comes back by itself
			}
			if e.Attempt() < 4 {
				return errFails
			}
			return nil
		})
		bustest.Start(t, b)
		r, err := s.Call(t.Context(), keyed("a"))
		require.NoError(t, err)
		require.Equal(t, bus.Completed, r.End)
		require.Equal(t, 8, attempts)
	})
}

func TestDedupWindowIsBounded(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{DedupWindow: 100, Capacity: 1 << 20}, acknowledge)
		bustest.Start(t, b)
		key := func(i int) *bus.Envelope { return keyed(fmt.Sprint("key ", i)) }
		for i := range 1000 {
			require.NoError(t, s.TryPublish(key(i)))
		}
		for i := 900; i < 1000; i++ {
			require.ErrorIs(t, s.TryPublish(key(i)), bus.ErrDuplicate, "the latest are remembered")
		}
		require.NoError(t, s.TryPublish(key(0)), "the oldest are forgotten")
		synctest.Wait()
	})
}

// A publish that fails for another reason has not been seen.
func TestDedupForgetsWhatWasRefused(t *testing.T) {
	for name, c := range map[string]struct {
		refuse func(b *bus.Bus, s *bus.Stage, r *bustest.Refuse)
		admit  func(b *bus.Bus, s *bus.Stage, r *bustest.Refuse)
		want   error
	}{
		"full": {
			func(_ *bus.Bus, s *bus.Stage, _ *bustest.Refuse) {
				s.Suspend(bus.Hold{})
				_, _ = s.TryPublish(&bus.Envelope{}), s.TryPublish(&bus.Envelope{})
			},
			func(_ *bus.Bus, s *bus.Stage, _ *bustest.Refuse) { s.Resume(""); synctest.Wait() },
			bus.ErrFull,
		},
		"shed": {
			func(_ *bus.Bus, _ *bus.Stage, r *bustest.Refuse) { r.Shed() },
			func(_ *bus.Bus, _ *bus.Stage, r *bustest.Refuse) { r.With(shedder.Verdict{}) },
			bus.ErrShed,
		},
		"paused": {
			func(b *bus.Bus, _ *bus.Stage, _ *bustest.Refuse) { b.Pause(bus.Hold{}) },
			func(b *bus.Bus, _ *bus.Stage, _ *bustest.Refuse) { b.Resume("") },
			bus.ErrPaused,
		},
		"no handler": {
			func(_ *bus.Bus, s *bus.Stage, _ *bustest.Refuse) { _ = s.RemoveHandler() },
			func(_ *bus.Bus, s *bus.Stage, _ *bustest.Refuse) { _ = s.Handle(acknowledge) },
			bus.ErrNoHandler,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				r := &bustest.Refuse{}
				s := bustest.Stage(t, b, "s", bus.StageConfig{
					DedupWindow: 10, Capacity: 2, Full: bus.Reject, Shedder: r.Shedder(), NoHandler: bus.NoHandlerReject,
				}, acknowledge)
				bustest.Start(t, b)
				c.refuse(b, s, r)
				require.ErrorIs(t, s.TryPublish(keyed("a")), c.want)
				require.ErrorIs(t, s.TryPublish(keyed("a")), c.want)
				c.admit(b, s, r)
				require.NoError(t, s.TryPublish(keyed("a")))
				require.ErrorIs(t, s.TryPublish(keyed("a")), bus.ErrDuplicate)
				synctest.Wait()
			})
		})
	}
}

func TestOneOfManyDuplicatesIsAccepted(t *testing.T) {
	b := bustest.New(t, bus.Config{})
	s := bustest.Stage(t, b, "s", bus.StageConfig{DedupWindow: 1000}, acknowledge)
	bustest.Start(t, b)
	var accepted atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 100 {
				if s.Publish(context.Background(), keyed(fmt.Sprint(i))) == nil {
					accepted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 100, accepted.Load())
	r := bustest.Drain(t, b)
	require.EqualValues(t, 100, r.Stats.Completed)
	require.EqualValues(t, 700, r.Stats.Refused[reason.Duplicate])
}

// A redrive that keeps its idempotency key is no duplicate.
func TestDedupLetsRedrivesIn(t *testing.T) {
	broken(t, bus.StageConfig{DedupWindow: 10}, func(t *testing.T, b *bus.Bus, m *brokenStage) {
		letter(t, m.s, *keyed("a"))
		m.mended.Store(true)
		require.Equal(t, 1, redrive(t, b, bus.RedriveOptions{Identity: bus.NewID}).Redriven)
		require.Len(t, m.seen, 1)
		require.ErrorIs(t, m.s.TryPublish(keyed("a")), bus.ErrDuplicate)
	})
}
