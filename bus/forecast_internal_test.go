package bus

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestForecastCountsWhatArrivesBefore(t *testing.T) {
	var f forecast
	require.Zero(t, f.count(0, time.Hour))
	f.add(0, 10)
	f.add(0, 20)
	f.add(5, 10) // at 15, behind the one at 10
	f.add(0, time.Hour)
	require.Equal(t, 0, f.count(0, 9))
	require.Equal(t, 1, f.count(0, 10))
	require.Equal(t, 2, f.count(0, 15))
	require.Equal(t, 3, f.count(0, time.Minute), "what comes much later is apart")
	require.Equal(t, 1, f.count(15, 10), "what should be there is forgotten")
	require.Equal(t, 1, f.count(20, 2*time.Hour))
	require.Zero(t, f.count(2*time.Hour, time.Hour))
}

// However many are under way, in whatever order they are due, none is counted
// for longer than its way takes, and the count is right within a cell.
func TestForecastIsBoundedAndForgets(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		var f forecast
		var due []time.Duration
		now := time.Duration(0)
		for range 500 {
			now += time.Duration(rnd.Int64N(1000))
			transit := time.Duration(rnd.Int64N(100_000))
			f.add(now, transit)
			due = append(due, now+transit)
			left := 0
			for _, d := range due {
				if d > now {
					left++
				}
			}
			got := f.count(now, time.Hour)
			require.InDelta(t, left, got, float64(left)/4+5)
			require.LessOrEqual(t, f.mu.n, forecastCells)
		}
		require.Zero(t, f.count(now+100_000, time.Hour))
	}
}
