package gate

import (
	"slices"
	"strconv"
)

func count(n int) string { return strconv.Itoa(n) }

// At says whether the gate holds at a scale.
func (g *Gate) At(scale string) bool { return g.Scales == nil || slices.Contains(g.Scales, scale) }

// Values returns the figure of every seed, or the one of all.
func (g *Gate) Values(c *Cell) []float64 {
	if g.Pool != nil {
		return []float64{g.Pool(c)}
	}
	out := make([]float64, len(c.Ours))
	for i := range out {
		out[i] = g.Value(c, i)
	}
	return out
}

// Meets says whether a figure keeps the bound; one that is not a number does
// not.
func (g *Gate) Meets(x, limit float64) bool {
	if g.Least {
		return x >= limit
	}
	return x <= limit
}
