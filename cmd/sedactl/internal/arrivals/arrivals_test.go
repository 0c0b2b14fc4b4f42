package arrivals

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/cmd/sedactl/internal/trace"
)

func TestPoissonStatistics(t *testing.T) {
	t.Parallel()
	const mean = 2 * time.Millisecond
	for _, seed := range []uint64{1, 2, 3, 4, 5} {
		const rate, length = 1000.0, 40 * time.Second
		got := slices.Collect(Poisson(rate, length, mean, seed))
		n := float64(len(got))

		// A Poisson count has the variance of its mean: 4 deviations.
		want := rate * length.Seconds()
		assert.InDelta(t, want, n, 4*math.Sqrt(want), "seed %d: count", seed)

		// Counts over windows have variance = mean; a regular stream has 0.
		windows := make([]float64, 400)
		var last time.Duration
		var gaps, gapsSquared, work float64
		for _, a := range got {
			windows[a.At/(100*time.Millisecond)]++
			gap := (a.At - last).Seconds()
			last = a.At
			gaps += gap
			gapsSquared += gap * gap
			work += a.Work.Seconds()
			require.GreaterOrEqual(t, a.Work, mean/2)
			require.Less(t, a.Work, mean*3/2)
		}
		var dispersion float64
		for _, w := range windows {
			dispersion += (w - n/400) * (w - n/400) / (n / 400) / 399
		}
		// The index of dispersion of 400 windows has the deviation sqrt(2/399).
		assert.InDelta(t, 1, dispersion, 4*math.Sqrt(2.0/399), "seed %d: dispersion", seed)

		// An exponential gap has a second moment of twice its mean squared.
		assert.InDelta(t, 2, gapsSquared/n/(gaps/n)/(gaps/n), 0.1, "seed %d: gaps", seed)
		assert.InDelta(t, mean.Seconds(), work/n, 0.01*mean.Seconds(), "seed %d: work", seed)
	}
}

func TestPoissonIsItsSeeds(t *testing.T) {
	t.Parallel()
	s := Poisson(100, time.Second, time.Millisecond, 7)
	first := slices.Collect(s)
	assert.Equal(t, first, slices.Collect(s), "the same schedule, ranged over again")
	assert.Equal(t, first, slices.Collect(Poisson(100, time.Second, time.Millisecond, 7)), "the same seed")
	assert.NotEqual(t, first, slices.Collect(Poisson(100, time.Second, time.Millisecond, 8)), "another seed")
	assert.True(t, slices.IsSortedFunc(first, func(a, b Arrival) int { return int(a.At - b.At) }))

	other := slices.Collect(Poisson(100, time.Second, time.Millisecond, 8))
	assert.NotEqual(t, first[0].At, other[0].At, "the seed moves the gaps")
	assert.NotEqual(t, first[0].Work, other[0].Work, "and the service times")

	// Gaps do not depend on the service time.
	slow := slices.Collect(Poisson(100, time.Second, time.Second, 7))
	require.Len(t, slow, len(first))
	for i := range slow {
		require.Equal(t, first[i].At, slow[i].At)
	}
}

func TestPoissonEmptyAndBroken(t *testing.T) {
	t.Parallel()
	for _, s := range []Schedule{
		Poisson(0, time.Second, 0, 1),
		Poisson(-1, time.Second, 0, 1),
		Poisson(math.NaN(), time.Second, 0, 1),
		Poisson(100, 0, 0, 1),
		Poisson(100, -time.Second, 0, 1),
	} {
		assert.Empty(t, slices.Collect(s))
	}
	n := 0
	for range Poisson(1000, time.Second, 0, 1) {
		if n++; n == 3 {
			break
		}
	}
	assert.Equal(t, 3, n)
}

func TestWorks(t *testing.T) {
	t.Parallel()
	const mean = 10 * time.Millisecond
	var sum time.Duration
	n := 0
	for w := range Works(mean, 1) {
		require.True(t, w >= mean/2 && w < mean*3/2)
		sum += w
		if n++; n == 10_000 {
			break
		}
	}
	assert.InDelta(t, float64(mean), float64(sum)/float64(n), 0.02*float64(mean))
}

func TestUntil(t *testing.T) {
	t.Parallel()
	in := slices.Values([]Arrival{{At: 0}, {At: time.Second}, {At: time.Second}, {At: 2 * time.Second}})
	for end, want := range map[time.Duration]int{0: 0, 1: 1, time.Second: 1, time.Second + 1: 3, time.Hour: 4} {
		assert.Len(t, slices.Collect(Until(in, end)), want, "until %v", end)
	}
	for range Until(in, time.Hour) {
		break // the loop body ends it early
	}
}

func rows(gaps ...time.Duration) []trace.Row {
	at := time.Date(2023, 11, 16, 18, 17, 3, 979960000, time.UTC)
	out := make([]trace.Row, 0, len(gaps))
	for i, g := range gaps {
		at = at.Add(g)
		out = append(out, trace.Row{At: at, Context: 100, Generated: i})
	}
	return out
}

func TestRecorded(t *testing.T) {
	t.Parallel()
	in := rows(0, time.Second, 0, 500*time.Millisecond)
	ms := time.Millisecond
	cases := map[string]struct {
		speed float64
		want  []Arrival
	}{
		"as recorded":      {1, []Arrival{{0, 0}, {1000 * ms, ms}, {1000 * ms, 2 * ms}, {1500 * ms, 3 * ms}}},
		"ten times":        {10, []Arrival{{0, 0}, {100 * ms, ms}, {100 * ms, 2 * ms}, {150 * ms, 3 * ms}}},
		"half the speed":   {0.5, []Arrival{{0, 0}, {2000 * ms, ms}, {2000 * ms, 2 * ms}, {3000 * ms, 3 * ms}}},
		"zero counts as 1": {0, []Arrival{{0, 0}, {1000 * ms, ms}, {1000 * ms, 2 * ms}, {1500 * ms, 3 * ms}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, slices.Collect(Recorded(in, c.speed, ms)))
		})
	}
	assert.Empty(t, slices.Collect(Recorded(nil, 1, ms)))
}

func TestPerTokenLoadsTheServers(t *testing.T) {
	t.Parallel()
	tr := &trace.Trace{Rows: rows(0, time.Second, time.Second, 2*time.Second)} // 6 tokens in 4 s
	for _, c := range []struct {
		speed, load float64
		servers     int
	}{{1, 1, 1}, {1, 1, 4}, {20, 1, 4}, {10, 2, 8}, {0.5, 0.7, 3}} {
		per := PerToken(tr, c.speed, c.load, c.servers)
		var work, last time.Duration
		for a := range Recorded(tr.Rows, c.speed, per) {
			work += a.Work
			last = a.At
		}
		assert.InDelta(t, c.load, float64(work)/float64(last)/float64(c.servers), 1e-6)
	}
	assert.Equal(t, MaxPerToken, PerToken(tr, 1e-3, 1e6, 1<<16), "bounded")
	for a := range Recorded([]trace.Row{{}, {At: time.Now(), Generated: trace.MaxTokens}}, 1e-3, MaxPerToken) {
		assert.GreaterOrEqual(t, a.At, time.Duration(0), "no overflow")
		assert.GreaterOrEqual(t, a.Work, time.Duration(0), "no overflow")
	}
	assert.Zero(t, PerToken(&trace.Trace{}, 1, 1, 1))
	assert.Zero(t, PerToken(&trace.Trace{Rows: rows(0)}, 1, 1, 1))
}

func TestSendKeepsTheTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		want := slices.Collect(Poisson(5000, time.Second, time.Millisecond, 1))
		start := time.Now().Add(time.Second)
		var got []Arrival
		sent := Send(t.Context(), slices.Values(want), start, func(a Arrival, due time.Time) {
			require.Equal(t, start.Add(a.At), due)
			require.Equal(t, due, time.Now(), "virtual timers are exact")
			got = append(got, a)
		})
		assert.Equal(t, want, got)
		assert.Equal(t, Sent{Count: len(want)}, sent)
	})
}

// A generator that was held up sends all that fell due meanwhile at once, with
// the times that were meant.
func TestSendCatchesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var in []Arrival
		for i := range 100 {
			in = append(in, Arrival{At: time.Duration(i) * time.Millisecond})
		}
		start := time.Now()
		var sentAt []time.Duration
		sent := Send(t.Context(), slices.Values(in), start, func(a Arrival, due time.Time) {
			require.Equal(t, a.At, due.Sub(start))
			sentAt = append(sentAt, time.Since(start))
			if a.At == 10*time.Millisecond {
				time.Sleep(50 * time.Millisecond)
			}
		})
		require.Equal(t, 100, sent.Count)
		assert.Equal(t, 49*time.Millisecond, sent.MaxLag)
		for i, at := range sentAt {
			want := in[i].At
			if i > 10 && i < 60 {
				want = 60 * time.Millisecond
			}
			require.Equal(t, want, at, "arrival %d", i)
		}
	})
}

func TestSendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	t.Run("while it waits", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			in := []Arrival{{At: time.Second}, {At: time.Hour}}
			start := time.Now()
			sent := Send(ctx, slices.Values(in), start, func(Arrival, time.Time) {})
			assert.Equal(t, 1, sent.Count)
			assert.Equal(t, 1500*time.Millisecond, time.Since(start))
		})
	})
	t.Run("while it is behind", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		sent := Send(ctx, slices.Values(make([]Arrival, 1000)), time.Now(), func(Arrival, time.Time) { cancel() })
		assert.Equal(t, 64, sent.Count)
	})
}
