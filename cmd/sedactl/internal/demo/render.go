package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/sedabus/seda/cmd/sedactl/internal/table"
)

const indent = 2

// sideName says which pipeline it is.
func sideName(sheds bool) string {
	if sheds {
		return "with shedding"
	}
	return "without shedding"
}

// sideMark is a short sideName.
func sideMark(sheds bool) string {
	if sheds {
		return "on"
	}
	return "off"
}

// titleLines tells what runs.
func titleLines(s *Settings, r *Replay) []table.Line {
	text := fmt.Sprintf("  policy %s  capacity %s  concurrency %s",
		s.Policy, table.Count(s.Capacity), table.Count(s.Concurrency))
	if r == nil {
		text += fmt.Sprintf("  service %s  seed %d", table.Duration(unMS(s.ServiceMS)), s.Seed)
	}
	lines := []table.Line{{{Text: "seda demo", Style: table.Bold}, {Text: text}}}
	if r != nil {
		for _, t := range r.Texts() {
			lines = append(lines, table.Text("  "+t))
		}
	}
	return append(lines, table.Text("  "+s.Promise()))
}

// TitleTexts tells what runs, for output that is no terminal.
func TitleTexts(f *Frame) []string {
	var out []string
	for _, l := range titleLines(&f.Settings, f.Replay) {
		out = append(out, l.String())
	}
	return out
}

// Promise says what counts as done in time.
func (s *Settings) Promise() string {
	text := fmt.Sprintf("in time: done within %s (%g service times) of the arrival",
		table.Duration(unMS(s.BudgetMS)), s.Budget)
	if s.Deadlines {
		text += ", its deadline"
	}
	return text
}

// Texts says how the trace is played.
func (r *Replay) Texts() []string {
	first := fmt.Sprintf("trace %s: %s arrivals", r.File, table.Count(r.Rows))
	if r.Skipped > 0 {
		first += fmt.Sprintf(", %s bad lines skipped", table.Count(r.Skipped))
	}
	return []string{first, fmt.Sprintf(
		"%gx speed: %s, load %g: %s of service a generated token",
		r.Speed, table.Duration(unMS(r.SpanMS)), r.Load, table.Duration(unMS(r.PerTokenMS)))}
}

func part(n, of float64) float64 {
	if of <= 0 {
		return 0
	}
	return n / of
}

func fillStyle(fill float64) table.Style {
	switch {
	case fill >= 0.9:
		return table.Red
	case fill >= 0.5:
		return table.Yellow
	default:
		return table.Green
	}
}

func lostStyle(n uint64) table.Style {
	if n == 0 {
		return table.Dim
	}
	return table.Red
}

// goodStyle is that of a part of what is possible.
func goodStyle(of float64) table.Style {
	switch {
	case of >= 0.9:
		return table.Green
	case of >= 0.5:
		return table.Yellow
	default:
		return table.Red
	}
}

// accountLines puts the accounts below each other.
func accountLines(sheds []bool, accounts []*Account) []table.Line {
	columns := []table.Column{{Title: "SHED"}, {Title: "ACCEPTED", Right: true}}
	for i, title := range []string{"COMPLETED", "DEAD-LETTERED", "DROPPED", "ABANDONED", "PENDING"} {
		sign := "+"
		if i == 0 {
			sign = "="
		}
		columns = append(columns, table.Column{Title: sign, Gap: 1}, table.Column{Title: title, Right: true, Gap: 1})
	}
	rows := make([][]table.Span, 0, len(accounts))
	for i, a := range accounts {
		rows = append(rows, []table.Span{
			{Text: sideMark(sheds[i])},
			{Text: table.Count(a.Accepted), Style: table.Bold},
			{Text: "="},
			{Text: table.Count(a.Completed)},
			{Text: "+"},
			{Text: table.Count(a.DeadLettered)},
			{Text: "+"},
			{Text: table.Count(a.Dropped.Total())},
			{Text: "+"},
			{Text: table.Count(a.Abandoned)},
			{Text: "+"},
			{Text: table.Count(a.Pending)},
		})
	}
	return table.Grid(indent, columns, rows)
}

// FrameText puts a frame into one line, for output that is no terminal;
// [TextHeader] is what stands above such lines.
func FrameText(f *Frame) string {
	var b strings.Builder
	now := "over"
	for i := range f.Phases {
		if p := &f.Phases[i]; p.State == stateRuns || p.State == stateDrain {
			now = fmt.Sprintf("%s %.0f%%", p.Name, p.Part*100)
		}
	}
	fmt.Fprintf(&b, textLeft, f.At.Seconds(), now)
	for i := range f.Sides {
		s := &f.Sides[i]
		fmt.Fprintf(&b, textSide, table.Count(s.Depth), table.Rate(s.InTime), table.Duration(s.P99),
			table.Count(s.Refused.Total()+s.Dropped.Total()))
	}
	if f.Note != "" {
		fmt.Fprintf(&b, "  (%s)", f.Note)
	}
	return b.String()
}

// The columns of FrameText.
const (
	textLeft = "%6.1fs  %-14s"
	textSide = "   %6s %9s %8s %7s"
)

// TextHeader returns the titles of the columns of [FrameText].
func TextHeader(f *Frame) string {
	var above, below strings.Builder
	left := len(fmt.Sprintf(textLeft, 0.0, ""))
	fmt.Fprintf(&above, "%*s", left, "")
	fmt.Fprintf(&below, "%-*s", left, "   TIME  PHASE")
	for i := range f.Sides {
		titles := fmt.Sprintf(textSide, "QUEUE", "IN TIME/s", "WAIT p99", "LOST")
		fmt.Fprintf(&above, "   %-*s", len(titles)-3, sideName(f.Sides[i].Sheds))
		below.WriteString(titles)
	}
	return strings.TrimRight(above.String(), " ") + "\n" + below.String()
}

// lateAfter is how late an arrival may be sent before the summary says that
// the generator, and not the bus, was slow.
const lateAfter = 100 * time.Millisecond
