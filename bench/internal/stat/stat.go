// Package stat has the little statistics that the table needs: medians and
// bootstrap intervals.
package stat

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Estimate is a value with the bounds of its 95 % interval. The zero Estimate
// means that nothing was measured.
type Estimate struct {
	Mid, Low, High float64
}

// Median returns the middle of xs, or the mean of the two middle values; NaN
// for no values. xs is not changed.
func Median(xs []float64) float64 {
	return medianOf(slices.Sorted(slices.Values(xs)))
}

// MedianInterval returns the median of xs with the 95 % interval of the
// percentile bootstrap: the median is taken of many samples drawn with
// replacement from xs, and the interval cuts off 2.5 % of these at either end.
//
// The same seed gives the same interval. The interval of fewer than about six
// values is the range of xs, or nearly so, and says little.
func MedianInterval(xs []float64, resamples int, seed uint64) Estimate {
	if len(xs) == 0 || resamples < 1 {
		return Estimate{Mid: math.NaN(), Low: math.NaN(), High: math.NaN()}
	}
	rng := rand.New(rand.NewPCG(seed, 0x5eda))
	medians := make([]float64, resamples)
	draw := make([]float64, len(xs))
	for i := range medians {
		for k := range draw {
			draw[k] = xs[rng.IntN(len(xs))]
		}
		slices.Sort(draw)
		medians[i] = medianOf(draw)
	}
	slices.Sort(medians)
	return Estimate{Mid: Median(xs), Low: quantile(medians, 0.025), High: quantile(medians, 0.975)}
}

// medianOf is Median of sorted values.
func medianOf(sorted []float64) float64 {
	n := len(sorted)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return sorted[n/2]
	default:
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
}

// quantile interpolates between the two nearest of the sorted values.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
