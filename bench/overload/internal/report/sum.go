package report

import (
	"math"

	"github.com/sedabus/seda/bench/overload/internal/score"
)

// Estimate is a mean over seeds with its 99 % interval.
type Estimate struct{ Mean, Low, High float64 }

// student99 are the quantiles of Student's distribution that leave half a
// percent at either end, for 1 degree of freedom and on.
var student99 = []float64{63.66, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250}

// Mean returns the mean of xs with the 99 % interval of Student's distribution.
// A value that is not a number makes the mean one; the interval of a single
// value is that value.
func Mean(xs []float64) Estimate {
	n := float64(len(xs))
	sum, dev := 0., 0.
	for _, x := range xs {
		sum += x
	}
	m := sum / n
	if len(xs) < 2 {
		return Estimate{m, m, m}
	}
	for _, x := range xs {
		dev += (x - m) * (x - m)
	}
	half := student99[min(len(xs)-2, len(student99)-1)] * math.Sqrt(dev/(n-1)/n)
	return Estimate{m, m - half, m + half}
}

// Over returns the mean of a figure over the scores of a cell.
func Over(scores []*score.Score, f func(*score.Score) float64) Estimate {
	xs := make([]float64, len(scores))
	for i, s := range scores {
		xs[i] = f(s)
	}
	return Mean(xs)
}

// Against returns the mean of a figure of two scores of the same seed.
func Against(a, b []*score.Score, f func(a, b *score.Score) float64) Estimate {
	xs := make([]float64, min(len(a), len(b)))
	for i := range xs {
		xs[i] = f(a[i], b[i])
	}
	return Mean(xs)
}

// Goodput is the work done in time as a part of what the other did.
func Goodput(a, oracle *score.Score) float64 { return a.Good / oracle.Good }
