package bus_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/retry"
)

// bucket is the error that a histogram's bucket adds at most.
const bucket = 0.032

// near requires that got is want within the error of a bucket.
func near(t *testing.T, want, got time.Duration, what string) {
	t.Helper()
	require.InDelta(t, float64(want), float64(got), float64(want)*bucket+1, "%s: want %v, got %v", what, want, got)
}

func TestSlowStagesAreTimedExactly(t *testing.T) {
	for _, exact := range []bool{false, true} {
		for _, conc := range []int{1, 2} {
			t.Run(fmt.Sprint(exact, conc), func(t *testing.T) {
				bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
					s := bustest.Stage(t, b, "s", bus.StageConfig{ExactTiming: exact, Concurrency: conc}, func(_ context.Context, e *bus.Envelope) error {
						time.Sleep(e.Payload.(time.Duration))
						return nil
					})
					bustest.Start(t, b)
					const n = 20
					var service, wait time.Duration
					free := make([]time.Duration, conc) // when each handler is free
					for i := range n {
						d := time.Duration(i+1) * 10 * time.Millisecond
						require.NoError(t, s.TryPublish(&bus.Envelope{Payload: d}))
						synctest.Wait()
						first := 0
						for k := range free {
							if free[k] < free[first] {
								first = k
							}
						}
						service += d
						wait += free[first]
						free[first] += d
					}
					time.Sleep(time.Minute)
					st := readStage(s)
					require.EqualValues(t, n, st.Service.Count())
					require.EqualValues(t, n, st.Wait.Count())
					near(t, 200*time.Millisecond, st.Service.Max(), "longest service")
					near(t, service, st.Service.Sum(), "sum of service")
					near(t, wait, st.Wait.Sum(), "sum of waits")
					near(t, 100*time.Millisecond, st.Service.Quantile(0.5), "median")
				})
			})
		}
	}
}

// Hops are stamped when they arrive, not when the upstream began.
func TestWaitAfterAHop(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		a := bustest.Stage(t, b, "a", bus.StageConfig{}, func(context.Context, *bus.Envelope) error {
			time.Sleep(time.Second)
			return nil
		})
		next := bustest.Stage(t, b, "next", bus.StageConfig{}, func(context.Context, *bus.Envelope) error {
			time.Sleep(3 * time.Second)
			return nil
		})
		bustest.Start(t, b)
		for range 3 { // arrive after 1, 2 and 3 s, start after 1, 4 and 7 s
			require.NoError(t, a.TryPublish(&bus.Envelope{Slip: bus.Via("next")}))
		}
		time.Sleep(time.Minute)
		st := readStage(next)
		near(t, 4*time.Second, st.Wait.Max(), "longest wait")
		near(t, 6*time.Second, st.Wait.Sum(), "sum of waits")
		first := readStage(a)
		near(t, 3*time.Second, first.Wait.Sum(), "sum of waits at the first stage")
	})
}

// Those who wait for room are stamped when they get it.
func TestWaitAfterBlocking(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1}, func(context.Context, *bus.Envelope) error {
			time.Sleep(time.Second)
			return nil
		})
		bustest.Start(t, b)
		for range 5 {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
		}
		time.Sleep(time.Minute)
		st := readStage(s)
		near(t, time.Second, st.Wait.Max(), "longest wait")
		near(t, 5*time.Second, st.Service.Sum(), "sum of service")
	})
}

// Fast handlers are timed by chunk: the documented error is one chunk's time.
func TestFastStagesAreTimedByChunk(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		const n, each = 6400, 5 * time.Microsecond
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: n}, func(context.Context, *bus.Envelope) error {
			time.Sleep(each)
			return nil
		})
		s.Suspend(bus.Hold{})
		bustest.Start(t, b)
		for range n {
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
		}
		s.Resume("")
		time.Sleep(time.Second)
		st := readStage(s)
		require.EqualValues(t, n, st.Service.Count())
		require.EqualValues(t, n, st.Wait.Count())
		near(t, n*each, st.Service.Sum(), "sum of service")
		near(t, each, st.Service.Quantile(0.5), "median service")
		chunk := float64(64 * each)
		require.InDelta(t, float64(n*each/2), float64(st.Wait.Quantile(0.5)), chunk+float64(n*each/2)*bucket)
		require.InDelta(t, float64(n*each), float64(st.Wait.Max()), chunk+float64(n*each)*bucket)
	})
}

func TestExactTimingOfFastHandlers(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		const n = 640
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: n, ExactTiming: true, Batch: 64}, func(_ context.Context, e *bus.Envelope) error {
			if e.Payload.(int)%64 == 0 {
				time.Sleep(500 * time.Microsecond)
			}
			return nil
		})
		s.Suspend(bus.Hold{})
		bustest.Start(t, b)
		for i := range n {
			require.NoError(t, s.TryPublish(&bus.Envelope{Payload: i}))
		}
		s.Resume("")
		time.Sleep(time.Second)
		st := readStage(s)
		near(t, 500*time.Microsecond, st.Service.Max(), "the slow ones show")
		near(t, 5*time.Millisecond, st.Service.Sum(), "sum")
		require.Less(t, st.Service.Quantile(0.9), time.Microsecond)
		near(t, 5*time.Millisecond, st.Wait.Max(), "longest wait")
	})
}

func TestOldestGauges(t *testing.T) {
	for _, order := range []bus.Order{bus.Unordered, bus.ByKey, bus.InOrder} {
		t.Run(order.String(), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				gate := bustest.NewGate()
				s := bustest.Stage(t, b, "s", bus.StageConfig{Order: order}, gate.Handler(nil))
				bustest.Start(t, b)
				require.Zero(t, readStage(s).OldestWaiting)
				publish(t, s, bus.Slip{}, nil, 1)
				time.Sleep(time.Second)
				publish(t, s, bus.Slip{}, nil, 2)
				time.Sleep(time.Second)
				publish(t, s, bus.Slip{}, nil, 3)
				time.Sleep(time.Second)
				st := readStage(s)
				require.Equal(t, 3*time.Second, st.OldestInFlight)
				require.Equal(t, 2*time.Second, st.OldestWaiting)
				gate.Pass(1)
				settle()
				st = readStage(s)
				require.Equal(t, 5*time.Millisecond, st.OldestInFlight)
				require.Equal(t, 1005*time.Millisecond, st.OldestWaiting)
				gate.Open()
				synctest.Wait()
				st = readStage(s)
				require.Zero(t, st.OldestInFlight)
				require.Zero(t, st.OldestWaiting)
			})
		})
	}
}

func TestMarks(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Concurrency: 2}, gate.Handler(nil))
		bustest.Start(t, b)
		publish(t, s, bus.Slip{}, nil, 1, 2, 3, 4, 5)
		gate.Pass(5)
		synctest.Wait()
		st := readStage(s)
		require.Equal(t, 3, st.MaxDepth)
		require.Equal(t, 2, st.MaxInFlight)
		s.ResetMarks()
		publish(t, s, bus.Slip{}, nil, 1)
		require.Equal(t, 1, readStage(s).MaxInFlight)
		gate.Open()
	})
}

func TestHandlerTimeout(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		gate := bustest.NewGate()
		var cause error
		s := bustest.Stage(t, b, "s", bus.StageConfig{HandlerTimeout: time.Second, Retry: retry.Policy{MaxAttempts: 2}},
			func(ctx context.Context, e *bus.Envelope) error {
				if e.Payload == "stubborn" { // looks at no context
					return gate.Wait(context.WithoutCancel(ctx))
				}
				<-ctx.Done()
				cause = context.Cause(ctx)
				return ctx.Err()
			})
		bustest.Start(t, b)
		publish(t, s, bus.Slip{}, ends.done, 1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, ends.count(bus.DeadLettered), "after two attempts of a second each")
		require.ErrorIs(t, cause, context.DeadlineExceeded)
		require.ErrorIs(t, ends.all()[0].Err, context.DeadlineExceeded)

		publish(t, s, bus.Slip{}, ends.done, "stubborn", 2)
		time.Sleep(time.Second - 1)
		require.Zero(t, readStage(s).Stuck)
		time.Sleep(1)
		st := readStage(s)
		require.Equal(t, 1, st.Stuck)
		require.Equal(t, 1, st.InFlight, "it keeps its slot")
		require.Equal(t, 1, st.Depth)
		list := s.InFlight()
		require.Len(t, list, 1)
		require.True(t, list[0].Overdue)
		require.Equal(t, time.Second, list[0].Age)
		require.Len(t, ends.all(), 1, "it settles when it returns")
		gate.Open()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Zero(t, readStage(s).Stuck)
		require.Equal(t, 1, ends.count(bus.Completed), "done late is done")
		require.Equal(t, 2, ends.count(bus.DeadLettered))
	})
}

func TestCancelByID(t *testing.T) {
	for _, batch := range []int{1, 64} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				var ends endLog
				gate := bustest.NewGate()
				var causes []error
				s := bustest.Stage(t, b, "s", bus.StageConfig{Batch: batch, Retry: retry.Policy{MaxAttempts: 5}},
					func(ctx context.Context, e *bus.Envelope) error {
						if e.Payload == "ignores" {
							<-ctx.Done()
							return nil
						}
						err := gate.Wait(ctx)
						causes = append(causes, context.Cause(ctx))
						return err
					})
				s.Suspend(bus.Hold{})
				bustest.Start(t, b)
				publish(t, s, bus.Slip{}, ends.done, 1, 2, "ignores", 3)
				s.Resume("")
				synctest.Wait()
				list := s.InFlight()
				require.Len(t, list, 1)
				require.False(t, s.Cancel(list[0].ID+1000))
				require.True(t, s.Cancel(list[0].ID))
				synctest.Wait()
				require.Equal(t, 1, ends.count(bus.Dropped))
				require.Equal(t, "canceled", ends.all()[0].Reason.String())
				require.ErrorIs(t, causes[0], context.Canceled)
				require.False(t, s.Cancel(list[0].ID), "it is gone")
				gate.Pass(1) // the next has a context of its own
				settle()
				require.NoError(t, causes[1])
				require.Equal(t, 1, ends.count(bus.Completed))
				require.True(t, s.Cancel(s.InFlight()[0].ID))
				synctest.Wait()
				require.Equal(t, 2, ends.count(bus.Completed), "what a handler acknowledges is done")
				gate.Open()
				synctest.Wait()
				require.Equal(t, 3, ends.count(bus.Completed))
				require.NoError(t, causes[2])
			})
		})
	}
}

// A cancel that hits the end of a call leaves the next one alone.
func TestCancelHitsOneEnvelopeOnly(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		s := bustest.Stage(t, b, "s", bus.StageConfig{Batch: 64}, func(ctx context.Context, e *bus.Envelope) error {
			if e.Payload == "target" {
				return nil
			}
			return errors.Join(ctx.Err())
		})
		bustest.Start(t, b)
		const n = 200
		go func() {
			for i := range uint64(50_000) { // odd ids are targets
				s.Cancel(1 + 2*i%(2*n))
				runtime.Gosched()
			}
		}()
		for range n {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: "target", OnDone: ends.done}))
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{OnDone: ends.done}))
		}
		synctest.Wait()
		require.Equal(t, 2*n, ends.count(bus.Completed))
	})
}
