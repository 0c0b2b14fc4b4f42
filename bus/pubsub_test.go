package bus_test

import (
	"context"
	"errors"
	"fmt"
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

// topicOf registers a pub/sub stage.
func topicOf(t *testing.T, b *bus.Bus, c bus.StageConfig) *bus.Stage {
	t.Helper()
	c.Delivery = bus.PubSub
	return bustest.Stage(t, b, "topic", c, nil)
}

func subscribe(t *testing.T, topic *bus.Stage, name string, c bus.StageConfig, lag bus.Lag, h bus.Handler) *bus.Stage {
	t.Helper()
	s, err := topic.Subscribe(name, c, lag, h)
	require.NoError(t, err)
	return s
}

type cloned struct{ n int }

func (c *cloned) ClonePayload() any { return &cloned{c.n} }

func TestSubscribersHaveTheirOwnCopies(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		topic := topicOf(t, b, bus.StageConfig{})
		var seen []string
		var mu sync.Mutex
		ids := map[uint64]bool{}
		for _, name := range []string{"a", "b", "c"} {
			subscribe(t, topic, name, bus.StageConfig{}, bus.LagWait, func(_ context.Context, e *bus.Envelope) error {
				mu.Lock()
				defer mu.Unlock()
				h, _ := e.Header("h")
				seen = append(seen, fmt.Sprint(h, e.Payload.(*cloned).n, e.Slip.Len()))
				ids[e.ID()] = true
				e.Payload.(*cloned).n++
				e.Headers[0].Value = "changed"
				e.SetHeader("h", name)
				return nil
			})
		}
		require.Equal(t, []string{"topic.a", "topic.b", "topic.c"}, topic.Subscribers())
		bustest.Stage(t, b, "next", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			h, _ := e.Header("h")
			seen = append(seen, fmt.Sprint("next", h, e.Payload.(*cloned).n))
			return nil
		})
		bustest.Start(t, b)
		payload := &cloned{7}
		var ends endLog
		headers := []bus.Header{{Name: "h", Value: "1"}}
		require.NoError(t, topic.TryPublish(&bus.Envelope{Payload: payload, Headers: headers, Slip: bus.Via("next"), OnDone: ends.done}))
		synctest.Wait()
		require.Equal(t, []string{"17 0", "17 0", "17 0", "next17"}, seen)
		require.Len(t, ids, 3)
		require.Equal(t, "1", headers[0].Value)
		require.Len(t, ends.all(), 1)
		require.Equal(t, bus.Completed, ends.all()[0].End)
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 1, st.Accepted)
		require.EqualValues(t, 1, st.Completed)
		require.EqualValues(t, 3, st.Copies.Made)
		require.EqualValues(t, 3, st.Copies.Completed)
		require.EqualValues(t, 1, readStage(topic).Hopped)
	})
}

func TestARetryRepeatsNoOtherSubscriber(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		var v visits
		topic := topicOf(t, b, bus.StageConfig{})
		policy := retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: time.Second}
		subscribe(t, topic, "good", bus.StageConfig{Retry: policy}, bus.LagWait, v.noting("good"))
		subscribe(t, topic, "bad", bus.StageConfig{Retry: policy}, bus.LagWait, func(_ context.Context, e *bus.Envelope) error {
			v.add(fmt.Sprint("bad", e.Attempt()))
			if e.Attempt() < 3 {
				return errors.New("no")
			}
			return nil
		})
		bustest.Start(t, b)
		publish(t, topic, bus.Slip{}, ends.done, 1)
		require.Len(t, v.all(), 2)
		require.Empty(t, ends.all())
		require.Equal(t, 1, readStage(topic).InFlight)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.ElementsMatch(t, []string{"good1", "bad1", "bad2", "bad3"}, v.all())
		require.Equal(t, 1, ends.count(bus.Completed))
	})
}

func TestResultListsTheCopiesEnds(t *testing.T) {
	boom := errors.New("boom")
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		topic := topicOf(t, b, bus.StageConfig{})
		subscribe(t, topic, "good", bus.StageConfig{}, bus.LagWait, ack)
		subscribe(t, topic, "drops", bus.StageConfig{}, bus.LagWait, func(context.Context, *bus.Envelope) error { return bus.Discard("no need") })
		subscribe(t, topic, "fails", bus.StageConfig{}, bus.LagWait, func(context.Context, *bus.Envelope) error { return boom })
		next := bustest.Stage(t, b, "next", bus.StageConfig{}, ack)
		bustest.Start(t, b)
		publish(t, topic, bus.Via("next"), ends.done, 1)
		require.Len(t, ends.all(), 1)
		r := ends.all()[0]
		require.Equal(t, bus.DeadLettered, r.End)
		require.Equal(t, reason.Attempts, r.Reason)
		require.ErrorIs(t, r.Err, boom)
		require.Equal(t, "topic", r.Stage)
		got := map[string]bus.End{}
		for _, c := range r.Copies {
			got[c.Stage] = c.End
		}
		require.Equal(t, map[string]bus.End{
			"topic.good": bus.Completed, "topic.drops": bus.Dropped, "topic.fails": bus.DeadLettered,
		}, got)
		require.Zero(t, readStage(next).Entered, "it travels on only when all ended well")
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 1, st.DeadLettered)
		require.EqualValues(t, 1, st.Copies.Completed)
		require.EqualValues(t, 1, st.Copies.DeadLettered)
		require.EqualValues(t, 1, st.Copies.Dropped[reason.Discarded])
	})
}

func TestSubscriberLag(t *testing.T) {
	for _, lag := range []bus.Lag{bus.LagWait, bus.LagDrop, bus.LagDetach} {
		t.Run(fmt.Sprint(lag), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				var ends endLog
				gate := bustest.NewGate()
				good := 0
				topic := topicOf(t, b, bus.StageConfig{Capacity: 2, Full: bus.Reject})
				slow := subscribe(t, topic, "slow", bus.StageConfig{Capacity: 1}, lag, gate.Handler(nil))
				subscribe(t, topic, "good", bus.StageConfig{}, bus.LagWait, func(context.Context, *bus.Envelope) error {
					good++
					return nil
				})
				bustest.Start(t, b)
				accepted := 0
				for range 10 {
					if topic.TryPublish(&bus.Envelope{OnDone: ends.done}) == nil {
						accepted++
					}
					settle()
				}
				st := bustest.RequireBalanced(t, b)
				require.Equal(t, accepted, good, "the other subscriber is delayed by nothing")
				switch lag {
				case bus.LagWait:
					require.Equal(t, 1+1+2, accepted, "handler, queue, and the topic's places")
					require.Equal(t, 2, readStage(topic).Lagging)
					gate.Pass(1)
					settle()
					require.LessOrEqual(t, readStage(topic).Lagging, 1)
					require.NoError(t, topic.TryPublish(&bus.Envelope{OnDone: ends.done}))
					accepted++
				case bus.LagDrop:
					require.Equal(t, 10, accepted)
					require.EqualValues(t, 8, st.Copies.Dropped[reason.Lag])
					require.Equal(t, 8, ends.count(bus.Dropped))
				case bus.LagDetach:
					require.Equal(t, 10, accepted)
					require.EqualValues(t, 1, st.Copies.Dropped[reason.Lag])
					require.EqualValues(t, 1, readStage(slow).Detached+readStage(topic).Detached)
					require.Equal(t, []string{"topic.good"}, topic.Subscribers())
				}
				gate.Open()
				bustest.Drain(t, b)
				require.Len(t, ends.all(), accepted)
			})
		})
	}
}

func TestStageAndPullAsSubscribers(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		var v visits
		topic := topicOf(t, b, bus.StageConfig{})
		work := bustest.Stage(t, b, "work", bus.StageConfig{}, v.noting("work"))
		require.NoError(t, topic.SubscribeStage(work, bus.LagWait))
		require.ErrorIs(t, topic.SubscribeStage(work, bus.LagWait), bus.ErrConflict)
		require.ErrorIs(t, topic.SubscribeStage(topic, bus.LagWait), bus.ErrInvalid)
		require.ErrorIs(t, topic.SubscribeStage(nil, bus.LagWait), bus.ErrInvalid)
		require.ErrorIs(t, work.SubscribeStage(topic, bus.LagWait), bus.ErrInvalid)
		pull := subscribe(t, topic, "pull", bus.StageConfig{Pull: true}, bus.LagWait, nil)
		bustest.Start(t, b)
		publish(t, work, bus.Slip{}, ends.done, 0) // its own publishes go on
		publish(t, topic, bus.Slip{}, ends.done, 1)
		require.Equal(t, []string{"work0", "work1"}, v.all())
		require.Equal(t, 1, ends.count(bus.Completed))
		l, err := pull.TryReceive()
		require.NoError(t, err)
		require.Equal(t, 1, l.Envelope().Payload)
		require.NoError(t, l.Ack())
		synctest.Wait()
		require.Equal(t, 2, ends.count(bus.Completed))
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 2, st.Accepted)
		require.EqualValues(t, 2, st.Copies.Made)
	})
}

func TestTopicAsSubscriber(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		topic := topicOf(t, b, bus.StageConfig{})
		inner := bustest.Stage(t, b, "inner", bus.StageConfig{Delivery: bus.PubSub}, nil)
		require.NoError(t, topic.SubscribeStage(inner, bus.LagWait))
		require.ErrorIs(t, inner.SubscribeStage(topic, bus.LagWait), bus.ErrConflict, "no rings")
		fails := false
		for _, name := range []string{"x", "y"} {
			subscribe(t, inner, name, bus.StageConfig{}, bus.LagWait, func(context.Context, *bus.Envelope) error {
				if fails && name == "y" {
					return errors.New("no")
				}
				return nil
			})
		}
		subscribe(t, topic, "z", bus.StageConfig{}, bus.LagWait, ack)
		bustest.Start(t, b)
		publish(t, topic, bus.Slip{}, ends.done, 1)
		require.Equal(t, 1, ends.count(bus.Completed))
		fails = true
		publish(t, topic, bus.Slip{}, ends.done, 2)
		require.Equal(t, 1, ends.count(bus.DeadLettered))
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 2, st.Accepted)
		require.EqualValues(t, 8, st.Copies.Made)
	})
}

func TestASubscriberMustNotPushHops(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		topic := topicOf(t, b, bus.StageConfig{})
		next := bustest.Stage(t, b, "next", bus.StageConfig{}, ack)
		subscribe(t, topic, "a", bus.StageConfig{}, bus.LagWait, func(_ context.Context, e *bus.Envelope) error {
			e.Push("next")
			return nil
		})
		bustest.Start(t, b)
		publish(t, topic, bus.Slip{}, ends.done, 1)
		require.Equal(t, 1, ends.count(bus.DeadLettered))
		hop, ok := errors.AsType[*bus.HopError](ends.all()[0].Err)
		require.True(t, ok)
		require.Equal(t, "next", hop.To)
		require.Zero(t, readStage(next).Entered)
	})
}

// The published envelope travels on, also when its next stage is full.
func TestPublishedEnvelopeParks(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		gate := bustest.NewGate()
		topic := topicOf(t, b, bus.StageConfig{EgressCap: 10})
		subscribe(t, topic, "a", bus.StageConfig{}, bus.LagWait, ack)
		full(t, b, "next", bus.Block, gate, nil)
		bustest.Start(t, b)
		publish(t, topic, bus.Via("next"), ends.done, 1, 2, 3, 4, 5)
		st := readStage(topic)
		require.Equal(t, 2, st.Parked)
		require.Equal(t, 2, st.Depth)
		require.Zero(t, st.InFlight)
		require.Zero(t, st.Lagging)
		bustest.RequireBalanced(t, b)
		gate.Pass(1)
		settle()
		require.Equal(t, 1, readStage(topic).Parked)
		require.Zero(t, readStage(topic).Lagging)
		bustest.RequireBalanced(t, b)
		gate.Open()
		synctest.Wait()
		require.Equal(t, 5, ends.count(bus.Completed))
		require.Zero(t, readStage(topic).Parked)
	})
}

func TestTopicWithoutSubscribers(t *testing.T) {
	for _, policy := range []bus.NoHandler{bus.NoHandlerDeadLetter, bus.NoHandlerReject, bus.NoHandlerHold} {
		for _, had := range []bool{false, true} {
			t.Run(fmt.Sprint(policy, had), func(t *testing.T) {
				bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
					var ends endLog
					topic := topicOf(t, b, bus.StageConfig{NoHandler: policy})
					bustest.Start(t, b)
					if had {
						subscribe(t, topic, "was", bus.StageConfig{}, bus.LagWait, ack)
						require.NoError(t, topic.Unsubscribe("was"))
						require.ErrorIs(t, topic.Unsubscribe("was"), bus.ErrNoStage)
					}
					err := topic.TryPublish(&bus.Envelope{OnDone: ends.done})
					synctest.Wait()
					switch policy {
					case bus.NoHandlerDeadLetter:
						require.NoError(t, err)
						require.Equal(t, 1, ends.count(bus.DeadLettered))
						require.Equal(t, reason.NoHandler, ends.all()[0].Reason)
					case bus.NoHandlerReject:
						require.ErrorIs(t, err, bus.ErrNoHandler)
					case bus.NoHandlerHold:
						require.NoError(t, err)
						require.Equal(t, 1, readStage(topic).Depth)
						subscribe(t, topic, "now", bus.StageConfig{}, bus.LagWait, ack)
						synctest.Wait()
						require.Equal(t, 1, ends.count(bus.Completed), "a subscriber starts what waits")
					}
				})
			})
		}
	}
}

func TestUnsubscribeWhilePublishing(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		topic := topicOf(t, b, bus.StageConfig{})
		subscribe(t, topic, "stays", bus.StageConfig{}, bus.LagWait, ack)
		bustest.Start(t, b)
		var wg sync.WaitGroup
		const n = 300
		for range 2 {
			wg.Go(func() {
				for range n {
					if err := topic.Publish(t.Context(), &bus.Envelope{OnDone: ends.done}); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Microsecond)
				}
			})
		}
		wg.Go(func() {
			for i := range 40 {
				name := fmt.Sprint("s", i)
				if _, err := topic.Subscribe(name, bus.StageConfig{Capacity: 2}, bus.Lag(i%3), ack); err != nil {
					t.Error(err)
				}
				time.Sleep(5 * time.Microsecond)
				if err := topic.Unsubscribe(name); err != nil && i%3 != int(bus.LagDetach) {
					t.Error(err)
				}
			}
		})
		wg.Wait()
		bustest.Drain(t, b)
		require.Len(t, ends.all(), 2*n)
	})
}

// Slow subscribers with parked copies, in great numbers: each copy ends once.
func TestLaggingSubscribersLoseNothing(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		var mu sync.Mutex
		got := map[string][]int{}
		topic := topicOf(t, b, bus.StageConfig{Capacity: 8})
		for i := range 3 {
			name := fmt.Sprint("s", i)
			subscribe(t, topic, name, bus.StageConfig{Capacity: 1 + i}, bus.LagWait, func(_ context.Context, e *bus.Envelope) error {
				mu.Lock()
				got[name] = append(got[name], e.Payload.(int))
				mu.Unlock()
				if i == 1 {
					time.Sleep(time.Microsecond)
				}
				return nil
			})
		}
		bustest.Start(t, b)
		const n = 500
		for i := range n {
			require.NoError(t, topic.Publish(t.Context(), &bus.Envelope{Payload: i, OnDone: ends.done}))
		}
		bustest.Drain(t, b)
		require.Equal(t, n, ends.count(bus.Completed))
		for name, list := range got {
			require.Len(t, list, n, name)
			for i, v := range list {
				require.Equal(t, i, v, "%s keeps the publish order", name)
			}
		}
	})
}

// What a topic sends on to itself is no copy that lags.
func TestTopicThatLeadsToItselfIsCut(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		topic := bustest.Stage(t, b, "t", bus.StageConfig{Delivery: bus.PubSub, Capacity: 1}, nil)
		_, err := topic.Subscribe("s", bus.StageConfig{Concurrency: 9}, bus.LagWait, gate.Handler(nil))
		require.NoError(t, err)
		bustest.Start(t, b)
		for range 3 {
			require.NoError(t, topic.TryPublish(&bus.Envelope{Slip: bus.Via("t")}))
			synctest.Wait()
		}
		topic.Suspend(bus.Hold{})
		require.NoError(t, topic.TryPublish(&bus.Envelope{}))
		gate.Open()
		synctest.Wait()
		require.Positive(t, readStage(topic).Parked, "there is room for one above the capacity")
		_ = b.Close()
		synctest.Wait()
		require.Zero(t, readStage(topic).Lagging)
		bustest.RequireBalanced(t, b)
	})
}
