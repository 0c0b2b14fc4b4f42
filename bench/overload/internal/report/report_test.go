package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bench/overload/internal/bubble"
	"github.com/sedabus/seda/bench/overload/internal/gate"
	"github.com/sedabus/seda/bench/overload/internal/law"
	"github.com/sedabus/seda/bench/overload/internal/plot"
	"github.com/sedabus/seda/bench/overload/internal/report"
	"github.com/sedabus/seda/bench/overload/internal/shape"
	"github.com/sedabus/seda/bench/overload/internal/sim"
)

// plan is a part of the bench.
func plan(t *testing.T, shapes, scales, laws string) *report.Plan {
	t.Helper()
	p := &report.Plan{Seeds: 1, Workers: 2}
	for _, sh := range shape.All() {
		if strings.Contains(" "+shapes+" ", " "+sh.Name+" ") {
			p.Shapes = append(p.Shapes, sh)
		}
	}
	for _, sc := range shape.Scales() {
		if strings.Contains(" "+scales+" ", " "+sc.Name+" ") {
			p.Scales = append(p.Scales, sc)
		}
	}
	for _, l := range append(law.All(), law.BrokenRows()...) {
		if strings.Contains(" oracle "+laws+" ", " "+l.Name+" ") {
			p.Laws = append(p.Laws, l)
		}
	}
	require.Len(t, p.Laws, 1+len(strings.Fields(laws)))
	return p
}

func verdict(t *testing.T, p *report.Plan, name string) (missed int, text string) {
	t.Helper()
	var out bytes.Buffer
	missed, err := report.Verdict(&out, p, p.Run(t, nil), name, gate.Table())
	require.NoError(t, err)
	return missed, out.String()
}

// A part of the bench that is fast enough for every run of the tests: the law
// meets its gates.
func TestAdaptiveMeetsItsGates(t *testing.T) {
	if bubble.Race {
		t.Skip("a simulation is one goroutine")
	}
	missed, text := verdict(t, plan(t, "step flash after trickle deadlines tandem cold outage", "16x5ms", law.OurName), law.OurName)
	require.Zero(t, missed, text)
	require.Equal(t, 12, strings.Count(text, "| met"), text)
}

// Laws that are broken on purpose miss gates, each where it is wrong.
func TestGatesNoticeBrokenLaws(t *testing.T) {
	for _, c := range []struct {
		law, shapes string
		missed      []string
	}{
		{"sheds-all", "step trickle", []string{"step", "trickle"}},
		{"sheds-none", "step flash deadlines", []string{"step", "flash"}},
		{"sheds-1pc", "trickle after", []string{"trickle", "after"}},
	} {
		missed, text := verdict(t, plan(t, c.shapes, "4x100ms", c.law), c.law)
		require.GreaterOrEqual(t, missed, len(c.missed), text)
		for _, name := range c.missed {
			require.Regexp(t, `\| `+name+` .*MISSED`, text, c.law)
		}
	}
}

// The whole output is there, and the same twice.
func TestOutputIsDeterministic(t *testing.T) {
	p := plan(t, "step classes senders", "4x100ms", "adaptive cap64 dagor")
	render := func() (table, figures string) {
		var a, b bytes.Buffer
		d := p.Run(t, nil)
		require.NoError(t, report.Table(&a, p, d))
		require.NoError(t, report.CSV(&b, p, d))
		return a.String(), b.String()
	}
	table, figures := render()
	again, figuresAgain := render()
	require.Equal(t, table, again)
	require.Equal(t, figures, figuresAgain)
	lines, err := csv.NewReader(strings.NewReader(figures)).ReadAll()
	require.NoError(t, err)
	require.Len(t, lines, 1+3*4)
	for _, l := range lines[1:] {
		require.NotContains(t, l, "NaN")
	}
}

func TestChartsAreWellFormed(t *testing.T) {
	p := plan(t, "flash", "4x100ms", "adaptive cap64")
	sc := sim.Scale{Name: "4x10ms", Workers: 4, Service: 10e6}
	for _, c := range []*plot.Chart{p.GoodputChart(t, sc), p.FlashChart(t, sc)} {
		require.Len(t, c.Lines, 3)
		var out bytes.Buffer
		require.NoError(t, c.Write(&out))
		require.NotContains(t, out.String(), "NaN")
		require.Equal(t, 3, strings.Count(out.String(), "<title>"))
		require.NoError(t, xml.Unmarshal(out.Bytes(), new(struct{})))
	}
}

func TestMeanHasAnInterval(t *testing.T) {
	t.Parallel()
	e := report.Mean([]float64{1, 2, 3, 4, 5})
	require.InDelta(t, 3, e.Mean, 1e-12)
	require.InDelta(t, 4.604*math.Sqrt(2.5/5), e.High-e.Mean, 1e-9) // Student, 4 degrees of freedom
	require.InDelta(t, e.High-e.Mean, e.Mean-e.Low, 1e-9)
	require.True(t, math.IsNaN(report.Mean([]float64{1, math.NaN()}).Mean))
	one := report.Mean([]float64{7})
	require.Equal(t, report.Estimate{Mean: 7, Low: 7, High: 7}, one)
}
