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

func TestTuneSetsEveryLiveSetting(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, ack)
		pull := bustest.Stage(t, b, "pull", bus.StageConfig{Pull: true}, nil)
		bustest.Start(t, b)
		want := s.Config()
		want.Capacity, want.Concurrency, want.Batch, want.EgressCap = 7, 3, 5, 2
		want.Full, want.HopTimeout, want.HandlerTimeout, want.MaxWaiters = bus.DropNewest, time.Second, time.Minute, 9
		want.Retry = retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: time.Second, Cap: time.Minute, Budget: 0.2}
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { *c = want }))
		require.Equal(t, want, s.Config())
		st := readStage(s)
		require.Equal(t, 7, st.Capacity)
		require.Equal(t, 3, st.Concurrency)
		require.Equal(t, bus.DropNewest, st.Full)
		require.Equal(t, 5, st.Batch)
		require.NoError(t, pull.Tune(func(c *bus.StageConfig) { c.MaxOutstanding, c.Lease = 3, time.Second }))
		require.Equal(t, 3, pull.Config().MaxOutstanding)
		require.Equal(t, time.Second, pull.Config().Lease)
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { *c = bus.StageConfig{} }), "zeros are the defaults")
		require.Equal(t, 1024, s.Config().Capacity)
	})
}

func TestTuneIsAllOrNothing(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Classes: []bus.Class{{Name: "a"}}}, ack)
		other := bustest.Stage(t, b, "other", bus.StageConfig{}, ack)
		before := s.Config()
		err := s.Tune(func(c *bus.StageConfig) {
			c.Capacity = 7
			c.Concurrency = -1
			c.HopTimeout = -1
			c.Classes[0].Name = "mutated"
		})
		require.ErrorIs(t, err, bus.ErrInvalid)
		require.ErrorContains(t, err, "Concurrency")
		require.ErrorContains(t, err, "HopTimeout")
		require.Equal(t, before, s.Config())
		require.ErrorIs(t, s.Tune(nil), bus.ErrInvalid)
		for field, change := range map[string]func(*bus.StageConfig){
			"Delivery":     func(c *bus.StageConfig) { c.Delivery = bus.PubSub },
			"Order":        func(c *bus.StageConfig) { c.Order = bus.InOrder },
			"Classes":      func(c *bus.StageConfig) { c.Classes = []bus.Class{{Name: "b"}} },
			"NoHandler":    func(c *bus.StageConfig) { c.NoHandler = bus.NoHandlerHold },
			"DeadLetterTo": func(c *bus.StageConfig) { c.DeadLetterTo = "s" },
			"Accepts":      func(c *bus.StageConfig) { c.Accepts = bus.TypeOf[int]() },
			"DedupWindow":  func(c *bus.StageConfig) { c.DedupWindow = 3 },
			"Pull":         func(c *bus.StageConfig) { c.Pull = true },
			"ExactTiming":  func(c *bus.StageConfig) { c.ExactTiming = true },
			"Shedder":      func(c *bus.StageConfig) { c.Shedder = new(bustest.Refuse).Shedder() },
		} {
			err := other.Tune(func(c *bus.StageConfig) {
				c.Capacity = 7
				change(c)
			})
			require.ErrorIs(t, err, bus.ErrConflict, field)
			require.ErrorContains(t, err, field)
			require.Equal(t, 1024, other.Config().Capacity, field)
		}
	})
}

func TestTuneConcurrencyUpStartsWhatWaits(t *testing.T) {
	for _, c := range []bus.StageConfig{
		{},
		{Batch: 64},
		{Order: bus.ByKey},
		{Order: bus.ByKey, Batch: 64},
		{Classes: []bus.Class{{Name: "a"}}},
	} {
		t.Run(fmt.Sprint(c.Order, c.Batch), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				gate := bustest.NewGate()
				s := bustest.Stage(t, b, "s", c, gate.Handler(nil))
				bustest.Start(t, b)
				for i := range 20 {
					require.NoError(t, s.TryPublish(&bus.Envelope{Key: fmt.Sprint(i)}))
				}
				settle()
				require.Equal(t, 1, gate.Waiting())
				require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Concurrency = 6 }))
				settle()
				require.Equal(t, 6, gate.Waiting(), "without a further publish")
				require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Concurrency = 2 }))
				settle()
				require.Equal(t, 6, gate.Waiting(), "lowering cancels nothing")
				gate.Pass(4)
				settle()
				require.Equal(t, 2, gate.Waiting())
				gate.Pass(1)
				settle()
				require.Equal(t, 2, gate.Waiting())
				require.Equal(t, 5, gate.Passed())
				gate.Open()
			})
		})
	}
}

func TestTuneCapacityDownWhileFull(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 6, Full: bus.Reject}, gate.Handler(nil))
		bustest.Start(t, b)
		publish(t, s, bus.Slip{}, ends.done, 0, 1, 2, 3, 4, 5, 6)
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Capacity = 2 }))
		require.Equal(t, 6, readStage(s).Depth, "nothing is thrown away")
		for depth := 6; depth > 2; depth-- {
			require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrFull)
			gate.Pass(1)
			settle()
			require.Equal(t, depth-1, readStage(s).Depth)
		}
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrFull)
		gate.Pass(1)
		settle()
		require.NoError(t, s.TryPublish(&bus.Envelope{OnDone: ends.done}))
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrFull)
		gate.Open()
		synctest.Wait()
		require.Equal(t, 8, ends.count(bus.Completed))
	})
}

// Hops do not keep a lowered bound from coming into force.
func TestTuneCapacityDownUnderHops(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		up := bustest.Stage(t, b, "up", bus.StageConfig{EgressCap: 50}, ack)
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 8}, gate.Handler(nil))
		bustest.Start(t, b)
		for i := range 30 {
			publish(t, up, bus.Via("s"), nil, i)
		}
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Capacity = 2 }))
		for range 8 {
			gate.Pass(1)
			settle()
		}
		require.LessOrEqual(t, readStage(s).Depth, 3)
		gate.Open()
	})
}

func TestTuneCapacityUpServesWaiters(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := full(t, b, "s", bus.Block, gate, nil)
		up := bustest.Stage(t, b, "up", bus.StageConfig{EgressCap: 9}, ack)
		bustest.Start(t, b)
		publish(t, s, bus.Slip{}, nil, 1, 2)
		first, second := waitFor(t.Context(), s, &bus.Envelope{}), waitFor(t.Context(), s, &bus.Envelope{})
		publish(t, up, bus.Via("s"), nil, 3, 4)
		require.Equal(t, 1, readStage(up).Parked)
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Capacity = 4 }))
		synctest.Wait()
		require.Zero(t, readStage(up).Parked, "parked hops come first")
		require.NoError(t, <-first)
		require.Empty(t, second)
		require.Equal(t, 4, readStage(s).Depth)
		gate.Open()
		require.NoError(t, <-second)
	})
}

func TestTunePolicyAnswersWaiters(t *testing.T) {
	for policy, is := range map[bus.FullPolicy]error{
		bus.Reject: bus.ErrFull, bus.DropNewest: bus.ErrDropped, bus.DropOldest: bus.ErrFull,
	} {
		t.Run(policy.String(), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				gate := bustest.NewGate()
				s := full(t, b, "s", bus.Block, gate, nil)
				bustest.Start(t, b)
				publish(t, s, bus.Slip{}, nil, 1, 2)
				verdict := waitFor(t.Context(), s, &bus.Envelope{})
				require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Full = policy }))
				require.ErrorIs(t, <-verdict, is)
				require.Zero(t, readStage(s).Waiters)
				require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Full = bus.Block }))
				verdict = waitFor(t.Context(), s, &bus.Envelope{})
				require.Empty(t, verdict)
				gate.Open()
				require.NoError(t, <-verdict)
			})
		})
	}
}

func TestTuneRetryAndTimeoutsApplyAtOnce(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		calls := 0
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(ctx context.Context, e *bus.Envelope) error {
			calls++
			if e.Payload == "wait" {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return errors.New("no")
		})
		bustest.Start(t, b)
		publish(t, s, bus.Slip{}, ends.done, 1)
		require.Equal(t, 1, calls)
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Retry.MaxAttempts = 3 }))
		publish(t, s, bus.Slip{}, ends.done, 1)
		require.Equal(t, 4, calls)
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Retry.MaxAttempts, c.HandlerTimeout = 1, time.Second }))
		publish(t, s, bus.Slip{}, ends.done, "wait")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 3, ends.count(bus.DeadLettered))
		require.ErrorIs(t, ends.all()[2].Err, context.DeadlineExceeded)
		require.Equal(t, reason.Attempts, ends.all()[2].Reason)
	})
}

func TestConcurrentTune(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 16}, func(context.Context, *bus.Envelope) error {
			time.Sleep(time.Microsecond)
			return nil
		})
		bustest.Start(t, b)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for k := range 50 {
					if err := s.Tune(func(c *bus.StageConfig) {
						c.Capacity = 1 + (i*7+k*3)%30
						c.Concurrency = 1 + (i+k)%5
						c.Batch = (i * k) % 64
						c.EgressCap = k % 3
					}); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Microsecond)
				}
			})
		}
		const n = 500
		for range 2 {
			wg.Go(func() {
				for range n {
					if err := s.Publish(t.Context(), &bus.Envelope{OnDone: ends.done}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		bustest.Drain(t, b)
		require.Equal(t, 2*n, ends.count(bus.Completed))
	})
}

// What a stage accepts is looked at without a lock, by publishers and by hops.
func TestTuneWhileTypesAreChecked(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, ack)
		next := bustest.Stage(t, b, "next", bus.StageConfig{Accepts: bus.TypeOf[int]()}, ack)
		bustest.Start(t, b)
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range 200 {
				if err := next.Tune(func(c *bus.StageConfig) { c.Concurrency = 1 + i%2 }); err != nil {
					t.Error(err)
				}
			}
		})
		const n = 200
		for i := range n {
			require.NoError(t, next.Publish(t.Context(), &bus.Envelope{Payload: i}))
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: i, Slip: bus.Via("next")}))
		}
		wg.Wait()
		require.EqualValues(t, 2*n, bustest.Drain(t, b).Stats.Completed)
	})
}

func TestBusTune(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		require.NoError(t, b.Tune(func(c *bus.Config) { c.MaxHandlers, c.DeadLetters.MaxCount = 5, 7 }))
		require.Equal(t, 5, b.Config().MaxHandlers)
		require.Equal(t, 7, b.Config().DeadLetters.MaxCount)
		require.ErrorIs(t, b.Tune(func(c *bus.Config) { c.MaxHandlers, c.Grace = 6, time.Hour }), bus.ErrConflict)
		require.ErrorIs(t, b.Tune(func(c *bus.Config) { c.MaxHandlers = -1 }), bus.ErrInvalid)
		require.ErrorIs(t, b.Tune(nil), bus.ErrInvalid)
		require.Equal(t, 5, b.Config().MaxHandlers)
	})
}
