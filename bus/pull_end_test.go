package bus_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/retry"
)

func TestShutdownWaitsForLeases(t *testing.T) {
	pullBus(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
		put(t, s, 1, 2)
		l := take(t, s)
		done := make(chan error, 1)
		go func() {
			_, err := b.Shutdown(context.Background())
			done <- err
		}()
		synctest.Wait()
		require.Empty(t, done)
		other, err := s.Receive(t.Context())
		require.NoError(t, err, "what is queued can still be received")
		require.NoError(t, l.Ack())
		require.NoError(t, other.Ack())
		require.NoError(t, <-done)
		bustest.Drain(t, b)
	})
}

func TestShutdownAbandonsLeasesAtItsDeadline(t *testing.T) {
	pullBus(t, bus.StageConfig{Lease: time.Hour}, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
		var ends []bus.Result
		require.NoError(t, s.TryPublish(&bus.Envelope{Key: "k", OnDone: func(r bus.Result) { ends = append(ends, r) }}))
		put(t, s, "queued")
		l := take(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := b.Shutdown(ctx)
		require.ErrorIs(t, err, bus.ErrNotDrained)
		require.Len(t, r.Stuck, 1)
		require.Equal(t, "pull", r.Stuck[0].Stage)
		require.Equal(t, l.Envelope().ID(), r.Stuck[0].ID)
		require.Equal(t, time.Second, r.Stuck[0].Age)
		require.Len(t, r.Abandoned, 2)
		require.EqualValues(t, 2, r.Stats.Abandoned)
		require.ErrorIs(t, l.Ack(), bus.ErrClosed)
		synctest.Wait()
		require.Len(t, ends, 1)
		require.Equal(t, bus.Abandoned, ends[0].End)
		require.EqualValues(t, 1, bustest.RequireBalanced(t, b).Stages[0].Late)
	})
}

// Many consumers and publishers in real time: nothing is lost or handed out
// twice at once.
func TestPullUnderLoad(t *testing.T) {
	b := bustest.New(t, bus.Config{})
	s := bustest.Stage(t, b, "pull", bus.StageConfig{
		Pull: true, Capacity: 16, MaxOutstanding: 8, Order: bus.ByKey, Retry: retry.Policy{MaxAttempts: 3},
	}, nil)
	bustest.Start(t, b)
	const n = 2000
	got := make(chan int, n)
	for range 4 {
		go func() {
			leases := make([]*bus.Lease, 3)
			for {
				k, err := s.ReceiveBatch(context.Background(), leases)
				if err != nil {
					got <- -1
					return
				}
				for _, l := range leases[:k] {
					v, _ := l.Envelope().Payload.(int)
					if v%7 == 0 && l.Envelope().Attempt() == 1 {
						_ = l.Nack(nil)
						continue
					}
					if l.Ack() == nil {
						got <- v
					}
				}
			}
		}()
	}
	for i := range n {
		require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Key: fmt.Sprint(i % 5), Payload: i}))
	}
	last := map[int]int{}
	for range n {
		v := <-got
		last[v]++
	}
	r := bustest.Drain(t, b)
	require.EqualValues(t, n, r.Stats.Completed)
	require.Len(t, last, n)
	for range 4 {
		require.Equal(t, -1, <-got)
	}
}
