package stat_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/internal/stat"
)

// bucketsEnd is where the buckets of bounded error end.
const bucketsEnd = 1 << 50

func TestSize(t *testing.T) {
	size := unsafe.Sizeof(stat.Histogram{})
	assert.Equal(t, uintptr(6056), size)
	assert.LessOrEqual(t, size, uintptr(6<<10))
}

func TestEmpty(t *testing.T) {
	var h stat.Histogram
	for _, q := range []float64{math.Inf(-1), 0, 0.5, 1, math.NaN()} {
		assert.Zero(t, h.Quantile(q))
	}
	assert.Zero(t, h.Count())
	assert.Zero(t, h.Sum())
	assert.Zero(t, h.Mean())
	assert.Zero(t, h.Max())
	h.Buckets(func(time.Duration, uint64) bool { t.Error("a bucket"); return true })
	h.Add(7, 0)
	assert.Equal(t, stat.Histogram{}, h, "a weight of 0 counts nothing")
}

// Every bound of a bucket, and its neighbours, must be reported within 1/32.
func TestSingleValuesAreWithinTheBound(t *testing.T) {
	for _, v := range edges() {
		var h stat.Histogram
		h.Add(v, 1)
		h.Add(math.MaxInt64, 1) // so that the quantile is not simply the greatest value
		assertClose(t, v, h.Quantile(0.5))
	}
}

// edges returns the values around each bound of a bucket.
func edges() []int64 {
	var values []int64
	for shift := range 50 {
		for s := range int64(32) {
			v := s << shift
			for _, near := range []int64{v - 1, v, v + 1} {
				if near >= 0 && near < bucketsEnd {
					values = append(values, near)
				}
			}
		}
	}
	return values
}

// assertClose fails unless got is at most 1/32 off want, or equal from the last
// bucket on.
func assertClose(t *testing.T, want int64, got time.Duration) {
	t.Helper()
	off := want - int64(got)
	if max(off, -off) > want/32 {
		t.Errorf("%d reported as %d", want, got)
	}
}

func TestQuantilesAgainstExactOnes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 5))
	draws := map[string]func() int64{
		"constant":    func() int64 { return 123_456 },
		"uniform":     func() int64 { return rnd.Int64N(10_000_000) },
		"small":       func() int64 { return rnd.Int64N(20) },
		"exponential": func() int64 { return int64(rnd.ExpFloat64() * 5e6) },
		"log-normal":  func() int64 { return int64(math.Exp(rnd.NormFloat64()*2 + 12)) },
		"heavy tail":  func() int64 { return int64(min(1e4/math.Pow(1-rnd.Float64(), 1.5), 1e15)) },
		"two humps": func() int64 {
			if rnd.IntN(10) == 0 {
				return 1e9 + rnd.Int64N(1e8)
			}
			return 1e3 + rnd.Int64N(1e2)
		},
		"log-uniform": func() int64 { return int64(math.Exp2(rnd.Float64() * 49.9)) },
	}
	for name, draw := range draws {
		for _, size := range []int{1, 2, 3, 10, 10_000} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				values := make([]int64, size)
				var h stat.Histogram
				var sum int64
				for i := range values {
					values[i] = draw()
					sum += values[i] // the largest case is 10,000 times 2^50
					h.Add(values[i], 1)
				}
				slices.Sort(values)
				for _, q := range []float64{0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1} {
					rank := max(int(math.Ceil(q*float64(size))), 1)
					assertClose(t, values[rank-1], h.Quantile(q))
				}
				assert.Equal(t, uint64(size), h.Count())
				assert.Equal(t, time.Duration(values[size-1]), h.Quantile(1), "the greatest is exact")
				assert.Equal(t, time.Duration(values[size-1]), h.Max())
				if sum >= 0 {
					assert.Equal(t, time.Duration(sum), h.Sum())
					assert.Equal(t, time.Duration(sum/int64(size)), h.Mean())
				}
			})
		}
	}
}

func TestQuantileClampsItsArgument(t *testing.T) {
	var h stat.Histogram
	for v := range int64(10) {
		h.Add(v+1, 1)
	}
	for q, want := range map[float64]time.Duration{
		-1: 1, math.Inf(-1): 1, 0: 1, 0.1: 1, 0.11: 2, 0.5: 5, 1: 10, 1.1: 10, math.Inf(1): 10,
	} {
		assert.Equal(t, want, h.Quantile(q), "quantile %v", q)
	}
	assert.Equal(t, time.Duration(1), h.Quantile(math.NaN()), "NaN counts as 0")
}

func TestWeights(t *testing.T) {
	var one, many stat.Histogram
	for v := range int64(100) {
		one.Add(v*v*1000, uint64(v))
		for range v {
			many.Add(v*v*1000, 1)
		}
	}
	assert.Equal(t, many, one)
}

func TestNegativeCountsAsZero(t *testing.T) {
	var h, zero stat.Histogram
	h.Add(-1, 2)
	h.Add(math.MinInt64, 1)
	zero.Add(0, 3)
	assert.Equal(t, zero, h)
}

func TestLastBucket(t *testing.T) {
	var h stat.Histogram
	h.Add(bucketsEnd, 1)
	h.Add(math.MaxInt64, 1)
	h.Add(math.MaxInt64, 1)
	assert.Equal(t, time.Duration(math.MaxInt64), h.Quantile(0.1), "the greatest stands for all of the last bucket")
	assert.Equal(t, time.Duration(math.MaxInt64), h.Sum(), "the sum saturates")
	assert.Equal(t, time.Duration(6148914691236517205+375299968947541), h.Mean(), "the mean does not")
}

func TestHugeWeights(t *testing.T) {
	var h stat.Histogram
	h.Add(math.MaxInt64, math.MaxUint64)
	assert.Equal(t, time.Duration(math.MaxInt64), h.Mean())
	assert.Equal(t, time.Duration(math.MaxInt64), h.Quantile(0.5))
	h.Add(math.MaxInt64, 2) // beyond what the type promises: still no panic
	h.Add(math.MaxInt64, math.MaxUint64)
	h.Mean()
	h.Quantile(0.5)
	h.Sub(&stat.Histogram{})
	h.Mean()
}

func TestMerge(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	var a, b, both stat.Histogram
	for range 10_000 {
		v := rnd.Int64() >> rnd.IntN(63)
		part := &a
		if rnd.IntN(3) == 0 {
			part = &b
		}
		part.Add(v, 1)
		both.Add(v, 1)
	}
	before := b
	a.Merge(&b)
	assert.Equal(t, both, a)
	assert.Equal(t, before, b)
}

func TestSubGivesTheTimeSince(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 9))
	var h, since stat.Histogram
	for range 1000 {
		h.Add(rnd.Int64N(1e12), 1)
	}
	old := h
	for range 1000 {
		v := rnd.Int64N(1e9)
		h.Add(v, 1)
		since.Add(v, 1)
	}
	h.Sub(&old)
	assert.Equal(t, since.Count(), h.Count())
	assert.Equal(t, since.Sum(), h.Sum())
	assert.Equal(t, since.Mean(), h.Mean())
	for _, q := range []float64{0, 0.5, 0.9, 0.99} {
		assert.Equal(t, since.Quantile(q), h.Quantile(q))
	}
	assert.GreaterOrEqual(t, h.Max(), since.Max())
	assert.LessOrEqual(t, h.Max(), since.Max()+since.Max()/16)
	last := h
	h.Sub(&last)
	assert.Equal(t, stat.Histogram{}, h, "nothing since")
}

func TestSubOfAStrangerStaysAboveZero(t *testing.T) {
	var h, other stat.Histogram
	h.Add(100, 1)
	h.Add(5000, 2)
	other.Add(5000, 9)
	other.Add(1<<60, 1)
	h.Sub(&other)
	assert.Equal(t, uint64(1), h.Count())
	assert.Zero(t, h.Sum(), "below zero")
	assert.Zero(t, h.Mean())
	assert.Equal(t, time.Duration(103), h.Max(), "the upper bound of the bucket of 100")
}

func TestReset(t *testing.T) {
	var h stat.Histogram
	h.Add(5, 5)
	h.Reset()
	assert.Equal(t, stat.Histogram{}, h)
}

func TestBuckets(t *testing.T) {
	var h stat.Histogram
	for _, v := range []int64{0, 15, 16, 100, 100, bucketsEnd - 1, bucketsEnd, math.MaxInt64} {
		h.Add(v, 1)
	}
	var got [][2]uint64
	for upper, n := range h.Buckets {
		got = append(got, [2]uint64{uint64(upper), n})
	}
	assert.Equal(t, [][2]uint64{{0, 1}, {15, 1}, {16, 1}, {103, 2}, {bucketsEnd - 1, 1}, {math.MaxInt64, 2}}, got)
	calls := 0
	h.Buckets(func(time.Duration, uint64) bool { calls++; return false })
	assert.Equal(t, 1, calls)
}

// Each value lies at or below the bound of its bucket and above that of the
// bucket before, and no bucket is wider than 1/16 of its values.
func TestBucketsAreTight(t *testing.T) {
	for _, v := range edges() {
		var h stat.Histogram
		h.Add(v, 1)
		for upper, n := range h.Buckets {
			require.Equal(t, uint64(1), n)
			require.GreaterOrEqual(t, int64(upper), v)
			require.LessOrEqual(t, int64(upper), v+v/16)
		}
	}
}

func TestAllocatesNothing(t *testing.T) {
	var h, other stat.Histogram
	h.Add(1, 1)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		h.Add(12345, 1)
		other.Merge(&h)
		other.Sub(&h)
		other.Quantile(0.99)
		other.Mean()
		h.Buckets(func(time.Duration, uint64) bool { return true })
		other.Reset()
	}))
}

func FuzzQuantile(f *testing.F) {
	f.Add(int64(0), int64(17), int64(math.MaxInt64), uint64(1), uint64(3), 0.5)
	f.Add(int64(-5), int64(bucketsEnd), int64(bucketsEnd-1), uint64(0), uint64(1<<40), 0.999)
	f.Add(int64(1e9), int64(1e9), int64(1e9), uint64(1), uint64(1), math.NaN())
	f.Fuzz(func(t *testing.T, a, b, c int64, wa, wb uint64, q float64) {
		wa, wb = wa>>2, wb>>2 // the total stays below 2^64
		var h stat.Histogram
		h.Add(a, wa)
		h.Add(b, wb)
		h.Add(c, 1)
		type weighted struct {
			v int64
			w uint64
		}
		values := []weighted{{max(a, 0), wa}, {max(b, 0), wb}, {max(c, 0), 1}}
		slices.SortFunc(values, func(x, y weighted) int { return int(min(max(x.v-y.v, -1), 1)) })
		count := wa + wb + 1
		if h.Count() != count {
			t.Fatalf("count %d, want %d", h.Count(), count)
		}
		if m := h.Mean(); m < 0 || m > h.Max() {
			t.Fatalf("mean %d, max %d", m, h.Max())
		}
		if float64(count) >= 1<<53 {
			return // q*count is not exact
		}
		rank := uint64(1)
		if q > 0 {
			rank = max(uint64(math.Ceil(min(q, 1)*float64(count))), 1)
		}
		var want int64
		for _, x := range values {
			if want = x.v; rank <= x.w {
				break
			}
			rank -= x.w
		}
		got := h.Quantile(q)
		if want >= bucketsEnd {
			if got < bucketsEnd {
				t.Fatalf("quantile %v: %d, want %d", q, got, want)
			}
			return
		}
		assertClose(t, want, got)
	})
}

func BenchmarkAdd(b *testing.B) {
	var h stat.Histogram
	v := int64(1)
	for b.Loop() {
		h.Add(v, 1)
		v = v*3 + 1
		if v > 1e10 {
			v = 1
		}
	}
}

func BenchmarkQuantile(b *testing.B) {
	var h stat.Histogram
	for v := range int64(100_000) {
		h.Add(v*v, 1)
	}
	for b.Loop() {
		h.Quantile(0.99)
	}
}
