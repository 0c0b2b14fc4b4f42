package demo

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

func ended(t *tally) bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

func TestTallyCountsEachVerdictAndEndOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tl := newTally(time.Second)
		start := time.Now()
		for range 5 {
			tl.published(nil)
		}
		full := &bus.RejectedError{Reason: reason.Full}
		bound := &bus.RejectedError{Reason: reason.Shed, At: "work", Rule: shedder.RuleBound}
		for _, err := range []error{
			full, fmt.Errorf("publish: %w", full), &bus.RejectedError{Reason: reason.Closed}, errors.New("no bus error"), bound, bound,
			&bus.RejectedError{Reason: reason.ShedDeadline, At: "parse", Rule: shedder.RuleDeadline},
		} {
			tl.published(err)
		}
		for i := range 100 {
			tl.started(time.Duration(i+1) * time.Millisecond)
		}
		time.Sleep(time.Second)
		tl.done(bus.Result{End: bus.Completed}, start) // just in time
		tl.seal(7)
		tl.seal(9) // too late to count
		time.Sleep(time.Second)
		tl.done(bus.Result{End: bus.Completed}, start) // too late
		for _, r := range []bus.Result{
			{End: bus.DeadLettered, Reason: reason.Attempts},
			{End: bus.Dropped, Reason: reason.Evicted},
			{End: bus.Abandoned, Reason: reason.Shutdown},
		} {
			tl.done(r, start)
		}
		require.True(t, ended(tl))
		assert.Equal(t, uint64(2), tl.completed())
		var sum reading
		sum.refused, sum.dropped = Counts{}, Counts{}
		tl.addTo(&sum)
		tl.addTo(&sum)
		assert.Equal(t, uint64(200), sum.wait.Count())
		sum.wait.Reset()
		assert.Equal(t, reading{
			accepted: 10, offered: 24, inTime: 2,
			refused: Counts{"full": 4, "closed": 2, "invalid": 2, "work bound": 4, "parse deadline": 2},
			dropped: Counts{"evicted": 2},
		}, sum, "twice what it holds")

		o := tl.outcome(start, 500*time.Millisecond, 4)
		assert.InDelta(t, 50, o.WaitP50MS, 2)
		assert.InDelta(t, 99, o.WaitP99MS, 4)
		o.WaitP50MS, o.WaitP99MS = 0, 0
		assert.Equal(t, Outcome{
			Offered: 12, Accepted: 5,
			Refused:   Counts{"full": 2, "closed": 1, "invalid": 1, "shed": 2, "shed_deadline": 1},
			Shed:      Counts{"work bound": 2, "parse deadline": 1},
			Completed: 2, InTime: 1, Late: 1, DeadLettered: 1, Dropped: Counts{"evicted": 1}, Abandoned: 1,
			Goodput: 1, OfPossible: 0.25, ElapsedMS: 1000, Depth: 7, BacklogMS: 1000,
		}, o)
		assert.InDelta(t, 0.083, tl.outcome(start, time.Second, 0).OfPossible, 1e-9, "of what was offered")
	})
}

func TestTallyEnds(t *testing.T) {
	t.Parallel()
	t.Run("with the last end", func(t *testing.T) {
		t.Parallel()
		tl := newTally(time.Second)
		tl.published(nil)
		tl.published(nil)
		tl.done(bus.Result{}, time.Now())
		tl.seal(0)
		require.False(t, ended(tl), "one is under way")
		tl.done(bus.Result{}, time.Now())
		require.True(t, ended(tl))
		tl.seal(0) // again is harmless
	})
	t.Run("when nothing was published", func(t *testing.T) {
		t.Parallel()
		tl := newTally(time.Second)
		require.False(t, ended(tl))
		tl.seal(0)
		require.True(t, ended(tl))
		o := tl.outcome(time.Now(), 0, 1)
		assert.Zero(t, o.Goodput)
		assert.Zero(t, o.OfPossible)
		assert.Zero(t, o.ElapsedMS)
		assert.Zero(t, o.BacklogMS)
	})
	t.Run("not before it is sealed", func(t *testing.T) {
		t.Parallel()
		tl := newTally(time.Second)
		tl.done(bus.Result{}, time.Now()) // the end may be told before the verdict is counted
		tl.published(nil)
		require.False(t, ended(tl), "more may come")
		tl.seal(0)
		require.True(t, ended(tl))
	})
}

func TestCalibrationTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ duration, service, want time.Duration }{
		{4 * time.Second, 2 * time.Millisecond, 2 * time.Second},
		{time.Hour, 2 * time.Millisecond, 3 * time.Second},
		{10 * time.Millisecond, 2 * time.Millisecond, 24 * time.Millisecond},
		{4 * time.Second, time.Second, 12 * time.Second},
	} {
		cfg := Config{Duration: c.duration, Service: c.service}
		assert.Equal(t, c.want, cfg.calibrationTime())
	}
}

// A calibration that completes nothing must say so, not offer a load of 0.
func TestCalibrationThatFindsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := config(bus.Reject)
		p, err := newPipeline(&c, true)
		require.NoError(t, err)
		require.ErrorIs(t, settle(t.Context(), &c, p, newTally(0), 0), errNothingDone)
		_, err = p.bus.Shutdown(t.Context())
		require.NoError(t, err)
	})
}

func TestMedianOfSlices(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 3.0, median([]float64{0.1, 3, 2, 4, 90}))
	assert.Equal(t, 7.0, median([]float64{7}))
	long := Config{Duration: 4 * time.Second, Service: 10 * time.Millisecond}
	assert.Equal(t, 5, long.slices())
	short := Config{Duration: time.Second, Service: 10 * time.Millisecond}
	assert.Equal(t, 1, short.slices(), "too short to cut")
}
