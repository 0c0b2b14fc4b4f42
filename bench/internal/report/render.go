package report

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bench/internal/stat"
)

// noisyFrom is the share of the machine taken by others from which a row says
// that it was measured on a noisy machine.
const noisyFrom = 0.12

// Table writes the summaries as a markdown table.
func Table(w io.Writer, rows []Summary) error {
	t := newMarkdown(w, "workload", "system", "M msg/s", "against", "ratio [95 %]", "verdict",
		"wall ns", "CPU ns", "CPU ratio [95 %]", "allocs", "bytes", "rounds", "others")
	for _, s := range rows {
		switch {
		case errors.Is(s.Err, load.ErrUnsupported):
			t.row(s.Workload, s.System, "–", s.Base.System, "–", "no such form")
			continue
		case s.Err != nil:
			t.row(s.Workload, s.System, "–", baseName(s.Row), "–", "BROKEN: "+s.Err.Error())
			continue
		case s.Rounds == 0:
			t.row(s.Workload, s.System, "–", baseName(s.Row), "–", "not measured")
			continue
		}
		others := fmt.Sprintf("%.0f %%", 100*s.Others)
		if s.Others > noisyFrom {
			others += " (noisy)"
		}
		t.row(s.Workload, s.System, fmt.Sprintf("%.2f", s.Rate/1e6), baseName(s.Row), estimate(s.Ratio), s.Verdict(),
			fmt.Sprintf("%.1f", s.WallNanos), fmt.Sprintf("%.1f", s.CPUNanos), estimate(s.CPURatio),
			fmt.Sprintf("%.2f", s.Allocs), fmt.Sprintf("%.0f", s.Bytes), fmt.Sprintf("%d/%d", s.Rounds, s.Measured), others)
	}
	return t.flush()
}

// baseName names the base of a row, with its workload where that differs.
func baseName(r Row) string {
	switch {
	case r.Base == r.Cell:
		return "–"
	case r.Base.Workload != r.Workload:
		return r.Base.Workload
	default:
		return r.Base.System
	}
}

func estimate(e stat.Estimate) string {
	return fmt.Sprintf("%.2f [%.2f, %.2f]", e.Mid, e.Low, e.High)
}

// Markdown writes the rows, of which the first is the head, as a table.
func Markdown(w io.Writer, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	t := newMarkdown(w, rows[0]...)
	for _, r := range rows[1:] {
		t.row(r...)
	}
	return t.flush()
}

// markdown writes aligned tables. The first error is kept for flush.
type markdown struct {
	tw      *tabwriter.Writer
	columns int
	err     error
}

func newMarkdown(w io.Writer, head ...string) *markdown {
	m := &markdown{tw: tabwriter.NewWriter(w, 0, 0, 1, ' ', 0), columns: len(head)}
	m.row(head...)
	rule := make([]string, len(head))
	for i := range rule {
		rule[i] = "---"
	}
	m.row(rule...)
	return m
}

// row writes cells; missing ones are empty.
func (m *markdown) row(cells ...string) {
	for i := range m.columns {
		cell := ""
		if i < len(cells) {
			cell = cells[i]
		}
		m.print("| " + cell + "\t")
	}
	m.print("|\n")
}

func (m *markdown) print(s string) {
	if m.err == nil {
		_, m.err = io.WriteString(m.tw, s)
	}
}

func (m *markdown) flush() error {
	return errors.Join(m.err, m.tw.Flush())
}
