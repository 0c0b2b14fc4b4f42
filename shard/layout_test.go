package shard_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shard"
)

// slotsOf counts the slots of each shard, through one hash for each slot.
func slotsOf(l *shard.Layout) []int {
	count := make([]int, l.Shards())
	for i := range uint64(4096) {
		count[l.Of(i<<52)]++
	}
	return count
}

func TestLayoutIsEvenAndMovesOnlyToTheNewShard(t *testing.T) {
	for n := 2; n <= shard.MaxShards; n += 1 + n/16*7 {
		from, to := shard.NewLayout(n-1), shard.NewLayout(n)
		lo, hi := 4096, 0
		for _, c := range slotsOf(to) {
			lo, hi = min(lo, c), max(hi, c)
		}
		require.LessOrEqual(t, hi-lo, 1, "%d shards", n)
		for i := range uint64(4096) {
			if a, b := from.Of(i<<52), to.Of(i<<52); a != b {
				require.Equal(t, n-1, b, "slot %d of %d shards", i, n)
			}
		}
	}
}

func TestLayoutHoldsTheNumberToItsBounds(t *testing.T) {
	for n, want := range map[int]int{-1: 1, 0: 1, 1: 1, 1024: 1024, math.MaxInt: 1024, math.MinInt: 1} {
		require.Equal(t, want, shard.NewLayout(n).Shards())
	}
}

func TestHashSpreadsAndIsStable(t *testing.T) {
	require.Equal(t, uint64(0xefd01f60ba992926), shard.Hash(""), "keys would move between processes of two versions")
	require.Equal(t, uint64(0x491b422e3af0d9a5), shard.Hash("order-1"))
	count := make([]int, 8)
	l := shard.NewLayout(8)
	for i := range 80_000 {
		count[l.Of(shard.Hash(fmt.Sprintf("order-%d", i)))]++
	}
	for s, c := range count {
		require.InDelta(t, 10_000, c, 600, "shard %d", s)
	}
}

func TestAllocs_OfAndHash(t *testing.T) {
	l, sum := shard.NewLayout(64), 0
	require.Zero(t, testing.AllocsPerRun(100, func() { sum += l.Of(shard.Hash("order-17")) }))
	require.NotZero(t, sum+1)
}
