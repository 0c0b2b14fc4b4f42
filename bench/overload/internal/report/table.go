package report

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/sedabus/seda/bench/overload/internal/law"
	"github.com/sedabus/seda/bench/overload/internal/score"
)

// Table writes the figures of every cell.
func Table(w io.Writer, p *Plan, d Data) error {
	for _, sh := range p.Shapes {
		if _, err := fmt.Fprintf(w, "\n%s: %s\n\n", sh.Name, sh.Title); err != nil {
			return err
		}
		tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
		row(tw, "stage", "law", "goodput/oracle [99 %]", "shed", "false", "wait p50", "p99", "p99.9", "total p50", "p99", "p99.9",
			"late", "dropped", "conv", "swing", "inv", "Jain", "doomed", "top", "amp", "recov")
		for _, sc := range sh.Over(p.Scales) {
			for _, l := range p.Laws {
				if s, ok := d[Key{sh.Name, sc.Name, l.Name}]; ok {
					row(tw, cells(sc.Name, l.Name, s, d[Key{sh.Name, sc.Name, law.OracleName}])...)
				}
			}
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func row(w io.Writer, cells ...string) {
	for _, c := range cells {
		_, _ = fmt.Fprintf(w, "| %s\t", c) // a tabwriter keeps the error for Flush
	}
	_, _ = fmt.Fprintln(w, "|")
}

func cells(scale, name string, s, oracle []*score.Score) []string {
	mean := func(f func(*score.Score) float64) float64 { return Over(s, f).Mean }
	goodput := "–"
	if oracle != nil {
		g := Against(s, oracle, Goodput)
		goodput = fmt.Sprintf("%.4f [%.4f, %.4f]", g.Mean, g.Low, g.High)
	}
	secs := func(f func(*score.Score) float64) string { return seconds(mean(f)) }
	return []string{
		scale, name, goodput,
		number(mean(func(s *score.Score) float64 { return float64(s.Shed) / float64(s.Offered) })),
		number(mean(func(s *score.Score) float64 { return s.False })),
		secs(func(s *score.Score) float64 { return s.Wait.P50 }),
		secs(func(s *score.Score) float64 { return s.Wait.P99 }),
		secs(func(s *score.Score) float64 { return s.Wait.P999 }),
		secs(func(s *score.Score) float64 { return s.Total.P50 }),
		secs(func(s *score.Score) float64 { return s.Total.P99 }),
		secs(func(s *score.Score) float64 { return s.Total.P999 }),
		number(mean(func(s *score.Score) float64 { return s.Late / (s.Late + s.Good) })),
		number(mean(func(s *score.Score) float64 { return float64(s.Dropped) / float64(s.Offered) })),
		secs(func(s *score.Score) float64 { return s.Converged }),
		number(mean(func(s *score.Score) float64 { return s.Swing })),
		number(mean(inversions)),
		number(mean(func(s *score.Score) float64 { return s.Jain })),
		number(mean(func(s *score.Score) float64 { return s.Doomed })),
		number(mean(func(s *score.Score) float64 { return s.Top })),
		number(mean(func(s *score.Score) float64 { return s.Amplification })),
		secs(func(s *score.Score) float64 { return s.Recovered }),
	}
}

func inversions(s *score.Score) float64 {
	if s.Inversions < 0 {
		return math.NaN()
	}
	return float64(s.Inversions)
}

func number(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return fmt.Sprintf("%.3g", x)
}

// seconds prints a time with three digits.
func seconds(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	d := time.Duration(x * 1e9)
	round := time.Duration(1)
	for d/round >= 1000 {
		round *= 10
	}
	return d.Round(round).String()
}
