// Package plot draws line charts as SVG.
package plot

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Line is one line of a chart.
type Line struct {
	Name string
	// X and Y are the points; a Y that is not a number breaks the line.
	X, Y []float64
	// Style says what it stands for.
	Style Style
}

// Style is how a line is drawn.
type Style uint8

// Styles.
const (
	Thin   Style = iota
	Bold         // stands out
	Dashed       // a yardstick, in grey
	Dotted
)

// Axis is one side of a chart.
type Axis struct {
	Title    string
	Min, Max float64
	// Log makes it logarithmic.
	Log bool
	// Ticks are where it is marked; Label gives the text, nil is %g.
	Ticks []float64
	Label func(float64) string
}

// Band is a stretch of x that is shaded.
type Band struct {
	From, To float64
	Name     string
}

// Chart is a chart with its lines.
type Chart struct {
	Title, Subtitle string
	X, Y            Axis
	Lines           []Line
	Bands           []Band
}

// mostMarks is how many points of a line are marked; more are not worth it.
const mostMarks = 20

// Sizes in pixels.
const (
	width, height         = 960, 540
	left, right, top, low = 76, 190, 64, 56
	plotW                 = width - left - right
	plotH                 = height - top - low
)

// colours tell lines apart for those who see red and green alike as well (after
// Okabe and Ito, 2008), and then some.
var colours = []string{
	"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#8c564b",
	"#4d4d4d", "#b5a400", "#17807e", "#e3506c", "#3f6fd8", "#7aa82a", "#a05a2c", "#9a9a9a",
}

// patterns of dashes let lines that lie on each other show, and tell those apart
// whose colours are alike.
var patterns = []string{"", "11 5", "5 4", "14 4 3 4"}

// at gives the place of a value between 0 and 1.
func (a *Axis) at(x float64) float64 {
	if a.Log {
		return math.Log(max(x, a.Min)/a.Min) / math.Log(a.Max/a.Min)
	}
	return (x - a.Min) / (a.Max - a.Min)
}

func (a *Axis) text(x float64) string {
	if a.Label != nil {
		return a.Label(x)
	}
	return fmt.Sprintf("%g", x)
}

func (c *Chart) px(x float64) float64 { return left + plotW*c.X.at(x) }
func (c *Chart) py(y float64) float64 { return top + plotH*(1-c.Y.at(y)) }

// Write writes the chart as SVG.
func (c *Chart) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" font-size="12">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	text(&b, left, 26, "start", `font-size="17" font-weight="bold" fill="#1a1a1a"`, c.Title)
	text(&b, left, 46, "start", `fill="#555555"`, c.Subtitle)
	c.bands(&b)
	c.axes(&b)
	fmt.Fprintf(&b, `<clipPath id="area"><rect x="%d" y="%d" width="%d" height="%d"/></clipPath>`+"\n", left, top-2, plotW, plotH+4)
	for _, bold := range []bool{false, true} {
		for i := range c.Lines {
			if (c.Lines[i].Style == Bold) == bold {
				c.line(&b, i)
			}
		}
	}
	c.legend(&b)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *Chart) bands(b *strings.Builder) {
	for _, x := range c.Bands {
		from, to := c.px(max(x.From, c.X.Min)), c.px(min(x.To, c.X.Max))
		fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#f3efe2"/>`+"\n", from, top, to-from, plotH)
		text(b, (from+to)/2, top+16, "middle", `fill="#8a7a45"`, x.Name)
	}
}

func (c *Chart) axes(b *strings.Builder) {
	for _, t := range c.X.Ticks {
		x := c.px(t)
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#e4e4e4"/>`+"\n", x, top, x, top+plotH)
		text(b, x, top+plotH+18, "middle", `fill="#333333"`, c.X.text(t))
	}
	for _, t := range c.Y.Ticks {
		y := c.py(t)
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#e4e4e4"/>`+"\n", left, y, left+plotW, y)
		text(b, left-8, y+4, "end", `fill="#333333"`, c.Y.text(t))
	}
	fmt.Fprintf(b, `<path d="M%d %dV%dH%d" fill="none" stroke="#333333"/>`+"\n", left, top, top+plotH, left+plotW)
	text(b, left+plotW/2, height-14, "middle", `fill="#1a1a1a"`, c.X.Title)
	fmt.Fprintf(b, `<text transform="translate(20 %d) rotate(-90)" text-anchor="middle" fill="#1a1a1a">%s</text>`+"\n", top+plotH/2, escape(c.Y.Title))
}

func (c *Chart) stroke(i int) string {
	colour, wide, dashes := colours[i%len(colours)], 2., ""
	switch c.Lines[i].Style {
	case Bold:
		wide = 3.4
	case Dashed:
		colour, dashes = "#3a3a3a", ` stroke-dasharray="9 4"`
		if i > 0 && c.Lines[i-1].Style == Dashed {
			colour = "#8a8a8a"
		}
	case Dotted:
		wide, dashes = 2.2, ` stroke-dasharray="1 4.5"`
	case Thin:
		if pattern := patterns[i%len(patterns)]; pattern != "" {
			dashes = ` stroke-dasharray="` + pattern + `"`
		}
	}
	return fmt.Sprintf(`stroke="%s" stroke-width="%.1f"%s stroke-linejoin="round" stroke-linecap="round"`, colour, wide, dashes)
}

func (c *Chart) line(b *strings.Builder, i int) {
	l := &c.Lines[i]
	var d strings.Builder
	pen := "M"
	for k, y := range l.Y {
		if math.IsNaN(y) {
			pen = "M"
			continue
		}
		fmt.Fprintf(&d, "%s%.1f %.1f", pen, c.px(l.X[k]), c.py(y))
		pen = "L"
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" clip-path="url(#area)" %s><title>%s</title></path>`+"\n", d.String(), c.stroke(i), escape(l.Name))
	if len(l.X) > mostMarks || l.Style == Dashed {
		return
	}
	for k, y := range l.Y {
		if !math.IsNaN(y) {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="2.6" fill="%s"/>`+"\n", c.px(l.X[k]), c.py(y), colours[i%len(colours)])
		}
	}
}

// legend lists the lines, at the right.
func (c *Chart) legend(b *strings.Builder) {
	step := min(20, plotH/max(1, len(c.Lines)))
	for i := range c.Lines {
		y := top + 8 + i*step
		x := left + plotW + 16
		fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" %s/>`+"\n", x, y, x+26, y, c.stroke(i))
		weight := `fill="#333333"`
		if c.Lines[i].Style == Bold {
			weight = `fill="#1a1a1a" font-weight="bold"`
		}
		text(b, float64(x+34), float64(y+4), "start", weight, c.Lines[i].Name)
	}
}

func text(b *strings.Builder, x, y float64, anchor, style, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, style, escape(s))
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
