package drain_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/internal/drain"
)

const ms = float64(time.Millisecond)

func TestServiceKnowsNothingAtFirst(t *testing.T) {
	var s drain.Service
	require.Zero(t, s.Mean())
	require.InDelta(t, 1, s.Variation(), 0)
	require.Zero(t, s.Seen)
}

func TestServiceEstimatesMeanAndVariation(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var s drain.Service
	for range 5000 {
		v := rnd.ExpFloat64() * 3 * ms
		s.Add(1, v, v*v, 400)
	}
	require.InEpsilon(t, 3*ms, s.Mean(), 0.15)
	require.InEpsilon(t, 3*ms, s.Slow, 0.1)
	require.InDelta(t, 1, s.Variation(), 0.2)
	require.Equal(t, 5000, s.Seen)
	require.InDelta(t, 2*math.Sqrt(s.Variation()/400), s.Noise(2, 400), 1e-12)

	for range 400 * 3 {
		s.Add(1, ms, ms*ms, 400)
	}
	require.InEpsilon(t, ms, s.Mean(), 0.2, "it forgets by completions")
}

// TestBatchCountsLikeSingles: what comes as one batch is believed as much as if
// it came one by one.
func TestBatchCountsLikeSingles(t *testing.T) {
	var one, batch drain.Service
	for range 64 {
		one.Add(1, 2*ms, 4*ms*ms, 32)
	}
	for range 4 {
		batch.Add(16, 16*2*ms, 16*4*ms*ms, 32)
	}
	one.Add(1, 34*ms, 34*34*ms*ms, 32)
	batch.Add(1, 34*ms, 34*34*ms*ms, 32)
	require.InEpsilon(t, one.Mean(), batch.Mean(), 1e-9)
	require.Equal(t, one.Seen, batch.Seen)
}

func TestServiceTakesAnyNumber(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -5, math.MaxFloat64, 0} {
		var s drain.Service
		for range 10 {
			s.Add(1, v, v, 32)
			s.Add(1, ms, v, 32)
		}
		require.False(t, math.IsNaN(s.Mean()) || math.IsInf(s.Mean(), 0) || s.Mean() < 1, "%v gives %v", v, s.Mean())
		require.False(t, math.IsNaN(s.Variation()) || s.Variation() < 0)
	}
}

func TestUsualIsTheLongTermOneOfASlowStage(t *testing.T) {
	var s drain.Service
	for range 3000 {
		s.Add(1, ms, ms*ms, 32)
	}
	require.InEpsilon(t, ms, s.Usual(s.Mean(), 0.1), 1e-9)
	for range 64 {
		s.Add(1, 10*ms, 100*ms*ms, 32)
	}
	require.InDelta(t, 10, s.Mean()/ms, 2)
	require.Less(t, s.Usual(s.Mean(), 0.1), 2*ms)
}

func TestDrainIsWhatTheDeparturesShow(t *testing.T) {
	const workers, window = 4.0, 256.0
	var d drain.Departures
	require.InEpsilon(t, workers/ms, d.Drain(workers, ms, window, 0.1), 1e-12, "nothing is known but the service time")
	now := time.Duration(0)
	for range 600 { // half of what four workers of 1 ms would do
		now += 500 * time.Microsecond
		d.Add(now, 1, 3, window, math.Inf(1))
	}
	require.InEpsilon(t, 1.1*2/ms, d.Drain(workers, ms, window, 0.1), 1e-6)
	require.InEpsilon(t, 1/ms, d.Drain(1, ms, window, 0.1), 1e-6, "no more than the workers can do")
	d.Reset()
	require.InEpsilon(t, workers/ms, d.Drain(workers, ms, window, 0.1), 1e-12)
}

func TestDeparturesLeaveOutIdleTime(t *testing.T) {
	var d drain.Departures
	now := time.Duration(0)
	for i := range 1000 {
		now += time.Millisecond
		if i%2 == 0 { // ran dry in between
			now += time.Hour
			d.Idle()
		}
		d.Add(now, 1, 1, 64, math.Inf(1))
	}
	rate, ok := d.Rate(64)
	require.True(t, ok)
	require.InEpsilon(t, 1/ms, rate, 1e-9)
	for range 200 {
		now += time.Millisecond
		d.Add(now, 1, 1, 64, math.Inf(1))
	}
	now -= time.Hour // the clock was set back
	d.Add(now, 1, 1, 64, math.Inf(1))
	rate, _ = d.Rate(64)
	require.InEpsilon(t, 1/ms, rate, 1e-9, "that interval does not count")
	now += time.Hour
	d.Add(now, 1, 1, 64, 16*ms)
	rate, _ = d.Rate(64)
	require.Greater(t, rate, 0.7/ms, "one long interval counts for no more than the bound")
}
