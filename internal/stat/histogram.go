// Package stat counts durations in a histogram of fixed size.
package stat

import (
	"math"
	"math/bits"
	"time"
)

const (
	subBits = 4            // log2 of the buckets for each power of two
	sub     = 1 << subBits // buckets for each power of two
	topBits = 50           // values from 1<<topBits ns (13 days) on share the last bucket

	overflow = (topBits - subBits + 1) * sub // index of the last bucket
	buckets  = overflow + 1
)

// Histogram counts durations in buckets whose width is at most 1/16 of their
// lower bound: 16 for each power of two, and one for each nanosecond below 16.
// What it reports of a single value is the middle of its bucket and thus at
// most 1/32 (3.2 %) off, in either direction. From 2^50 ns (13 days) on there
// is one bucket, for which the greatest value is reported. Count, Sum, Mean and
// Max are exact, but see [Histogram.Sub].
//
// It takes 6,056 bytes, holds no pointer and allocates nothing. The zero
// Histogram is empty and ready; it may be copied. The weights added must not
// exceed 2^64-1 in total.
//
// A Histogram is not safe for concurrent use: its owner locks.
type Histogram struct {
	counts [buckets]uint64
	count  uint64
	sumHi  uint64 // the sum has 128 bits: a million waiters fill 64 bits in five hours
	sumLo  uint64
	max    int64
}

// Add counts a duration of ns nanoseconds weight times. A negative duration
// counts as 0.
func (h *Histogram) Add(ns int64, weight uint64) {
	ns = max(ns, 0)
	h.counts[bucketOf(ns)] += weight
	h.count += weight
	hi, lo := bits.Mul64(uint64(ns), weight)
	var carry uint64
	h.sumLo, carry = bits.Add64(h.sumLo, lo, 0)
	h.sumHi += hi + carry
	if ns > h.max && weight > 0 {
		h.max = ns
	}
}

// Merge adds what other counted. other is not changed.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.count += other.count
	var carry uint64
	h.sumLo, carry = bits.Add64(h.sumLo, other.sumLo, 0)
	h.sumHi, _ = bits.Add64(h.sumHi, other.sumHi, carry)
	h.max = max(h.max, other.max)
}

// Sub takes away what old counted, so that h tells of the time since. old must
// be an earlier state of h; if it is not, no count goes below zero. The
// greatest value of the time since is not known: Max then reports the upper
// bound of the highest bucket left, at most 1/16 too much.
func (h *Histogram) Sub(old *Histogram) {
	h.count = 0
	top := -1
	for i, n := range old.counts {
		h.counts[i] -= min(n, h.counts[i])
		if h.counts[i] > 0 {
			h.count += h.counts[i]
			top = i
		}
	}
	var borrow uint64
	h.sumLo, borrow = bits.Sub64(h.sumLo, old.sumLo, 0)
	h.sumHi, borrow = bits.Sub64(h.sumHi, old.sumHi, borrow)
	if borrow != 0 || top < 0 {
		h.sumHi, h.sumLo = 0, 0
	}
	if top < 0 {
		h.max = 0
		return
	}
	h.max = min(h.max, upper(top))
}

// Reset empties the histogram.
func (h *Histogram) Reset() { *h = Histogram{} }

// Count returns the total weight.
func (h *Histogram) Count() uint64 { return h.count }

// Max returns the greatest duration, or 0 if there is none.
func (h *Histogram) Max() time.Duration { return time.Duration(h.max) }

// Sum returns the sum of the durations, or the greatest Duration if the sum
// exceeds that (292 years).
func (h *Histogram) Sum() time.Duration {
	if h.sumHi > 0 || h.sumLo > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(h.sumLo)
}

// Mean returns the sum divided by the count, rounded down, or 0 if there is
// nothing.
func (h *Histogram) Mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	if h.sumHi >= h.count { // the total weight went over its bound
		return h.Max()
	}
	mean, _ := bits.Div64(h.sumHi, h.sumLo, h.count)
	return time.Duration(min(mean, uint64(h.max)))
}

// Quantile returns the duration that a share q of all durations does not
// exceed: the one of rank ceil(q*count) in ascending order, at most 1/32 off.
// The greatest is exact. q is clamped to [0, 1]; NaN counts as 0. The quantile
// of nothing is 0.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.count == 0 {
		return 0
	}
	rank := rankOf(q, h.count)
	if rank == h.count {
		return h.Max()
	}
	var seen uint64
	for i, n := range h.counts[:overflow] {
		seen += n
		if seen >= rank {
			lo, hi := lower(i), upper(i)
			return time.Duration(min(lo+(hi-lo)/2, h.max))
		}
	}
	return h.Max()
}

// Buckets calls yield, in ascending order, with the greatest duration and the
// count of each bucket that is not empty, until yield returns false; it can be
// ranged over. The last bucket's greatest duration is that of the type.
func (h *Histogram) Buckets(yield func(upper time.Duration, count uint64) bool) {
	for i, n := range h.counts {
		if n > 0 && !yield(time.Duration(upper(i)), n) {
			return
		}
	}
}

// rankOf returns the rank, 1 to count, of the q-quantile of count values.
func rankOf(q float64, count uint64) uint64 {
	if !(q > 0) { // so written, NaN counts as 0
		return 1
	}
	rank := math.Ceil(q * float64(count))
	if rank >= float64(count) { // also where float64 cannot hold the count
		return count
	}
	return max(uint64(rank), 1)
}

// bucketOf returns the index of the bucket of ns, which is not negative.
func bucketOf(ns int64) int {
	v := uint64(ns)
	if v < sub {
		return int(v)
	}
	if v >= 1<<topBits {
		return overflow
	}
	shift := bits.Len64(v) - 1 - subBits // 0 or more: v has its top bit at subBits or above
	return shift<<subBits + int(v>>shift)
}

// lower returns the smallest value of bucket i.
func lower(i int) int64 {
	if i < sub {
		return int64(i)
	}
	shift := i>>subBits - 1
	return int64(sub+i&(sub-1)) << shift
}

// upper returns the greatest value of bucket i.
func upper(i int) int64 {
	if i >= overflow {
		return math.MaxInt64
	}
	return lower(i+1) - 1
}
