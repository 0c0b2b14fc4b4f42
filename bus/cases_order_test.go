package bus_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/retry"
)

// One publisher, concurrency 1: first in, first out, through three stages.
func TestB022_OneWorkerKeepsOrderThroughThreeStages(t *testing.T) {
	for _, c := range []struct {
		name  string
		stage bus.StageConfig
	}{
		{"adaptive", bus.StageConfig{}},
		{"chunks", bus.StageConfig{Batch: 64}},
		{"small", bus.StageConfig{Capacity: 3}}, // hops park
		{"in order", bus.StageConfig{Order: bus.InOrder, Concurrency: 4, Capacity: 16}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				var next [3]atomic.Int64
				var out atomic.Int64
				for i, name := range []string{"a", "b", "c"} {
					bustest.Stage(t, b, name, c.stage, func(_ context.Context, e *bus.Envelope) error {
						if want := next[i].Add(1) - 1; e.Payload.(int64) != want {
							out.Add(1)
						}
						if e.Payload.(int64)%512 == 0 { // held up now and then, so that claims are taken back
							time.Sleep(5 * time.Millisecond)
						}
						return nil
					})
				}
				bustest.Start(t, b)
				n := caseCount(3_000, 10_000)
				slip := bus.Via("b", "c")
				for i := range n {
					require.NoError(t, b.Publish(t.Context(), "a", &bus.Envelope{Payload: int64(i), Slip: slip}))
				}
				r := bustest.Drain(t, b)
				require.Zero(t, out.Load(), "envelopes out of order")
				require.EqualValues(t, n, r.Stats.Completed)
			})
		})
	}
}

// keyOrder checks that the numbers of each key rise by one.
type keyOrder struct {
	mu   sync.Mutex
	next map[string]int
	bad  []string
	busy map[string]bool
}

func newKeyOrder() *keyOrder {
	return &keyOrder{next: map[string]int{}, busy: map[string]bool{}}
}

func (k *keyOrder) enter(key string, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy[key] {
		k.bad = append(k.bad, "two at a time: "+key)
	}
	k.busy[key] = true
	if k.next[key] != n {
		k.bad = append(k.bad, fmt.Sprintf("%s: %d instead of %d", key, n, k.next[key]))
	}
}

func (k *keyOrder) leave(key string, done bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy[key] = false
	if done {
		k.next[key]++
	}
}

// With more workers, order is kept for each key, through three stages, also
// when envelopes fail and wait for their retry, and when the concurrency
// changes meanwhile.
func TestB022_ManyWorkersKeepOrderByKey(t *testing.T) {
	for _, c := range []struct {
		name  string
		batch int
		sleep time.Duration
		fails bool
		tune  bool
	}{
		{name: "fast", batch: 0},
		{name: "chunks", batch: 64},
		{name: "slow", sleep: time.Millisecond},
		{name: "retries", fails: true},
		{name: "slow retries", sleep: time.Millisecond, fails: true},
		{name: "tuned", sleep: time.Millisecond, tune: true},
		{name: "tuned chunks", batch: 64, fails: true, tune: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				const keys = 40
				names := []string{"a", "b", "c"}
				var orders []*keyOrder
				var stages []*bus.Stage
				for _, name := range names {
					order := newKeyOrder()
					orders = append(orders, order)
					stages = append(stages, bustest.Stage(t, b, name, bus.StageConfig{
						Order: bus.ByKey, Concurrency: 4, Batch: c.batch, Capacity: 64,
						Retry: retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: 3 * time.Millisecond},
					}, func(_ context.Context, e *bus.Envelope) error {
						n := e.Payload.(int)
						order.enter(e.Key, n)
						fail := c.fails && n%7 == 3 && e.Attempt() < 3
						if c.sleep > 0 && n%3 == 0 {
							time.Sleep(c.sleep)
						}
						order.leave(e.Key, !fail)
						if fail {
							return assert.AnError
						}
						return nil
					}))
				}
				bustest.Start(t, b)
				n := caseCount(30, 250)
				slip := bus.Via("b", "c")
				for i := range n {
					for k := range keys {
						require.NoError(t, stages[0].Publish(t.Context(), &bus.Envelope{Payload: i, Key: fmt.Sprint("k", k), Slip: slip}))
					}
					if c.tune {
						require.NoError(t, stages[i%3].Tune(func(c *bus.StageConfig) { c.Concurrency = 1 + i%5 }))
					}
				}
				r := bustest.Drain(t, b)
				for i, o := range orders {
					require.Empty(t, o.bad, names[i])
				}
				require.EqualValues(t, n*keys, r.Stats.Completed)
			})
		})
	}
}
