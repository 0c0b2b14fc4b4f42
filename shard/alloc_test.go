package shard_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/internal/invariant"
	"github.com/sedabus/seda/shard"
)

// measured returns the allocations of f for each item, all loops included.
func measured(t *testing.T, f func()) float64 {
	t.Helper()
	if invariant.Enabled {
		t.Skip("the race detector allocates")
	}
	for range 5 {
		f() // chunks and lanes are made
	}
	return testing.AllocsPerRun(200, f)
}

func TestAllocs_TryPushAndPush(t *testing.T) {
	done := make(chan struct{}, 1)
	rt := start(t, shard.Config[[8]uint64]{Shards: 4, Handle: func(_ *shard.Shard[[8]uint64], v *[8]uint64) {
		if v[0] == 1 {
			done <- struct{}{}
		}
	}})
	ctx := context.Background()
	require.Less(t, measured(t, func() {
		for i := range 20 {
			_ = rt.TryPush(hashOfIndex[i], [8]uint64{})
			_ = rt.Push(ctx, 0, [8]uint64{})
		}
		_ = rt.Push(ctx, 1, [8]uint64{1})
		<-done
	}), 0.5, "of the runtime, for 41 items")
	p := rt.Producer()
	require.Less(t, measured(t, func() {
		for i := range 20 {
			_ = p.TryPush(hashOfIndex[i], [8]uint64{})
			_ = p.Push(ctx, hashOfIndex[i], [8]uint64{})
		}
		_ = p.Push(ctx, 1, [8]uint64{1})
		<-done
	}), 0.5, "of a producer, for 41 items")
	closeAll(t, rt)
}

func TestAllocs_SendAndForward(t *testing.T) {
	done := make(chan struct{}, 1)
	rt := start(t, shard.Config[[8]uint64]{Shards: 4, Handle: func(s *shard.Shard[[8]uint64], v *[8]uint64) {
		switch {
		case v[0] == 1000:
			done <- struct{}{}
		case v[0]%2 == 0:
			_ = s.Send(hashOfIndex[v[0]%20], [8]uint64{v[0] + 1})
		default:
			s.Forward(hashOfIndex[v[0]%20], [8]uint64{v[0] + 1})
		}
	}})
	require.Less(t, measured(t, func() {
		_ = rt.Push(context.Background(), 1, [8]uint64{})
		<-done
	}), 2.0, "for 1,000 hops")
	closeAll(t, rt)
}

var hashOfIndex = func() (h [20]uint64) {
	for i := range h {
		h[i] = hashOf(i)
	}
	return h
}()
