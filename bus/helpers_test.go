package bus_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
)

func newBus(t testing.TB, c bus.Config) *bus.Bus {
	t.Helper()
	b, err := bus.New(c)
	require.NoError(t, err)
	return b
}

func addStage(t testing.TB, b *bus.Bus, name string, c bus.StageConfig, h bus.Handler) *bus.Stage {
	t.Helper()
	s, err := b.Stage(name, c)
	require.NoError(t, err)
	if h != nil {
		require.NoError(t, s.Handle(h))
	}
	return s
}

func finish(t testing.TB, b *bus.Bus) bus.Report {
	t.Helper()
	r, err := b.Shutdown(context.Background())
	require.NoError(t, err)
	if r.Stats.Check() != nil {
		for _, s := range r.Stats.Stages {
			t.Log(s.Name, s.Entered, s.Hopped, s.Completed, s.Depth, s.InFlight, s.Copies)
		}
	}
	require.NoError(t, r.Stats.Check())
	require.Zero(t, r.Stats.Pending)
	return r
}

func TestPipelineHandlesEverything(t *testing.T) {
	for _, conc := range []int{1, 2, 8} {
		b := newBus(t, bus.Config{})
		var n [3]atomic.Int64
		for i, name := range []string{"a", "b", "c"} {
			addStage(t, b, name, bus.StageConfig{Concurrency: conc, Capacity: 128}, func(context.Context, *bus.Envelope) error {
				n[i].Add(1)
				return nil
			})
		}
		require.NoError(t, b.Start())
		a, _ := b.Lookup("a")
		slip := bus.Via("b", "c")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 3_000 {
					if err := a.Publish(t.Context(), &bus.Envelope{Slip: slip}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		r := finish(t, b)
		require.EqualValues(t, 24_000, n[2].Load())
		require.EqualValues(t, 24_000, r.Stats.Completed)
	}
}

func TestPubSubHandlesEverything(t *testing.T) {
	b := newBus(t, bus.Config{})
	topic, err := b.Stage("t", bus.StageConfig{Delivery: bus.PubSub})
	require.NoError(t, err)
	var n atomic.Int64
	for _, name := range []string{"a", "b", "c", "d"} {
		_, err := topic.Subscribe(name, bus.StageConfig{}, bus.LagWait, func(context.Context, *bus.Envelope) error {
			n.Add(1)
			return nil
		})
		require.NoError(t, err)
	}
	require.NoError(t, b.Start())
	for range 50_000 {
		require.NoError(t, topic.Publish(t.Context(), &bus.Envelope{}))
	}
	r := finish(t, b)
	require.EqualValues(t, 200_000, n.Load())
	require.EqualValues(t, 50_000, r.Stats.Completed)
}

func BenchmarkW1(b *testing.B) {
	bb := newBus(b, bus.Config{})
	s := addStage(b, bb, "a", bus.StageConfig{}, func(context.Context, *bus.Envelope) error { return nil })
	require.NoError(b, bb.Start())
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_ = s.Publish(ctx, &bus.Envelope{Payload: b})
	}
	finish(b, bb)
}
