package gate

import (
	"math"

	"github.com/sedabus/seda/bench/overload/internal/score"
	"github.com/sedabus/seda/bench/overload/internal/sim"
)

// Cell is what is known of our law in one scenario at one scale.
type Cell struct {
	Spec         *sim.Spec
	Ours, Oracle []*score.Score // one a seed
	Bound        []*score.Score // of the best constant bound; nil where it did not run
}

// Gate is a bound that our law has to keep.
type Gate struct {
	Shape string
	// Scales are those that it holds at; nil is all.
	Scales []string
	What   string
	// Source says where the figure is from.
	Source string
	// Limit gives the bound; Least says that it is a lower one.
	Limit func(*Cell) float64
	Least bool
	// Value gives the figure of one seed, or of all at once where Pool is set.
	Value func(c *Cell, seed int) float64
	Pool  func(*Cell) float64
	// Seconds says that figures are times.
	Seconds bool
	// Known, if not nil, says whether runs of the law tell the figure.
	Known func(*Cell) bool
	// Can are what could be had at best, and by what; NaN is not known.
	Can []func(*Cell) (float64, string)
}

// Sources of the figures.
const (
	acceptance = "acceptance of the shedder"
	shapes     = "table of shapes"
)

var wide = []string{"16x5ms", "64x0.5ms"}

// Table returns the gates.
func Table() []Gate {
	gates := []Gate{
		{
			Shape: "below", Scales: wide, What: "false shed, upper 95 %", Source: acceptance,
			Limit: fixed(1e-4), Pool: falseUpper,
		},
		{
			Shape: "below", Scales: []string{"1x1ms", "4x100ms", "2x1ms", "2x20us"}, What: "false shed", Source: acceptance,
			Limit: finite, Value: func(c *Cell, i int) float64 { return c.Ours[i].False },
		},
		{Shape: "batch", What: "false shed, upper 95 %", Source: shapes, Limit: fixed(1e-3), Pool: falseUpper},
		{
			Shape: "spike", Scales: []string{"2x20us"}, What: "converged", Source: acceptance, Limit: fixed(10e-3), Seconds: true,
			Value: func(c *Cell, i int) float64 { return c.Ours[i].Converged },
		},
		{Shape: "after", What: "shed after the flash", Source: acceptance, Limit: fixed(0), Value: shed},
		{Shape: "trickle", What: "shed", Source: acceptance, Limit: fixed(0), Value: shed},
		{Shape: "classes", What: "top class done", Source: acceptance, Limit: fixed(1), Least: true, Value: func(c *Cell, i int) float64 { return c.Ours[i].Top }},
		{Shape: "mixed", What: "top class done", Source: acceptance, Limit: fixed(1), Least: true, Value: func(c *Cell, i int) float64 { return c.Ours[i].Top }},
		{Shape: "classes", What: "inversions", Source: acceptance, Limit: fixed(0), Value: func(c *Cell, i int) float64 {
			return float64(c.Ours[i].Inversions)
		}, Known: func(c *Cell) bool { return c.Ours[0].Inversions >= 0 }},
		{Shape: "deadlines", What: "doomed work", Source: acceptance, Limit: fixed(1e-3), Value: func(c *Cell, i int) float64 { return c.Ours[i].Doomed }},
		{Shape: "senders", What: "Jain", Source: acceptance, Limit: fixed(.995), Least: true, Value: func(c *Cell, i int) float64 { return c.Ours[i].Jain }},
		{
			Shape: "outage", What: "recovered", Source: acceptance, Limit: recovery, Seconds: true,
			Value: func(c *Cell, i int) float64 { return c.Ours[i].Recovered },
		},
		{Shape: "outage", What: "amplification", Source: acceptance, Limit: fixed(1.1), Value: func(c *Cell, i int) float64 { return c.Ours[i].Amplification }},
		{Shape: "codel", What: "done a second", Source: shapes, Limit: fixed(500), Least: true, Value: func(c *Cell, i int) float64 {
			return float64(c.Ours[i].Completed) / c.Spec.Len().Seconds()
		}},
		{Shape: "codel", What: "total p99", Source: shapes, Limit: fixed(62.8e-3), Seconds: true, Value: func(c *Cell, i int) float64 { return c.Ours[i].Total.P99 }},
		{Shape: "sawtooth", What: "swing", Source: shapes, Limit: fixed(1.2), Value: func(c *Cell, i int) float64 { return c.Ours[i].Swing }},
	}
	for _, g := range []struct {
		shape, source string
		least         float64
	}{
		{"step", acceptance, .995},
		{"flash", acceptance, .995},
		{"tandem", acceptance, .995},
		{"triple", acceptance, .99},
		{"bimodal", acceptance, .995},
		{"cold", acceptance, .995},
		{"idle", acceptance, .995},
		{"ramp", shapes, .98},
		{"stall", shapes, .96},
	} {
		gates = append(gates, Gate{Shape: g.shape, What: "goodput", Source: g.source, Limit: fixed(g.least), Least: true, Value: goodput, Can: []func(*Cell) (float64, string){hindsight, blind}})
	}
	for _, s := range []string{"step", "flash", "tandem"} {
		gates = append(gates, Gate{
			Shape: s, What: "wait p99", Source: acceptance, Limit: func(c *Cell) float64 { return 3 * c.Spec.Target().Seconds() },
			Value: func(c *Cell, i int) float64 { return c.Ours[i].Wait.P99 }, Seconds: true,
		})
	}
	return gates
}

func fixed(x float64) func(*Cell) float64 { return func(*Cell) float64 { return x } }

func goodput(c *Cell, i int) float64 { return c.Ours[i].Good / c.Oracle[i].Good }

func shed(c *Cell, i int) float64 { return float64(c.Ours[i].Shed + c.Ours[i].Dropped) }

func falseUpper(c *Cell) float64 {
	k, n := 0, 0
	for _, s := range c.Ours {
		k += s.FalseShed
		n += s.FalseOf
	}
	return Upper95(k, n)
}

// finite is 1.2 times what the finite queue refuses that has as many places as
// were ever used.
func finite(c *Cell) float64 {
	most := 0
	for _, s := range c.Ours {
		most = max(most, s.MaxWaiting)
	}
	return 1.2 * Refused(c.Spec.Workers, most, c.Spec.LoadAt(0))
}

// recovery is one unit more than the oracle needs.
func recovery(c *Cell) float64 {
	sum := 0.
	for _, s := range c.Oracle {
		sum += s.Recovered
	}
	return sum/float64(len(c.Oracle)) + c.Spec.Unit().Seconds()
}

// hindsight is the goodput of the best constant bound.
func hindsight(c *Cell) (float64, string) {
	if len(c.Bound) == 0 {
		return math.NaN(), ""
	}
	sum := 0.
	for i, s := range c.Bound {
		sum += s.Good / c.Oracle[i].Good
	}
	return sum / float64(len(c.Bound)), "the best bound in hindsight"
}

// blind is the share of what is possible at all that a bound on the number
// waiting can have while the p99 of waits is within three targets, for those
// scenarios of which a formula speaks.
func blind(c *Cell) (float64, string) {
	load := c.Spec.LoadAt(c.Spec.From)
	if c.Spec.Dist != nil || c.Spec.Slow != nil || c.Spec.Stalls != nil || load < 1.2 {
		return math.NaN(), ""
	}
	used, queue := BestUsed(c.Spec.Workers, load, 3*c.Spec.Target().Seconds()/c.Spec.Service.Seconds())
	return used, "M/M/c/K, " + count(queue) + " waiting"
}
