package demo

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sedabus/seda/cmd/sedactl/internal/table"
)

// SummaryLines draws the summary. Phases that do not fit beside each other in
// width columns come below each other; a width of 0 is no bound.
func SummaryLines(s *Summary, width int) []table.Line {
	var lines []table.Line
	if s.Capacity > 0 {
		lines = append(lines, table.Line{
			{Text: "  measured capacity "},
			{Text: table.Rate(s.Capacity) + "/s", Style: table.Bold},
		})
	}
	lines = append(lines, table.Text("  "+s.Settings.Promise()), table.Line{})
	switch s.End {
	case EndComplete:
	case EndDrained:
		lines = append(lines, table.Line{{Text: "  stopped; what was under way has been drained", Style: table.Yellow}}, table.Line{})
	case EndCut:
		lines = append(lines, table.Line{{Text: "  cut; what was under way is abandoned", Style: table.Red}}, table.Line{})
	}
	lines = append(lines, comparison(s, width)...)
	scope := " of the whole run: "
	if s.Capacity > 0 {
		scope = " of the whole run, calibration included: "
	}
	title := table.Line{{Text: "  account", Style: table.Bold}, {Text: scope}}
	sheds := make([]bool, len(s.Sides))
	accounts := make([]*Account, len(s.Sides))
	for i := range s.Sides {
		sheds[i], accounts[i] = s.Sides[i].Shedding, &s.Sides[i].Account
		if i > 0 {
			title = append(title, table.Span{Text: ", "})
		}
		title = append(title, balance(accounts[i]))
	}
	return append(append(lines, title), accountLines(sheds, accounts)...)
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

// comparison is the table of the phases, as many of them beside each other as
// fit, or nothing if there are none.
func comparison(s *Summary, width int) []table.Line {
	if len(s.Sides) == 0 || len(s.Sides[0].Phases) == 0 {
		return nil
	}
	var lines []table.Line
	all := len(s.Sides[0].Phases)
	for from := 0; from < all; {
		to := all
		block := outcomeLines(s, from, to)
		for width > 0 && table.Width(block) > width && to > from+1 {
			to--
			block = outcomeLines(s, from, to)
		}
		lines = append(append(lines, block...), table.Line{})
		from = to
	}
	var late time.Duration
	for i := range s.Sides[0].Phases { // the arrivals are those of all
		late = max(late, unMS(s.Sides[0].Phases[i].MaxLagMS))
	}
	if late > lateAfter {
		lines = append(lines, table.Line{{
			Text:  "  the generator was up to " + table.Duration(late) + " late: this machine is too busy for these figures",
			Style: table.Yellow,
		}}, table.Line{})
	}
	return lines
}

// measure is a row of the comparison.
type measure struct {
	label string
	cell  func(o *Outcome) table.Span
}

// outcomeLines is the comparison of the phases from until to.
func outcomeLines(s *Summary, from, to int) []table.Line {
	columns := []table.Column{{Title: "SHEDDING"}}
	var cells []*Outcome
	for p := from; p < to; p++ {
		name := s.Sides[0].Phases[p].Name
		if !s.Sides[0].Phases[p].Whole {
			name += " stopped"
		}
		for i := range s.Sides {
			c := table.Column{Title: sideMark(s.Sides[i].Shedding), Right: true, Min: 6, Group: name}
			if i > 0 {
				c.Gap = 1
			}
			// The group's title needs room for a blank on either side.
			c.Min = max(c.Min, (len(name)+2)/len(s.Sides))
			columns = append(columns, c)
			cells = append(cells, &s.Sides[i].Phases[p])
		}
	}
	measures := measuresOf(s, from, to)
	rows := make([][]table.Span, 0, len(measures))
	for _, m := range measures {
		row := []table.Span{{Text: m.label}}
		for _, o := range cells {
			row = append(row, m.cell(o))
		}
		rows = append(rows, row)
	}
	return table.Grid(indent, columns, rows)
}

// measuresOf returns the rows of the phases from until to; what happened in none
// of them has none.
func measuresOf(s *Summary, from, to int) []measure {
	possible := "of possible"
	if s.Capacity == 0 {
		possible = "of offered"
	}
	out := []measure{
		{"offered", func(o *Outcome) table.Span { return table.Span{Text: table.Count(o.Offered)} }},
		{"in time/s", func(o *Outcome) table.Span {
			return table.Span{Text: table.Rate(o.Goodput), Style: goodStyle(o.OfPossible)}
		}},
		{possible, func(o *Outcome) table.Span {
			return table.Span{Text: fmt.Sprintf("%.0f%%", o.OfPossible*100), Style: goodStyle(o.OfPossible)}
		}},
		{"wait p50", func(o *Outcome) table.Span { return table.Span{Text: table.Duration(unMS(o.WaitP50MS))} }},
		{"wait p99", func(o *Outcome) table.Span { return table.Span{Text: table.Duration(unMS(o.WaitP99MS))} }},
		{"done too late", count(func(o *Outcome) uint64 { return o.Late })},
	}
	for _, k := range []struct {
		label  string
		counts func(o *Outcome) Counts
	}{
		{"refused: ", (*Outcome).unshed},
		{"shed: ", func(o *Outcome) Counts { return o.Shed }},
		{"dropped: ", func(o *Outcome) Counts { return o.Dropped }},
	} {
		for _, name := range namesOf(s, from, to, k.counts) {
			out = append(out, measure{k.label + name, count(func(o *Outcome) uint64 { return k.counts(o)[name] })})
		}
	}
	return append(out,
		measure{"left in queues", func(o *Outcome) table.Span { return table.Span{Text: table.Count(o.Depth)} }},
		measure{"gone after", func(o *Outcome) table.Span { return table.Span{Text: table.Duration(unMS(o.BacklogMS))} }},
	)
}

// count is the cell of a number that had better be 0.
func count(of func(o *Outcome) uint64) func(o *Outcome) table.Span {
	return func(o *Outcome) table.Span {
		n := of(o)
		if n == 0 {
			return table.Span{Text: "-", Style: table.Dim}
		}
		return table.Span{Text: table.Count(n), Style: lostStyle(n)}
	}
}

// unshed is what was refused by something else than a shedder.
func (o *Outcome) unshed() Counts {
	out := Counts{}
	for name, n := range o.Refused {
		if !isShedName(name) {
			out[name] = n
		}
	}
	return out
}

// namesOf returns what the counts of the phases from until to hold, in order.
func namesOf(s *Summary, from, to int, counts func(o *Outcome) Counts) []string {
	names := map[string]bool{}
	for i := range s.Sides {
		for k := range s.Sides[i].Phases[from:to] {
			for name, n := range counts(&s.Sides[i].Phases[from+k]) {
				if n > 0 {
					names[name] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
