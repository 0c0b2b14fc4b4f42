package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bench/internal/stat"
)

func specs(t *testing.T, names ...string) (out []load.Spec) {
	t.Helper()
	for _, n := range names {
		s, err := load.Lookup(n)
		require.NoError(t, err)
		out = append(out, s)
	}
	return out
}

func TestPlanAddsBases(t *testing.T) {
	p := NewPlan(specs(t, "W1"), []string{"publish"})
	require.Equal(t, []Row{{Cell{"W1", "publish"}, Cell{"W1", "chan"}}}, p.Rows)
	require.Equal(t, [][]Cell{{{"W1", "chan"}, {"W1", "publish"}}}, p.Groups)
	require.Equal(t, 2, p.Count())
}

func TestPlanComparesMixedWithItsBase(t *testing.T) {
	p := NewPlan(specs(t, "W3", "W3mix"), []string{"chan", "publish"})
	require.Equal(t, []Row{
		{Cell{"W3", "chan"}, Cell{"W3", "chan"}},
		{Cell{"W3", "publish"}, Cell{"W3", "chan"}},
		{Cell{"W3mix", "publish"}, Cell{"W3", "publish"}},
	}, p.Rows)
	require.Len(t, p.Groups, 1, "both are measured in the same rounds")
	require.Len(t, p.Groups[0], 3)
}

func TestPlanComparesBatchesWithBatches(t *testing.T) {
	p := NewPlan(specs(t, "W2", "W6"), []string{"chan-b32", "batch"})
	require.Contains(t, p.Rows, Row{Cell{"W2", "batch"}, Cell{"W2", "chan-b32"}})
	require.Contains(t, p.Rows, Row{Cell{"W2", "batch"}, Cell{"W2", "chan"}})
	require.NotContains(t, p.Rows, Row{Cell{"W6", "batch"}, Cell{"W6", "chan-b32"}})
}

func quietly(string) {}

// fake returns samples whose rate is what rates says for the system.
func fake(rates map[string]float64, visits *[]string) Measurer {
	return func(_ context.Context, c Cell) (load.Sample, error) {
		*visits = append(*visits, c.System)
		r, ok := rates[c.System]
		if !ok {
			return load.Sample{}, load.ErrUnsupported
		}
		return load.Sample{
			Workload: c.Workload, System: c.System, Messages: uint64(r * 1e6), Seconds: 1, CPU: 1, Others: r / 100,
		}, nil
	}
}

func TestCollectGoesToAndFro(t *testing.T) {
	var visits []string
	p := NewPlan(specs(t, "W1"), []string{"chan", "publish", "handle"})
	d, err := Collect(t.Context(), p, 3, fake(map[string]float64{"chan": 1, "publish": 2, "handle": 3}, &visits), quietly)
	require.NoError(t, err)
	require.NoError(t, d.Broken())
	require.Equal(t, "chan,publish,handle,handle,publish,chan,chan,publish,handle", strings.Join(visits, ","))
	require.Len(t, d.Samples[Cell{"W1", "handle"}], 3)
}

func TestCollectLeavesOutWhatFails(t *testing.T) {
	var visits []string
	p := NewPlan(specs(t, "W1"), []string{"chan", "publish"})
	d, err := Collect(t.Context(), p, 4, fake(map[string]float64{"chan": 1}, &visits), quietly)
	require.NoError(t, err)
	require.NoError(t, d.Broken(), "a form that does not exist is no fault")
	require.Len(t, visits, 5)

	broken := errors.New("lost a message")
	d, err = Collect(t.Context(), p, 4, func(context.Context, Cell) (load.Sample, error) { return load.Sample{}, broken }, quietly)
	require.NoError(t, err)
	require.ErrorIs(t, d.Broken(), broken)
}

func TestCollectEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	_, err := Collect(ctx, NewPlan(specs(t, "W1"), []string{"chan"}), 5, func(context.Context, Cell) (load.Sample, error) {
		if n++; n == 2 {
			cancel()
		}
		return load.Sample{}, nil
	}, quietly)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 2, n)
}

func TestSummariseTakesRatiosWithinRounds(t *testing.T) {
	row := Row{Cell{"W1", "publish"}, Cell{"W1", "chan"}}
	sample := func(rate, cpu float64) load.Sample {
		return load.Sample{Messages: uint64(rate), Seconds: 1, CPU: cpu * rate / 1e9}
	}
	// The machine halves its speed between the rounds: each ratio is 2, the
	// ratio of the medians would be the same but with a wide interval.
	d := Data{Samples: map[Cell][]load.Sample{
		row.Cell: {sample(2_000_000, 50), sample(1_000_000, 100), sample(2_000_000, 50)},
		row.Base: {sample(1_000_000, 100), sample(500_000, 200), sample(1_000_000, 100)},
	}}
	s := Summarise(Plan{Rows: []Row{row}}, d, 1)[0]
	require.InDelta(t, 2.0, s.Ratio.Low, 1e-6)
	require.InDelta(t, 2.0, s.Ratio.High, 1e-6)
	require.InDelta(t, 0.5, s.CPURatio.Mid, 1e-6)
	require.InDelta(t, 2e6, s.Rate, 1)
	require.InDelta(t, 500, s.WallNanos, 1e-6)
	require.InDelta(t, 50, s.CPUNanos, 1e-6)
	require.Equal(t, 3, s.Rounds)
	require.Equal(t, "superior", s.Verdict())
}

func TestNoisyRoundsAreLeftOut(t *testing.T) {
	row := Row{Cell{"W1", "publish"}, Cell{"W1", "chan"}}
	sample := func(rate, others float64) load.Sample {
		return load.Sample{Messages: uint64(rate), Seconds: 1, CPU: 1, Others: others}
	}
	base := []load.Sample{sample(100, 0), sample(100, 0.5), sample(100, 0), sample(100, 0)}
	quiet := Data{Samples: map[Cell][]load.Sample{
		row.Cell: {sample(200, 0), sample(900, 0), sample(900, 0.4), sample(200, 0)}, row.Base: base,
	}}
	s := Summarise(Plan{Rows: []Row{row}}, quiet, 1)[0]
	require.Equal(t, 2, s.Rounds)
	require.Equal(t, 4, s.Measured)
	require.InDelta(t, 2.0, s.Ratio.High, 1e-9, "either side of a noisy round is left out")
	require.Zero(t, s.Others)

	noisy := Data{Samples: map[Cell][]load.Sample{
		row.Cell: {sample(200, 0.2), sample(300, 0), sample(300, 0.4), sample(200, 0)}, row.Base: base,
	}}
	s = Summarise(Plan{Rows: []Row{row}}, noisy, 1)[0]
	require.Equal(t, 4, s.Rounds, "too few quiet rounds: all count")
	require.InDelta(t, 2.5, s.Ratio.Mid, 1e-9)
	require.InDelta(t, 0.5, s.Others, 1e-9)
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		e    stat.Estimate
		want string
	}{
		{stat.Estimate{Mid: 2, Low: 1.3, High: 3}, "superior"},
		{stat.Estimate{Mid: 2, Low: 1.29, High: 3}, "non-inferior"},
		{stat.Estimate{Mid: 1, Low: 0.95, High: 1.1}, "non-inferior"},
		{stat.Estimate{Mid: 1, Low: 0.94, High: 1.1}, "open"},
		{stat.Estimate{Mid: 0.9, Low: 0.8, High: 0.94}, "inferior"},
	} {
		s := Summary{Row: Row{Cell{"W1", "publish"}, Cell{"W1", "chan"}}, Ratio: c.e}
		assert.Equal(t, c.want, s.Verdict(), "%v", c.e)
	}
	base := Cell{"W1", "chan"}
	require.Equal(t, "base", Summary{Row: Row{base, base}}.Verdict())
}

func TestFloorOutcome(t *testing.T) {
	up := Floor{Ratio: 2}
	down := Floor{Ratio: 0.8, CPU: true}
	for _, c := range []struct {
		name    string
		floor   Floor
		e       stat.Estimate
		outcome string
		met     bool
	}{
		{"above", up, stat.Estimate{Mid: 3, Low: 2, High: 4}, "met", true},
		{"above by the median", up, stat.Estimate{Mid: 2.1, Low: 1.9, High: 4}, "met, interval reaches below", true},
		{"below by the median", up, stat.Estimate{Mid: 1.9, Low: 1, High: 2}, "missed, interval reaches it", false},
		{"below", up, stat.Estimate{Mid: 1.5, Low: 1, High: 1.9}, "missed", false},
		{"less CPU", down, stat.Estimate{Mid: 0.7, Low: 0.6, High: 0.8}, "met", true},
		{"less CPU by the median", down, stat.Estimate{Mid: 0.7, Low: 0.6, High: 0.9}, "met, interval reaches below", true},
		{"more CPU", down, stat.Estimate{Mid: 0.9, Low: 0.85, High: 1}, "missed", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			outcome, met := c.floor.judge(c.e)
			require.Equal(t, c.outcome, outcome)
			require.Equal(t, c.met, met)
		})
	}
	require.InDelta(t, -0.25, up.distance(1.5), 1e-9)
	require.InDelta(t, 0.25, down.distance(0.6), 1e-9)
}

func TestEveryFloorHasARow(t *testing.T) {
	p := NewPlan(load.All(), []string{"chan", "chan-b32", "publish", "handle", "batch"})
	for _, f := range Floors() {
		require.Contains(t, p.Rows, f.Row)
		require.Positive(t, f.Ratio)
	}
}

func TestGateWritesDistances(t *testing.T) {
	row := Row{Cell{"W1", "publish"}, Cell{"W1", "chan"}}
	other := Row{Cell{"W2", "publish"}, Cell{"W2", "chan"}}
	var out bytes.Buffer
	missed, err := Gate(&out, []Summary{
		{Row: row, Rounds: 3, Ratio: stat.Estimate{Mid: 1.5, Low: 1.4, High: 1.6}},
		{Row: other, Err: errors.New("broken")},
	}, []Floor{{Row: row, Ratio: 2}, {Row: other, Ratio: 1}, {Row: Row{Cell{"W9", "x"}, Cell{}}, Ratio: 1}})
	require.NoError(t, err)
	require.Equal(t, 2, missed)
	require.Contains(t, out.String(), "-25 %")
	require.Contains(t, out.String(), "not measured")
	require.NotContains(t, out.String(), "W9")
}

func TestTable(t *testing.T) {
	base := Cell{"W1", "chan"}
	var out bytes.Buffer
	require.NoError(t, Table(&out, []Summary{
		{Row: Row{base, base}, Rounds: 2, Rate: 9.67e6, Ratio: stat.Estimate{Mid: 1, Low: 1, High: 1}},
		{Row: Row{Cell{"W1", "publish"}, base}, Rounds: 2, Others: 0.3},
		{Row: Row{Cell{"W6", "chan-b32"}, base}, Err: load.ErrUnsupported},
		{Row: Row{Cell{"W1", "batch"}, base}, Err: errors.New("lost 3")},
		{Row: Row{Cell{"W1", "handle"}, base}},
	}))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 7)
	for _, l := range lines {
		require.Equal(t, strings.Count(lines[0], "|"), strings.Count(l, "|"), l)
	}
	require.Contains(t, lines[2], "9.67")
	require.Contains(t, lines[3], "30 % (noisy)")
	require.Contains(t, lines[4], "no such form")
	require.Contains(t, lines[5], "BROKEN: lost 3")
	require.Contains(t, lines[6], "not measured")
}

func TestAnswerCarriesFaults(t *testing.T) {
	carry := func(s load.Sample, err error) (load.Sample, error) {
		text, fault := json.Marshal(NewAnswer(s, err))
		require.NoError(t, fault)
		var a Answer
		require.NoError(t, json.Unmarshal(text, &a))
		return a.unpack()
	}
	s, err := carry(load.Sample{System: "x", Messages: 5, Seconds: 2}, nil)
	require.NoError(t, err)
	require.Equal(t, uint64(5), s.Messages)
	_, err = carry(load.Sample{}, load.ErrUnsupported)
	require.ErrorIs(t, err, load.ErrUnsupported)
	_, err = carry(load.Sample{}, errors.New("lost"))
	require.ErrorContains(t, err, "lost")
}
