package stat

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const resamples = 4_000

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []float64
		want float64
	}{
		{"one", []float64{3}, 3},
		{"odd", []float64{9, 1, 5}, 5},
		{"even", []float64{4, 1, 3, 2}, 2.5},
		{"an outlier does not move it", []float64{1, 2, 3, 4, 1e9}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := append([]float64(nil), c.in...)
			require.InDelta(t, c.want, Median(c.in), 1e-12)
			require.Equal(t, in, c.in, "the input was changed")
		})
	}
	require.True(t, math.IsNaN(Median(nil)))
}

func TestQuantileInterpolates(t *testing.T) {
	xs := []float64{0, 10, 20, 30, 40}
	for q, want := range map[float64]float64{0: 0, 0.25: 10, 0.3: 12, 0.975: 39, 1: 40} {
		assert.InDelta(t, want, quantile(xs, q), 1e-9, "at %v", q)
	}
	assert.InDelta(t, 7.0, quantile([]float64{7}, 0.5), 1e-12)
}

// TestIntervalOfKnownData compares with the exact distribution of the bootstrap
// median: for the values 1..n, n odd, the median of a draw is at most k with the
// probability that more than half of n draws are at most k.
func TestIntervalOfKnownData(t *testing.T) {
	const n = 21
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = float64(i + 1)
	}
	low, high := 0.0, 0.0
	for k := 1; k <= n; k++ {
		p := atLeast(n, n/2+1, float64(k)/n)
		if low == 0 && p >= 0.025 {
			low = float64(k)
		}
		if high == 0 && p >= 0.975 {
			high = float64(k)
		}
	}
	got := MedianInterval(xs, resamples, 1)
	assert.InDelta(t, 11.0, got.Mid, 1e-12)
	assert.InDelta(t, low, got.Low, 1)
	assert.InDelta(t, high, got.High, 1)
	assert.Less(t, got.Low, got.Mid)
	assert.Greater(t, got.High, got.Mid)
}

// atLeast is the probability of m or more successes in n trials.
func atLeast(n, m int, p float64) (sum float64) {
	for i := m; i <= n; i++ {
		lg := func(x int) float64 { v, _ := math.Lgamma(float64(x + 1)); return v }
		choose := math.Exp(lg(n) - lg(i) - lg(n-i))
		sum += choose * math.Pow(p, float64(i)) * math.Pow(1-p, float64(n-i))
	}
	return sum
}

func TestIntervalIsRepeatable(t *testing.T) {
	xs := []float64{1.1, 0.9, 1.4, 1.2, 0.8, 1.0, 1.3, 1.25}
	require.Equal(t, MedianInterval(xs, resamples, 7), MedianInterval(xs, resamples, 7))
	require.NotEqual(t, MedianInterval(xs, 50, 7), MedianInterval(xs, 50, 8))
}

func TestIntervalOfEqualValuesIsAPoint(t *testing.T) {
	require.Equal(t, Estimate{2, 2, 2}, MedianInterval([]float64{2, 2, 2, 2}, 100, 1))
}

func TestIntervalOfNothing(t *testing.T) {
	got := MedianInterval(nil, 100, 1)
	require.True(t, math.IsNaN(got.Mid) && math.IsNaN(got.Low) && math.IsNaN(got.High))
}

// TestIntervalCovers draws many samples of twenty from a distribution of known
// median and counts how often the interval holds it. The percentile bootstrap
// of a median covers near to its nominal 95 %.
func TestIntervalCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const trials = 400
	covered := 0
	for trial := range trials {
		xs := make([]float64, 20)
		for i := range xs {
			xs[i] = math.Exp(rng.NormFloat64() / 4) // median 1, skewed
		}
		if e := MedianInterval(xs, 300, uint64(trial)); e.Low <= 1 && 1 <= e.High {
			covered++
		}
	}
	share := float64(covered) / trials
	assert.Greater(t, share, 0.90)
	assert.Less(t, share, 0.995)
}
