package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/sedabus/seda/cmd/sedactl/internal/table"
)

const (
	indent   = 2
	barWidth = 40
	depthBar = 8
)

// FrameLines draws a frame for a terminal.
func FrameLines(f *Frame) []table.Line {
	lines := append(titleLines(&f.Settings, f.Replay), table.Line{})
	lines = append(lines, phaseLines(f)...)
	lines = append(lines, table.Line{})
	lines = append(lines, stageLines(f.Stages)...)
	lines = append(lines, table.Line{})
	lines = append(lines, accountLines(&f.Account)...)
	if f.Note != "" {
		lines = append(lines, table.Line{}, table.Line{{Text: "  "}, {Text: f.Note, Style: table.Yellow}})
	}
	return lines
}

// titleLines tells what runs.
func titleLines(s *Settings, r *Replay) []table.Line {
	text := fmt.Sprintf("   policy %s   capacity %s   concurrency %s",
		s.Policy, table.Count(s.Capacity), table.Count(s.Concurrency))
	if r == nil {
		text += fmt.Sprintf("   service %s   seed %d", table.Duration(unMS(s.ServiceMS)), s.Seed)
	}
	lines := []table.Line{{{Text: "seda demo", Style: table.Bold}, {Text: text}}}
	if r != nil {
		for _, t := range r.Texts() {
			lines = append(lines, table.Text("  "+t))
		}
	}
	return lines
}

// TitleTexts tells what runs, for output that is no terminal.
func TitleTexts(f *Frame) []string {
	var out []string
	for _, l := range titleLines(&f.Settings, f.Replay) {
		out = append(out, l.String())
	}
	return out
}

func phaseLines(f *Frame) []table.Line {
	rows := make([][]table.Span, 0, len(f.Phases))
	bars := make([]table.Line, 0, len(f.Phases))
	for i := range f.Phases {
		p := &f.Phases[i]
		offered := "-"
		if p.Rate > 0 {
			offered = table.Rate(p.Rate)
		}
		rows = append(rows, []table.Span{
			{Text: p.Name, Style: table.Bold},
			{Text: offered},
			{Text: fmt.Sprintf("%.0f%%", p.Part*100)},
			{Text: p.State, Style: stateStyle(p.State)},
		})
		bars = append(bars, table.Bar(barWidth, p.Part, stateStyle(p.State)))
	}
	lines := table.Grid(indent, []table.Column{
		{Title: "PHASE"},
		{Title: "OFFERED/s", Right: true},
		{Title: "", Right: true, Min: 4},
		{Title: "STATE", Min: len(stateStop)},
	}, rows)
	for i := range bars {
		lines[i+1] = append(append(lines[i+1], table.Span{Text: "   "}), bars[i]...)
	}
	return lines
}

func stateStyle(state string) table.Style {
	switch state {
	case stateRuns:
		return table.Cyan
	case stateDone:
		return table.Green
	case stateStop:
		return table.Yellow
	default:
		return table.Dim
	}
}

func stageLines(stages []StageRow) []table.Line {
	rows := make([][]table.Span, 0, len(stages))
	for i := range stages {
		s := &stages[i]
		fill := part(s.Depth, s.Capacity)
		lost := merge(s.Refused, s.Dropped)
		rows = append(rows, []table.Span{
			{Text: s.Name, Style: table.Bold},
			{Text: fmt.Sprintf("%*s/%s", len(table.Count(s.Capacity)), table.Count(s.Depth), table.Count(s.Capacity))},
			{Text: table.Bar(depthBar, fill, table.Plain).String(), Style: fillStyle(fill)},
			{Text: table.Count(s.InFlight) + "/" + table.Count(s.Concurrency)},
			{Text: table.Rate(s.Rate)},
			{Text: table.Duration(s.P50)},
			{Text: table.Duration(s.P99)},
			{Text: lost.String(), Style: lostStyle(lost)},
		})
	}
	return table.Grid(indent, []table.Column{
		{Title: "STAGE"},
		{Title: "DEPTH", Right: true},
		{Title: ""},
		{Title: "IN FLIGHT", Right: true},
		{Title: "RATE/s", Right: true, Min: 7},
		{Title: "WAIT p50", Right: true},
		{Title: "p99", Right: true, Min: 6},
		{Title: "REFUSED, DROPPED"},
	}, rows)
}

// merge puts what was refused and what was dropped into one list: their
// reasons are different ones.
func merge(a, b Counts) Counts {
	out := make(Counts, len(a)+len(b))
	for name, n := range a {
		out[name] += n
	}
	for name, n := range b {
		out[name] += n
	}
	return out
}

func part(n, of int) float64 {
	if of <= 0 {
		return 0
	}
	return float64(n) / float64(of)
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

func lostStyle(c Counts) table.Style {
	if c.Total() == 0 {
		return table.Dim
	}
	return table.Red
}

func accountLines(a *Account) []table.Line {
	columns := []table.Column{
		{Title: "ACCEPTED", Right: true},
		{Title: "="},
		{Title: "COMPLETED", Right: true},
		{Title: "+"},
		{Title: "DEAD-LETTERED", Right: true},
		{Title: "+"},
		{Title: "DROPPED", Right: true},
		{Title: "+"},
		{Title: "ABANDONED", Right: true},
		{Title: "+"},
		{Title: "PENDING", Right: true},
	}
	return table.Grid(indent, columns, [][]table.Span{{
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
	}})
}

// FrameText puts a frame into one line, for output that is no terminal.
func FrameText(f *Frame) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%6.1fs", f.At.Seconds())
	now := "over"
	for i := range f.Phases {
		if p := &f.Phases[i]; p.State == stateRuns {
			now = fmt.Sprintf("%s %.0f%%", p.Name, p.Part*100)
		}
	}
	fmt.Fprintf(&b, "  %-14s", now)
	refused, dropped := Counts{}, Counts{}
	for i := range f.Stages {
		s := &f.Stages[i]
		fmt.Fprintf(&b, "  %s: depth %d, in flight %d, %s/s, p99 %s",
			s.Name, s.Depth, s.InFlight, table.Rate(s.Rate), table.Duration(s.P99))
		refused, dropped = merge(refused, s.Refused), merge(dropped, s.Dropped)
	}
	if refused.Total() > 0 {
		fmt.Fprintf(&b, "  refused: %s", refused)
	}
	if dropped.Total() > 0 {
		fmt.Fprintf(&b, "  dropped: %s", dropped)
	}
	if f.Note != "" {
		fmt.Fprintf(&b, "  (%s)", f.Note)
	}
	return b.String()
}

// lateAfter is how late an arrival may be sent before the summary says that
// the generator, and not the bus, was slow.
const lateAfter = 100 * time.Millisecond

// SummaryLines draws the summary.
func SummaryLines(s *Summary) []table.Line {
	var lines []table.Line
	scope := " of the whole run: "
	if s.Capacity > 0 {
		scope = " of the whole run, calibration included: "
		lines = append(lines, table.Line{
			{Text: "  measured capacity "},
			{Text: table.Rate(s.Capacity) + "/s", Style: table.Bold},
		}, table.Line{})
	}
	switch s.End {
	case EndComplete:
	case EndDrained:
		lines = append(lines, table.Line{{Text: "  stopped; what was under way has been drained", Style: table.Yellow}}, table.Line{})
	case EndCut:
		lines = append(lines, table.Line{{Text: "  cut; what was under way is abandoned", Style: table.Red}}, table.Line{})
	}
	if len(s.Phases) > 0 {
		lines = append(lines, outcomeLines(s.Phases)...)
		lines = append(lines, table.Line{})
	}
	lines = append(lines, table.Line{
		{Text: "  account", Style: table.Bold},
		{Text: scope},
		balance(&s.Account),
	})
	return append(lines, accountLines(&s.Account)...)
}

func balance(a *Account) table.Span {
	if a.Balanced {
		return table.Span{Text: "balanced", Style: table.Green}
	}
	return table.Span{
		Text:  "DOES NOT BALANCE (the demo published " + table.Count(a.Published) + ")",
		Style: table.Red,
	}
}

func outcomeLines(phases []Outcome) []table.Line {
	rows := make([][]table.Span, 0, len(phases))
	var late time.Duration
	for i := range phases {
		p := &phases[i]
		late = max(late, unMS(p.MaxLagMS))
		name := p.Name
		if !p.Whole {
			name += " (stopped)"
		}
		rows = append(rows, []table.Span{
			{Text: name, Style: table.Bold},
			{Text: table.Count(p.Offered)},
			{Text: table.Count(p.Accepted)},
			{Text: p.Refused.String(), Style: lostStyle(p.Refused)},
			{Text: p.Dropped.String(), Style: lostStyle(p.Dropped)},
			{Text: table.Count(p.Completed)},
			{Text: table.Rate(p.Goodput) + "/s", Style: table.Green},
			{Text: table.Duration(unMS(p.WaitP50MS))},
			{Text: table.Duration(unMS(p.WaitP99MS))},
		})
	}
	lines := table.Grid(indent, []table.Column{
		{Title: "PHASE"},
		{Title: "OFFERED", Right: true},
		{Title: "ACCEPTED", Right: true},
		{Title: "REFUSED", Right: true},
		{Title: "DROPPED", Right: true},
		{Title: "COMPLETED", Right: true},
		{Title: "GOODPUT", Right: true},
		{Title: "WAIT p50", Right: true},
		{Title: "p99", Right: true},
	}, rows)
	if late > lateAfter {
		lines = append(lines, table.Line{{
			Text:  "  the generator was up to " + table.Duration(late) + " late: this machine is too slow or too busy for these figures",
			Style: table.Yellow,
		}})
	}
	return lines
}

// Texts says how the trace is played.
func (r *Replay) Texts() []string {
	first := fmt.Sprintf("trace %s: %s arrivals", r.File, table.Count(r.Rows))
	if r.Skipped > 0 {
		first += fmt.Sprintf(", %s bad lines skipped", table.Count(r.Skipped))
	}
	return []string{first, fmt.Sprintf(
		"at %gx speed it takes %s; %s of service for each generated token load the bottleneck by %g",
		r.Speed, table.Duration(unMS(r.SpanMS)), table.Duration(unMS(r.PerTokenMS)), r.Load)}
}
