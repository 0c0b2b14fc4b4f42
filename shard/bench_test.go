package shard_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shard"
)

// The benchmarks move 64 bytes an item and run beside buffered channels that do
// the same: one consumer for one producer, two for eight, one goroutine a stage
// and core for the pipeline. Compare only ratios of one run.

type load [8]uint64

// benchKeys is how many keys the keyed benchmarks use.
const benchKeys = 64

var benchHashes = func() (h [benchKeys]uint64) {
	for i := range h {
		h[i] = hashOf(i)
	}
	return h
}()

// produce splits n over producers and waits for them.
func produce(n, producers int, f func(producer, n int)) {
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() { f(p, n/producers+min(1, n%producers)) })
	}
	wg.Wait()
}

func benchChannels(b *testing.B, producers, stages int) {
	b.Helper()
	chans := make([]chan load, stages)
	var done []*sync.WaitGroup
	consumers := min(producers, 2)
	for i := range chans {
		chans[i] = make(chan load, 1024)
	}
	for i := range chans {
		var wg sync.WaitGroup
		for range consumers {
			wg.Go(func() {
				sum := uint64(0)
				for v := range chans[i] {
					if sum += v[0]; i+1 < stages {
						chans[i+1] <- v
					}
				}
				_ = sum
			})
		}
		done = append(done, &wg)
	}
	b.ResetTimer()
	produce(b.N, producers, func(_, n int) {
		for i := range n {
			chans[0] <- load{uint64(i)}
		}
	})
	for i := range chans {
		close(chans[i])
		done[i].Wait()
	}
}

func benchShards(b *testing.B, producers, stages, batch int, cfg shard.Config[load], keyed bool) {
	b.Helper()
	sums := make([][8]uint64, shard.MaxShards) // a line each
	cfg.Handle = func(s *shard.Shard[load], v *load) {
		sums[s.Index()][0] += v[0]
		if int(v[1]) < stages {
			next := *v
			next[1]++
			if !keyed {
				_ = s.Send(s.Key(), next) // the shard keeps it
			} else {
				_ = s.Send(benchHashes[(v[0]+v[1])%benchKeys], next)
			}
		}
	}
	rt, err := shard.New(cfg)
	require.NoError(b, err)
	ctx := context.Background()
	b.ResetTimer()
	produce(b.N, producers, func(p, n int) {
		prod := rt.Producer()
		if batch > 1 {
			items := make([]load, batch)
			for i := 0; i < n; i += batch {
				for j := range items {
					items[j] = load{uint64(i + j), 1}
				}
				if _, err := prod.PushBatch(ctx, benchHashes[(p+i/batch)%benchKeys], items[:min(batch, n-i)]); err != nil {
					b.Error(err)
				}
			}
			return
		}
		for i := range n {
			h := benchHashes[p]
			if keyed {
				h = benchHashes[i%benchKeys]
			}
			if err := prod.Push(ctx, h, load{uint64(i), 1}); err != nil {
				b.Error(err)
			}
		}
	})
	if _, err := rt.Close(ctx); err != nil {
		b.Error(err)
	}
}

func benchPlain(b *testing.B, producers int) {
	b.Helper()
	rt, err := shard.New(shard.Config[load]{Handle: func(*shard.Shard[load], *load) {}})
	require.NoError(b, err)
	ctx := context.Background()
	b.ResetTimer()
	produce(b.N, producers, func(p, n int) {
		for i := range n {
			if err := rt.Push(ctx, benchHashes[p], load{uint64(i), 1}); err != nil {
				b.Error(err)
			}
		}
	})
	if _, err := rt.Close(ctx); err != nil {
		b.Error(err)
	}
}

func BenchmarkOneProducer(b *testing.B) {
	b.Run("channel", func(b *testing.B) { benchChannels(b, 1, 1) })
	b.Run("push", func(b *testing.B) { benchPlain(b, 1) })
	b.Run("producer", func(b *testing.B) { benchShards(b, 1, 1, 1, shard.Config[load]{}, false) })
	b.Run("producer-keys", func(b *testing.B) { benchShards(b, 1, 1, 1, shard.Config[load]{}, true) })
	b.Run("batch32", func(b *testing.B) { benchShards(b, 1, 1, 32, shard.Config[load]{}, false) })
}

func BenchmarkEightProducers(b *testing.B) {
	b.Run("channel", func(b *testing.B) { benchChannels(b, 8, 1) })
	b.Run("push", func(b *testing.B) { benchPlain(b, 8) })
	b.Run("producer", func(b *testing.B) { benchShards(b, 8, 1, 1, shard.Config[load]{}, false) })
	b.Run("producer-keys", func(b *testing.B) { benchShards(b, 8, 1, 1, shard.Config[load]{}, true) })
	b.Run("batch32", func(b *testing.B) { benchShards(b, 8, 1, 32, shard.Config[load]{}, false) })
}

func BenchmarkThreeStages(b *testing.B) {
	b.Run("channel", func(b *testing.B) { benchChannels(b, 8, 3) })
	b.Run("producer", func(b *testing.B) { benchShards(b, 8, 3, 1, shard.Config[load]{}, false) })
	b.Run("batch32", func(b *testing.B) { benchShards(b, 8, 3, 32, shard.Config[load]{}, false) })
	b.Run("producer-rekeyed", func(b *testing.B) { benchShards(b, 8, 3, 1, shard.Config[load]{}, true) })
}

// BenchmarkPinned shows what binding costs.
func BenchmarkPinned(b *testing.B) {
	for name, pin := range map[string]shard.Pin{"free": {}, "threads": {Thread: true}, "cpus": {CPUs: []int{0, 1}}} {
		b.Run(name, func(b *testing.B) { benchShards(b, 8, 3, 1, shard.Config[load]{Shards: 2, Pin: pin}, true) })
	}
}

// BenchmarkRoundTrip is one item at a time, so each wakes a parked loop.
func BenchmarkRoundTrip(b *testing.B) {
	for name, pin := range map[string]shard.Pin{"free": {}, "threads": {Thread: true}} {
		b.Run(name, func(b *testing.B) {
			back := make(chan struct{}, 1)
			rt, err := shard.New(shard.Config[load]{Shards: 2, Pin: pin, Handle: func(*shard.Shard[load], *load) { back <- struct{}{} }})
			require.NoError(b, err)
			p := rt.Producer()
			for b.Loop() {
				_ = p.TryPush(1, load{})
				<-back
			}
			_, _ = rt.Close(context.Background())
		})
	}
}
