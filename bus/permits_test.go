package bus_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
)

func TestMaxHandlersBoundsAllStages(t *testing.T) {
	bustest.Run(t, bus.Config{MaxHandlers: 3}, func(t *testing.T, b *bus.Bus) {
		var now, most atomic.Int64
		var ends endLog
		var stages []*bus.Stage
		for i := range 5 {
			stages = append(stages, bustest.Stage(t, b, fmt.Sprint("s", i), bus.StageConfig{Concurrency: 4}, func(context.Context, *bus.Envelope) error {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Millisecond)
				now.Add(-1)
				return nil
			}))
		}
		bustest.Start(t, b)
		for range 40 {
			for i, s := range stages {
				e := &bus.Envelope{Slip: bus.Via(fmt.Sprint("s", (i+1)%5)), OnDone: ends.done}
				require.NoError(t, s.TryPublish(e))
			}
		}
		bustest.Drain(t, b)
		require.Equal(t, 200, ends.count(bus.Completed))
		require.LessOrEqual(t, most.Load(), int64(3))
		require.EqualValues(t, 3, most.Load())
	})
}

func TestNoStageStarves(t *testing.T) {
	for _, limit := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			bustest.Run(t, bus.Config{MaxHandlers: limit}, func(t *testing.T, b *bus.Bus) {
				work := func(context.Context, *bus.Envelope) error {
					time.Sleep(time.Millisecond)
					return nil
				}
				greedy := bustest.Stage(t, b, "greedy", bus.StageConfig{Concurrency: 8, Capacity: 5000}, work)
				var ends endLog
				var others []*bus.Stage
				for i := range 4 {
					others = append(others, bustest.Stage(t, b, fmt.Sprint("o", i), bus.StageConfig{}, work))
				}
				bustest.Start(t, b)
				for range 2000 {
					require.NoError(t, greedy.TryPublish(&bus.Envelope{}))
				}
				for _, s := range others {
					require.NoError(t, s.TryPublish(&bus.Envelope{OnDone: ends.done}))
				}
				time.Sleep(30 * time.Millisecond)
				synctest.Wait()
				require.Len(t, ends.all(), 4, "each got its turn long before the greedy one was done")
			})
		})
	}
}

func TestMaxHandlersLive(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Concurrency: 8}, gate.Handler(nil))
		other := bustest.Stage(t, b, "other", bus.StageConfig{}, gate.Handler(nil))
		bustest.Start(t, b)
		for range 60 {
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
		}
		settle()
		require.Equal(t, 8, gate.Waiting())
		limit := func(n int) {
			require.NoError(t, b.Tune(func(c *bus.Config) { c.MaxHandlers = n }))
			settle()
		}
		limit(2)
		require.Equal(t, 8, gate.Waiting(), "lowering cancels nothing")
		for waiting := 7; waiting >= 2; waiting-- {
			gate.Pass(1)
			settle()
			require.Equal(t, waiting, gate.Waiting())
		}
		require.NoError(t, other.TryPublish(&bus.Envelope{}))
		settle()
		gate.Pass(1)
		settle()
		require.Equal(t, 1, readStage(other).InFlight, "its reserved share")
		require.Equal(t, 2, gate.Waiting())
		limit(5)
		require.Equal(t, 5, gate.Waiting(), "raising starts what waits")
		limit(0)
		require.Equal(t, 9, gate.Waiting())
		gate.Open()
		bustest.Drain(t, b)
	})
}

// One worker: publishes from inside handlers and hops make progress.
func TestOneWorkerMakesProgress(t *testing.T) {
	bustest.Run(t, bus.Config{MaxHandlers: 1}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		next := bustest.Stage(t, b, "next", bus.StageConfig{Capacity: 1, HopTimeout: time.Millisecond}, ack)
		refused := 0
		a := bustest.Stage(t, b, "a", bus.StageConfig{Concurrency: 4}, func(ctx context.Context, _ *bus.Envelope) error {
			for range 3 {
				if next.Publish(ctx, &bus.Envelope{OnDone: ends.done}) != nil {
					refused++
				}
			}
			return nil
		})
		bustest.Start(t, b)
		for range 10 {
			require.NoError(t, a.TryPublish(&bus.Envelope{Slip: bus.Via("next"), OnDone: ends.done}))
		}
		bustest.Drain(t, b)
		require.Len(t, ends.all(), 40-refused)
	})
}
