package bus_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
)

// Long handlers of one stage fill all that they may of the bus's limit; a
// stage with nothing running has its share kept.
func TestB032_EveryStageKeepsAReservedShare(t *testing.T) {
	bustest.Run(t, bus.Config{MaxHandlers: 8}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		long := bustest.Stage(t, b, "long", bus.StageConfig{Concurrency: 8}, gate.Handler(nil))
		urgent := bustest.Stage(t, b, "urgent", bus.StageConfig{}, caseAck)
		bustest.Start(t, b)
		for range 20 {
			require.NoError(t, long.Publish(t.Context(), &bus.Envelope{}))
		}
		synctest.Wait()
		require.Equal(t, 7, gate.Waiting())
		began := time.Now()
		_, err := urgent.Call(t.Context(), &bus.Envelope{})
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		require.Equal(t, 7, gate.Waiting(), "the share is kept afterwards")

		late := bustest.Stage(t, b, "late", bus.StageConfig{}, caseAck)
		_, err = late.Call(t.Context(), &bus.Envelope{}) // takes the one that urgent has kept
		require.NoError(t, err)
		gate.Open()
		bustest.Drain(t, b)
		require.Equal(t, 20, gate.Passed())
	})
}

// A stage that comes when all permits are taken gets the next one.
func TestB032_LateStageGetsTheNextPermit(t *testing.T) {
	bustest.Run(t, bus.Config{MaxHandlers: 8}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		long := bustest.Stage(t, b, "long", bus.StageConfig{Concurrency: 8}, gate.Handler(nil))
		bustest.Start(t, b)
		for range 100 {
			require.NoError(t, long.Publish(t.Context(), &bus.Envelope{}))
		}
		synctest.Wait()
		require.Equal(t, 8, gate.Waiting())
		late := []*bus.Stage{
			bustest.Stage(t, b, "late1", bus.StageConfig{}, caseAck),
			bustest.Stage(t, b, "late2", bus.StageConfig{}, caseAck),
		}
		completed := func() uint64 { return caseStats(late[0]).Completed + caseStats(late[1]).Completed }
		for _, s := range late {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
		}
		synctest.Wait()
		require.Zero(t, completed())
		gate.Pass(2)
		synctest.Wait()
		require.EqualValues(t, 2, completed())
		gate.Open()
		bustest.Drain(t, b)
		require.Equal(t, 100, gate.Passed())
	})
}

// The highest class always has work; the lowest gets its minimum share.
func TestB033_LowClassIsServedWithinItsShare(t *testing.T) {
	const share = 5 // percent
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		high, low := &bus.Meta{Class: "high"}, &bus.Meta{Class: "low"}
		began := time.Now()
		var lowAt time.Duration
		highBefore, highAfter := 0, 0
		s := bustest.Stage(t, b, "s", bus.StageConfig{
			Capacity: 50, Classes: []bus.Class{{Name: "high"}, {Name: "low", MinShare: share}},
		}, func(_ context.Context, e *bus.Envelope) error {
			time.Sleep(10 * time.Millisecond)
			switch {
			case e.Meta == low:
				lowAt = time.Since(began)
			case lowAt == 0:
				highBefore++
			default:
				highAfter++
			}
			return nil
		})
		bustest.Start(t, b)
		for range 20 {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Meta: high}))
		}
		require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Meta: low}))
		for time.Since(began) < 10*time.Second {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Meta: high}))
		}
		bustest.Drain(t, b)
		require.Positive(t, lowAt)
		require.LessOrEqual(t, lowAt, 2*time.Second)
		require.LessOrEqual(t, highBefore, 1+100/share, "one may have been in the handler")
		require.Greater(t, highAfter, 500)
	})
}

// Without a minimum share the order is strictly by class, then first in, first
// out.
func TestB033_StrictClassesAreServedByClassThenAge(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		classes := []string{"high", "middle", "low"}
		var got []string
		s := bustest.Stage(t, b, "s", bus.StageConfig{
			Classes: []bus.Class{{Name: "high", Strict: true}, {Name: "middle", Strict: true}, {Name: "low", Strict: true}},
		}, func(_ context.Context, e *bus.Envelope) error {
			got = append(got, e.Payload.(string))
			return nil
		})
		bustest.Start(t, b)
		s.Suspend(bus.Hold{})
		var want []string
		for i := range 300 {
			class := classes[i*7%3]
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: fmt.Sprintf("%s %03d", class, i), Meta: &bus.Meta{Class: class}}))
		}
		for c := range classes {
			for i := range 300 {
				if i*7%3 == c {
					want = append(want, fmt.Sprintf("%s %03d", classes[c], i))
				}
			}
		}
		require.True(t, s.Resume(""))
		bustest.Drain(t, b)
		require.Equal(t, want, got)
	})
}

// The only permit of the bus and the only worker of the stage are free while
// an envelope waits for its retry.
func TestB034_WaitingRetryHoldsNothing(t *testing.T) {
	const backoff = 5 * time.Second
	for _, c := range []struct {
		order  bus.Order
		others time.Duration // when the others are handled
	}{
		{bus.Unordered, 0},
		{bus.ByKey, 0},
		{bus.InOrder, backoff}, // the option that asks for it
	} {
		t.Run(c.order.String(), func(t *testing.T) {
			bustest.Run(t, bus.Config{MaxHandlers: 1}, func(t *testing.T, b *bus.Bus) {
				began := time.Now()
				at := map[string]time.Duration{}
				s := bustest.Stage(t, b, "s", bus.StageConfig{
					Order: c.order, Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: backoff},
				}, func(_ context.Context, e *bus.Envelope) error {
					if e.Key == "A" && e.Attempt() == 1 {
						return assert.AnError
					}
					at[e.Key] = time.Since(began)
					return nil
				})
				other := bustest.Stage(t, b, "other", bus.StageConfig{}, caseAck)
				bustest.Start(t, b)
				for k := 'A'; k <= 'Z'; k++ {
					require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Key: string(k)}))
				}
				time.Sleep(time.Second)
				synctest.Wait()
				st := bustest.RequireBalanced(t, b)
				require.Equal(t, 1, st.Stages[0].Delayed)
				require.Zero(t, st.Stages[0].InFlight)
				require.Zero(t, st.Handlers)
				_, err := other.Call(t.Context(), &bus.Envelope{})
				require.NoError(t, err)
				require.Equal(t, time.Second, time.Since(began))
				bustest.Drain(t, b)
				require.Len(t, at, 26)
				for key, when := range at {
					want := c.others
					if key == "A" {
						want = backoff
					}
					require.Equal(t, want, when, key)
				}
			})
		})
	}
}

// An envelope that waits for its time is published again and again: that is
// refused, and does not move it.
func TestB035_PublishingAgainMovesNothing(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		const wait = 200 * time.Millisecond
		began := time.Now()
		var at []time.Duration
		s := bustest.Stage(t, b, "s", bus.StageConfig{DedupWindow: 100}, func(context.Context, *bus.Envelope) error {
			at = append(at, time.Since(began))
			return nil
		})
		bustest.Start(t, b)
		for i := range 100 {
			e := bus.Envelope{Meta: &bus.Meta{Idempotency: fmt.Sprint("k", i/20)}}
			_, err := s.PublishAfter(t.Context(), wait, &e)
			if i%20 == 0 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, bus.ErrDuplicate)
			}
			time.Sleep(10 * time.Millisecond)
		}
		r := bustest.Drain(t, b)
		require.Equal(t, []time.Duration{wait, 2 * wait, 3 * wait, 4 * wait, 5 * wait}, at)
		require.EqualValues(t, 95, r.Stats.Refused[reason.Duplicate])
	})
}

func TestB036_HungSubscriberHoldsNobodyUp(t *testing.T) {
	for _, c := range []struct { // six copies: one in the handler, two queued, three too many
		lag                  bus.Lag
		dropped, subscribers int
	}{
		{lag: bus.LagWait, subscribers: 2},
		{lag: bus.LagDrop, dropped: 3, subscribers: 2},
		{lag: bus.LagDetach, dropped: 1, subscribers: 1},
	} {
		t.Run(c.lag.String(), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				gate := bustest.NewGate()
				topic := bustest.Stage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
				hung, err := topic.Subscribe("a", bus.StageConfig{Capacity: 2}, c.lag, gate.Handler(nil))
				require.NoError(t, err)
				var mu sync.Mutex
				var got []int
				_, err = topic.Subscribe("b", bus.StageConfig{}, bus.LagWait, func(_ context.Context, e *bus.Envelope) error {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, e.Payload.(int))
					return nil
				})
				require.NoError(t, err)
				bustest.Start(t, b)
				began := time.Now()
				for i := range 6 {
					require.NoError(t, topic.Publish(t.Context(), &bus.Envelope{Payload: i}))
					synctest.Wait()
					require.Equal(t, i, got[len(got)-1], "b has its copy at once")
				}
				require.Zero(t, time.Since(began))
				st := bustest.RequireBalanced(t, b)
				require.Equal(t, "topic.a", hung.Name())
				lagging := caseStats(hung)
				require.Equal(t, 1, lagging.InFlight)
				require.GreaterOrEqual(t, lagging.Depth, 2)
				require.EqualValues(t, c.dropped, lagging.Dropped[reason.Lag])
				require.Equal(t, c.subscribers, len(topic.Subscribers()))
				require.Equal(t, c.lag == bus.LagWait, st.Stages[0].Lagging > 0)
				gate.Open()
				r := bustest.Drain(t, b)
				require.EqualValues(t, 6, r.Stats.Accepted)
				require.EqualValues(t, 6-c.dropped, r.Stats.Completed)
				require.EqualValues(t, c.dropped, r.Stats.Dropped[reason.Lag])
			})
		})
	}
}
