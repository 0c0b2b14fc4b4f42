package law_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bench/overload/internal/bubble"
	"github.com/sedabus/seda/bench/overload/internal/law"
	"github.com/sedabus/seda/bench/overload/internal/report"
	"github.com/sedabus/seda/bench/overload/internal/score"
	"github.com/sedabus/seda/bench/overload/internal/shape"
	"github.com/sedabus/seda/bench/overload/internal/sim"
)

var small = sim.Scale{Name: "4x1ms", Workers: 4, Service: time.Millisecond}

func find(t *testing.T, name string) law.Row {
	t.Helper()
	for _, r := range append(law.All(), law.BrokenRows()...) {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no law %q", name)
	return law.Row{}
}

// runs are the laws of which a run can be looked at.
func runs() []law.Row {
	return slices.DeleteFunc(law.All(), func(r law.Row) bool { return r.Grid != nil })
}

func TestRowsHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range append(law.All(), law.BrokenRows()...) {
		require.False(t, seen[r.Name], r.Name)
		seen[r.Name] = true
		require.NotEmpty(t, r.Kind)
	}
	require.True(t, seen[law.OurName] && seen[law.OracleName])
}

// Nobody does more work in time than who knows everything. A thousandth is
// what the order of jobs at the ends of a span makes.
func TestTheOracleIsNotBeaten(t *testing.T) {
	if bubble.Race {
		t.Skip("a simulation is one goroutine")
	}
	law.Silence()
	for _, sh := range shape.All() {
		if sh.Name == "below" || sh.Name == "batch" || sh.Only != nil {
			continue // long, and nothing is in short supply
		}
		spec := sh.Make(small)
		best := score.Of(report.Simulate(t, spec, find(t, law.OracleName), 1))
		require.Zero(t, best.Late, "%s: what the oracle lets in ends in time", sh.Name)
		for _, row := range runs() {
			s := score.Of(report.Simulate(t, sh.Make(small), row, 1))
			require.LessOrEqual(t, s.Good, best.Good*1.003, "%s: %s", sh.Name, row.Name)
		}
	}
}

// Every job that was let in has a fate at the end, whatever the law.
func TestNoJobIsLeftBehind(t *testing.T) {
	law.Silence()
	for _, row := range runs() {
		names := []string{"outage", "tandem", "classes", "deadlines"}
		if bubble.Race {
			names = names[:1]
		}
		for _, name := range names {
			for _, sh := range shape.All() {
				if sh.Name != name {
					continue
				}
				r := report.Simulate(t, sh.Make(small), row, 2)
				for i := range r.Jobs {
					require.NotEqual(t, sim.Pending, r.Jobs[i].Fate, "%s, %s: job %d", row.Name, name, i)
				}
			}
		}
	}
}

func TestMaxMin(t *testing.T) {
	t.Parallel()
	require.InDeltaSlice(t, []float64{1, 4.5, 4.5}, law.MaxMin([]float64{1, 9, 5}, 10), 1e-9)
	require.InDeltaSlice(t, []float64{1, 2}, law.MaxMin([]float64{1, 2}, 10), 1e-9)
	require.InDeltaSlice(t, []float64{5, 5}, law.MaxMin([]float64{50, 50}, 10), 1e-9)
	require.Empty(t, law.MaxMin(nil, 10))
}
