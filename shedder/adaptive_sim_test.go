package shedder_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shedder"
)

// atEveryScale runs a test for each scale with a fresh law.
func atEveryScale(t *testing.T, test func(t *testing.T, s *sim)) {
	t.Helper()
	for _, s := range scales() {
		t.Run(strconv.Itoa(s.workers)+"x"+s.mean.String(), func(t *testing.T) {
			s.seed = 7
			s.policy = newAdaptive(t, shedder.AdaptiveConfig{})
			test(t, &s)
		})
	}
}

func target(p shedder.Policy) time.Duration {
	var st shedder.State
	p.Inspect(0, &st)
	return st.Target
}

func TestAdaptiveShedsNextToNothingBelowCapacity(t *testing.T) {
	for _, s := range scales()[:2] {
		s.policy, s.seed = newAdaptive(t, shedder.AdaptiveConfig{}), 3
		s.load = constant(0.9)
		s.until = time.Duration(100_000 / 0.9 * float64(s.mean) / float64(s.workers))
		r := s.run()
		require.Greater(t, r.asked, 90_000)
		require.LessOrEqual(t, r.shed, 10, "1e-4 of the arrivals at %d workers", s.workers)
	}
}

func TestAdaptiveRefusesNoMoreThanTheFiniteQueueOfItsSize(t *testing.T) {
	for _, s := range scales()[2:5] {
		asked, shed, most := 0, 0, 0
		for s.seed = range 3 {
			s.policy = newAdaptive(t, shedder.AdaptiveConfig{})
			s.load = constant(0.9)
			s.until = time.Duration(200_000 / 0.9 * float64(s.mean) / float64(s.workers))
			r := s.run()
			asked, shed, most = asked+r.asked, shed+r.shed, max(most, r.most)
		}
		// M/M/c/K: probability of each state up to c busy and most waiting.
		p, sum := 1.0, 1.0
		for n := 1; n <= s.workers+most; n++ {
			p *= 0.9 * float64(s.workers) / float64(min(n, s.workers))
			sum += p
		}
		limit := 1.2*p/sum + 4*math.Sqrt(20*p/sum/float64(asked)) // refusals come in bunches of about 20
		require.Less(t, float64(shed)/float64(asked), limit, "%d workers, %d waited at most", s.workers, most)
	}
}

func TestAdaptiveKeepsAStageBusyAndWaitsShortInOverload(t *testing.T) {
	atEveryScale(t, func(t *testing.T, s *sim) {
		s.load = step(0.5, 2, 50*s.unit(), time.Hour)
		s.from, s.until = 60*s.unit(), 200*s.unit()
		r := s.run()
		require.Greater(t, r.used(s), 0.99)
		require.LessOrEqual(t, r.p99(), 3*target(s.policy))
	})
}

func TestAdaptiveShedsNothingAfterAFlashCrowd(t *testing.T) {
	atEveryScale(t, func(t *testing.T, s *sim) {
		end := 80 * s.unit()
		s.load = step(0.5, 10, 50*s.unit(), end)
		s.until = 300 * s.unit()
		r := s.run()
		require.Positive(t, r.shed)
		quiet := 3 * s.unit()
		if s.workers == 1 {
			quiet = 10 * s.unit() // one worker needs this long to see that it is idle again
		}
		require.Less(t, r.lastShed, end+quiet)
	})
}

func TestAdaptiveSettlesWithinTenMillisecondsAtTwentyMicroseconds(t *testing.T) {
	s := scales()[5]
	s.policy, s.seed = newAdaptive(t, shedder.AdaptiveConfig{}), 5
	s.load = step(0.7, 1.4, 500*ms, time.Hour)
	s.from, s.until = 510*ms, time.Second
	r := s.run()
	require.LessOrEqual(t, r.p99(), 2*ms, "milliseconds are no unit here: a rounding to them would let 50 times as many wait")
	require.Greater(t, r.used(&s), 0.995)
	require.InDelta(t, 0.286, float64(r.shed)/float64(r.asked), 0.02)
}

func TestAdaptiveFollowsAServiceTimeThatTriples(t *testing.T) {
	atEveryScale(t, func(t *testing.T, s *sim) {
		s.load = constant(0.8)
		s.slow = step(1, 3, 50*s.unit(), time.Hour)
		s.from, s.until = 60*s.unit(), 150*s.unit()
		r := s.run()
		require.Greater(t, r.used(s), 0.96)
		require.LessOrEqual(t, r.p99(), 60*s.mean+2*ms)
		var st shedder.State
		s.policy.Inspect(0, &st)
		require.Greater(t, st.ServiceRatio, 1.3, "what is behind got slow")
	})
}

func TestAdaptiveStaysBusyWithTwoKindsOfWork(t *testing.T) {
	atEveryScale(t, func(t *testing.T, s *sim) {
		s.service = func(r *rand.Rand) float64 {
			if r.Float64() < 0.1 {
				return 6.4
			}
			return 0.4
		}
		s.load = constant(1.5)
		s.from, s.until = 10*s.unit(), 200*s.unit()
		require.Greater(t, s.run().used(s), 0.93)
	})
}

func TestAdaptiveNeverShedsATrickle(t *testing.T) {
	atEveryScale(t, func(t *testing.T, s *sim) {
		n := 0
		s.load = constant(3 * s.mean.Seconds() / float64(s.workers)) // 3 a second
		s.burst = func(time.Duration) int {
			if n++; n%30 == 0 {
				return 19
			}
			return 0
		}
		s.until = 5 * time.Minute
		r := s.run()
		require.Greater(t, r.asked, 1000)
		require.Zero(t, r.shed)
	})
}

func TestAdaptiveIsReadyWhenColdAndAfterSilence(t *testing.T) {
	atEveryScale(t, func(t *testing.T, s *sim) {
		s.load = constant(2)
		s.until = 100 * s.unit()
		require.Greater(t, s.run().used(s), 0.95, "from the first moment on")
		quiet := 100 * s.unit()
		for _, high := range []float64{1.5, 4} {
			s.policy = newAdaptive(t, shedder.AdaptiveConfig{})
			s.load = func(at time.Duration) float64 {
				switch {
				case at < quiet:
					return 0.5
				case at < 2*quiet:
					return 1e-3
				}
				return high
			}
			s.from, s.until = 2*quiet, 3*quiet
			require.Greater(t, s.run().used(s), 0.95)
		}
	})
}

func TestAdaptiveKeepsTheTopClassWhole(t *testing.T) {
	atEveryScale(t, func(t *testing.T, s *sim) {
		s.load = step(0.5, 3, 20*s.unit(), time.Hour)
		s.classes = []float64{0.5 / 3, 0.3 / 3, 0.7 / 3, 1.5 / 3}
		s.from, s.until = 30*s.unit(), 150*s.unit()
		r := s.run()
		require.Greater(t, r.used(s), 0.96)
		require.InDelta(t, r.askedOf[0], r.doneOf[0], 0.003*float64(r.askedOf[0])+8, "all but what is under way")
		require.Less(t, float64(r.doneOf[3]), 0.02*float64(r.askedOf[3])+5)
		require.LessOrEqual(t, r.inversions, r.asked/1000)
	})
}

func TestAdaptiveIsFairToSenders(t *testing.T) {
	atEveryScale(t, func(t *testing.T, s *sim) {
		s.load = constant(2)
		demand := 1.0
		for range 10 {
			s.senders = append(s.senders, demand/247.8)
			demand *= 1.6681
		}
		s.from, s.until = 20*s.unit(), 700*s.unit()
		if s.workers > 4 || s.mean < ms {
			s.until = 200 * s.unit()
		}
		r := s.run()
		require.Greater(t, r.used(s), 0.97)
		require.GreaterOrEqual(t, jain(r), 0.99)
	})
}

// jain is the index of fairness over what senders got of the most that a fair
// share would have given them.
func jain(r *simResult) float64 {
	total := 0
	for _, n := range r.admittedBy {
		total += n
	}
	lo, hi := 0.0, float64(total)
	for range 100 {
		level, sum := (lo+hi)/2, 0.0
		for _, n := range r.askedBy {
			sum += math.Min(level, float64(n))
		}
		if sum < float64(total) {
			lo = level
		} else {
			hi = level
		}
	}
	sum, squares := 0.0, 0.0
	for i, n := range r.askedBy {
		x := float64(r.admittedBy[i]) / math.Min(lo, float64(n))
		sum += x
		squares += x * x
	}
	return sum * sum / squares / float64(len(r.askedBy))
}

func TestAdaptiveWastesNoWorkOnTightDeadlines(t *testing.T) {
	atEveryScale(t, func(t *testing.T, s *sim) {
		s.load = constant(2)
		s.service = func(r *rand.Rand) float64 { return 0.5 + 0.5*r.ExpFloat64() }
		s.due = func(r *rand.Rand) time.Duration {
			if r.IntN(2) == 0 {
				return 4 * s.mean
			}
			return 2 * s.unit()
		}
		s.from, s.until = 10*s.unit(), 150*s.unit()
		r := s.run()
		require.Greater(t, r.used(s), 0.97)
		require.Less(t, float64(r.late)/float64(r.done), 0.02)
	})
}

func TestAdaptiveShedsForAStallNoLongerThanItLasts(t *testing.T) {
	s := scales()[0]
	s.policy, s.seed = newAdaptive(t, shedder.AdaptiveConfig{}), 9
	s.load = constant(0.6)
	s.stall = func(at time.Duration) time.Duration {
		if at >= time.Second && at < 1200*ms {
			return 1200*ms - at
		}
		return 0
	}
	s.until = 5 * time.Second
	r := s.run()
	require.Less(t, r.lastShed, 1500*ms)
}
