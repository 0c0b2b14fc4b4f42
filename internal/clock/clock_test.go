package clock_test

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/internal/clock"
)

func TestNowFollowsTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		assert.Equal(t, int64(1), c.Now(), "a reading is never 0")
		time.Sleep(time.Second)
		assert.Equal(t, int64(1e9+1), c.Now())
		time.Sleep(100 * 365 * 24 * time.Hour)
		assert.Equal(t, int64(1e9+1+100*365*24*3600e9), c.Now())
	})
}

func TestNowNeverGoesDown(t *testing.T) {
	c := clock.New()
	prev := c.Now()
	require.Positive(t, prev)
	for range 10_000 {
		now := c.Now()
		require.GreaterOrEqual(t, now, prev)
		prev = now
	}
}

func TestCoarseIsTheLatestTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		assert.Equal(t, int64(1), c.Coarse())
		time.Sleep(5 * time.Nanosecond)
		assert.Equal(t, int64(1), c.Coarse(), "only Tick moves it")
		assert.Equal(t, int64(6), c.Tick())
		assert.Equal(t, int64(6), c.Coarse())
		assert.Equal(t, int64(6), c.Tick(), "no time passed")
	})
}

func TestTicksInParallelNeverTurnBack(t *testing.T) {
	c := clock.New()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			prev := c.Coarse()
			for range 5000 {
				before := c.Coarse()
				tick := c.Tick()
				after := c.Coarse()
				if before < prev || tick < before || after < tick {
					t.Errorf("readings %d, %d, %d, %d", prev, before, tick, after)
					return
				}
				prev = after
			}
		})
	}
	wg.Wait()
}

func TestWall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := clock.New()
		assert.True(t, c.Wall(0).IsZero(), "0 is no reading")
		assert.True(t, c.Wall(1).Equal(start))
		assert.True(t, c.Wall(1+int64(time.Hour)).Equal(start.Add(time.Hour)))
		assert.True(t, c.Wall(1-int64(time.Hour)).Equal(start.Add(-time.Hour)))
		assert.Equal(t, start.Year()+292, c.Wall(math.MaxInt64).Year())
		assert.Equal(t, 1707, c.Wall(math.MinInt64).Year())
		time.Sleep(time.Minute)
		assert.True(t, c.Wall(c.Now()).Equal(time.Now()))
	})
}

func TestFromWall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := clock.New()
		time.Sleep(time.Minute)
		now := c.Now()
		tests := []struct {
			name string
			t    time.Time
			want int64
		}{
			{"now", time.Now(), now},
			{"now, wall only", time.Now().Round(0), now},
			{"later", time.Now().Add(time.Hour), now + int64(time.Hour)},
			{"later, wall only, other zone", time.Now().Add(time.Hour).Round(0).In(time.FixedZone("x", 3600)), now + int64(time.Hour)},
			{"origin", start, 1},
			{"origin, wall only", start.Round(0), 1},
			{"the nanosecond before the origin", start.Add(-1), -1},
			{"the nanosecond before, wall only", start.Add(-1).Round(0), -1},
			{"two before", start.Add(-2), -1},
			{"before the origin", start.Add(-time.Hour), 1 - int64(time.Hour)},
			{"zero", time.Time{}, math.MinInt64},
			{"year 1", time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), math.MinInt64},
			{"year 9999", time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), math.MaxInt64},
			{"the end of time", time.Unix(math.MaxInt64, 999_999_999), math.MinInt64}, // wraps inside package time
			{"the largest", start.Add(math.MaxInt64), math.MaxInt64},
			{"the largest, wall only", time.Now().Round(0).Add(math.MaxInt64), math.MaxInt64},
			{"the smallest", start.Add(math.MinInt64), math.MinInt64},
		}
		for _, tt := range tests {
			assert.Equal(t, tt.want, c.FromWall(tt.t), tt.name)
		}
	})
}

// A deadline that came from a reading must go back to the same reading.
func TestRoundTrip(t *testing.T) {
	c := clock.New()
	for _, mono := range []int64{1, 2, -1, -5, 1e9, 1e18, -1e18, math.MaxInt64, math.MaxInt64 - 1} {
		wall := c.Wall(mono)
		if wall == wall.Round(0) { //nolint:staticcheck // Equal would not tell whether there is a monotonic reading
			continue // out of the monotonic range
		}
		assert.Equal(t, mono, c.FromWall(wall))
	}
}

func TestTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		var fired int64
		clock.AfterFunc(time.Second, func() { fired = c.Now() })
		stopped := clock.AfterFunc(time.Second, func() { t.Error("was stopped") })
		assert.True(t, stopped.Stop())
		<-clock.NewTimer(2 * time.Second).C
		synctest.Wait()
		assert.Equal(t, int64(time.Second)+1, fired)
		assert.Equal(t, 2*int64(time.Second)+1, c.Now())
	})
}

func TestAllocatesNothing(t *testing.T) {
	c := clock.New()
	wall := c.Wall(5)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		c.Tick()
		c.Coarse()
		c.Wall(c.Now())
		c.FromWall(wall)
	}))
}

// FuzzFromWall checks that the order of times is kept and 0 never comes out.
func FuzzFromWall(f *testing.F) {
	f.Add(int64(0), int64(0), int64(1), int64(0))
	f.Add(int64(math.MinInt32), int64(5), int64(math.MaxInt32), int64(999_999_999))
	f.Add(int64(-1<<40), int64(0), int64(1<<40), int64(0))
	c := clock.New()
	f.Fuzz(func(t *testing.T, s1, ns1, s2, ns2 int64) {
		const years = 1 << 36 // seconds: within what package time can compare
		a, b := time.Unix(s1%years, ns1%1e9), time.Unix(s2%years, ns2%1e9)
		if b.Before(a) {
			a, b = b, a
		}
		x, y := c.FromWall(a), c.FromWall(b)
		if x == 0 || y == 0 {
			t.Fatalf("%v and %v: readings %d and %d", a, b, x, y)
		}
		// The clock and the wall are read one after the other, for a first.
		if x > y && b.Sub(a) > time.Second {
			t.Fatalf("%v before %v: readings %d and %d", a, b, x, y)
		}
	})
}

func BenchmarkNow(b *testing.B) {
	c := clock.New()
	for b.Loop() {
		c.Now()
	}
}

func BenchmarkCoarse(b *testing.B) {
	c := clock.New()
	for b.Loop() {
		c.Coarse()
	}
}
