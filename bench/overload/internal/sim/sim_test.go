package sim_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bench/overload/internal/bubble"
	"github.com/sedabus/seda/bench/overload/internal/sim"
)

type bounded struct {
	sim.Base

	k int // in the system
}

func (b bounded) Admit(w *sim.World, _ *sim.Job) sim.Action {
	if q := &w.At[0]; q.Waiting+q.Busy >= b.k {
		return sim.Refuse
	}
	return sim.Admit
}

// markov returns the refusal probability and mean number waiting of M/M/c/K.
func markov(c, k int, load float64) (refused, waiting float64) {
	p, sum := 1., 0.
	ps := make([]float64, k+1)
	for n := range ps {
		if n > 0 {
			p *= load * float64(c) / float64(min(n, c))
		}
		ps[n] = p
		sum += p
	}
	for n := range ps {
		waiting += float64(max(0, n-c)) * ps[n] / sum
	}
	return ps[k] / sum, waiting
}

// The simulation agrees with the formulas of M/M/c/K in refusals and, by
// Little's law, in waits.
func TestSimulationAgreesWithMarkov(t *testing.T) {
	t.Parallel()
	if bubble.Race {
		t.Skip("a simulation is one goroutine")
	}
	for _, c := range []struct {
		workers, k int
		load       float64
	}{{1, 1, .7}, {1, 9, .9}, {1, 20, .5}, {1, 400, .8}, {2, 6, 2}, {4, 12, 1}, {16, 40, .9}} {
		sc := sim.Scale{Workers: c.workers, Service: time.Millisecond}
		spec := &sim.Spec{Scale: sc, Load: []sim.Piece{sim.Flat(400*time.Second/time.Duration(c.workers), c.load)}}
		r := sim.Run(spec, 7, bounded{k: c.k}, nil)
		refused, wait, n := 0., 0., 0.
		for i := range r.Jobs {
			if r.Jobs[i].Fate == sim.Shed {
				refused++
				continue
			}
			require.Equal(t, sim.Completed, r.Jobs[i].Fate)
			wait += r.Jobs[i].Wait.Seconds()
			n++
		}
		all := float64(len(r.Jobs))
		wantRefused, wantWaiting := markov(c.workers, c.k, c.load)
		wantWait := wantWaiting / (c.load * sc.Rate() * (1 - wantRefused))
		require.InDelta(t, wantRefused, refused/all, .003+.02*wantRefused, "%+v", c)
		require.InDelta(t, wantWait, wait/n, .05*wantWait+1e-9, "%+v", c)
	}
}

// A job's fate depends on the seed alone, and sleeping to each event in a
// bubble changes nothing.
func TestRunIsDeterministicInAndOutOfABubble(t *testing.T) {
	t.Parallel()
	spec := &sim.Spec{
		Scale: sim.Scale{Workers: 4, Service: time.Millisecond},
		Load:  []sim.Piece{sim.Flat(time.Second, .5), {Until: 2 * time.Second, From: .5, To: 2}},
	}
	a := sim.Run(spec, 1, bounded{k: 10}, nil)
	require.Equal(t, a.Jobs, sim.Run(spec, 1, bounded{k: 10}, nil).Jobs)
	require.NotEqual(t, a.Jobs, sim.Run(spec, 2, bounded{k: 10}, nil).Jobs)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.Equal(t, a.Jobs, sim.Run(spec, 1, bounded{k: 10}, time.Sleep).Jobs)
		last := time.Duration(0)
		for i := range a.Jobs {
			last = max(last, a.Jobs[i].End)
		}
		require.Equal(t, last, time.Since(began))
	})
}

// Arrivals follow the schedule: on a slope as well, in batches as well.
func TestArrivalsFollowTheSchedule(t *testing.T) {
	t.Parallel()
	sc := sim.Scale{Workers: 10, Service: time.Millisecond}
	for _, batch := range []int{0, 1, 8} {
		spec := &sim.Spec{Scale: sc, Batch: batch, Load: []sim.Piece{
			sim.Flat(2*time.Second, 1), {Until: 4 * time.Second, From: 1, To: 3}, sim.Flat(6*time.Second, 0), sim.Flat(8*time.Second, 2),
		}}
		var got [8]float64
		for _, j := range sim.Run(spec, 3, bounded{k: 1}, nil).Jobs {
			got[j.At/time.Second]++
		}
		for i, want := range []float64{1, 1, 1.5, 2.5, 0, 0, 2, 2} {
			n := want * sc.Rate()
			require.InDelta(t, n, got[i], 5*math.Sqrt(n*float64(max(1, batch))), "second %d, batch %d", i, batch)
		}
	}
}

// Stalls stop the work that they meet.
func TestEndOfCountsStalls(t *testing.T) {
	t.Parallel()
	spec := &sim.Spec{Stalls: []sim.Span{{From: 10, To: 20}, {From: 30, To: 31}}}
	for _, c := range [][3]time.Duration{{0, 5, 5}, {0, 10, 10}, {5, 10, 25}, {12, 3, 23}, {19, 10, 30}, {19, 11, 32}, {40, 1, 41}} {
		require.Equal(t, c[2], spec.EndOf(c[0], c[1]), "%v", c)
	}
}
