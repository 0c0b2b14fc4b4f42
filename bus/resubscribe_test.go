package bus_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
)

// A name can be subscribed again: the stage, its queue and its account stay,
// and the new handler takes over at once, whatever was claimed for the old one.
func TestSubscribeAgain(t *testing.T) {
	for _, order := range []bus.Order{bus.Unordered, bus.ByKey, bus.InOrder} {
		for _, batch := range []int{1, 64} {
			t.Run(fmt.Sprint(order, batch), func(t *testing.T) {
				bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
					var v visits
					gate := bustest.NewGate()
					config := bus.StageConfig{Order: order, Batch: batch}
					topic := topicOf(t, b, bus.StageConfig{})
					first := subscribe(t, topic, "s", config, bus.LagWait, gate.Handler(v.noting("old")))
					other := subscribe(t, topic, "other", bus.StageConfig{}, bus.LagWait, ack)
					bustest.Start(t, b)
					first.Suspend(bus.Hold{}) // so that one claim takes all three, if it may
					publish(t, topic, bus.Slip{}, nil, 1, 2, 3)
					first.Resume("")
					synctest.Wait()
					require.Equal(t, 1, gate.Waiting())

					require.NoError(t, topic.Unsubscribe("s"))
					require.Equal(t, []string{"topic.other"}, topic.Subscribers())
					publish(t, topic, bus.Slip{}, nil, 4) // nobody keeps it for s
					again, err := topic.Subscribe("s", config, bus.LagDrop, v.noting("new"))
					require.NoError(t, err)
					require.Same(t, first, again)
					require.Equal(t, []string{"topic.other", "topic.s"}, topic.Subscribers())
					publish(t, topic, bus.Slip{}, nil, 5)

					gate.Open()
					synctest.Wait()
					require.ElementsMatch(t, []string{"old1", "new2", "new3", "new5"}, v.all())
					require.EqualValues(t, 4, readStage(again).Completed)
					require.EqualValues(t, 5, readStage(other).Completed)
					bustest.RequireBalanced(t, b)
				})
			})
		}
	}
}

// What a second Subscribe refuses stays as it was, its handler as well.
func TestSubscribeAgainRefused(t *testing.T) {
	config := bus.StageConfig{Capacity: 10}
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var v visits
		topic := topicOf(t, b, bus.StageConfig{})
		subscribe(t, topic, "s", config, bus.LagWait, v.noting("s"))
		foreign := bustest.Stage(t, b, "topic.foreign", config, v.noting("foreign"))
		bustest.Start(t, b)
		refused := func(name string, c bus.StageConfig) {
			t.Helper()
			s, err := topic.Subscribe(name, c, bus.LagWait, v.noting("wrong"))
			require.ErrorIs(t, err, bus.ErrConflict)
			require.Nil(t, s)
		}
		refused("s", config) // subscribed
		refused("foreign", config)
		require.NoError(t, topic.SubscribeStage(foreign, bus.LagWait))
		require.NoError(t, topic.Unsubscribe("topic.foreign"))
		refused("foreign", config) // it was not made by Subscribe

		require.NoError(t, topic.Unsubscribe("s"))
		require.ErrorIs(t, topic.Unsubscribe("s"), bus.ErrNoStage)
		refused("s", bus.StageConfig{Capacity: 11})
		refused("s", bus.StageConfig{Capacity: 10, Order: bus.InOrder})
		s, _ := b.Lookup("topic.s")
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Capacity = 11 }))
		refused("s", config) // no longer the settings in force
		require.NoError(t, topic.SubscribeStage(s, bus.LagWait))
		refused("s", bus.StageConfig{Capacity: 11}) // subscribed as a stage
		publish(t, topic, bus.Slip{}, nil, 1)
		require.Equal(t, []string{"s1"}, v.all())

		require.NoError(t, topic.Unsubscribe("topic.s"))
		_, err := topic.Subscribe("s", bus.StageConfig{Capacity: 11}, bus.LagWait, v.noting("new"))
		require.NoError(t, err)
		publish(t, topic, bus.Slip{}, nil, 2)
		require.Equal(t, []string{"s1", "new2"}, v.all())
	})
}

// A subscriber that was detached comes back; so does one whose handler was
// removed, and one with Pull, which has none.
func TestSubscribeAgainAfter(t *testing.T) {
	t.Run("detached", func(t *testing.T) {
		bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
			var v visits
			gate := bustest.NewGate()
			config := bus.StageConfig{Capacity: 1}
			topic := topicOf(t, b, bus.StageConfig{NoHandler: bus.NoHandlerHold})
			subscribe(t, topic, "s", config, bus.LagDetach, gate.Handler(v.noting("old")))
			bustest.Start(t, b)
			publish(t, topic, bus.Slip{}, nil, 1, 2, 3, 4) // one handled, one queued, one too many, one held
			require.Empty(t, topic.Subscribers())
			gate.Open()
			synctest.Wait()
			_, err := topic.Subscribe("s", config, bus.LagDetach, v.noting("new"))
			require.NoError(t, err)
			synctest.Wait()
			require.Equal(t, []string{"old1", "old2", "new4"}, v.all())
		})
	})
	t.Run("handler removed", func(t *testing.T) {
		bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
			var v visits
			topic := topicOf(t, b, bus.StageConfig{})
			s := subscribe(t, topic, "s", bus.StageConfig{}, bus.LagWait, v.noting("old"))
			bustest.Start(t, b)
			require.NoError(t, topic.Unsubscribe("s"))
			require.NoError(t, s.RemoveHandler())
			_, err := topic.Subscribe("s", bus.StageConfig{}, bus.LagWait, v.noting("new"))
			require.NoError(t, err)
			publish(t, topic, bus.Slip{}, nil, 1)
			require.Equal(t, []string{"new1"}, v.all())
		})
	})
	t.Run("pull", func(t *testing.T) {
		bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
			config := bus.StageConfig{Pull: true}
			topic := topicOf(t, b, bus.StageConfig{})
			subscribe(t, topic, "s", config, bus.LagWait, nil)
			bustest.Start(t, b)
			publish(t, topic, bus.Slip{}, nil, 1)
			require.NoError(t, topic.Unsubscribe("s"))
			s, err := topic.Subscribe("s", config, bus.LagWait, nil)
			require.NoError(t, err)
			publish(t, topic, bus.Slip{}, nil, 2)
			for want := 1; want <= 2; want++ {
				l, err := s.TryReceive()
				require.NoError(t, err)
				require.Equal(t, want, l.Envelope().Payload)
				require.NoError(t, l.Ack())
			}
		})
	})
	t.Run("shutdown", func(t *testing.T) {
		bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
			topic := topicOf(t, b, bus.StageConfig{})
			subscribe(t, topic, "s", bus.StageConfig{}, bus.LagWait, ack)
			bustest.Start(t, b)
			require.NoError(t, topic.Unsubscribe("s"))
			bustest.Drain(t, b)
			_, err := topic.Subscribe("s", bus.StageConfig{}, bus.LagWait, ack)
			require.ErrorIs(t, err, bus.ErrClosed)
		})
	})
}

// Several subscribe and unsubscribe one name while others publish: of those
// that subscribe at once one succeeds, and every copy is handled once.
func TestSubscribeAgainWhileBusy(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		topic := topicOf(t, b, bus.StageConfig{})
		subscribe(t, topic, "stays", bus.StageConfig{}, bus.LagWait, ack)
		bustest.Start(t, b)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 50 {
					s, err := topic.Subscribe("s", bus.StageConfig{Concurrency: 2}, bus.LagWait, ack)
					if err != nil {
						assert.ErrorIs(t, err, bus.ErrConflict)
						continue
					}
					assert.NoError(t, topic.Unsubscribe(s.Name()))
				}
			})
			wg.Go(func() {
				for i := range 200 {
					assert.NoError(t, topic.Publish(t.Context(), &bus.Envelope{Payload: i}))
					if i%50 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 800, st.Completed)
		require.Equal(t, st.Copies.Made, st.Copies.Completed)
	})
}
