package shedder_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shedder"
)

// What waits in a stage that is suspended, or has no handler, is no overload:
// nothing is refused, and nothing of it is left when the stage goes on.
func TestAdaptiveRefusesNothingWhileHeld(t *testing.T) {
	a, now := warmed(t, 16, 5*ms, 200)
	r := ask(now, 16, 5)
	for range 500 { // three times as much as can be done
		r.Now += 100 * time.Microsecond
		require.Equal(t, shedder.Admit, a.Admit(r).Action)
	}
	r.Held, r.Deadline = true, r.Now+1
	for r.Waiting = range 20_000 {
		r.Now += 10 * time.Microsecond
		r.Ahead = r.Waiting
		require.Equal(t, shedder.Admit, a.Admit(r).Action, "%d wait", r.Waiting)
	}
	r.Waiting, r.Ahead, r.Busy, r.Held = 20, 20, 16, false
	r.Deadline = 0
	require.Equal(t, shedder.Admit, a.Admit(r).Action)
	require.InDelta(t, 1, a0(a).Burst, 0)
	r.Waiting, r.Ahead = 20_000, 20_000
	require.Equal(t, shedder.Refuse, a.Admit(r).Action, "it is work, though")
}

// Goroutines that read the clock before they tell overtake each other.
func TestAdaptiveBearsTimesThatCross(t *testing.T) {
	a, now := warmed(t, 16, 5*ms, 200)
	for i := range 2000 { // a processor too few: 1600 a second, where 3200 were expected
		now += 625 * time.Microsecond
		late := time.Duration(i%2) * 700 * time.Microsecond
		a.Done(done(now-late, 5*ms, shedder.Load{Waiting: 100, Busy: 16, Concurrency: 16}))
	}
	require.InEpsilon(t, 1600, a0(a).DrainRate, 0.05)
	require.NotPanics(t, func() { a.Admit(ask(now-time.Hour, 16, 5)) })
	require.InEpsilon(t, 1600, a0(a).DrainRate, 0.05, "a clock that was set teaches nothing")
}

// A silence gives the burst budget back, however the overload before it ended.
// Seen on the bus.
func TestAdaptiveTakesABurstAfterAnOverloadAndASilence(t *testing.T) {
	atEveryScale(t, func(t *testing.T, s *sim) {
		s.load = constant(3)
		s.until = 100 * s.unit()
		require.Positive(t, s.run().shed)
		now := s.until
		for left := 3; left >= 0; left-- {
			now += s.mean
			s.policy.Done(done(now, s.mean, shedder.Load{Busy: left, Concurrency: s.workers}))
		}
		now += max(time.Minute, 2000*s.mean)
		for i := range 20 + s.workers {
			l := shedder.Load{Waiting: max(i-s.workers, 0), Busy: min(i, s.workers), Concurrency: s.workers}
			l.Ahead = l.Waiting
			v := s.policy.Admit(&shedder.Request{Now: now, Load: l})
			require.Equal(t, shedder.Admit, v.Action, "%d of a burst: %v against %v", i, v.Value, v.Limit)
		}
	})
}

// A claim of the bus is told of at its end, without the spread inside.
func TestAdaptiveLearnsFromWholeClaims(t *testing.T) {
	atEveryScale(t, func(t *testing.T, s *sim) {
		s.lots = 64
		s.load = step(0.5, 2, 50*s.unit(), time.Hour)
		s.from, s.until = 60*s.unit(), 200*s.unit()
		r := s.run()
		require.Greater(t, r.used(s), 0.98)
		require.LessOrEqual(t, r.p99(), 4*target(s.policy))
		st := a0(s.policy)
		require.InEpsilon(t, float64(s.workers)/s.mean.Seconds(), st.DrainRate, 0.35)
	})
	for _, lot := range []int{2, 20, 64} {
		one, now := warmed(t, 16, 5*ms, 640)
		whole, _ := warmed(t, 16, 5*ms, 640)
		l := shedder.Load{Waiting: 10, Busy: 15, Concurrency: 16}
		for range 3 {
			now += 20 * ms
			for range lot {
				one.Done(done(now, 10*ms, l))
			}
			d := done(now, 10*ms, l)
			d.N, d.Service, d.Squares = lot, d.Service*time.Duration(lot), d.Squares*float64(lot)
			whole.Done(d)
			if lot < 64 {
				require.InEpsilon(t, a0(one).Service, a0(whole).Service, 1e-6, "%d at a time", lot)
			} else {
				require.Equal(t, 10*ms, a0(whole).Service, "all that is remembered")
			}
		}
		for range 64 {
			whole.Done(done(now, 5*ms, l))
		}
		require.Less(t, a0(whole).Service, 7*ms, "a lot is not remembered longer than it is large")
	}
}

// Fairness among senders is for what does not fit: it holds no class back that
// does. Seen on the bus.
func TestAdaptiveKeepsTheTopClassWholeOfOneSender(t *testing.T) {
	for _, senders := range [][]float64{{1}, {0.25, 0.25, 0.25, 0.25}} {
		atEveryScale(t, func(t *testing.T, s *sim) {
			s.load = step(0.5, 3, 20*s.unit(), time.Hour)
			s.classes = []float64{0.5 / 3, 0.3 / 3, 0.7 / 3, 1.5 / 3}
			s.senders = senders
			s.from, s.until = 30*s.unit(), 150*s.unit()
			r := s.run()
			require.Greater(t, r.used(s), 0.94)
			require.InDelta(t, r.askedOf[0], r.doneOf[0], 0.003*float64(r.askedOf[0])+8, "all but what is under way")
		})
	}
}

// Idle workers never cost anybody the admission, whatever was before.
func TestAdaptiveAdmitsAtAnIdleWorker(t *testing.T) {
	a, now := warmed(t, 4, 5*ms, 100)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		now += time.Duration(rng.IntN(int(ms)))
		r := ask(now, 4, rng.IntN(300))
		if rng.IntN(4) == 0 {
			r.Waiting, r.Ahead, r.Busy = 0, 0, rng.IntN(4)
			require.Equal(t, shedder.Admit, a.Admit(r).Action)
			continue
		}
		a.Admit(r)
	}
}
