package bus_test

import (
	"context"
	"fmt"
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
	"github.com/sedabus/seda/retry"
)

func TestB012_ShutdownRightAfterPublishLosesNothing(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, c := range []struct {
		name  string
		stage bus.StageConfig
	}{
		{"one executor", bus.StageConfig{}},
		{"several executors", bus.StageConfig{Concurrency: 4}},
		{"in order", bus.StageConfig{Order: bus.InOrder}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for round := range caseCount(200, 10_000) {
					var handled atomic.Int64
					b := bustest.New(t, bus.Config{})
					s := bustest.Stage(t, b, "s", c.stage, func(context.Context, *bus.Envelope) error {
						handled.Add(1)
						return nil
					})
					bustest.Start(t, b)
					n := 1 + round%20
					for range n {
						require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
					}
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					r, err := b.Shutdown(ctx)
					cancel()
					require.NoError(t, err)
					require.True(t, r.Drained)
					require.NoError(t, r.Stats.Check())
					require.EqualValues(t, n, handled.Load())
				}
			})
		})
	}
}

// Fifty envelopes are in the first of three stages when the shutdown comes.
func TestB013_ItinerariesFinishDuringShutdown(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		const n = 50
		var done, inside atomic.Int64
		var c *bus.Stage
		a := bustest.Stage(t, b, "a", bus.StageConfig{Concurrency: n}, func(ctx context.Context, _ *bus.Envelope) error {
			time.Sleep(time.Second)
			assert.NoError(t, c.Publish(ctx, &bus.Envelope{Payload: "inside"}))
			return ctx.Err()
		})
		bustest.Stage(t, b, "b", bus.StageConfig{Concurrency: 8}, func(ctx context.Context, _ *bus.Envelope) error {
			time.Sleep(100 * time.Millisecond)
			return ctx.Err()
		})
		c = bustest.Stage(t, b, "c", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			if e.Payload == "inside" {
				inside.Add(1)
			} else {
				done.Add(1)
			}
			return nil
		})
		bustest.Start(t, b)
		for range n {
			require.NoError(t, a.Publish(t.Context(), &bus.Envelope{Slip: bus.Via("b", "c")}))
		}
		synctest.Wait()
		require.Equal(t, n, caseStats(a).InFlight)
		report := make(chan bus.Report)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			r, err := b.Shutdown(ctx)
			assert.NoError(t, err)
			report <- r
		}()
		synctest.Wait()
		require.ErrorIs(t, a.Publish(t.Context(), &bus.Envelope{}), bus.ErrClosed)
		r := <-report
		require.NoError(t, r.Stats.Check())
		require.EqualValues(t, n, done.Load())
		require.EqualValues(t, n, inside.Load())
		require.EqualValues(t, 2*n, r.Stats.Completed)
		require.Zero(t, r.Stats.Letters.Count)
		for i := range r.Stats.Stages {
			require.Zero(t, r.Stats.Stages[i].Nacked, r.Stats.Stages[i].Name)
		}
	})
}

// Handlers wait for room in a full stage, with their own contexts, when
// admission ends: that is for publishers outside.
func TestB013_PublishFromInsideOutlivesAdmission(t *testing.T) {
	for _, c := range []struct {
		name   string
		end    func(*bus.Bus)
		refuse error
	}{
		{"shutdown", func(b *bus.Bus) { go func() { _, _ = b.Shutdown(context.Background()) }() }, bus.ErrClosed},
		{"pause", func(b *bus.Bus) { b.Pause(bus.Hold{}) }, bus.ErrPaused},
	} {
		t.Run(c.name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				gate := bustest.NewGate()
				var out *bus.Stage
				in := bustest.Stage(t, b, "in", bus.StageConfig{Concurrency: 3}, func(ctx context.Context, _ *bus.Envelope) error {
					return out.Publish(ctx, &bus.Envelope{})
				})
				out = bustest.Stage(t, b, "out", bus.StageConfig{Capacity: 1}, gate.Handler(nil))
				bustest.Start(t, b)
				for range 2 { // one in the handler, one queued
					require.NoError(t, out.Publish(t.Context(), &bus.Envelope{}))
					synctest.Wait()
				}
				for range 3 {
					require.NoError(t, in.Publish(t.Context(), &bus.Envelope{}))
				}
				time.Sleep(time.Second)
				outside := make(chan error, 1)
				go func() { outside <- out.Publish(context.Background(), &bus.Envelope{}) }()
				synctest.Wait()
				require.Equal(t, 4, caseStats(out).Waiters)
				c.end(b)
				require.ErrorIs(t, <-outside, c.refuse)
				synctest.Wait()
				require.Equal(t, 3, caseStats(out).Waiters)
				gate.Open()
				r := bustest.Drain(t, b)
				require.EqualValues(t, 8, r.Stats.Completed)
				require.Zero(t, r.Stats.Stages[0].Nacked)
			})
		})
	}
}

// What fails because the grace is over has not failed: it is abandoned.
func TestB013_FailureByShutdownIsNoFailure(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var cause error
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(ctx context.Context, _ *bus.Envelope) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		})
		bustest.Start(t, b)
		results := make(chan bus.Result, 2)
		for range 2 { // one in the handler, one queued
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{OnDone: func(r bus.Result) { results <- r }}))
		}
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, err := b.Shutdown(ctx)
		require.ErrorIs(t, err, bus.ErrNotDrained)
		require.Equal(t, 5*time.Second, time.Since(began), "the handler's context lives until the grace ends")
		synctest.Wait()
		require.ErrorIs(t, cause, bus.ErrClosed)
		require.Len(t, r.Abandoned, 2)
		for range 2 {
			end := <-results
			require.Equal(t, bus.Abandoned, end.End)
			require.Equal(t, reason.Shutdown, end.Reason)
		}
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 2, st.Abandoned)
		require.Zero(t, st.Letters.Count)
		require.Zero(t, st.Stages[0].Nacked)
	})
}

func TestB016_EvictionIsTold(t *testing.T) {
	var mu sync.Mutex
	var told []string
	hooks := bus.Hooks{Drop: func(drops []bus.DropInfo) {
		mu.Lock()
		defer mu.Unlock()
		for i := range drops {
			d := &drops[i]
			told = append(told, fmt.Sprint(d.Stage, " ", d.Reason, " ", d.Envelope.Payload))
		}
	}}
	bustest.Run(t, bus.Config{Hooks: hooks}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		var handled []any
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 2, Full: bus.DropOldest}, gate.Handler(func(_ context.Context, e *bus.Envelope) error {
			handled = append(handled, e.Payload)
			return nil
		}))
		bustest.Start(t, b)
		require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: 0}))
		synctest.Wait() // it is in the handler; five more for two places
		ends := make([]bus.Result, 6)
		for i := 1; i <= 5; i++ {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: i, OnDone: func(r bus.Result) {
				assert.Zero(t, ends[i].ID, "the callback of %d runs once", i)
				ends[i] = r
			}}))
		}
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 3, st.Dropped[reason.Evicted])
		gate.Open()
		bustest.Drain(t, b)
		require.Equal(t, []any{0, 4, 5}, handled)
		require.Equal(t, []string{"s evicted 1", "s evicted 2", "s evicted 3"}, told)
		for i := 1; i <= 5; i++ {
			want := bus.Completed
			if i <= 3 {
				want = bus.Dropped
				require.Equal(t, reason.Evicted, ends[i].Reason)
			}
			require.Equal(t, want, ends[i].End, "envelope %d", i)
			require.Equal(t, "s", ends[i].Stage)
		}
	})
}

func TestB017_ConsumerThatComesLateGetsEverything(t *testing.T) {
	for _, c := range []struct {
		policy                      bus.NoHandler
		early, handled, letters     int
		refusedFull, refusedHandler int
	}{
		{bus.NoHandlerHold, 100, 110, 0, 900, 0},
		{bus.NoHandlerDeadLetter, 1000, 10, 1000, 0, 0},
		{bus.NoHandlerReject, 0, 10, 0, 0, 1000},
	} {
		t.Run(c.policy.String(), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 100, Full: bus.Reject, NoHandler: c.policy}, nil)
				bustest.Start(t, b)
				accepted := 0
				for i := range 1000 {
					if s.Publish(t.Context(), &bus.Envelope{Payload: i}) == nil {
						accepted++
					}
				}
				require.Equal(t, c.early, accepted)
				bustest.RequireBalanced(t, b)
				var handled []int
				require.NoError(t, s.Handle(func(_ context.Context, e *bus.Envelope) error {
					handled = append(handled, e.Payload.(int))
					return nil
				}))
				synctest.Wait()
				for i := range 10 {
					require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: 1000 + i}))
				}
				r := bustest.Drain(t, b)
				require.Len(t, handled, c.handled)
				require.IsIncreasing(t, handled)
				require.Equal(t, 1009, handled[len(handled)-1])
				require.EqualValues(t, c.letters, r.Stats.DeadLettered)
				require.EqualValues(t, c.refusedFull, r.Stats.Refused[reason.Full])
				require.EqualValues(t, c.refusedHandler, r.Stats.Refused[reason.NoHandler])
			})
		})
	}
}

// A retry that is due later than the shutdown may wait is not waited for, and
// not lost silently either.
func TestB013_RetryBeyondTheGraceIsAbandonedAtOnce(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Retry: retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: time.Minute}},
			func(context.Context, *bus.Envelope) error { return assert.AnError })
		bustest.Start(t, b)
		require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, err := b.Shutdown(ctx)
		require.ErrorIs(t, err, bus.ErrNotDrained)
		require.Zero(t, time.Since(began))
		require.EqualValues(t, 1, r.Stats.Abandoned)
		require.NoError(t, r.Stats.Check())
	})
}
