package report

import (
	"fmt"
	"io"
	"math"
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
	row(tw, "scenario", "stage", "what", "gate", "measured [99 %]", "at best", "outcome", "source")
	for i := range gates {
		g := &gates[i]
		for _, sc := range p.Scales {
			c, ok := p.cell(d, g.Shape, sc.Name, name)
			if !ok || !g.At(sc.Name) {
				continue
			}
			limit := g.Limit(c)
			e := Mean(g.Values(c))
			outcome, met := judge(g, e, limit)
			if !met {
				missed++
			}
			row(tw, g.Shape, sc.Name, g.What, bound(g, limit), estimate(g, e), best(g, c), outcome, g.Source)
		}
	}
	return missed, tw.Flush()
}

// cell finds the scores that a gate looks at.
func (p *Plan) cell(d Data, shapeName, scale, name string) (*gate.Cell, bool) {
	ours, ok := d[Key{shapeName, scale, name}]
	oracle, known := d[Key{shapeName, scale, law.OracleName}]
	if !ok || !known {
		return nil, false
	}
	for _, sh := range p.Shapes {
		if sh.Name != shapeName {
			continue
		}
		for _, sc := range p.Scales {
			if sc.Name == scale {
				return &gate.Cell{Spec: sh.Make(sc), Ours: ours, Oracle: oracle}, true
			}
		}
	}
	return nil, false
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

func estimate(g *gate.Gate, e Estimate) string {
	if e.Low == e.High || math.IsNaN(e.Low) {
		return figure(g, e.Mean)
	}
	return fmt.Sprintf("%s [%s, %s]", figure(g, e.Mean), figure(g, e.Low), figure(g, e.High))
}

func best(g *gate.Gate, c *gate.Cell) string {
	if g.Can == nil {
		return ""
	}
	x, by := g.Can(c)
	if math.IsNaN(x) {
		return ""
	}
	return figure(g, x) + " by " + by
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
