package score_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bench/overload/internal/score"
	"github.com/sedabus/seda/bench/overload/internal/sim"
)

const ms = time.Millisecond

// stage has one worker, units of 10 ms, and so a budget of 20 ms.
func stage() *sim.Spec {
	return &sim.Spec{
		Scale: sim.Scale{Workers: 1, Service: ms}, Load: []sim.Piece{sim.Flat(time.Second, .5)}, Span: sim.Span{To: time.Second},
	}
}

// done is a job that was served from start on.
func done(at, start, took time.Duration) sim.Job {
	return sim.Job{
		At: at, Entered: at, Started: start, Wait: start - at, Work: took, Last: took, End: start + took,
		Attempts: 1, Fate: sim.Completed,
	}
}

func TestGoodputCountsWorkThatEndsInTimeAndInTheSpan(t *testing.T) {
	t.Parallel()
	s := stage()
	jobs := []sim.Job{
		done(0, 0, 10*ms), done(0, 10*ms, 10*ms), // in time, the second one just so
		done(0, 20*ms, 5*ms),                      // late
		done(990*ms, 999*ms, 2*ms),                // ends after the span
		{At: 5 * ms, End: 5 * ms, Fate: sim.Shed}, // false: the load is .5
		{At: 6 * ms, End: 9 * ms, Fate: sim.PushedOut},
	}
	g := score.Of(&sim.Result{Spec: s, Jobs: jobs})
	require.InDelta(t, .020, g.Good, 1e-9)
	require.InDelta(t, .005, g.Late, 1e-9)
	require.Equal(t, []int{6, 1, 1, 3, 4, 3}, []int{g.Offered, g.Shed, g.Dropped, g.InTime, g.Completed, g.Done})
	require.Equal(t, []int{1, 6}, []int{g.FalseShed, g.FalseOf})
	require.InDelta(t, 1./6, g.False, 1e-9)
	require.InDelta(t, .009, g.Wait.P50, 1e-9, "jobs of the first ten units are left out")
	require.InDelta(t, 1, g.Amplification, 1e-9)
}

// A deadline of its own takes the place of the budget, and work that cannot
// make it is doomed.
func TestDeadlinesAndDoomedWork(t *testing.T) {
	t.Parallel()
	s := stage()
	early, late := done(0, 0, 30*ms), done(0, 30*ms, 10*ms)
	early.Deadline, late.Deadline = 31*ms, 31*ms
	late.Wasted = true
	g := score.Of(&sim.Result{Spec: s, Jobs: []sim.Job{early, late}})
	require.Equal(t, 1, g.InTime)
	require.InDelta(t, .25, g.Doomed, 1e-9)
}

// Of two senders that get half of what there is, one asks for a tenth of it.
func TestJainIsOfSharesCappedByDemand(t *testing.T) {
	t.Parallel()
	s := stage()
	s.Senders = []float64{.1, .9}
	var jobs []sim.Job
	for i := range 100 {
		j := sim.Job{At: time.Duration(i) * ms, Fate: sim.Shed}
		if i < 10 || i >= 60 {
			j = done(j.At, j.At, ms)
		}
		if i >= 10 {
			j.Sender = 1
		}
		jobs = append(jobs, j)
	}
	require.InDelta(t, 1, score.Of(&sim.Result{Spec: s, Jobs: jobs}).Jain, 1e-9)
	for i := range 5 {
		jobs[i].Fate = sim.Shed
	}
	got := score.Of(&sim.Result{Spec: s, Jobs: jobs}).Jain // 45 are done: 10 and 35 would be fair
	a, b := .5, 40./35
	require.InDelta(t, (a+b)*(a+b)/(2*(a*a+b*b)), got, 1e-9)
}

// The worker is busy with late jobs for the first 100 ms.
func TestConvergedSaysWhenGoodputIsSteady(t *testing.T) {
	t.Parallel()
	s := stage()
	s.Service = 100 * time.Microsecond // windows of 10 ms
	s.Load = []sim.Piece{sim.Flat(time.Second, 2)}
	var jobs []sim.Job
	for at := time.Duration(0); at < time.Second; at += 100 * time.Microsecond {
		arrived := at - ms
		if at < 100*ms {
			arrived = at - 40*ms
		}
		jobs = append(jobs, done(max(0, arrived), at, 100*time.Microsecond))
	}
	for i := range jobs { // those that arrived at 0 and before are not late enough
		if jobs[i].Started < 100*ms {
			jobs[i].Fate = sim.Failed
		}
	}
	g := score.Of(&sim.Result{Spec: s, Jobs: jobs})
	require.InDelta(t, .1, g.Converged, 1e-9)
	for i := range jobs {
		jobs[i].Fate = sim.Failed
	}
	require.True(t, math.IsNaN(score.Of(&sim.Result{Spec: s, Jobs: jobs}).Converged))
}
