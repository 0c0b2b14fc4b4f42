package bus_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
)

// Tests named TestBnnn_... stand for the rows of docs/cases.md: faults that
// systems like this one have had, as scenarios that this one must survive.
// Waits are virtual wherever time matters, so a lost wake-up shows as a bubble
// in which everything is blocked, not as a slow test.

// caseCount returns how often a scenario repeats: few times, or as often as
// its row says when SEDA_LONG is set.
func caseCount(short, long int) int {
	if os.Getenv("SEDA_LONG") != "" {
		return long
	}
	return short
}

// caseStats reads one stage.
func caseStats(s *bus.Stage) bus.StageStats {
	var st bus.StageStats
	s.ReadStats(&st)
	return st
}

func caseAck(context.Context, *bus.Envelope) error { return nil }

// A handler publishes two envelopes to its own small stage for each one that
// it gets.
func TestB001_PublishFromInsideNeverStalls(t *testing.T) {
	const hop = 200 * time.Millisecond
	generations := caseCount(20, 100)
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var s *bus.Stage
		var accepted, refused atomic.Int64
		s = bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 16, HopTimeout: hop}, func(ctx context.Context, e *bus.Envelope) error {
			generation := e.Payload.(int)
			if generation == generations {
				return nil
			}
			for range 2 {
				began := time.Now()
				err := s.Publish(ctx, &bus.Envelope{Payload: generation + 1})
				assert.LessOrEqual(t, time.Since(began), hop)
				if err == nil {
					accepted.Add(1)
					continue
				}
				assert.ErrorIs(t, err, bus.ErrFull)
				refused.Add(1)
			}
			return nil
		})
		bustest.Start(t, b)
		for range 16 {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: 0}))
		}
		for range 10 {
			time.Sleep(hop / 3)
			synctest.Wait()
			began := time.Now()
			bustest.RequireBalanced(t, b)
			require.Zero(t, time.Since(began), "statistics answer at once")
		}
		r := bustest.Drain(t, b)
		require.EqualValues(t, 16+accepted.Load(), r.Stats.Completed)
		require.GreaterOrEqual(t, accepted.Load(), int64(16*generations-16))
		require.Positive(t, refused.Load(), "the stage was never full")
	})
}

// With one permit for the whole bus the nested publish waits for a stage that
// cannot run before it has returned.
func TestB001_OneWorkerMakesProgress(t *testing.T) {
	bustest.Run(t, bus.Config{MaxHandlers: 1}, func(t *testing.T, b *bus.Bus) {
		const n = 20
		var stages [2]*bus.Stage
		var handled, refused atomic.Int64
		for i := range stages {
			stages[i] = bustest.Stage(t, b, fmt.Sprintf("s%d", i), bus.StageConfig{Capacity: 1, HopTimeout: time.Second},
				func(ctx context.Context, e *bus.Envelope) error {
					handled.Add(1)
					if e.Payload.(int) == n {
						return nil
					}
					for range 2 {
						if err := stages[1-i].Publish(ctx, &bus.Envelope{Payload: e.Payload.(int) + 1}); err != nil {
							assert.ErrorIs(t, err, bus.ErrFull)
							refused.Add(1)
						}
					}
					return nil
				})
		}
		bustest.Start(t, b)
		require.NoError(t, stages[0].Publish(t.Context(), &bus.Envelope{Payload: 1}))
		r := bustest.Drain(t, b)
		require.GreaterOrEqual(t, handled.Load(), int64(n))
		require.Positive(t, refused.Load())
		require.EqualValues(t, handled.Load(), r.Stats.Completed)
	})
}

// A handler that publishes with a context of its own is an outside publisher:
// it waits as long as that allows, but everything else still answers and a
// shutdown frees it.
func TestB001_ShutdownFreesHandlerThatWaitsForItself(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var s *bus.Stage
		var err error
		s = bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1}, func(context.Context, *bus.Envelope) error {
			if err == nil {
				err = s.Publish(context.Background(), &bus.Envelope{})
			}
			if err == nil {
				err = s.Publish(context.Background(), &bus.Envelope{})
			}
			return nil
		})
		bustest.Start(t, b)
		require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
		time.Sleep(time.Hour)
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 2, st.Pending)
		require.Equal(t, 1, st.Stages[0].Waiters)
		r := bustest.Drain(t, b)
		require.ErrorIs(t, err, bus.ErrClosed)
		require.EqualValues(t, 2, r.Stats.Completed)
	})
}

func TestB002_RaisingConcurrencyStartsWaitingWork(t *testing.T) {
	for _, c := range []struct {
		name   string
		config bus.Config
		stage  bus.StageConfig
		raise  func(*bus.Bus, *bus.Stage, int) error
	}{
		{
			"stage",
			bus.Config{},
			bus.StageConfig{Concurrency: 1},
			func(_ *bus.Bus, s *bus.Stage, n int) error {
				return s.Tune(func(c *bus.StageConfig) { c.Concurrency = n })
			},
		},
		{
			"stage that claims chunks",
			bus.Config{},
			bus.StageConfig{Concurrency: 1, Batch: 64},
			func(_ *bus.Bus, s *bus.Stage, n int) error {
				return s.Tune(func(c *bus.StageConfig) { c.Concurrency = n })
			},
		},
		{
			"stage ordered by key",
			bus.Config{},
			bus.StageConfig{Concurrency: 1, Order: bus.ByKey},
			func(_ *bus.Bus, s *bus.Stage, n int) error {
				return s.Tune(func(c *bus.StageConfig) { c.Concurrency = n })
			},
		},
		{
			"bus",
			bus.Config{MaxHandlers: 1},
			bus.StageConfig{Concurrency: 5},
			func(b *bus.Bus, _ *bus.Stage, n int) error {
				return b.Tune(func(c *bus.Config) { c.MaxHandlers = n })
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			bustest.Run(t, c.config, func(t *testing.T, b *bus.Bus) {
				gate := bustest.NewGate()
				s := bustest.Stage(t, b, "s", c.stage, gate.Handler(nil))
				bustest.Start(t, b)
				for i := range 5 {
					require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Key: fmt.Sprint(i)}))
				}
				synctest.Wait()
				require.Equal(t, 1, gate.Waiting())
				require.NoError(t, c.raise(b, s, 5))
				synctest.Wait() // no time passes
				require.Equal(t, 5, gate.Waiting())
				bustest.RequireBalanced(t, b)

				for i := range 5 {
					require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Key: fmt.Sprint(i)}))
				}
				require.NoError(t, c.raise(b, s, 1))
				synctest.Wait()
				require.Equal(t, 5, gate.Waiting(), "lowering cancels nothing")
				for _, want := range []int{4, 3, 2, 1, 1, 1} {
					gate.Pass(1)
					synctest.Wait()
					require.Equal(t, want, gate.Waiting())
				}
				gate.Open()
				bustest.Drain(t, b)
				require.Equal(t, 10, gate.Passed())
			})
		})
	}
}

func TestB003_PanicHandsItsPlaceOn(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1}, func(context.Context, *bus.Envelope) error {
			panic("always")
		})
		bustest.Start(t, b)
		var publishers sync.WaitGroup
		began := time.Now()
		for range 5 {
			publishers.Go(func() { assert.NoError(t, s.Publish(t.Context(), &bus.Envelope{})) })
		}
		publishers.Wait()
		synctest.Wait()
		require.Zero(t, time.Since(began), "nothing waited for a timer")
		st := caseStats(s)
		require.EqualValues(t, 5, st.DeadLettered)
		require.EqualValues(t, 5, st.Panics)
		letters := b.Letters().List(bus.LetterFilter{})
		require.Len(t, letters, 5)
		for _, l := range letters {
			require.Equal(t, reason.Attempts, l.Reason)
			require.Contains(t, l.Error, "always")
		}
		bustest.Drain(t, b)
	})
}

// An executor retires just as the next envelope comes.
func TestB004_RetiringExecutorLosesNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		config bus.Config
		stage  bus.StageConfig
	}{
		{"one executor", bus.Config{}, bus.StageConfig{}},
		{"several executors", bus.Config{}, bus.StageConfig{Concurrency: 4}},
		{"chunks", bus.Config{}, bus.StageConfig{Concurrency: 2, Batch: 64}},
		{"one permit", bus.Config{MaxHandlers: 1}, bus.StageConfig{Concurrency: 4}},
		{"by key", bus.Config{}, bus.StageConfig{Concurrency: 4, Order: bus.ByKey}},
		{"classes", bus.Config{}, bus.StageConfig{Classes: []bus.Class{{Name: "a"}, {Name: "b"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bustest.Run(t, c.config, func(t *testing.T, b *bus.Bus) {
				s := bustest.Stage(t, b, "s", c.stage, caseAck)
				bustest.Start(t, b)
				n := caseCount(2_000, 1_000_000)
				done := make(chan bus.Result)
				onDone := func(r bus.Result) { done <- r }
				for i := range n {
					require.NoError(t, s.Publish(t.Context(), &bus.Envelope{OnDone: onDone}))
					r := <-done // nothing else could wake a stage that has missed it
					require.Equal(t, bus.Completed, r.End)
					for range i % 7 {
						runtime.Gosched() // meets the executor at another point of its end
					}
				}
				r := bustest.Drain(t, b)
				require.EqualValues(t, n, r.Stats.Completed)
			})
		})
	}
}

// With two publishers, one may find the executor at work that retires before
// it sees the envelope.
func TestB004_TwoPublishersMeetRetiringExecutor(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Concurrency: 2}, caseAck)
		bustest.Start(t, b)
		n := caseCount(2_000, 200_000)
		var publishers sync.WaitGroup
		for range 2 {
			publishers.Go(func() {
				for range n {
					r, err := s.Call(t.Context(), &bus.Envelope{})
					if !assert.NoError(t, err) || !assert.Equal(t, bus.Completed, r.End) {
						return
					}
				}
			})
		}
		publishers.Wait()
		r := bustest.Drain(t, b)
		require.EqualValues(t, 2*n, r.Stats.Completed)
	})
}

func TestB005_CallsAfterTheEndReturn(t *testing.T) {
	for _, end := range []struct {
		name string
		f    func(*bus.Bus) error
	}{
		{"shutdown", func(b *bus.Bus) error { _, err := b.Shutdown(context.Background()); return err }},
		{"close", (*bus.Bus).Close},
	} {
		t.Run(end.name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				s := bustest.Stage(t, b, "s", bus.StageConfig{}, caseAck)
				pull := bustest.Stage(t, b, "pull", bus.StageConfig{Pull: true}, nil)
				topic := bustest.Stage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
				_, err := topic.Subscribe("sub", bus.StageConfig{}, bus.LagWait, caseAck)
				require.NoError(t, err)
				bustest.Start(t, b)
				require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
				synctest.Wait()
				require.NoError(t, end.f(b))
				began := time.Now()
				for range 3 {
					requireClosed(t, b, s, pull, topic)
				}
				require.Zero(t, time.Since(began), "every call returned at once")
			})
		})
	}
}

// requireClosed makes every call that a closed bus has to answer.
func requireClosed(t *testing.T, b *bus.Bus, s, pull, topic *bus.Stage) {
	t.Helper()
	ctx := context.Background()
	e := &bus.Envelope{}
	publishAfter := func() error { _, err := s.PublishAfter(ctx, time.Hour, e); return err }
	call := func() error { _, err := s.Call(ctx, e); return err }
	batch := func() error { _, err := s.PublishBatch(ctx, make([]bus.Envelope, 2), nil); return err }
	receive := func() error { _, err := pull.Receive(ctx); return err }
	tryReceive := func() error { _, err := pull.TryReceive(); return err }
	register := func() error { _, err := b.Stage("late", bus.StageConfig{}); return err }
	subscribe := func() error {
		_, err := topic.Subscribe("late", bus.StageConfig{}, bus.LagWait, caseAck)
		return err
	}
	produce := func() error {
		batch := s.Producer().Begin(1)
		batch.Next()
		_, err := batch.Publish(ctx)
		return err
	}
	for name, err := range map[string]error{
		"Publish": s.Publish(ctx, e), "Bus.Publish": b.Publish(ctx, "s", e), "TryPublish": s.TryPublish(e),
		"PublishAfter": publishAfter(), "Call": call(), "PublishBatch": batch(), "Batch.Publish": produce(),
		"topic": topic.Publish(ctx, e), "pull": pull.Publish(ctx, e), "Receive": receive(), "TryReceive": tryReceive(),
		"Stage": register(), "Subscribe": subscribe(), "SubscribeStage": topic.SubscribeStage(s, bus.LagWait), "Start": b.Start(),
		"Tune":     s.Tune(func(c *bus.StageConfig) { c.Concurrency++ }),
		"Bus.Tune": b.Tune(func(c *bus.Config) { c.MaxHandlers++ }),
	} {
		require.ErrorIs(t, err, bus.ErrClosed, name)
	}
	if err := topic.Unsubscribe("sub"); err != nil {
		require.ErrorIs(t, err, bus.ErrNoStage)
	}
	require.NoError(t, s.RemoveHandler())
	b.Pause(bus.Hold{})
	require.True(t, b.Resume(""))
	s.Suspend(bus.Hold{})
	require.True(t, s.Resume(""))
	require.False(t, s.Cancel(1))
	require.False(t, s.CancelDelayed(1))
	require.Empty(t, s.InFlight())
	require.Empty(t, s.Delayed())
	r, err := b.Shutdown(ctx)
	require.NoError(t, err)
	require.True(t, r.Drained)
	require.NoError(t, b.Close())
	st := bustest.RequireBalanced(t, b)
	require.EqualValues(t, 1, st.Completed)
}

func TestB006_WaitForRoomIsBounded(t *testing.T) {
	full := func(t *testing.T, f func(t *testing.T, b *bus.Bus, s *bus.Stage, gate *bustest.Gate)) {
		bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
			gate := bustest.NewGate()
			s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1}, gate.Handler(func(_ context.Context, e *bus.Envelope) error {
				assert.NotEqual(t, "refused", e.Payload)
				return nil
			}))
			bustest.Start(t, b)
			for range 2 { // one in the handler, one queued
				require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
				synctest.Wait()
			}
			f(t, b, s, gate)
			gate.Open()
			r := bustest.Drain(t, b)
			require.EqualValues(t, 2, r.Stats.Completed)
		})
	}
	t.Run("timeout", func(t *testing.T) {
		full(t, func(t *testing.T, _ *bus.Bus, s *bus.Stage, _ *bustest.Gate) {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := s.Publish(ctx, &bus.Envelope{Payload: "refused"})
			require.ErrorIs(t, err, bus.ErrFull)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 200*time.Millisecond, time.Since(began))
		})
	})
	t.Run("canceled before", func(t *testing.T) {
		full(t, func(t *testing.T, _ *bus.Bus, s *bus.Stage, _ *bustest.Gate) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			began := time.Now()
			err := s.Publish(ctx, &bus.Envelope{Payload: "refused"})
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, bus.ErrRejected)
			require.Zero(t, time.Since(began))
		})
	})
	t.Run("shut down", func(t *testing.T) {
		full(t, func(t *testing.T, b *bus.Bus, s *bus.Stage, _ *bustest.Gate) {
			began := time.Now()
			result := make(chan error, 1)
			go func() { result <- s.Publish(context.Background(), &bus.Envelope{Payload: "refused"}) }()
			time.Sleep(300 * time.Millisecond)
			synctest.Wait()
			require.Empty(t, result)
			go func() { _, _ = b.Shutdown(context.Background()) }() // ended by the drain that follows
			require.ErrorIs(t, <-result, bus.ErrClosed)
			require.Equal(t, 300*time.Millisecond, time.Since(began))
		})
	})
}

// Publishers give up at the very moments at which room is made.
func TestB006_NeverBothRefusedAndDelivered(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		const period = 10 * time.Millisecond
		n := caseCount(100, 2_000)
		delivered := make([]atomic.Int32, 8*n)
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1}, func(_ context.Context, e *bus.Envelope) error {
			delivered[e.Payload.(int)].Add(1)
			time.Sleep(period)
			return nil
		})
		bustest.Start(t, b)
		accepted := make([]bool, len(delivered))
		var publishers sync.WaitGroup
		for p := range 8 {
			publishers.Go(func() {
				for i := range n {
					ctx, cancel := context.WithTimeout(t.Context(), 2*period)
					err := s.Publish(ctx, &bus.Envelope{Payload: p*n + i})
					cancel()
					accepted[p*n+i] = err == nil
					if err != nil && !errors.Is(err, bus.ErrFull) {
						t.Error(err)
					}
				}
			})
		}
		publishers.Wait()
		r := bustest.Drain(t, b)
		var yes uint64
		for i := range accepted {
			want := int32(0)
			if accepted[i] {
				want = 1
				yes++
			}
			require.Equal(t, want, delivered[i].Load(), "envelope %d", i)
		}
		require.Equal(t, yes, r.Stats.Completed)
		require.NotZero(t, r.Stats.Stages[0].Refused)
		require.Less(t, yes, uint64(len(accepted)))
	})
}
