package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/sedabus/seda/bench/overload/internal/gate"
	"github.com/sedabus/seda/bench/overload/internal/law"
)

// Verdict holds a law against the gates that apply to what ran, writes the
// table, and says how many the mean over the seeds missed.
func Verdict(w io.Writer, p *Plan, d Data, name string, gates []gate.Gate) (missed int, err error) {
	if _, err := fmt.Fprintf(w, "\ngates of %s:\n\n", name); err != nil {
		return 0, err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	row(tw, "scenario", "stage", "what", "gate", "measured [99 %]", "distance", "oracle", "at best", "outcome", "source")
	for i := range gates {
		g := &gates[i]
		for _, c := range p.cells(d, g, name) {
			if g.Known != nil && !g.Known(c) {
				continue
			}
			limit := g.Limit(c)
			e := Mean(g.Values(c))
			outcome, met := judge(g, e, limit)
			if !met {
				missed++
			}
			row(tw, g.Shape, c.Spec.Name, g.What, bound(g, limit), estimate(g, e), distance(g, e.Mean, limit), figure(g, Mean(g.Values(&gate.Cell{Spec: c.Spec, Ours: c.Oracle, Oracle: c.Oracle})).Mean),
				best(g, c), outcome, g.Source)
		}
	}
	return missed, tw.Flush()
}

// cells finds the scores that a gate looks at.
func (p *Plan) cells(d Data, g *gate.Gate, name string) []*gate.Cell {
	var out []*gate.Cell
	for _, sh := range p.Shapes {
		if sh.Name != g.Shape {
			continue
		}
		for _, sc := range sh.Over(p.Scales) {
			ours, ok := d[Key{sh.Name, sc.Name, name}]
			oracle, known := d[Key{sh.Name, sc.Name, law.OracleName}]
			if ok && known && g.At(sc.Name) {
				out = append(out, &gate.Cell{Spec: sh.Make(sc), Ours: ours, Oracle: oracle, Bound: d[Key{sh.Name, sc.Name, law.BoundName}]})
			}
		}
	}
	return out
}

// judge says met or missed by the mean, and whether the interval agrees.
func judge(g *gate.Gate, e Estimate, limit float64) (outcome string, met bool) {
	worst, better := e.High, e.Low
	if g.Least {
		worst, better = better, worst
	}
	switch {
	case math.IsNaN(e.Mean):
		return "MISSED: never", false
	case g.Meets(worst, limit):
		return "met", true
	case g.Meets(e.Mean, limit):
		return "met, interval reaches beyond", true
	case g.Meets(better, limit):
		return "MISSED, interval reaches it", false
	default:
		return "MISSED", false
	}
}

func bound(g *gate.Gate, limit float64) string {
	if g.Least {
		return "at least " + figure(g, limit)
	}
	return "at most " + figure(g, limit)
}

// distance is how far a figure is inside its bound, with a minus outside.
func distance(g *gate.Gate, x, limit float64) string {
	d := limit - x
	if g.Least {
		d = -d
	}
	switch d += 0; { // not minus zero
	case math.IsNaN(d):
		return "–"
	case d < 0:
		return "-" + figure(g, -d)
	default:
		return "+" + figure(g, d)
	}
}

func estimate(g *gate.Gate, e Estimate) string {
	if e.Low == e.High || math.IsNaN(e.Low) {
		return figure(g, e.Mean)
	}
	return fmt.Sprintf("%s [%s, %s]", figure(g, e.Mean), figure(g, e.Low), figure(g, e.High))
}

func best(g *gate.Gate, c *gate.Cell) string {
	var all []string
	for _, can := range g.Can {
		if x, by := can(c); !math.IsNaN(x) {
			all = append(all, figure(g, x)+" by "+by)
		}
	}
	return strings.Join(all, "; ")
}

func figure(g *gate.Gate, x float64) string {
	switch {
	case g.Seconds:
		return seconds(x)
	case x > .9 && x < 1.2:
		return fmt.Sprintf("%.4f", x)
	default:
		return number(x)
	}
}
