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
		tl := newTally()
		start := time.Now()
		for range 5 {
			tl.published(nil)
		}
		full := &bus.RejectedError{Reason: reason.Full}
		for _, err := range []error{full, fmt.Errorf("publish: %w", full), &bus.RejectedError{Reason: reason.Closed}, errors.New("no bus error")} {
			tl.published(err)
		}
		for i := range 100 {
			tl.started(time.Duration(i+1) * time.Millisecond)
		}
		time.Sleep(time.Second)
		for _, r := range []bus.Result{
			{End: bus.Completed},
			{End: bus.Completed},
			{End: bus.DeadLettered, Reason: reason.Attempts},
			{End: bus.Dropped, Reason: reason.Evicted},
			{End: bus.Abandoned, Reason: reason.Shutdown},
		} {
			tl.done(r)
		}
		assert.Equal(t, uint64(5), tl.accepted())
		assert.Equal(t, uint64(2), tl.completed())

		o := tl.outcome("2x", 9, start, 3*time.Millisecond, true)
		assert.InDelta(t, 50, o.WaitP50MS, 2)
		assert.InDelta(t, 99, o.WaitP99MS, 4)
		o.WaitP50MS, o.WaitP99MS = 0, 0
		assert.Equal(t, Outcome{
			Name: "2x", Rate: 9, Whole: true,
			Offered: 9, Accepted: 5, Refused: Counts{"full": 2, "closed": 1, "invalid": 1},
			Completed: 2, DeadLettered: 1, Dropped: Counts{"evicted": 1}, Abandoned: 1,
			Goodput: 2, ElapsedMS: 1000, MaxLagMS: 3,
		}, o)
	})
}

func TestTallyEnds(t *testing.T) {
	t.Parallel()
	t.Run("with the last end", func(t *testing.T) {
		t.Parallel()
		tl := newTally()
		tl.published(nil)
		tl.published(nil)
		tl.done(bus.Result{})
		tl.seal()
		require.False(t, ended(tl), "one is under way")
		tl.done(bus.Result{})
		require.True(t, ended(tl))
		tl.seal() // again is harmless
	})
	t.Run("when nothing was published", func(t *testing.T) {
		t.Parallel()
		tl := newTally()
		require.False(t, ended(tl))
		tl.seal()
		require.True(t, ended(tl))
		o := tl.outcome("x", 1, time.Now(), 0, true)
		assert.Zero(t, o.Goodput)
		assert.Zero(t, o.ElapsedMS)
	})
	t.Run("not before it is sealed", func(t *testing.T) {
		t.Parallel()
		tl := newTally()
		tl.done(bus.Result{}) // the end may be told before the verdict is counted
		tl.published(nil)
		require.False(t, ended(tl), "more may come")
		tl.seal()
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
		p, err := newPipeline(&c)
		require.NoError(t, err)
		require.ErrorIs(t, settle(t.Context(), &c, p, newTally(), 0), errNothingDone)
		_, err = p.bus.Shutdown(t.Context())
		require.NoError(t, err)
	})
}
