package layout_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/internal/layout"
)

// slotsOf counts the slots of each shard, through one hash for each slot.
func slotsOf(l *layout.Layout) []int {
	count := make([]int, l.Shards())
	for i := range uint64(4096) {
		count[l.Of(i<<52)]++
	}
	return count
}

func TestLayoutIsEvenAndMovesOnlyToTheNewShard(t *testing.T) {
	for n := 2; n <= layout.MaxShards; n += 1 + n/16*7 {
		from, to := layout.NewLayout(n-1), layout.NewLayout(n)
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
		require.Equal(t, want, layout.NewLayout(n).Shards())
	}
}

func TestHashSpreadsAndIsStable(t *testing.T) {
	require.Equal(t, uint64(0xefd01f60ba992926), layout.Hash(""), "keys would move between processes of two versions")
	require.Equal(t, uint64(0x491b422e3af0d9a5), layout.Hash("order-1"))
	count := make([]int, 8)
	l := layout.NewLayout(8)
	for i := range 80_000 {
		count[l.Of(layout.Hash(fmt.Sprintf("order-%d", i)))]++
	}
	for s, c := range count {
		require.InDelta(t, 10_000, c, 600, "shard %d", s)
	}
}

func TestAllocs_OfAndHash(t *testing.T) {
	l, sum := layout.NewLayout(64), 0
	require.Zero(t, testing.AllocsPerRun(100, func() { sum += l.Of(layout.Hash("order-17")) }))
	require.NotZero(t, sum+1)
}

func TestAllocs_HashUint64(t *testing.T) {
	sum := uint64(0)
	require.Zero(t, testing.AllocsPerRun(100, func() { sum += layout.HashUint64(sum) }))
	require.NotZero(t, sum)
}

func TestHashUint64SpreadsAndIsStable(t *testing.T) {
	require.Equal(t, layout.Hash(""), layout.HashUint64(0))
	count := make([]int, 8)
	l := layout.NewLayout(8)
	for i := range uint64(80_000) {
		h := layout.HashUint64(i)
		require.NotZero(t, h)
		count[l.Of(h)]++
	}
	for s, c := range count {
		require.InDelta(t, 10_000, c, 600, "shard %d", s)
	}
}

// FuzzLayout: every hash has a shard, the same one in every layout of that
// number, and going to one shard more moves it to the new one or not at all.
func FuzzLayout(f *testing.F) {
	f.Add(0, uint64(0))
	f.Add(1, uint64(1))
	f.Add(1023, uint64(math.MaxUint64))
	f.Add(math.MinInt, uint64(1)<<63)
	f.Add(math.MaxInt, uint64(1)<<52)
	f.Fuzz(func(t *testing.T, n int, hash uint64) {
		l := layout.NewLayout(n)
		i := l.Of(hash)
		if l.Shards() < 1 || l.Shards() > layout.MaxShards || i < 0 || i >= l.Shards() {
			t.Fatalf("%d shards: %d of %d", n, i, l.Shards())
		}
		if again := layout.NewLayout(n).Of(hash); again != i {
			t.Fatalf("%d shards: %d, then %d", n, i, again)
		}
		if l.Shards() == layout.MaxShards {
			return
		}
		if next := layout.NewLayout(l.Shards() + 1).Of(hash); next != i && next != l.Shards() {
			t.Fatalf("from %d shards on: %d goes to %d", l.Shards(), i, next)
		}
	})
}
