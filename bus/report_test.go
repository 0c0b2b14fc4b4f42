package bus_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/retry"
)

func TestReportOfADrainedBus(t *testing.T) {
	bustest.Run(t, bus.Config{Name: "orders"}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 100}, func(context.Context, *bus.Envelope) error {
			time.Sleep(time.Second)
			return nil
		})
		bustest.Start(t, b)
		for range 10 {
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
		}
		r, err := b.Shutdown(t.Context())
		require.NoError(t, err)
		require.True(t, r.Drained)
		require.Equal(t, 10*time.Second, r.Took)
		require.Empty(t, r.Abandoned)
		require.Empty(t, r.Stuck)
		require.Zero(t, r.Callbacks)
		require.Equal(t, "orders", r.Stats.Name)
		require.EqualValues(t, 10, r.Stats.Completed)
		require.Zero(t, r.Stats.Pending)
		require.Zero(t, r.Stats.Handlers)
		require.Contains(t, r.String(), "drained: true in 10s")
		require.Contains(t, r.String(), "accepted 10 = completed 10")
		again, err := b.Shutdown(t.Context())
		require.NoError(t, err)
		require.Equal(t, r, again)
		require.NoError(t, b.Close(), "it was drained before")
	})
}

func TestReportNamesWhatWasLeft(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		c := bus.StageConfig{Capacity: 10, Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Hour}}
		s := bustest.Stage(t, b, "s", c, func(_ context.Context, e *bus.Envelope) error {
			if e.Payload == "retry" {
				return errFails
			}
			return gate.Wait(context.Background())
		})
		bustest.Stage(t, b, "idle", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		results := map[string]bus.Result{}
		publish := func(name string, d time.Duration) {
			e := &bus.Envelope{Payload: name, Key: name, Meta: &bus.Meta{ID: name}, OnDone: func(r bus.Result) { results[name] = r }}
			var err error
			if d > 0 {
				_, err = s.PublishAfter(t.Context(), d, e)
			} else {
				err = s.Publish(t.Context(), e)
			}
			require.NoError(t, err)
			synctest.Wait()
		}
		publish("retry", 0)
		publish("later", time.Hour)
		publish("handled", 0)
		publish("queued", 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := b.Shutdown(ctx)
		require.ErrorIs(t, err, bus.ErrNotDrained)
		require.ErrorContains(t, err, "4 abandoned, 1 stuck")
		require.False(t, r.Drained)
		require.Equal(t, time.Minute, r.Took)
		left := map[string]bool{}
		for _, a := range r.Abandoned {
			require.Equal(t, "s", a.Stage)
			require.NotZero(t, a.ID)
			left[fmt.Sprint(a.TextID, a.InFlight)] = true
		}
		require.Equal(t, map[string]bool{"retryfalse": true, "laterfalse": true, "queuedfalse": true, "handledtrue": true}, left)
		require.Len(t, r.Stuck, 1)
		require.Equal(t, "s", r.Stuck[0].Stage)
		require.Equal(t, "handled", r.Stuck[0].Key)
		require.Equal(t, time.Minute, r.Stuck[0].Age)
		require.EqualValues(t, 4, r.Stats.Abandoned)
		require.Zero(t, r.Stats.Pending)
		require.NoError(t, r.Stats.Check())
		require.EqualValues(t, 4, r.Stats.Stages[0].Abandoned)
		require.Contains(t, r.String(), "drained: false")
		require.Contains(t, r.String(), `stuck: stage "s"`)
		synctest.Wait()
		require.Len(t, results, 4)
		for name, res := range results {
			require.Equal(t, bus.Abandoned, res.End, name)
		}
		gate.Open()
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 1, st.Stages[0].Late, "what comes after the end is counted, and nothing else")
		require.EqualValues(t, 4, st.Abandoned)
		require.Zero(t, st.Completed)
		require.Empty(t, b.Letters().List(bus.LetterFilter{}), "the end of the bus is no failure")
		_, err = b.Shutdown(t.Context())
		require.ErrorIs(t, err, bus.ErrNotDrained)
		require.ErrorIs(t, b.Close(), bus.ErrNotDrained)
	})
}

func TestReportNamesAtMostAThousand(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1 << 20, NoHandler: bus.NoHandlerHold}, nil)
		bustest.Start(t, b)
		for range 1500 {
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r, err := b.Shutdown(ctx)
		require.ErrorIs(t, err, bus.ErrNotDrained)
		require.Len(t, r.Abandoned, 1000)
		require.EqualValues(t, 1500, r.Stats.Abandoned)
	})
}

func TestConcurrentShutdownsGetOneReport(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(context.Context, *bus.Envelope) error {
			time.Sleep(time.Second)
			return nil
		})
		bustest.Start(t, b)
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		reports := make([]bus.Report, 5)
		var wg sync.WaitGroup
		for i := range reports {
			wg.Go(func() {
				r, err := b.Shutdown(context.Background())
				if err != nil {
					t.Error(err)
				}
				reports[i] = r
			})
		}
		wg.Wait()
		for i := range reports {
			require.Equal(t, reports[0], reports[i])
		}
		require.Equal(t, time.Second, reports[0].Took)
	})
}

// Whoever has less time ends it, in whatever order they come.
func TestShorterDeadlineWins(t *testing.T) {
	for name, times := range map[string][2]time.Duration{"second": {time.Hour, time.Minute}, "first": {time.Minute, time.Hour}} {
		t.Run(name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				gate := bustest.NewGate()
				s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(context.Context, *bus.Envelope) error {
					return gate.Wait(context.Background())
				})
				bustest.Start(t, b)
				require.NoError(t, s.TryPublish(&bus.Envelope{}))
				synctest.Wait()
				began := time.Now()
				var wg sync.WaitGroup
				for _, d := range times {
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(context.Background(), d)
						defer cancel()
						if _, err := b.Shutdown(ctx); err == nil {
							t.Error("it cannot have drained")
						}
					})
					synctest.Wait()
				}
				wg.Wait()
				require.Equal(t, time.Minute, time.Since(began))
				gate.Open()
			})
		})
	}
}

func TestShutdownFromInsideAHandler(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var report bus.Report
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(ctx context.Context, _ *bus.Envelope) error {
			limited, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			var err error
			report, err = b.Shutdown(limited)
			return err
		})
		bustest.Start(t, b)
		began := time.Now()
		r, err := s.Call(t.Context(), &bus.Envelope{})
		require.NoError(t, err)
		require.Equal(t, bus.Abandoned, r.End)
		require.Equal(t, time.Minute, time.Since(began))
		synctest.Wait()
		require.Len(t, report.Stuck, 1)
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrClosed)
		require.EqualValues(t, 1, bustest.RequireBalanced(t, b).Stages[0].Late)
	})
}

func TestCloseFromInsideAHandler(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		canceled := false
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(ctx context.Context, _ *bus.Envelope) error {
			err := b.Close()
			canceled = context.Cause(ctx) != nil
			return err
		})
		bustest.Start(t, b)
		r, err := s.Call(t.Context(), &bus.Envelope{})
		require.NoError(t, err)
		require.Equal(t, bus.Abandoned, r.End)
		synctest.Wait()
		require.True(t, canceled, "the contexts of handlers are cancelled")
	})
}

func TestShutdownOfABusThatWasNotStarted(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
		r := bustest.Drain(t, b)
		require.True(t, r.Drained)
		require.ErrorIs(t, b.Start(), bus.ErrClosed)
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrClosed)
	})
}

func TestRunDrainsWithinItsGrace(t *testing.T) {
	for grace, drained := range map[time.Duration]bool{time.Minute: true, time.Second: false} {
		bustest.Run(t, bus.Config{Grace: grace}, func(t *testing.T, b *bus.Bus) {
			s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(context.Context, *bus.Envelope) error {
				time.Sleep(30 * time.Second)
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- b.Run(ctx) }()
			synctest.Wait()
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
			cancel()
			if drained {
				require.NoError(t, <-ran)
			} else {
				require.ErrorIs(t, <-ran, bus.ErrNotDrained)
			}
			time.Sleep(time.Minute) // the handler returns
		})
	}
}

// Whatever moves when the bus is closed is in the report, once.
func TestReportBalancesWhateverMoves(t *testing.T) {
	for round := range scaled(15, 1000) {
		b := bustest.New(t, bus.Config{})
		c := bus.StageConfig{Capacity: 8, Concurrency: 2, Retry: retry.Policy{MaxAttempts: 2}}
		for _, name := range []string{"a", "b", "c"} {
			bustest.Stage(t, b, name, c, func(_ context.Context, e *bus.Envelope) error {
				if n, _ := e.Payload.(int); n%13 == 0 {
					return errFails
				}
				return nil
			})
		}
		pull := bustest.Stage(t, b, "pull", bus.StageConfig{Pull: true, Capacity: 8}, nil)
		bustest.Start(t, b)
		a, _ := b.Lookup("a")
		var mu sync.Mutex
		accepted, ends := 0, 0
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for i := 0; ; i++ {
					err := a.Publish(context.Background(), &bus.Envelope{Payload: i, Slip: bus.Via("b", "c", "pull"), OnDone: func(bus.Result) {
						mu.Lock()
						defer mu.Unlock()
						ends++
					}})
					if err != nil {
						return
					}
					mu.Lock()
					accepted++
					mu.Unlock()
				}
			})
			wg.Go(func() {
				for {
					l, err := pull.Receive(context.Background())
					if err != nil {
						return
					}
					_ = l.Ack()
				}
			})
		}
		for {
			mu.Lock()
			enough := ends > 10*round
			mu.Unlock()
			if enough {
				break
			}
			runtime.Gosched()
		}
		_ = b.Close()
		r, _ := b.Shutdown(context.Background())
		require.NoError(t, r.Stats.Check())
		require.Zero(t, r.Stats.Pending, r.String())
		wg.Wait()
		require.EqualValues(t, accepted, r.Stats.Accepted)
		for all := false; !all; runtime.Gosched() { // every accepted one is told its end
			mu.Lock()
			require.LessOrEqual(t, ends, accepted)
			all = ends == accepted
			mu.Unlock()
		}
	}
}
