package bus_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
)

func TestInFlightIsListed(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		c := bus.StageConfig{Concurrency: 3, Retry: retry.Policy{MaxAttempts: 2}}
		s := bustest.Stage(t, b, "s", c, func(ctx context.Context, e *bus.Envelope) error {
			if e.Key == "second" && e.Attempt() == 1 {
				return errFails
			}
			return gate.Wait(ctx)
		})
		bustest.Start(t, b)
		require.Empty(t, s.InFlight())
		for _, key := range []string{"first", "second", "third", "queued"} {
			require.NoError(t, s.TryPublish(&bus.Envelope{Key: key}))
			time.Sleep(time.Minute)
		}
		list := s.InFlight()
		require.Len(t, list, 3, "what is queued is not in flight")
		ids := map[uint64]bool{}
		for i, want := range []bus.InFlight{
			{Key: "first", Age: 4 * time.Minute, Attempt: 1},
			{Key: "second", Age: 3 * time.Minute, Attempt: 2},
			{Key: "third", Age: 2 * time.Minute, Attempt: 1},
		} {
			ids[list[i].ID] = true
			list[i].ID = 0
			require.Equal(t, want, list[i])
		}
		require.Len(t, ids, 3)
		st := bustest.RequireBalanced(t, b).Stages[0]
		require.Equal(t, 4*time.Minute, st.OldestInFlight)
		gate.Open()
		synctest.Wait()
		require.Empty(t, s.InFlight())
	})
}

func TestOverdueHandlersAreStuck(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{HandlerTimeout: time.Minute}, func(ctx context.Context, _ *bus.Envelope) error {
			<-ctx.Done()
			return gate.Wait(context.Background()) // takes no notice
		})
		bustest.Start(t, b)
		var got ended
		require.NoError(t, s.TryPublish(&bus.Envelope{OnDone: got.add}))
		time.Sleep(time.Minute - 1)
		require.False(t, s.InFlight()[0].Overdue)
		require.Zero(t, readStage(s).Stuck)
		time.Sleep(1)
		synctest.Wait()
		require.True(t, s.InFlight()[0].Overdue)
		st := bustest.RequireBalanced(t, b).Stages[0]
		require.Equal(t, 1, st.Stuck)
		require.Equal(t, 1, st.InFlight)
		require.Empty(t, got.results, "it settles when the handler returns")
		gate.Open()
		synctest.Wait()
		require.Len(t, got.results, 1)
		require.Equal(t, bus.Completed, got.results[0].End)
		require.Zero(t, bustest.RequireBalanced(t, b).Stages[0].Stuck)
	})
}

func TestCancelById(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		t.Run(fmt.Sprint("timeout ", timeout), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				gate := bustest.NewGate()
				c := bus.StageConfig{HandlerTimeout: timeout, Retry: retry.Policy{MaxAttempts: 5}}
				s := bustest.Stage(t, b, "s", c, func(ctx context.Context, e *bus.Envelope) error {
					if e.Payload == "ignores" {
						return gate.Wait(context.Background())
					}
					if e.Payload == "quick" {
						return ctx.Err()
					}
					err := gate.Wait(ctx)
					if e.Payload == "done anyway" {
						return nil
					}
					return err
				})
				bustest.Start(t, b)
				run := func(payload string) (r *ended, id uint64) {
					r = &ended{}
					require.NoError(t, s.TryPublish(&bus.Envelope{Payload: payload, OnDone: r.add}))
					synctest.Wait()
					require.Len(t, s.InFlight(), 1)
					return r, s.InFlight()[0].ID
				}
				r, id := run("honours")
				queued := &ended{}
				require.NoError(t, s.TryPublish(&bus.Envelope{Payload: "quick", OnDone: queued.add}))
				require.False(t, s.Cancel(id+1000))
				require.True(t, s.Cancel(id))
				synctest.Wait()
				require.False(t, s.Cancel(id))
				require.Equal(t, bus.Dropped, r.results[0].End)
				require.Equal(t, reason.Canceled, r.results[0].Reason)
				require.Equal(t, 1, r.results[0].Attempts, "it is not tried again")
				require.Equal(t, bus.Completed, queued.results[0].End, "the next one has a context of its own")

				r, id = run("done anyway")
				require.True(t, s.Cancel(id))
				synctest.Wait()
				require.Equal(t, bus.Completed, r.results[0].End)

				r, id = run("ignores")
				require.True(t, s.Cancel(id))
				synctest.Wait()
				require.Empty(t, r.results)
				require.True(t, s.InFlight()[0].Overdue)
				st := bustest.RequireBalanced(t, b).Stages[0]
				require.Equal(t, 1, st.InFlight, "it keeps its slot")
				require.Equal(t, 1, st.Stuck)
				require.NoError(t, s.TryPublish(&bus.Envelope{Payload: "quick"}))
				synctest.Wait()
				require.Equal(t, 1, depthOf(s))
				gate.Open()
				synctest.Wait()
				require.Len(t, r.results, 1)
				st = bustest.RequireBalanced(t, b).Stages[0]
				require.Zero(t, st.Stuck)
				require.EqualValues(t, 4, st.Completed)
				require.EqualValues(t, 1, st.Dropped[reason.Canceled])
			})
		})
	}
}

// In a stage of fast handlers a cancellation may come just after the end of
// the call that it is for: then it must not hit the next one.
func TestCancelHitsItsOwnCallOnly(t *testing.T) {
	b := bustest.New(t, bus.Config{})
	var current atomic.Uint64
	var canceled sync.Map
	var wrong atomic.Int64
	s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1 << 16}, func(ctx context.Context, e *bus.Envelope) error {
		current.Store(e.ID())
		if err := ctx.Err(); err != nil {
			if _, ok := canceled.Load(e.ID()); !ok {
				wrong.Add(1)
			}
			return err
		}
		return nil
	})
	bustest.Start(t, b)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					id := current.Load()
					canceled.Store(id, true)
					s.Cancel(id)
				}
			}
		})
	}
	n := scaled(5_000, 500_000)
	for range n {
		require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
	}
	close(stop)
	wg.Wait()
	r := bustest.Drain(t, b)
	require.Zero(t, wrong.Load())
	require.EqualValues(t, n, r.Stats.Completed+r.Stats.Dropped[reason.Canceled])
}
