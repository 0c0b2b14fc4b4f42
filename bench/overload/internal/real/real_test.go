package real

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bench/overload/internal/law"
)

func quietly(string) {}

// In simulated time handlers that wait take exactly as long as they say, so
// that all figures are known.
func TestRetuneTakesEffect(t *testing.T) {
	law.Silence()
	synctest.Test(t, func(t *testing.T) {
		o, err := retune(1, quietly)
		require.NoError(t, err)
		require.Len(t, o.rows, 4)
		require.Len(t, o.checks, 4)
		for _, c := range o.checks {
			require.True(t, c.met(), "%s: %v", c.what, c.value)
		}
		require.Less(t, o.checks[1].value, .0101, "down takes the services that run")
		for _, c := range o.cals {
			require.True(t, c.steady())
		}
		require.InDelta(t, 400, o.cals[0].best, 10)
		require.InDelta(t, 3200, o.cals[1].best, 70)
	})
}

// What keeps up without a shedder keeps up with ours.
func TestNobodyIsShedBelowCapacity(t *testing.T) {
	law.Silence()
	synctest.Test(t, func(t *testing.T) {
		st := stage{workers: 16, service: 5 * time.Millisecond, work: sleeping(5 * time.Millisecond)}
		o, err := compare(st, calibration{best: 3200}, calibration{best: 3200}, 1, quietly)
		require.NoError(t, err)
		require.InDelta(t, 1, o.checks[0].value, 1e-9)
		require.True(t, o.checks[0].met())
		require.Equal(t, "0.0 %", o.rows[1][4])
	})
}

// An account that is wrong, or work that is late, shows.
func TestFiguresNoticeWhatIsWrong(t *testing.T) {
	t.Parallel()
	r := &rig{jobs: []job{
		{at: 1, started: 2, end: 3, admitted: true, done: true},
		{at: 1, started: 2, end: 3 + budget, admitted: true, done: true},
		{at: 2},
		{at: 4, admitted: true},
	}}
	f := r.figures(0, time.Second)
	require.InDelta(t, 1, f.good, 1e-9)
	require.InDelta(t, 2, f.done, 1e-9)
	require.Equal(t, 4, f.offered)
	require.Equal(t, 1, f.shed)
	require.Equal(t, time.Second-4, f.p99)
	r.lost = 3
	r.effects = []time.Duration{0, -1, 70 * time.Millisecond}
	_, checks := retuned("x", []*rig{r}, time.Second, 1, 1)
	for _, c := range checks[:3] {
		require.False(t, c.met(), c.what)
	}
}

func TestOutcomeSaysWhatWasMissed(t *testing.T) {
	t.Parallel()
	o := &outcome{
		head: []string{"law"}, rows: [][]string{{"x"}}, cals: []calibration{{what: "y", best: 7, cv: .2}},
		checks: []check{
			{what: "a", limit: 1, value: 2, text: plain},
			{what: "b", limit: 1, least: true, value: 2, text: plain},
			{what: "c", limit: 1, value: math.NaN(), text: plain},
			{what: "d", limit: 1, value: 2, text: plain, unjudged: o(calibration{cv: .2})},
		},
	}
	var out bytes.Buffer
	missed, err := o.write(&out, &Leg{Name: "n", Title: "t"})
	require.NoError(t, err)
	require.Equal(t, 2, missed)
	require.Equal(t, 2, strings.Count(out.String(), "MISSED"))
	require.Contains(t, out.String(), "NOT STEADY")
	require.Contains(t, out.String(), "not judged: the calibration is not steady")
}

func o(c calibration) string { return c.doubt() }

func TestQuickestBurstIsPositive(t *testing.T) {
	t.Parallel()
	things, err := thingsToPrice()
	require.NoError(t, err)
	names := map[string]bool{}
	for i := range things {
		things[i].f()
		name := things[i].law + things[i].what
		require.False(t, names[name], name)
		names[name] = true
	}
	require.GreaterOrEqual(t, len(things), 9)
}
