package gate

import "math"

// states returns the probabilities of 0 to k jobs in an M/M/c/K system with an
// offered load as a multiple of its capacity.
func states(c, k int, load float64) []float64 {
	p := make([]float64, k+1)
	p[0] = 1
	sum := 1.
	for n := 1; n <= k; n++ {
		p[n] = p[n-1] * load * float64(c) / float64(min(n, c))
		sum += p[n]
		if sum > 1e200 {
			for i := range n + 1 {
				p[i] /= sum
			}
			sum = 1
		}
	}
	for n := range p {
		p[n] /= sum
	}
	return p
}

// Refused is the probability that an M/M/c/K system refuses an arrival, with
// waiting places for queue jobs: the classic formula of the finite queue.
func Refused(c, queue int, load float64) float64 {
	p := states(c, c+queue, load)
	return p[len(p)-1]
}

// Used is the part of the workers' time that such a system puts to use.
func Used(c, queue int, load float64) float64 {
	used := 0.
	for n, x := range states(c, c+queue, load) {
		used += x * float64(min(n, c)) / float64(c)
	}
	return used
}

// WaitAbove is the probability that an admitted job waits longer than t mean
// services: that fewer than it needs end in t, which is a Poisson number.
func WaitAbove(c, queue int, load, t float64) float64 {
	p := states(c, c+queue, load)
	admitted := 1 - p[len(p)-1]
	above := 0.
	for n := c; n < len(p)-1; n++ {
		above += p[n] * poissonBelow(n-c+1, float64(c)*t)
	}
	return above / admitted
}

// poissonBelow is the probability of fewer than n events where mean are
// expected.
func poissonBelow(n int, mean float64) float64 {
	sum := 0.
	for i := range n {
		lg, _ := math.Lgamma(float64(i) + 1)
		sum += math.Exp(float64(i)*math.Log(mean) - mean - lg)
	}
	return min(1, sum)
}

// BestUsed is the largest part of the workers' time that a bound on the number
// waiting can put to use while at most one job in a hundred waits longer than t
// mean services, and that bound. It holds for whoever does not know how long
// each service takes, and exponential services.
func BestUsed(c int, load, t float64) (used float64, queue int) {
	for q := range 100_000 {
		if WaitAbove(c, q, load, t) > .01 {
			return Used(c, max(0, q-1), load), max(0, q-1)
		}
		if u := Used(c, q, load); 1-u < 1e-9 {
			return u, q
		}
	}
	return 1, 0
}

// Upper95 is the upper end of the 95 % interval of Clopper and Pearson for the
// probability of an event that was seen k times in n.
func Upper95(k, n int) float64 {
	if n == 0 || k >= n {
		return 1
	}
	lo, hi := 0., 1.
	for range 200 {
		p := (lo + hi) / 2
		if binomialAtMost(k, n, p) > .025 {
			lo = p
		} else {
			hi = p
		}
	}
	return hi
}

// binomialAtMost is the probability of at most k events in n.
func binomialAtMost(k, n int, p float64) float64 {
	if p <= 0 {
		return 1
	}
	all, _ := math.Lgamma(float64(n) + 1)
	sum := 0.
	for i := k; i >= 0; i-- {
		a, _ := math.Lgamma(float64(i) + 1)
		b, _ := math.Lgamma(float64(n-i) + 1)
		term := math.Exp(all - a - b + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
		sum += term
		if term < 1e-18*sum {
			break
		}
	}
	return sum
}
