package bus_test

import (
	"context"
	"errors"
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
)

// What an operator has paused, nothing automatic resumes.
func TestB088_ReasonsForAPauseAreKeptApart(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var handled atomic.Int64
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 4, Full: bus.Reject}, func(context.Context, *bus.Envelope) error {
			handled.Add(1)
			return nil
		})
		bustest.Start(t, b)
		s.Suspend(bus.Hold{Why: "maintenance"})
		s.Suspend(bus.Hold{By: "flow", Why: "far end is full", For: time.Minute})
		s.Suspend(bus.Hold{By: "flow", Why: "still full"}) // replaces its own
		still := func(holders ...string) {
			t.Helper()
			synctest.Wait()
			require.Zero(t, handled.Load())
			require.True(t, caseStats(s).Suspended)
			var by []string
			for _, h := range s.Holds() {
				by = append(by, h.By)
			}
			require.ElementsMatch(t, holders, by)
		}
		still("operator", "flow")
		for range 4 { // driven full
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
		}
		require.ErrorIs(t, s.Publish(t.Context(), &bus.Envelope{}), bus.ErrFull)
		still("operator", "flow")
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Concurrency, c.Capacity = 4, 8 }))
		still("operator", "flow")
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Full = bus.DropOldest }))
		still("operator", "flow")
		require.False(t, s.Resume("tuner"), "who holds nothing lifts nothing")
		require.True(t, s.Resume("flow"))
		require.False(t, s.Resume("flow"))
		time.Sleep(time.Hour) // nor does time
		still("operator")
		require.Equal(t, "maintenance", s.Holds()[0].Why)
		require.True(t, s.Resume(""))
		synctest.Wait()
		require.EqualValues(t, 4, handled.Load())
		require.Empty(t, s.Holds())
	})
}

func TestB088_PausedAdmissionStaysPaused(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, caseAck)
		bustest.Start(t, b)
		b.Pause(bus.Hold{Why: "maintenance"})
		b.Pause(bus.Hold{By: "flow", For: time.Minute})
		require.ErrorIs(t, s.Publish(t.Context(), &bus.Envelope{}), bus.ErrPaused)
		late := bustest.Stage(t, b, "late", bus.StageConfig{}, caseAck)
		require.ErrorIs(t, late.Publish(t.Context(), &bus.Envelope{}), bus.ErrPaused, "registered while it is paused")
		time.Sleep(2 * time.Minute) // flow's hold has ended
		synctest.Wait()
		require.Len(t, b.Holds(), 1)
		require.Equal(t, "operator", b.Holds()[0].By)
		require.ErrorIs(t, s.Publish(t.Context(), &bus.Envelope{}), bus.ErrPaused)
		require.False(t, b.Resume("flow"))
		require.True(t, b.Resume("operator"))
		require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
		require.NoError(t, late.Publish(t.Context(), &bus.Envelope{}))
	})
}

// Once Suspend has returned, nothing starts: what is in flight then is all
// that still runs.
func TestB088_SuspendedStageStartsNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		stage bus.StageConfig
	}{
		{"one executor", bus.StageConfig{}},
		{"several executors", bus.StageConfig{Concurrency: 4}},
		{"chunks", bus.StageConfig{Concurrency: 2, Batch: 64}},
		{"by key", bus.StageConfig{Concurrency: 4, Order: bus.ByKey}},
		{"in order", bus.StageConfig{Order: bus.InOrder}},
		{"classes", bus.StageConfig{Classes: []bus.Class{{Name: "a"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				var suspended atomic.Bool
				var late, handled atomic.Int64
				var last atomic.Int64
				s := bustest.Stage(t, b, "s", c.stage, func(_ context.Context, e *bus.Envelope) error {
					if suspended.Load() {
						late.Add(1)
					}
					if c.stage.Concurrency == 0 { // one at a time, in order
						if want := last.Add(1); e.Payload.(int64) != want {
							t.Errorf("%d instead of %d", e.Payload, want)
						}
					}
					handled.Add(1)
					return nil
				})
				bustest.Start(t, b)
				n := caseCount(5_000, 200_000)
				var publisher sync.WaitGroup
				publisher.Go(func() {
					for i := range n {
						assert.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: int64(i + 1), Key: string(rune('a' + i%26))}))
					}
				})
				for handled.Load() < int64(n) {
					s.Suspend(bus.Hold{})
					running := caseStats(s).InFlight
					suspended.Store(true)
					for range 5 {
						runtime.Gosched()
					}
					suspended.Store(false)
					if got := late.Swap(0); got > int64(running) {
						t.Errorf("%d started while suspended, %d in flight", got, running)
						break
					}
					s.Resume("")
					for range 5 {
						runtime.Gosched()
					}
				}
				s.Resume("")
				publisher.Wait()
				r := bustest.Drain(t, b)
				require.EqualValues(t, n, r.Stats.Completed)
			})
		})
	}
}

// A topic is suspended and resumed while it copies.
func TestB088_SuspendedTopicCopiesEachOnce(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		topic := bustest.Stage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
		n := caseCount(5_000, 200_000)
		var seen [2][]atomic.Int32
		for i, name := range []string{"a", "b"} {
			seen[i] = make([]atomic.Int32, n)
			_, err := topic.Subscribe(name, bus.StageConfig{}, bus.LagWait, func(_ context.Context, e *bus.Envelope) error {
				seen[i][e.Payload.(int)].Add(1)
				return nil
			})
			require.NoError(t, err)
		}
		bustest.Start(t, b)
		var done atomic.Bool
		var publisher sync.WaitGroup
		publisher.Go(func() {
			defer done.Store(true)
			for i := range n {
				assert.NoError(t, topic.Publish(t.Context(), &bus.Envelope{Payload: i}))
			}
		})
		for i := 0; !done.Load(); i++ {
			topic.Suspend(bus.Hold{})
			runtime.Gosched()
			assert.NoError(t, topic.Tune(func(c *bus.StageConfig) { c.EgressCap = 1 + i%2 }))
			topic.Resume("")
			runtime.Gosched()
		}
		publisher.Wait()
		r := bustest.Drain(t, b)
		for i := range seen {
			for k := range seen[i] {
				require.EqualValues(t, 1, seen[i][k].Load(), "subscriber %d, envelope %d", i, k)
			}
		}
		require.EqualValues(t, n, r.Stats.Completed)
	})
}

// A producer can ask for the room that is left before it reads its source, and
// is told by the end of its wait that there is room again.
func TestB089_ProducerCanSlowDown(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		const period = 10 * time.Millisecond
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 8}, func(context.Context, *bus.Envelope) error {
			time.Sleep(period)
			return nil
		})
		bustest.Start(t, b)
		room := func() int {
			st := caseStats(s)
			return st.Capacity - st.Depth
		}
		require.Equal(t, 8, room())
		n := caseCount(300, 3_000)
		began := time.Now()
		for range n {
			if room() == 0 {
				require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrFull, "the figure is exact")
			}
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{})) // waits, without polling
			synctest.Wait()
		}
		bustest.Drain(t, b)
		require.Equal(t, time.Duration(n)*period, time.Since(began), "a wake-up was late")
	})
}

// Many producers wait in a small stage; every place that becomes free wakes
// one.
func TestB089_NoWakeUpIsLost(t *testing.T) {
	for _, c := range []struct {
		name  string
		stage bus.StageConfig
	}{
		{"one place", bus.StageConfig{Capacity: 1}},
		{"few places", bus.StageConfig{Capacity: 3, Concurrency: 4}},
		{"chunks", bus.StageConfig{Capacity: 64, Batch: 64}},
		{"by key", bus.StageConfig{Capacity: 4, Concurrency: 4, Order: bus.ByKey}},
		{"classes", bus.StageConfig{Capacity: 4, Classes: []bus.Class{{Name: "a"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				s := bustest.Stage(t, b, "s", c.stage, caseAck)
				bustest.Start(t, b)
				each := caseCount(150, 10_000)
				var accepted atomic.Int64
				var producers sync.WaitGroup
				for p := range 16 {
					producers.Go(func() {
						for i := range each {
							ctx, cancel := context.WithCancel(t.Context())
							if (p+i)%5 == 0 { // some give up just then
								go cancel()
							}
							err := s.Publish(ctx, &bus.Envelope{Key: string(rune('a' + p))})
							cancel()
							switch {
							case err == nil:
								accepted.Add(1)
							case !errors.Is(err, context.Canceled):
								t.Error(err)
							}
						}
					})
				}
				producers.Wait()
				r := bustest.Drain(t, b)
				require.EqualValues(t, accepted.Load(), r.Stats.Completed)
				require.GreaterOrEqual(t, accepted.Load(), int64(16*each*4/5))
			})
		})
	}
}
