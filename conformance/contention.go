package conformance

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
)

// long is n, or more when SEDA_LONG asks for long runs.
func long(n, more int) int {
	if os.Getenv("SEDA_LONG") != "" {
		return more
	}
	return n
}

const producers = 6

func contention() []check {
	return []check{
		{name: "ExactlyOnce", real: func(t *testing.T, d *bed) {
			t.Helper()
			contend(t, d, bus.StageConfig{Concurrency: 4, Capacity: 64})
		}},
		{name: "ExactlyOnceInClasses", real: func(t *testing.T, d *bed) {
			t.Helper()
			contend(t, d, bus.StageConfig{Concurrency: 4, Capacity: 64, Classes: []bus.Class{{Name: "high"}, {Name: "low"}}})
		}},
		{name: "OneKeyAtATime", real: func(t *testing.T, d *bed) {
			t.Helper()
			contend(t, d, bus.StageConfig{Concurrency: 4, Capacity: 64, Order: bus.ByKey})
		}},
		{name: "OverHops", real: func(t *testing.T, d *bed) {
			t.Helper()
			contend(t, d, bus.StageConfig{Concurrency: 2, Capacity: 16}, "b", "c")
		}},
		{name: "WithRetries", real: contendWithRetries},
	}
}

// ticks notes how often each envelope was handled at the last stage, and that
// those of a key come in order and one at a time.
type ticks struct {
	t      *testing.T
	each   int
	keyed  bool
	counts []atomic.Int32
	last   [producers]atomic.Int64
	busy   [producers]atomic.Bool
}

func newTicks(t *testing.T, each int, keyed bool) *ticks {
	t.Helper()
	k := &ticks{t: t, each: each, keyed: keyed, counts: make([]atomic.Int32, producers*each)}
	for p := range k.last {
		k.last[p].Store(-1)
	}
	return k
}

func (k *ticks) handle(_ context.Context, e *bus.Envelope) error {
	n := number(e)
	if k.keyed {
		p := n / k.each
		if k.busy[p].Swap(true) {
			k.t.Errorf("two envelopes of one key were handled at the same time")
		}
		if last := k.last[p].Swap(int64(n)); last >= int64(n) {
			k.t.Errorf("envelope %d was handled after %d of the same key", n, last)
		}
		defer k.busy[p].Store(false)
	}
	k.counts[n].Add(1)
	return nil
}

func (k *ticks) check() {
	k.t.Helper()
	for n := range k.counts {
		if got := k.counts[n].Load(); got != 1 {
			k.t.Fatalf("envelope %d was handled %d times, want exactly once", n, got)
		}
	}
}

// contend lets producers publish at once, to a stage of config c or through
// several.
func contend(t *testing.T, d *bed, c bus.StageConfig, via ...string) {
	t.Helper()
	each := long(500, 20_000)
	k := newTicks(t, each, c.Order == bus.ByKey)
	b := d.kit.New(t, bus.Config{})
	defer b.Close() //nolint:errcheck // for a case that failed
	names := append([]string{"a"}, via...)
	for i, name := range names {
		h := func(context.Context, *bus.Envelope) error { return nil }
		if i == len(names)-1 {
			h = k.handle
		}
		bustest.Stage(t, b, name, c, h)
	}
	bustest.Start(t, b)
	s, _ := b.Lookup("a")
	var slip bus.Slip
	if len(via) > 0 {
		slip = bus.Via(via...)
	}
	produce(t, d, s, each, slip)
	r := bustest.Drain(t, b)
	k.check()
	if want := uint64(producers * each); r.Stats.Completed != want {
		t.Fatalf("completed: got %d, want %d", r.Stats.Completed, want)
	}
}

func produce(t *testing.T, d *bed, s *bus.Stage, each int, slip bus.Slip) {
	t.Helper()
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			meta := &bus.Meta{Class: []string{"high", "low"}[p%2]}
			for i := range each {
				e := bus.Envelope{Payload: p*each + i, Key: keyOf(p), Slip: slip, Meta: meta}
				if err := s.Publish(d.ctx, &e); err != nil {
					t.Errorf("publish: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// contendWithRetries: every fifth envelope fails once; each is acknowledged
// once.
func contendWithRetries(t *testing.T, d *bed) {
	t.Helper()
	each := long(300, 10_000)
	k := newTicks(t, each, false)
	b := d.kit.New(t, bus.Config{})
	defer b.Close() //nolint:errcheck // for a case that failed
	c := bus.StageConfig{Concurrency: 4, Capacity: 64}
	c.Retry.MaxAttempts = 2
	s := bustest.Stage(t, b, "a", c, func(ctx context.Context, e *bus.Envelope) error {
		if number(e)%5 == 0 && e.Attempt() == 1 {
			return errWanted
		}
		return k.handle(ctx, e)
	})
	bustest.Start(t, b)
	produce(t, d, s, each, bus.Slip{})
	r := bustest.Drain(t, b)
	k.check()
	if want := uint64(producers * each / 5); r.Stats.Stages[0].Retried != want {
		t.Fatalf("retried: got %d, want %d", r.Stats.Stages[0].Retried, want)
	}
}
