package bus_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/retry"
)

// keyLog checks in the handler that each key is handled one at a time, and
// keeps the order of what was acknowledged.
type keyLog struct {
	mu     sync.Mutex
	inside map[string]int
	acked  map[string][]int
	most   int // calls at once
	now    int
	faults []string
}

func newKeyLog() *keyLog { return &keyLog{inside: map[string]int{}, acked: map[string][]int{}} }

func (l *keyLog) enter(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside[key]++
	l.now++
	l.most = max(l.most, l.now)
	if l.inside[key] > 1 {
		l.faults = append(l.faults, "two at once for "+key)
	}
}

func (l *keyLog) leave(key string, seq int, acked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside[key]--
	l.now--
	if acked {
		l.acked[key] = append(l.acked[key], seq)
	}
}

func (l *keyLog) check(t *testing.T, keys, each int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(t, l.faults)
	require.Len(t, l.acked, keys)
	for key, seqs := range l.acked {
		require.Len(t, seqs, each, key)
		require.True(t, slices.IsSorted(seqs), "%s: %v", key, seqs)
	}
}

func TestByKeyKeepsEachKeysOrder(t *testing.T) {
	for _, tc := range []struct {
		name    string
		conc    int
		batch   int
		slow    time.Duration
		retry   retry.Policy
		failing bool
		ask     time.Duration // RetryAfter, if failing
	}{
		{name: "fast", conc: 8},
		{name: "fast, fixed batch", conc: 8, batch: 64},
		{name: "slow", conc: 8, slow: time.Millisecond},
		{name: "slow, fixed batch", conc: 8, batch: 64, slow: time.Millisecond},
		{name: "one by one", conc: 8, batch: 1},
		{name: "immediate retries", conc: 8, failing: true, retry: retry.Policy{MaxAttempts: 50}},
		{name: "delayed retries", conc: 8, failing: true, retry: retry.Policy{MaxAttempts: 50, Kind: retry.Constant, Base: 3 * time.Millisecond}},
		{name: "delayed retries, fixed batch", conc: 3, batch: 16, failing: true, retry: retry.Policy{MaxAttempts: 50, Kind: retry.Constant, Base: time.Microsecond}},
		{name: "asked retries, slow", conc: 8, slow: time.Millisecond, failing: true, ask: 2 * time.Millisecond},
		{name: "one handler, delayed retries", conc: 1, failing: true, ask: time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				const keys, each = 40, 30
				log := newKeyLog()
				rnd := rand.New(rand.NewPCG(1, 2))
				var mu sync.Mutex
				fails := func(e *bus.Envelope) bool {
					mu.Lock()
					defer mu.Unlock()
					return tc.failing && e.Attempt() < 4 && rnd.IntN(4) == 0
				}
				s := bustest.Stage(t, b, "s", bus.StageConfig{
					Concurrency: tc.conc, Order: bus.ByKey, Batch: tc.batch, Retry: tc.retry, Capacity: 300,
				}, func(_ context.Context, e *bus.Envelope) error {
					log.enter(e.Key)
					if tc.slow > 0 {
						time.Sleep(tc.slow)
					}
					failed := fails(e)
					log.leave(e.Key, e.Payload.(int), !failed)
					switch {
					case failed && tc.ask > 0:
						return bus.RetryAfter(tc.ask)
					case failed:
						return errors.New("failed")
					}
					return nil
				})
				bustest.Start(t, b)
				for seq := range each {
					for k := range keys {
						require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Key: fmt.Sprint("k", k), Payload: seq}))
					}
				}
				bustest.Drain(t, b)
				log.check(t, keys, each)
				if tc.slow > 0 {
					require.Greater(t, log.most, 1, "different keys run at once")
				}
				require.LessOrEqual(t, log.most, tc.conc)
			})
		})
	}
}

func TestByKeyOtherKeysPassARetry(t *testing.T) {
	for _, batch := range []int{1, 64} {
		for _, delay := range []time.Duration{0, time.Second} {
			t.Run(fmt.Sprint(batch, delay), func(t *testing.T) {
				bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
					var v visits
					p := retry.Policy{MaxAttempts: 3}
					if delay > 0 {
						p.Kind, p.Base = retry.Constant, delay
					}
					s := bustest.Stage(t, b, "s", bus.StageConfig{Order: bus.ByKey, Batch: batch, Retry: p},
						func(_ context.Context, e *bus.Envelope) error {
							v.add(fmt.Sprint(e.Key, e.Payload, "#", e.Attempt()))
							if e.Key == "bad" && e.Payload == 1 && e.Attempt() < 3 {
								return errors.New("no")
							}
							return nil
						})
					s.Suspend(bus.Hold{})
					bustest.Start(t, b)
					for i := 1; i <= 2; i++ {
						for k := range 40 { // more keys than slots: some share the bad one's
							key := fmt.Sprintf("k%d-", k)
							if k == 20 {
								key = "bad"
							}
							require.NoError(t, s.TryPublish(&bus.Envelope{Key: key, Payload: i}))
						}
					}
					s.Resume("")
					synctest.Wait()
					if delay > 0 {
						require.Len(t, v.all(), 79, "all but what is behind the retry")
						st := readStage(s)
						require.Equal(t, 2, st.Depth)
						require.Equal(t, 1, st.Delayed)
						require.Zero(t, st.InFlight)
						require.NotContains(t, v.all(), "bad2#1")
						time.Sleep(2 * delay)
						synctest.Wait()
					}
					var bad []string
					for _, s := range v.all() {
						if s[:3] == "bad" {
							bad = append(bad, s)
						}
					}
					require.Equal(t, []string{"bad1#1", "bad1#2", "bad1#3", "bad2#1"}, bad)
					require.Len(t, v.all(), 82)
				})
			})
		}
	}
}

func TestInOrderHoldsAllBehindARetry(t *testing.T) {
	for _, c := range []bus.StageConfig{
		{},
		{Concurrency: 8},
		{Batch: 64},
		{Concurrency: 8, Batch: 64},
	} {
		for _, delay := range []time.Duration{0, time.Second} {
			t.Run(fmt.Sprint(c.Concurrency, c.Batch, delay), func(t *testing.T) {
				bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
					c.Order = bus.InOrder
					c.Retry = retry.Policy{MaxAttempts: 2}
					if delay > 0 {
						c.Retry.Kind, c.Retry.Base = retry.Constant, delay
					}
					log := newKeyLog()
					var v visits
					s := bustest.Stage(t, b, "s", c, func(_ context.Context, e *bus.Envelope) error {
						log.enter("")
						defer log.leave("", 0, false)
						v.add(fmt.Sprint(e.Payload, "#", e.Attempt()))
						if e.Payload.(int)%3 == 1 && e.Attempt() == 1 {
							return errors.New("no")
						}
						return nil
					})
					s.Suspend(bus.Hold{})
					bustest.Start(t, b)
					var want []string
					for i := range 10 {
						require.NoError(t, s.TryPublish(&bus.Envelope{Key: fmt.Sprint(i), Payload: i}))
						want = append(want, fmt.Sprint(i, "#1"))
						if i%3 == 1 {
							want = append(want, fmt.Sprint(i, "#2"))
						}
					}
					s.Resume("")
					synctest.Wait()
					if delay > 0 {
						require.Equal(t, want[:2], v.all())
						require.Equal(t, 9, readStage(s).Depth)
					}
					time.Sleep(3 * delay)
					synctest.Wait()
					require.Equal(t, want, v.all())
					require.Empty(t, log.faults)
				})
			})
		}
	}
}

// A stage known to be fast claims many envelopes at a time. When a handler is
// held up all the same, the rest of its claim is set free.
func TestWatchdogSetsTheRestFree(t *testing.T) {
	for _, c := range []bus.StageConfig{
		{Concurrency: 2, Batch: 64, Order: bus.ByKey},
		{Concurrency: 2, Batch: 64},
		{Concurrency: 2, Batch: 64, Classes: []bus.Class{{Name: "one"}}},
	} {
		t.Run(c.Order.String(), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				var v visits
				var ends endLog
				gate := bustest.NewGate()
				s := bustest.Stage(t, b, "s", c, func(ctx context.Context, e *bus.Envelope) error {
					if e.Key == "stuck" && e.Payload == 0 {
						return gate.Wait(ctx)
					}
					v.add(e.Key)
					return nil
				})
				s.Suspend(bus.Hold{})
				bustest.Start(t, b)
				const n = 64
				for i := range n {
					key := fmt.Sprint(i % 32)
					if i%32 == 3 {
						key = "stuck"
					}
					require.NoError(t, s.TryPublish(&bus.Envelope{Key: key, Payload: i / 32, OnDone: ends.done}))
				}
				s.Resume("")
				settle()
				behind := 0
				if c.Order == bus.ByKey {
					behind = 1 // the second of the stuck key
					require.NotContains(t, v.all(), "stuck")
				}
				require.Len(t, v.all(), n-1-behind)
				require.Equal(t, n-1-behind, ends.count(bus.Completed), "what is finished is settled")
				st := readStage(s)
				require.Equal(t, 1, st.InFlight)
				require.Equal(t, behind, st.Depth)
				bustest.RequireBalanced(t, b)
				gate.Open()
				synctest.Wait()
				require.Equal(t, n, ends.count(bus.Completed))
			})
		})
	}
}

// With one handler nothing else can run, but what is finished is settled and
// the depth is right.
func TestWatchdogWithOneHandler(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Batch: 64, Capacity: 9, Full: bus.Reject}, func(ctx context.Context, e *bus.Envelope) error {
			if e.Payload == 4 {
				return gate.Wait(ctx)
			}
			return nil
		})
		s.Suspend(bus.Hold{})
		bustest.Start(t, b)
		for i := range 9 {
			require.NoError(t, s.TryPublish(&bus.Envelope{Payload: i, OnDone: ends.done}))
		}
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrFull)
		s.Resume("")
		synctest.Wait()
		st := readStage(s) // exact although the chunk is not finished
		require.Equal(t, 4, st.Depth)
		require.Equal(t, 1, st.InFlight)
		require.EqualValues(t, 4, st.Completed)
		settle()
		require.Equal(t, 4, ends.count(bus.Completed))
		for range 5 {
			require.NoError(t, s.TryPublish(&bus.Envelope{OnDone: ends.done}))
		}
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrFull)
		gate.Open()
	})
}

func TestKeysSurviveTheRemovalOfTheHandler(t *testing.T) {
	for _, order := range []bus.Order{bus.ByKey, bus.InOrder} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprint(order, late), func(t *testing.T) {
				bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
					var ends endLog
					h := func(_ context.Context, e *bus.Envelope) error {
						if e.Attempt() == 1 {
							return bus.RetryAfter(time.Second)
						}
						return nil
					}
					s := bustest.Stage(t, b, "s", bus.StageConfig{Order: order}, h)
					bustest.Start(t, b)
					publish(t, s, bus.Slip{}, ends.done, 1, 2)
					if !late { // the retry comes due first and waits in the queue
						s.Suspend(bus.Hold{})
						time.Sleep(time.Second)
						synctest.Wait()
					}
					require.NoError(t, s.RemoveHandler())
					s.Resume("")
					time.Sleep(time.Second)
					synctest.Wait()
					require.Equal(t, 2, ends.count(bus.DeadLettered))
					require.NoError(t, s.Handle(ack))
					publish(t, s, bus.Slip{}, ends.done, 3, 4)
					require.Equal(t, 2, ends.count(bus.Completed), "no key is left held")
				})
			})
		}
	}
}

func TestUnorderedLetsOthersPassARetry(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var v visits
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			v.add(fmt.Sprint(e.Payload))
			if e.Payload == 1 && e.Attempt() == 1 {
				return bus.RetryAfter(time.Second)
			}
			return nil
		})
		bustest.Start(t, b)
		publish(t, s, bus.Slip{}, nil, 1, 2, 3)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"1", "2", "3", "1"}, v.all())
	})
}

func TestImmediateRetryComesBeforeTheRest(t *testing.T) {
	for _, batch := range []int{1, 64} {
		bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
			var v visits
			s := bustest.Stage(t, b, "s", bus.StageConfig{Batch: batch}, func(_ context.Context, e *bus.Envelope) error {
				v.add(fmt.Sprint(e.Payload))
				if e.Payload == 1 && e.Attempt() < 3 {
					return bus.RetryNow()
				}
				return nil
			})
			s.Suspend(bus.Hold{})
			bustest.Start(t, b)
			publish(t, s, bus.Slip{}, nil, 1, 2)
			s.Resume("")
			synctest.Wait()
			require.Equal(t, []string{"1", "1", "1", "2"}, v.all())
		})
	}
}
