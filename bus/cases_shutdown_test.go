package bus_test

import (
	"context"
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

// fill publishes n envelopes, and waits after each of the first handlers ones,
// so that a handler has it.
func fill(t *testing.T, s *bus.Stage, n, handlers int, done func(bus.Result)) {
	t.Helper()
	for i := range n {
		require.NoError(t, s.Publish(t.Context(), &bus.Envelope{OnDone: done}))
		if i < handlers {
			synctest.Wait()
		}
	}
}

func TestB084_RunDrainsWithinItsGrace(t *testing.T) {
	for name, stuck := range map[string]bool{"drains": false, "stuck": true} {
		t.Run(name, func(t *testing.T) {
			bustest.Run(t, bus.Config{Grace: 5 * time.Second}, func(t *testing.T, b *bus.Bus) {
				gate := bustest.NewGate()
				s := bustest.Stage(t, b, "s", bus.StageConfig{Concurrency: 20}, func(context.Context, *bus.Envelope) error {
					return gate.Wait(context.Background()) // ignores its own context
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- b.Run(ctx) }()
				synctest.Wait()
				ends := 0
				fill(t, s, 120, 20, func(bus.Result) { ends++ })
				start := time.Now()
				cancel()
				synctest.Wait()
				require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrClosed, "intake stops at once")
				time.Sleep(2 * time.Second)
				if !stuck {
					gate.Open()
				}
				err := <-ended
				r, _ := b.Shutdown(t.Context())
				synctest.Wait()
				require.Equal(t, 120, ends, "each has its end")
				if stuck {
					require.ErrorIs(t, err, bus.ErrNotDrained)
					require.Equal(t, 5*time.Second, time.Since(start))
					require.EqualValues(t, 120, r.Stats.Abandoned)
					require.Len(t, r.Stuck, 20)
					require.Contains(t, r.String(), `stage "s"`)
					gate.Open()
					return
				}
				require.NoError(t, err)
				require.Equal(t, 2*time.Second, time.Since(start))
				require.EqualValues(t, 120, r.Stats.Completed)
			})
		})
	}
}

// TestB084_SecondSignalEndsTheWait: a second shutdown with less time, or a
// Close, ends the first.
func TestB084_SecondSignalEndsTheWait(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, gate.Handler(nil))
		bustest.Start(t, b)
		fill(t, s, 3, 1, nil)
		start := time.Now()
		ended := make(chan error, 1)
		go func() {
			_, err := b.Shutdown(context.Background())
			ended <- err
		}()
		time.Sleep(time.Second)
		require.ErrorIs(t, b.Close(), bus.ErrNotDrained)
		require.ErrorIs(t, <-ended, bus.ErrNotDrained)
		require.Equal(t, time.Second, time.Since(start))
		synctest.Wait()
		require.EqualValues(t, 3, bustest.RequireBalanced(t, b).Abandoned)
	})
}

func TestB084_NothingRunningEndsAtOnce(t *testing.T) {
	bustest.Run(t, bus.Config{Grace: time.Hour}, func(t *testing.T, b *bus.Bus) {
		bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		require.NoError(t, b.Run(ctx))
		require.Zero(t, time.Since(start))
	})
}

func TestB085_HandlerIgnoresItsContext(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		returned := false
		s := bustest.Stage(t, b, "s", bus.StageConfig{HandlerTimeout: 10 * time.Second}, func(context.Context, *bus.Envelope) error {
			time.Sleep(60 * time.Second)
			returned = true
			return nil
		})
		bustest.Start(t, b)
		fill(t, s, 2, 1, nil)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		require.Zero(t, bustest.RequireBalanced(t, b).Stages[0].Stuck)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, bustest.RequireBalanced(t, b).Stages[0].Stuck, "over its limit")
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := b.Shutdown(ctx)
		require.ErrorIs(t, err, bus.ErrNotDrained)
		require.Equal(t, time.Second, time.Since(start))
		require.False(t, r.Drained)
		require.Equal(t, time.Second, r.Took)
		require.Len(t, r.Stuck, 1)
		require.Equal(t, "s", r.Stuck[0].Stage)
		require.NotZero(t, r.Stuck[0].ID)
		require.Equal(t, 12*time.Second, r.Stuck[0].Age)
		require.True(t, r.Stuck[0].Overdue)
		require.Len(t, r.Abandoned, 2)
		require.Contains(t, r.String(), "12s")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, returned)
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 1, st.Stages[0].Late, "its settlement is ignored")
		require.Zero(t, st.Completed)
	})
}

func TestB086_TwoDrainsWaitForEverything(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		seen := map[uint64]int{}
		s := bustest.Stage(t, b, "s", bus.StageConfig{
			Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Minute},
		}, func(_ context.Context, e *bus.Envelope) error {
			time.Sleep(time.Second)
			seen[e.ID()]++
			if e.Payload == "retry" && e.Attempt() == 1 {
				return errFails
			}
			return nil
		})
		bustest.Start(t, b)
		for range 10 {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: "retry"}))
		}
		for range 100 {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
		}
		_, err := s.PublishAfter(t.Context(), time.Hour, &bus.Envelope{})
		require.NoError(t, err)
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				r, err := b.Shutdown(context.Background())
				if err != nil || r.Stats.Completed != 111 || time.Since(start) < time.Hour {
					t.Errorf("%v after %v: %s", err, time.Since(start), r.String())
				}
			})
		}
		wg.Wait()
		require.Len(t, seen, 111)
		for id, n := range seen {
			require.LessOrEqual(t, n, 2, id)
		}
		synctest.Wait()
		st := bustest.RequireBalanced(t, b).Stages[0]
		require.EqualValues(t, 121, st.Delivered)
		require.EqualValues(t, 10, st.Retried)
	})
}

// TestB086_NoWaitForWhatIsDueAfterTheDeadline: the rest is drained, and what
// could not come in time is reported at once.
func TestB086_NoWaitForWhatIsDueAfterTheDeadline(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		_, err := s.PublishAfter(t.Context(), time.Hour, &bus.Envelope{})
		require.NoError(t, err)
		_, err = s.PublishAfter(t.Context(), time.Second, &bus.Envelope{})
		require.NoError(t, err)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := b.Shutdown(ctx)
		require.ErrorIs(t, err, bus.ErrNotDrained)
		require.Equal(t, time.Second, time.Since(start))
		require.EqualValues(t, 1, r.Stats.Completed)
		require.EqualValues(t, 1, r.Stats.Abandoned)
	})
}

func TestB087_ContextOfRunEndsWhileWorkIsQueued(t *testing.T) {
	bustest.Run(t, bus.Config{Grace: 2 * time.Second}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, gate.Handler(nil))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		synctest.Wait()
		var ends []bus.Result
		fill(t, s, 5, 1, func(r bus.Result) { ends = append(ends, r) })
		cancel()
		synctest.Wait()
		gate.Pass(1) // one is done in time, the next one hangs
		start := time.Now()
		require.ErrorIs(t, <-ended, bus.ErrNotDrained)
		require.Equal(t, 2*time.Second, time.Since(start))
		synctest.Wait()
		require.Len(t, ends, 5)
		abandoned := 0
		for _, r := range ends {
			if r.End == bus.Abandoned {
				require.Equal(t, reason.Shutdown, r.Reason)
				require.ErrorContains(t, r.Error(), "shutdown")
				abandoned++
			}
		}
		require.Equal(t, 4, abandoned)
		r, err := b.Shutdown(t.Context())
		require.ErrorIs(t, err, bus.ErrNotDrained)
		require.Len(t, r.Abandoned, 4)
		require.Len(t, r.Stuck, 1)
		synctest.Wait()
		require.Zero(t, bustest.RequireBalanced(t, b).Pending)
	})
}
