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

// Gauges are sampled without pause while many publishers press.
func TestB025_ConcurrencyIsNeverExceeded(t *testing.T) {
	for _, c := range []struct {
		name   string
		config bus.Config
		stage  bus.StageConfig
	}{
		{"stage", bus.Config{}, bus.StageConfig{Concurrency: 10}},
		{"chunks", bus.Config{}, bus.StageConfig{Concurrency: 10, Batch: 16}},
		{"by key", bus.Config{}, bus.StageConfig{Concurrency: 10, Order: bus.ByKey}},
		{"bus", bus.Config{MaxHandlers: 10}, bus.StageConfig{Concurrency: 50}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := bustest.New(t, c.config)
			var now, most atomic.Int64
			s := bustest.Stage(t, b, "s", c.stage, func(context.Context, *bus.Envelope) error {
				n := now.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				runtime.Gosched()
				now.Add(-1)
				return nil
			})
			bustest.Start(t, b)
			each := caseCount(40, 2_000)
			done := make(chan struct{})
			var publishers, sampler sync.WaitGroup
			sampler.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					st := caseStats(s)
					if st.InFlight < 0 || st.InFlight > 10 || st.Depth < 0 || st.Depth > st.Capacity+st.Concurrency || st.MaxInFlight > 10 {
						t.Errorf("in flight %d (at most %d), depth %d", st.InFlight, st.MaxInFlight, st.Depth)
						return
					}
					runtime.Gosched()
				}
			})
			for p := range 50 {
				publishers.Go(func() {
					for range each {
						if err := s.Publish(t.Context(), &bus.Envelope{Key: fmt.Sprint(p)}); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			publishers.Wait()
			close(done)
			sampler.Wait()
			r := bustest.Drain(t, b)
			require.EqualValues(t, 50*each, r.Stats.Completed)
			require.LessOrEqual(t, most.Load(), int64(10))
			require.Zero(t, now.Load())
		})
	}
}

// A consumer takes all it may and never settles; then a healthy one comes.
func TestB027_LapsedLeasesComeBack(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		const lease = 200 * time.Millisecond
		s := bustest.Stage(t, b, "s", bus.StageConfig{
			Pull: true, MaxOutstanding: 5, Lease: lease, Retry: retry.Policy{MaxAttempts: 2},
		}, nil)
		bustest.Start(t, b)
		for i := range 10 {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: i}))
		}
		stuck := make([]*bus.Lease, 10)
		n, err := s.ReceiveBatch(t.Context(), stuck)
		require.NoError(t, err)
		require.Equal(t, 5, n, "no more than may be outstanding")
		_, err = s.TryReceive()
		require.ErrorIs(t, err, bus.ErrEmpty)
		require.Equal(t, 5, bustest.RequireBalanced(t, b).Stages[0].InFlight)

		time.Sleep(lease)
		synctest.Wait()
		require.Zero(t, caseStats(s).InFlight)
		require.Equal(t, 10, caseStats(s).Depth)

		var got []int
		began := time.Now()
		for range 10 {
			l, err := s.Receive(t.Context())
			require.NoError(t, err)
			require.LessOrEqual(t, caseStats(s).InFlight, 5)
			got = append(got, l.Envelope().Payload.(int))
			require.Equal(t, l.Envelope().Payload.(int) < 5, l.Envelope().Redelivered())
			require.NoError(t, l.Ack())
		}
		require.Zero(t, time.Since(began))
		require.ElementsMatch(t, []int{0, 1, 2, 3, 4}, got[:5], "what was taken first comes first")
		require.Equal(t, []int{5, 6, 7, 8, 9}, got[5:])
		for _, l := range stuck[:n] {
			require.ErrorIs(t, l.Ack(), bus.ErrLeaseExpired)
		}
		r := bustest.Drain(t, b)
		require.EqualValues(t, 10, r.Stats.Completed)
		require.EqualValues(t, 5, r.Stats.Stages[0].Lapsed)
		require.Equal(t, 5, r.Stats.Stages[0].MaxInFlight)
	})
}

// A consumer that waits when the leases lapse is woken by that.
func TestB027_WaitingConsumerGetsLapsedLeases(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		const lease = 200 * time.Millisecond
		s := bustest.Stage(t, b, "s", bus.StageConfig{
			Pull: true, MaxOutstanding: 2, Lease: lease, Retry: retry.Policy{MaxAttempts: 2},
		}, nil)
		bustest.Start(t, b)
		for range 4 {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
		}
		stuck := make([]*bus.Lease, 4)
		n, err := s.ReceiveBatch(t.Context(), stuck)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		began := time.Now()
		var consumers sync.WaitGroup
		for range 2 {
			consumers.Go(func() {
				for range 2 {
					l, err := s.Receive(t.Context())
					if assert.NoError(t, err) {
						assert.NoError(t, l.Ack())
					}
				}
			})
		}
		consumers.Wait()
		require.Equal(t, lease, time.Since(began))
		bustest.Drain(t, b)
	})
}

// A burst between two readings stands in the counters and in the marks.
func TestB028_BurstIsSeenLater(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 10, Full: bus.Reject}, gate.Handler(nil))
		bustest.Start(t, b)
		require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
		synctest.Wait() // it is in the handler
		refused := 0
		for range 1_000 {
			if err := s.Publish(t.Context(), &bus.Envelope{}); err != nil {
				require.ErrorIs(t, err, bus.ErrFull)
				refused++
			}
		}
		require.Equal(t, 990, refused)
		gate.Open()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 990, st.Refused[reason.Full])
		require.EqualValues(t, 990, st.Stages[0].Refused[reason.Full])
		require.EqualValues(t, 11, st.Completed)
		require.Equal(t, 10, st.Stages[0].MaxDepth)
		require.Equal(t, 1, st.Stages[0].MaxInFlight)
		require.Zero(t, st.Stages[0].Depth)
		s.ResetMarks()
		require.Zero(t, caseStats(s).MaxDepth)
		require.Zero(t, caseStats(s).MaxInFlight)
	})
}

func TestB029_AskingForMoreTimeIsNoFailure(t *testing.T) {
	delays := []time.Duration{0, time.Millisecond, time.Second, 10 * time.Second}
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		began := time.Now()
		var after [4]time.Duration
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error { // one attempt
			i := e.Payload.(int)
			if e.Attempt() == 1 {
				return bus.RetryAfter(delays[i])
			}
			after[i] = time.Since(began)
			return nil
		})
		bustest.Start(t, b)
		for i := range delays {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: i}))
		}
		r := bustest.Drain(t, b)
		require.Equal(t, delays, after[:])
		st := &r.Stats.Stages[0]
		require.EqualValues(t, 4, st.Completed)
		require.EqualValues(t, 4, st.Retried)
		require.EqualValues(t, 8, st.Delivered)
		require.Zero(t, st.Nacked)
		require.Zero(t, st.DeadLettered)
	})
}

// A limit of n never lets n+1 in.
func TestB030_BoundsAreExact(t *testing.T) {
	for _, capacity := range []int{1, 2, 3, 4, 10, 100} {
		for _, concurrency := range []int{1, 2, 5} {
			for _, full := range []bus.FullPolicy{bus.Block, bus.Reject, bus.DropNewest, bus.DropOldest} {
				t.Run(fmt.Sprint(capacity, " ", concurrency, " ", full), func(t *testing.T) {
					bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
						exactBound(t, b, bus.StageConfig{Capacity: capacity, Concurrency: concurrency, Full: full})
					})
				})
			}
		}
	}
}

func exactBound(t *testing.T, b *bus.Bus, c bus.StageConfig) {
	t.Helper()
	gate := bustest.NewGate()
	s := bustest.Stage(t, b, "s", c, gate.Handler(nil))
	bustest.Start(t, b)
	for range c.Concurrency {
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		synctest.Wait()
	}
	require.Equal(t, c.Concurrency, gate.Waiting())
	for i := range c.Capacity {
		require.NoError(t, s.TryPublish(&bus.Envelope{}), "place %d", i)
	}
	err := s.TryPublish(&bus.Envelope{})
	synctest.Wait()
	st := bustest.RequireBalanced(t, b).Stages[0]
	require.Equal(t, c.Capacity, st.Depth)
	require.Equal(t, c.Concurrency, st.InFlight)
	if c.Full == bus.DropOldest {
		require.NoError(t, err)
		require.EqualValues(t, 1, st.Dropped[reason.Evicted])
	} else {
		require.ErrorIs(t, err, bus.ErrRejected)
	}
	gate.Pass(1)
	synctest.Wait()
	st = bustest.RequireBalanced(t, b).Stages[0]
	require.Equal(t, c.Capacity-1, st.Depth)
	require.Equal(t, c.Concurrency, st.InFlight)
	require.NoError(t, s.TryPublish(&bus.Envelope{}), "one place for one that left")
	gate.Open()
	r := bustest.Drain(t, b)
	require.Equal(t, c.Capacity, r.Stats.Stages[0].MaxDepth)
	require.Equal(t, c.Concurrency, r.Stats.Stages[0].MaxInFlight)
}
