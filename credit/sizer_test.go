package credit_test

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/credit"
)

func newSizer(t testing.TB, c credit.SizerConfig) *credit.Sizer {
	t.Helper()
	s, err := credit.NewSizer(c)
	require.NoError(t, err)
	return s
}

func TestSizerConfigNamesAllFaults(t *testing.T) {
	for _, c := range []credit.SizerConfig{
		{TargetFactor: math.NaN(), MinTarget: -1},
		{TargetFactor: math.Inf(1), MinTarget: 2 * time.Hour},
		{TargetFactor: 0.01, MinTarget: math.MinInt64},
		{TargetFactor: -1, MinTarget: math.MaxInt64},
	} {
		_, err := credit.NewSizer(c)
		require.ErrorIs(t, err, credit.ErrInvalid)
		require.ErrorContains(t, err, "TargetFactor is")
		require.ErrorContains(t, err, "MinTarget is")
		require.Error(t, newSizer(t, credit.SizerConfig{}).Tune(c))
	}
}

// told is a sizer that was told of n units of that service time, done one after
// the other by w workers.
func told(t testing.TB, w, n int, service time.Duration) (*credit.Sizer, time.Duration) {
	t.Helper()
	s := newSizer(t, credit.SizerConfig{})
	now := time.Duration(0)
	for range n {
		now += service / time.Duration(w)
		s.Ended(sample(now, service, w))
	}
	return s, now
}

func sample(now, service time.Duration, w int) credit.Sample {
	return credit.Sample{Now: now, N: 1, Service: service, Squares: float64(service) * float64(service), Waiting: 1, Workers: w}
}

func TestSizerWhileCold(t *testing.T) {
	s, _ := told(t, 4, 11, 10*time.Millisecond)
	require.Equal(t, 68, s.Window(4, 1000))
	require.Equal(t, 50, s.Window(4, 50), "no more than the capacity")
	require.Equal(t, 400, newSizer(t, credit.SizerConfig{}).Window(100, 1000))
	require.False(t, s.State().Warm)
	require.Zero(t, s.State().Target)
}

func TestSizerWhenWarm(t *testing.T) {
	s, _ := told(t, 4, 1000, 10*time.Millisecond)
	require.Equal(t, 4+8+1, s.Window(4, 1000), "workers, two service times' worth, and one on its way")
	st := s.State()
	require.True(t, st.Warm)
	require.Equal(t, 10*time.Millisecond, st.Service)
	require.Equal(t, 20*time.Millisecond, st.Target)
	require.InEpsilon(t, 400, st.Rate, 0.01)
	require.NoError(t, s.Tune(credit.SizerConfig{TargetFactor: 10}))
	require.Equal(t, 4+40+1, s.Window(4, 1000))
	require.Equal(t, 4, s.Window(4, 4))
	require.Zero(t, s.Window(4, 0)+s.Window(4, -5))
	require.InDelta(t, 100+1000+5, s.Window(100, 2000), 5, "more workers do more")

	s, _ = told(t, 2, 100, 20*time.Microsecond)
	require.Equal(t, 2+100+10, s.Window(2, 1000), "the least target is 1 ms")
}

func TestSizerAgreesThatADependencyGotSlow(t *testing.T) {
	s, now := told(t, 4, 1000, 10*time.Millisecond)
	for range 100 {
		now += 50 * time.Millisecond
		s.Ended(sample(now, 200*time.Millisecond, 4))
	}
	require.InDelta(t, 6, s.Window(4, 1000), 1, "what is worked off in 20 ms is a part of a unit")
}

func TestSizerAnswersStarvation(t *testing.T) {
	s, now := told(t, 4, 1000, time.Millisecond)
	before, tau := s.Window(4, 1000), s.State().Tau
	require.Less(t, tau, 100*time.Microsecond, "it falls while nothing starves")
	for range 1000 {
		s.Starved(now)
	}
	require.Equal(t, 2*tau, s.State().Tau, "once an interval")
	for range 20 {
		now += 20 * time.Millisecond
		s.Starved(now)
	}
	require.Equal(t, 10*time.Millisecond, s.State().Tau, "the most")
	require.Equal(t, before+39, s.Window(4, 1000))
	for range 100_000 {
		now += time.Millisecond / 4
		s.Ended(sample(now, time.Millisecond, 4))
	}
	require.InDelta(t, before, s.Window(4, 1000), 1)
}

func TestSizerTakesAnyNumberAndClock(t *testing.T) {
	times := []time.Duration{0, math.MaxInt64, math.MinInt64, -1, 1, time.Hour, math.MaxInt64}
	s := newSizer(t, credit.SizerConfig{TargetFactor: 1000, MinTarget: time.Hour})
	for _, now := range times {
		for _, n := range []int{-1, 0, 1, math.MaxInt} {
			for _, v := range []float64{math.NaN(), math.Inf(1), -1, 1e300} {
				s.Ended(credit.Sample{Now: now, N: n, Service: now, Squares: v, Waiting: n, Workers: n})
				s.Starved(now)
				for _, w := range []int{math.MinInt, 0, 1, math.MaxInt} {
					got := s.Window(w, 1000)
					require.True(t, got >= 0 && got <= 1000)
				}
				st := s.State()
				require.False(t, math.IsNaN(st.Rate) || math.IsInf(st.Rate, 0) || st.Target < 0 || st.Tau <= 0)
			}
		}
	}
	n, now := s.State().Tau, time.Duration(0)
	for range 1000 {
		now += 24 * 365 * time.Hour / 1000
		s.Ended(sample(now, time.Millisecond, 1))
	}
	require.Less(t, s.State().Tau, n, "the clock that stood at its end goes on")
}

// window simulates a stage whose producers always have more work: whenever
// credits are free, the ledger's owner grants them, and a grant takes travel
// until its work is there. It returns the throughput as a part of what the
// processors can do, and the mean wait in the stage.
type window struct {
	workers, processors int
	service, travel     time.Duration
	exp                 bool // exponential times, else fixed
	fixed               int  // window; 0 is the Sizer's
	units               int
}

type event struct {
	at   time.Duration
	done bool
	took time.Duration
}
type events []event

func (e *events) Len() int           { return len(*e) }
func (e *events) Less(i, j int) bool { return (*e)[i].at < (*e)[j].at }
func (e *events) Swap(i, j int)      { (*e)[i], (*e)[j] = (*e)[j], (*e)[i] }
func (e *events) Push(x any)         { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

type outcome struct {
	part, wait     float64 // of the rate that can be had; mean wait in targets
	least, most    int     // window, once it is warm
	changes, units int
}

func (w *window) run(t *testing.T, seed uint64) outcome {
	rnd := rand.New(rand.NewPCG(seed, 1))
	span := func(mean time.Duration) time.Duration {
		if !w.exp {
			return mean
		}
		return time.Duration(rnd.ExpFloat64() * float64(mean))
	}
	s := newSizer(t, credit.SizerConfig{})
	var (
		q       events
		waiting []time.Duration
		busy    int
		out     int
		now     time.Duration
		waits   time.Duration
		began   time.Duration
		res     = outcome{least: math.MaxInt}
	)
	size := func() int {
		if w.fixed > 0 {
			return w.fixed
		}
		return s.Window(w.workers, 10_000)
	}
	win := size()
	pump := func() {
		for out < win {
			out++
			heap.Push(&q, event{at: now + span(w.travel)})
		}
	}
	start := func() {
		for busy < w.workers && len(waiting) > 0 {
			waits += now - waiting[0]
			waiting = waiting[1:]
			busy++
			took := span(w.service)
			if busy > w.processors { // processors are shared
				took = took * time.Duration(busy) / time.Duration(w.processors)
			}
			heap.Push(&q, event{at: now + took, done: true, took: took})
		}
	}
	pump()
	warm := w.units / 4
	for n := 0; n < w.units; {
		e, _ := heap.Pop(&q).(event)
		now = e.at
		if !e.done {
			waiting = append(waiting, now)
			start()
			continue
		}
		n++
		busy--
		out--
		if n == warm {
			began, waits = now, 0
		}
		start()
		s.Ended(credit.Sample{
			Now: now, N: 1, Service: e.took, Squares: float64(e.took) * float64(e.took), Waiting: len(waiting), Workers: w.workers,
		})
		if busy < w.workers && len(waiting) == 0 {
			s.Starved(now)
		}
		if next := size(); next != win {
			win = next
			if n > warm {
				res.changes++
			}
		}
		if n > warm {
			res.least, res.most = min(res.least, win), max(res.most, win)
		}
		pump()
	}
	res.units = w.units - warm
	can := float64(min(w.workers, w.processors)) / float64(w.service)
	res.part = float64(res.units) / float64(now-began) / can
	target := max(2*w.service*time.Duration(w.workers)/time.Duration(w.processors), time.Millisecond)
	res.wait = float64(waits) / float64(res.units) / float64(target)
	return res
}

// TestSizerKeepsWorkersBusy: workers have nearly always something to do, what
// waits does so for about the target, and the window does not swing.
func TestSizerKeepsWorkersBusy(t *testing.T) {
	for _, w := range []window{
		{workers: 16, service: 5 * time.Millisecond, travel: 20 * time.Microsecond},
		{workers: 64, service: 500 * time.Microsecond, travel: 20 * time.Microsecond},
		{workers: 1, service: time.Millisecond, travel: 20 * time.Microsecond},
		{workers: 1, service: time.Millisecond, travel: 500 * time.Microsecond},
		{workers: 4, service: 100 * time.Millisecond, travel: 100 * time.Microsecond},
		{workers: 2, service: 20 * time.Microsecond, travel: 10 * time.Microsecond},
		{workers: 2, service: 20 * time.Microsecond, travel: 200 * time.Microsecond},
		{workers: 2, service: 20 * time.Microsecond, travel: 2 * time.Millisecond},
		{workers: 16, processors: 2, service: time.Millisecond, travel: 20 * time.Microsecond},
	} {
		w.exp, w.units = true, 40_000
		if w.processors == 0 {
			w.processors = w.workers
		}
		t.Run(fmt.Sprintf("%dx%v,travel=%v,cpu=%d", w.workers, w.service, w.travel, w.processors), func(t *testing.T) {
			for seed := range uint64(2) {
				got := w.run(t, seed)
				t.Logf("%.4f of the rate, wait %.2f targets, window %d to %d, %d changes in %d units",
					got.part, got.wait, got.least, got.most, got.changes, got.units)
				require.Greater(t, got.part, 0.985)
				require.Less(t, got.wait, 2.5)
				require.Less(t, got.changes, got.units/300)
			}
		})
	}
}

// TestTooSmallAWindowStarves shows that the simulation above can tell.
func TestTooSmallAWindowStarves(t *testing.T) {
	w := window{workers: 1, processors: 1, service: time.Millisecond, travel: 500 * time.Microsecond, exp: true, units: 10_000, fixed: 2}
	require.Less(t, w.run(t, 1).part, 0.95)
	w.fixed = 100
	require.Greater(t, w.run(t, 1).wait, 20.0)
}
