package bus_test

import (
	"context"
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
	"github.com/sedabus/seda/retry"
)

func TestB018_FirstSettlementCounts(t *testing.T) {
	settle := map[string]func(*bus.Lease) error{
		"ack":         (*bus.Lease).Ack,
		"nack":        func(l *bus.Lease) error { return l.Nack(assert.AnError) },
		"retry":       func(l *bus.Lease) error { return l.RetryAfter(time.Minute) },
		"dead-letter": func(l *bus.Lease) error { return l.DeadLetter("test") },
	}
	for first, settleFirst := range settle {
		t.Run(first, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				s := bustest.Stage(t, b, "s", bus.StageConfig{Pull: true}, nil)
				bustest.Start(t, b)
				for range 2 {
					require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
				}
				l, err := s.Receive(t.Context())
				require.NoError(t, err)
				other, err := s.Receive(t.Context())
				require.NoError(t, err)
				require.NoError(t, settleFirst(l))
				synctest.Wait()
				once := caseStats(s)
				for second, settleSecond := range settle {
					require.ErrorIs(t, settleSecond(l), bus.ErrSettled, second)
				}
				require.ErrorIs(t, l.Extend(time.Second), bus.ErrSettled)
				synctest.Wait()
				twice := caseStats(s)
				twice.At = once.At
				require.Equal(t, once, twice, "counters moved again")
				require.NoError(t, other.Ack(), "another envelope is affected")
				if first == "retry" {
					l, err := s.Receive(t.Context())
					require.NoError(t, err)
					require.NoError(t, l.Ack())
				}
				bustest.Drain(t, b)
			})
		})
	}
}

func TestB018_LateSettlementIsStale(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Pull: true, Lease: time.Second, Retry: retry.Policy{MaxAttempts: 2}}, nil)
		bustest.Start(t, b)
		require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
		late, err := s.Receive(t.Context())
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		again, err := s.Receive(t.Context())
		require.NoError(t, err)
		require.Equal(t, late.Envelope().ID(), again.Envelope().ID())
		require.Equal(t, 2, again.Envelope().Attempt())
		require.True(t, again.Envelope().Redelivered())
		require.ErrorIs(t, late.Ack(), bus.ErrLeaseExpired)
		require.ErrorIs(t, late.Nack(assert.AnError), bus.ErrLeaseExpired)
		st := caseStats(s)
		require.EqualValues(t, 1, st.Lapsed)
		require.EqualValues(t, 2, st.Late)
		require.Equal(t, 1, st.InFlight, "the second delivery is not affected")
		require.NoError(t, again.Ack())
		r := bustest.Drain(t, b)
		require.EqualValues(t, 1, r.Stats.Completed)
	})
}

// Several goroutines settle the same delivery at once.
func TestB018_OneOfManySettlementsWins(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Pull: true}, nil)
		bustest.Start(t, b)
		n := caseCount(500, 20_000)
		var won atomic.Int64
		for range n {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
			l, err := s.Receive(t.Context())
			require.NoError(t, err)
			var settlers sync.WaitGroup
			for i := range 3 {
				settlers.Go(func() {
					err := l.Ack()
					if i == 0 {
						err = l.DeadLetter("test")
					}
					if err == nil {
						won.Add(1)
					} else {
						assert.ErrorIs(t, err, bus.ErrSettled)
					}
				})
			}
			settlers.Wait()
		}
		r := bustest.Drain(t, b)
		require.LessOrEqual(t, won.Load(), int64(n))
		require.EqualValues(t, n, r.Stats.Completed+r.Stats.DeadLettered)
	})
}

// Once RemoveHandler has returned, only calls that were in flight then may
// still be seen; what was claimed but not started waits for the next handler.
func TestB019_RemovedHandlerIsNeverEnteredAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		stage bus.StageConfig
	}{
		{"one executor", bus.StageConfig{}},
		{"several executors", bus.StageConfig{Concurrency: 4}},
		{"chunks", bus.StageConfig{Concurrency: 2, Batch: 64}},
		{"by key", bus.StageConfig{Concurrency: 4, Order: bus.ByKey}},
	} {
		c.stage.NoHandler = bus.NoHandlerHold
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for round := range caseCount(150, 10_000) {
					removeWhilePublishing(t, c.stage, round)
				}
			})
		})
	}
}

func removeWhilePublishing(t *testing.T, c bus.StageConfig, round int) {
	t.Helper()
	const publishers, each = 4, 25
	var removed atomic.Bool
	var first, second, late atomic.Int64
	b := bustest.New(t, bus.Config{})
	s := bustest.Stage(t, b, "s", c, func(context.Context, *bus.Envelope) error {
		if removed.Load() {
			late.Add(1)
		}
		first.Add(1)
		return nil
	})
	bustest.Start(t, b)
	running := 0
	var all sync.WaitGroup
	for range publishers {
		all.Go(func() {
			for range each {
				assert.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
				runtime.Gosched()
			}
		})
	}
	all.Go(func() {
		for range round % 40 {
			runtime.Gosched()
		}
		assert.NoError(t, s.RemoveHandler())
		running = caseStats(s).InFlight
		removed.Store(true)
	})
	all.Wait()
	synctest.Wait()
	require.LessOrEqual(t, late.Load(), int64(running), "started after it was removed")
	bustest.RequireBalanced(t, b)
	require.NoError(t, s.Handle(func(context.Context, *bus.Envelope) error {
		second.Add(1)
		return nil
	}))
	bustest.Drain(t, b)
	require.EqualValues(t, publishers*each, first.Load()+second.Load())
}

// What is published once Unsubscribe has returned is not copied to the
// subscriber; what was queued there it still handles.
func TestB019_UnsubscribedGetsNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for round := range caseCount(100, 5_000) {
			var gone atomic.Bool
			var kept, left atomic.Int64
			b := bustest.New(t, bus.Config{})
			topic := bustest.Stage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
			_, err := topic.Subscribe("keeps", bus.StageConfig{}, bus.LagWait, func(context.Context, *bus.Envelope) error {
				kept.Add(1)
				return nil
			})
			require.NoError(t, err)
			_, err = topic.Subscribe("leaves", bus.StageConfig{}, bus.LagWait, func(_ context.Context, e *bus.Envelope) error {
				if e.Payload.(bool) {
					t.Error("got a copy of what was published later")
				}
				left.Add(1)
				return nil
			})
			require.NoError(t, err)
			bustest.Start(t, b)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for range 25 {
						assert.NoError(t, topic.Publish(t.Context(), &bus.Envelope{Payload: gone.Load()}))
						runtime.Gosched()
					}
				})
			}
			all.Go(func() {
				for range round % 30 {
					runtime.Gosched()
				}
				assert.NoError(t, topic.Unsubscribe("leaves"))
				gone.Store(true)
			})
			all.Wait()
			r := bustest.Drain(t, b)
			require.EqualValues(t, 100, kept.Load())
			require.LessOrEqual(t, left.Load(), int64(100))
			require.EqualValues(t, 100, r.Stats.Completed)
		}
	})
}

func TestB020_EachAttemptRunsOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		stage bus.StageConfig
	}{
		{"unordered", bus.StageConfig{}},
		{"by key", bus.StageConfig{Order: bus.ByKey}},
		{"chunks", bus.StageConfig{Batch: 64}},
	} {
		c.stage.Concurrency = 8
		c.stage.Retry = retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: 10 * time.Millisecond}
		t.Run(c.name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				const n = 1_000
				var runs [n][4]atomic.Int32
				s := bustest.Stage(t, b, "s", c.stage, func(_ context.Context, e *bus.Envelope) error {
					if e.Attempt() < 1 || e.Attempt() > 3 {
						t.Errorf("attempt %d", e.Attempt())
						return nil
					}
					runs[e.Payload.(int)][e.Attempt()].Add(1)
					if e.Attempt() < 3 {
						return assert.AnError
					}
					return nil
				})
				bustest.Start(t, b)
				for i := range n {
					require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: i, Key: string(rune('a' + i%20))}))
				}
				r := bustest.Drain(t, b)
				for i := range runs {
					for attempt := 1; attempt <= 3; attempt++ {
						require.EqualValues(t, 1, runs[i][attempt].Load(), "envelope %d, attempt %d", i, attempt)
					}
				}
				require.EqualValues(t, n, r.Stats.Completed)
				require.EqualValues(t, 2*n, r.Stats.Stages[0].Retried)
				require.EqualValues(t, 3*n, r.Stats.Stages[0].Delivered)
			})
		})
	}
}

func TestB021_RetryRepeatsNoSibling(t *testing.T) {
	for _, kind := range []retry.Kind{retry.Immediate, retry.Constant} {
		t.Run(kind.String(), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				var runs [3]int // each written by its own subscriber, one at a time
				topic := bustest.Stage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
				config := bus.StageConfig{Retry: retry.Policy{MaxAttempts: 3, Kind: kind}}
				for i, name := range []string{"s1", "s2", "s3"} {
					_, err := topic.Subscribe(name, config, bus.LagWait, func(_ context.Context, e *bus.Envelope) error {
						runs[i]++
						if name == "s2" && e.Attempt() < 3 {
							return assert.AnError
						}
						return nil
					})
					require.NoError(t, err)
				}
				bustest.Start(t, b)
				ends := make(chan bus.Result, 10)
				require.NoError(t, topic.Publish(t.Context(), &bus.Envelope{OnDone: func(r bus.Result) { ends <- r }}))
				r := bustest.Drain(t, b)
				require.Equal(t, [3]int{1, 3, 1}, runs)
				require.Len(t, ends, 1)
				require.Equal(t, bus.Completed, (<-ends).End)
				require.EqualValues(t, 1, r.Stats.Accepted)
				require.EqualValues(t, 3, r.Stats.Copies.Completed)
			})
		})
	}
}

// A subscriber that fails for good takes nothing from the others.
func TestB021_FailureSkipsNoSibling(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var runs [3]int
		topic := bustest.Stage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
		for i, name := range []string{"s1", "s2", "s3"} {
			_, err := topic.Subscribe(name, bus.StageConfig{}, bus.LagWait, func(context.Context, *bus.Envelope) error {
				runs[i]++
				if name == "s1" {
					panic("always")
				}
				return nil
			})
			require.NoError(t, err)
		}
		bustest.Start(t, b)
		ends := make(chan bus.Result, 10)
		require.NoError(t, topic.Publish(t.Context(), &bus.Envelope{OnDone: func(r bus.Result) { ends <- r }}))
		r := bustest.Drain(t, b)
		require.Equal(t, [3]int{1, 1, 1}, runs)
		require.Len(t, ends, 1)
		end := <-ends
		require.Equal(t, bus.DeadLettered, end.End)
		require.Len(t, end.Copies, 3)
		require.Equal(t, "topic.s1", end.Copies[0].Stage)
		require.Equal(t, bus.DeadLettered, end.Copies[0].End)
		require.EqualValues(t, 1, r.Stats.DeadLettered)
		require.EqualValues(t, 1, r.Stats.Letters.Count)
	})
}
