package real

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
)

func (o *outcome) write(w io.Writer, l *Leg) (missed int, err error) {
	if _, err := fmt.Fprintf(w, "\n%s: %s\n\n", l.Name, l.Title); err != nil {
		return 0, err
	}
	for _, n := range o.notes {
		_, _ = fmt.Fprintf(w, "- %s\n", n) // the table below meets the same error
	}
	for i := range o.cals {
		c := &o.cals[i]
		verdict := "steady"
		if !c.steady() {
			verdict = fmt.Sprintf("NOT STEADY: %.0f %% is the most", 100*steadyCV)
		}
		_, _ = fmt.Fprintf(w, "- calibration, %s: %.0f a second at most, of 3; variation %.1f %%, %s\n", c.what, c.best, 100*c.cv, verdict)
	}
	_, _ = fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	line(tw, o.head)
	rule := make([]string, len(o.head))
	for i := range rule {
		rule[i] = "---"
	}
	line(tw, rule)
	for _, r := range o.rows {
		line(tw, r)
	}
	if err := tw.Flush(); err != nil {
		return 0, err
	}
	_, _ = fmt.Fprintln(w)
	line(tw, []string{"gate", "bound", "measured", "distance", "outcome"})
	line(tw, []string{"---", "---", "---", "---", "---"})
	for i := range o.checks {
		c := &o.checks[i]
		verdict := "met"
		switch {
		case c.unjudged != "":
			verdict = "not judged: " + c.unjudged
		case !c.met():
			verdict = "MISSED"
			missed++
		}
		side, away := "at most ", c.limit-c.value
		if c.least {
			side, away = "at least ", c.value-c.limit
		}
		line(tw, []string{c.what, side + c.text(c.limit), c.text(c.value), signed(c.text, away), verdict})
	}
	return missed, tw.Flush()
}

// signed is how far a figure is inside its bound, or with a minus outside.
func signed(text func(float64) string, x float64) string {
	if x < 0 {
		return "-" + text(-x)
	}
	return "+" + text(x)
}

func line(w io.Writer, cells []string) {
	for _, c := range cells {
		_, _ = fmt.Fprintf(w, "| %s\t", c) // a tabwriter keeps the error for Flush
	}
	_, _ = fmt.Fprintln(w, "|")
}

func part(x float64) string    { return fmt.Sprintf("%.4f", x) }
func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
func plain(x float64) string   { return fmt.Sprintf("%g", x) }
func nanos(x float64) string   { return fmt.Sprintf("%.1f ns", x) }

func millis(secs float64) string {
	switch {
	case secs > 1e6:
		return "never"
	case secs >= 1:
		return fmt.Sprintf("%.2f s", secs)
	case secs >= .01:
		return fmt.Sprintf("%.0f ms", 1e3*secs)
	default:
		return fmt.Sprintf("%.2f ms", 1e3*secs)
	}
}

// loadAverage is that of the machine, where it tells.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(b))
	if err != nil || len(f) < 3 {
		return "unknown"
	}
	return strings.Join(f[:3], " ")
}

// machine describes what the figures are of.
func machine() string {
	name := runtime.GOARCH
	b, _ := os.ReadFile("/proc/cpuinfo") // without it the architecture has to do
	for l := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == "model name" {
			name = strings.TrimSpace(v)
			break
		}
	}
	return fmt.Sprintf("%d processors, %s, %s", runtime.NumCPU(), name, runtime.Version())
}
