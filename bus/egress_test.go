package bus_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
)

// full makes a stage of the given policy that holds one envelope in its
// handler and one in its queue, which is all it has room for; the escape place
// is still free.
func full(t *testing.T, b *bus.Bus, name string, p bus.FullPolicy, gate *bustest.Gate, h bus.Handler) *bus.Stage {
	t.Helper()
	return bustest.Stage(t, b, name, bus.StageConfig{Capacity: 1, Full: p}, gate.Handler(h))
}

func TestHopIntoAFullStage(t *testing.T) {
	for _, tc := range []struct {
		policy  bus.FullPolicy
		parks   bool
		evicted []any
	}{
		{policy: bus.Block, parks: true},
		{policy: bus.Reject, parks: true},
		{policy: bus.DropNewest, parks: true},
		{policy: bus.DropOldest},
	} {
		t.Run(tc.policy.String(), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				var v visits
				var ends endLog
				gate := bustest.NewGate()
				a := bustest.Stage(t, b, "a", bus.StageConfig{Capacity: 10, EgressCap: 5}, ack)
				next := full(t, b, "next", tc.policy, gate, v.noting("next"))
				bustest.Start(t, b)
				publish(t, next, bus.Slip{}, ends.done, 1, 2)
				publish(t, a, bus.Via("next"), ends.done, 3, 4, 5)
				if tc.parks {
					require.Equal(t, 2, readStage(next).Depth, "its capacity and the escape place")
					require.Equal(t, 2, readStage(a).Parked)
					require.Equal(t, 2, readStage(a).Depth)
					require.Empty(t, ends.all())
				} else {
					require.Equal(t, 1, readStage(next).Depth)
					require.Zero(t, readStage(a).Parked)
					require.Equal(t, 3, ends.count(bus.Dropped))
					for _, r := range ends.all() {
						require.Equal(t, reason.Evicted, r.Reason)
						require.Equal(t, "next", r.Stage)
					}
				}
				bustest.RequireBalanced(t, b)
				gate.Open()
				synctest.Wait()
				if tc.parks {
					require.Equal(t, []string{"next1", "next2", "next3", "next4", "next5"}, v.all())
				} else {
					require.Equal(t, []string{"next1", "next5"}, v.all())
				}
				require.Len(t, ends.all(), 5)
			})
		})
	}
}

func TestParkedHopsHoldTheUpstreamsCapacity(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		a := bustest.Stage(t, b, "a", bus.StageConfig{Capacity: 2, EgressCap: 8, Full: bus.Reject}, ack)
		full(t, b, "next", bus.Block, gate, nil)
		bustest.Start(t, b)
		publish(t, a, bus.Via("next"), nil, 1, 2, 3) // handler, queue, escape
		publish(t, a, bus.Via("next"), nil, 4, 5)    // parked
		require.ErrorIs(t, a.TryPublish(&bus.Envelope{}), bus.ErrFull)
		st := readStage(a)
		require.Equal(t, 2, st.Depth)
		require.Equal(t, 2, st.Parked)
		require.Zero(t, st.InFlight)
		gate.Pass(1)
		settle()
		require.NoError(t, a.TryPublish(&bus.Envelope{}), "one has moved on")
		gate.Open()
	})
}

func TestParkedHopsComeBeforePublishes(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var v visits
		gate := bustest.NewGate()
		a := bustest.Stage(t, b, "a", bus.StageConfig{EgressCap: 5}, ack)
		next := full(t, b, "next", bus.Block, gate, v.noting(""))
		bustest.Start(t, b)
		publish(t, next, bus.Slip{}, nil, 1, 2)
		waiting := make(chan error, 1)
		go func() { waiting <- next.Publish(t.Context(), &bus.Envelope{Payload: 9}) }()
		synctest.Wait()
		publish(t, a, bus.Via("next"), nil, 3, 4, 5) // the first of them takes the escape place
		require.Equal(t, 2, readStage(a).Parked)
		require.Equal(t, 1, readStage(next).Waiters)
		for range 2 { // room comes, and goes to the parked
			gate.Pass(1)
			settle()
			require.ErrorIs(t, next.TryPublish(&bus.Envelope{}), bus.ErrFull)
			require.Equal(t, 1, readStage(next).Waiters)
		}
		require.Zero(t, readStage(a).Parked)
		gate.Open()
		require.NoError(t, <-waiting)
		synctest.Wait()
		require.Equal(t, []string{"1", "2", "3", "4", "5", "9"}, v.all())
	})
}

func TestHopTimeoutLetters(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		gate := bustest.NewGate()
		a := bustest.Stage(t, b, "a", bus.StageConfig{EgressCap: 5, HopTimeout: time.Hour}, ack)
		next := bustest.Stage(t, b, "next", bus.StageConfig{Capacity: 1, HopTimeout: 2 * time.Second}, gate.Handler(nil))
		bustest.Start(t, b)
		publish(t, next, bus.Slip{}, nil, 1, 2)
		publish(t, a, bus.Via("next", "after"), ends.done, 3, 4)
		time.Sleep(time.Second)
		publish(t, a, bus.Via("next", "after"), ends.done, 5)
		require.Equal(t, 2, readStage(a).Parked)
		time.Sleep(time.Second - time.Nanosecond)
		require.Equal(t, 2, readStage(a).Parked)
		time.Sleep(time.Nanosecond)
		require.Equal(t, 1, readStage(a).Parked)
		require.Len(t, ends.all(), 1)
		time.Sleep(time.Second)
		require.Zero(t, readStage(a).Parked)
		letters := b.Letters().List(bus.LetterFilter{})
		require.Len(t, letters, 2)
		for i, l := range letters {
			require.Equal(t, reason.HopTimeout, l.Reason)
			require.Equal(t, "next", l.Stage)
			require.Equal(t, "a", l.From)
			require.Equal(t, []string{"after"}, l.Slip)
			require.Equal(t, 4+i, l.Envelope.Payload)
			require.Equal(t, 2*time.Second, l.Last.Sub(l.First))
			r := ends.all()[i]
			require.Equal(t, bus.DeadLettered, r.End)
			require.Equal(t, "a", r.Stage)
			hop, ok := errors.AsType[*bus.HopError](r.Err)
			require.True(t, ok)
			require.Equal(t, "no room for 2s", hop.Error()[len(`bus: hop from "a" to "next": `):][:len("no room for 2s")])
		}
		require.EqualValues(t, 2, readStage(a).DeadLettered)
		gate.Open()
		_, err := b.Stage("after", bus.StageConfig{})
		require.NoError(t, err)
	})
}

func TestEgressCapHoldsOneEdgeOnly(t *testing.T) {
	for _, c := range []bus.StageConfig{
		{EgressCap: 2},
		{EgressCap: 2, Batch: 64},
		{EgressCap: 2, Concurrency: 2, Batch: 1},
		{EgressCap: 2, Classes: []bus.Class{{Name: "only"}}},
	} {
		t.Run(c.Full.String(), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				var v visits
				started := func(slip string) (n int) {
					for _, s := range v.all() {
						if s == slip {
							n++
						}
					}
					return n
				}
				gate := bustest.NewGate()
				c.Capacity = 100
				a := bustest.Stage(t, b, "a", c, func(_ context.Context, e *bus.Envelope) error {
					v.add(e.Slip.String())
					return nil
				})
				full(t, b, "slow", bus.Block, gate, nil)
				bustest.Stage(t, b, "fast", bus.StageConfig{}, ack)
				bustest.Start(t, b)
				for range 10 {
					publish(t, a, bus.Via("slow"), nil, 0)
					publish(t, a, bus.Via("fast"), nil, 0)
					publish(t, a, bus.Slip{}, nil, 0)
				}
				st := readStage(a)
				require.Equal(t, 2, st.Parked)
				require.Equal(t, 3+2, started("slow"), "handler, queue, escape place, and the cap")
				require.Equal(t, 10, started("fast"))
				require.Equal(t, 10, started(""))
				require.Equal(t, 7, st.Depth)
				require.Zero(t, st.InFlight)
				gate.Pass(1)
				settle()
				require.Equal(t, 6, started("slow"))
				require.Equal(t, 2, readStage(a).Parked)
				require.NoError(t, a.Tune(func(c *bus.StageConfig) { c.EgressCap = 3 }))
				synctest.Wait()
				require.Equal(t, 7, started("slow"), "a raised cap is used at once")
				gate.Open()
			})
		})
	}
}

func TestOrderedStagesWaitBehindTheCap(t *testing.T) {
	for _, batch := range []int{1, 64} {
		bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
			var v visits
			gate := bustest.NewGate()
			a := bustest.Stage(t, b, "a", bus.StageConfig{Order: bus.InOrder, Batch: batch}, v.noting(""))
			full(t, b, "slow", bus.Block, gate, nil)
			bustest.Start(t, b)
			publish(t, a, bus.Via("slow"), nil, 1, 2, 3, 4, 5) // 4 is parked, 5 waits
			publish(t, a, bus.Slip{}, nil, 6)
			require.Equal(t, []string{"1", "2", "3", "4"}, v.all())
			gate.Pass(1)
			settle()
			require.Equal(t, []string{"1", "2", "3", "4", "5", "6"}, v.all())
			gate.Open()
		})
	}
}

func TestPressureTravelsToThePublisher(t *testing.T) {
	for _, c := range []bus.StageConfig{
		{},
		{Concurrency: 2},
		{Batch: 64},
		{Order: bus.ByKey, Concurrency: 2},
		{Order: bus.InOrder},
	} {
		t.Run(c.Order.String(), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				var ends endLog
				gate := bustest.NewGate()
				c.Capacity = 4
				a := bustest.Stage(t, b, "a", c, ack)
				bustest.Stage(t, b, "b", c, ack)
				bustest.Stage(t, b, "c", c, gate.Handler(nil))
				bustest.Start(t, b)
				n := 0
				for a.TryPublish(&bus.Envelope{Slip: bus.Via("b", "c"), OnDone: ends.done}) == nil {
					synctest.Wait()
					n++
					require.Less(t, n, 100, "the third stage must hold the publisher back")
				}
				conc := max(1, c.Concurrency)
				// Three capacities, the handlers of the third stage, the escape places;
				// what is in a handler when its next stage fills up comes on top.
				require.GreaterOrEqual(t, n, 3*4+conc+1)
				require.LessOrEqual(t, n, 3*4+conc+2+2*conc)
				st := bustest.RequireBalanced(t, b)
				require.EqualValues(t, n, st.Pending)
				waited := make(chan error, 1)
				go func() { waited <- a.Publish(t.Context(), &bus.Envelope{Slip: bus.Via("b", "c"), OnDone: ends.done}) }()
				synctest.Wait()
				require.Empty(t, waited)
				gate.Pass(1 + conc)
				settle()
				require.Len(t, waited, 1, "room at the third stage reaches the publisher")
				require.NoError(t, <-waited)
				gate.Open()
				bustest.Drain(t, b)
				require.Equal(t, n+1, ends.count(bus.Completed))
			})
		})
	}
}

// Nothing waits in a parked hop but the envelope: with a single permit for the
// whole bus, and one worker, the stages behind go on.
func TestParkedHopsHoldNoPermit(t *testing.T) {
	bustest.Run(t, bus.Config{MaxHandlers: 1}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		a := bustest.Stage(t, b, "a", bus.StageConfig{Capacity: 50, EgressCap: 20}, ack)
		bustest.Stage(t, b, "b", bus.StageConfig{Capacity: 1}, func(context.Context, *bus.Envelope) error {
			time.Sleep(time.Millisecond)
			return nil
		})
		bustest.Start(t, b)
		for range 50 {
			require.NoError(t, a.Publish(t.Context(), &bus.Envelope{Slip: bus.Via("b"), OnDone: ends.done}))
		}
		bustest.Drain(t, b)
		require.Equal(t, 50, ends.count(bus.Completed))
	})
}

func TestRemoveHandlerLettersWhatComesFromParking(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		gate := bustest.NewGate()
		a := bustest.Stage(t, b, "a", bus.StageConfig{EgressCap: 5}, ack)
		next := full(t, b, "next", bus.Block, gate, nil)
		bustest.Start(t, b)
		publish(t, next, bus.Slip{}, ends.done, 1, 2)
		publish(t, a, bus.Via("next"), ends.done, 3, 4, 5)
		go func() { _ = next.Publish(t.Context(), &bus.Envelope{Payload: 6, OnDone: ends.done}) }()
		synctest.Wait()
		require.NoError(t, next.RemoveHandler())
		synctest.Wait()
		require.Equal(t, 5, ends.count(bus.DeadLettered), "all but the one in the handler")
		gate.Open()
	})
}
