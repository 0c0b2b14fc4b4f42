package demo

import (
	"fmt"
	"strings"

	"github.com/sedabus/seda/cmd/sedactl/internal/table"
)

// Widths of the live view. With two pipelines it fits 80 columns.
const (
	barWidth  = 40
	sideBar   = 24
	labelMin  = 7 // the longest label below the stages
	sideWidth = 33
)

// FrameLines draws a frame for a terminal.
func FrameLines(f *Frame) []table.Line {
	lines := titleLines(&f.Settings, f.Replay)
	lines = append(lines, table.Line{{Text: "  "}, {Text: f.Note, Style: table.Yellow}})
	lines = append(lines, phaseLines(f)...)
	lines = append(lines, table.Line{})
	lines = append(lines, sideLines(f.Sides)...)
	lines = append(lines, table.Line{})
	sheds := make([]bool, len(f.Sides))
	accounts := make([]*Account, len(f.Sides))
	for i := range f.Sides {
		sheds[i], accounts[i] = f.Sides[i].Sheds, &f.Sides[i].Account
	}
	return append(lines, accountLines(sheds, accounts)...)
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
	case stateStop, stateDrain:
		return table.Yellow
	default:
		return table.Dim
	}
}

// sideLines puts the pipelines beside each other.
func sideLines(sides []Side) []table.Line {
	if len(sides) == 0 {
		return nil
	}
	columns := []table.Column{{Title: "STAGE", Min: labelMin}}
	for i := range sides {
		group := sideName(sides[i].Sheds)
		columns = append(columns,
			table.Column{Title: "DEPTH", Right: true, Min: 5, Group: group},
			table.Column{Title: "RUN", Right: true, Group: group, Gap: 1},
			table.Column{Title: "RATE/s", Right: true, Min: 6, Group: group, Gap: 1},
			table.Column{Title: "WAIT p50", Right: true, Group: group, Gap: 1},
			table.Column{Title: "p99", Right: true, Min: 6, Group: group, Gap: 1},
		)
	}
	rows := make([][]table.Span, 0, len(sides[0].Stages))
	for k := range sides[0].Stages {
		row := []table.Span{{Text: sides[0].Stages[k].Name, Style: table.Bold}}
		for i := range sides {
			s := &sides[i].Stages[k]
			row = append(row,
				table.Span{Text: table.Count(s.Depth), Style: fillStyle(part(float64(s.Depth), float64(s.Capacity)))},
				table.Span{Text: table.Count(s.InFlight)},
				table.Span{Text: table.Rate(s.Rate)},
				table.Span{Text: table.Duration(s.P50)},
				table.Span{Text: table.Duration(s.P99)},
			)
		}
		rows = append(rows, row)
	}
	lines := table.Grid(indent, columns, rows)
	return append(lines,
		besides("queue", sides, queueCell),
		besides("in time", sides, inTimeCell),
		besides("refused", sides, func(s *Side) table.Line { return lostCell(s.Refused) }),
		besides("dropped", sides, func(s *Side) table.Line { return lostCell(s.Dropped) }),
	)
}

// besides puts a cell of each pipeline beside each other, under its columns.
func besides(label string, sides []Side, cell func(*Side) table.Line) table.Line {
	line := table.Line{{Text: fmt.Sprintf("%*s%-*s", indent, "", labelMin, label)}}
	for i := range sides {
		c := cell(&sides[i])
		line = append(line, table.Span{Text: "  "})
		line = append(line, c...)
		if i < len(sides)-1 {
			line = append(line, table.Span{Text: strings.Repeat(" ", max(0, sideWidth-c.Width()))})
		}
	}
	return line
}

func queueCell(s *Side) table.Line {
	fill := part(float64(s.Depth), float64(s.Room))
	return append(table.Bar(sideBar, fill, fillStyle(fill)), table.Span{Text: " " + table.Count(s.Depth)})
}

func inTimeCell(s *Side) table.Line {
	of := part(s.InTime, s.Possible)
	return append(table.Bar(sideBar, of, goodStyle(of)), table.Span{Text: fmt.Sprintf(" %s/s", table.Rate(s.InTime))})
}

func lostCell(c Counts) table.Line {
	return table.Line{{Text: table.Short(c.Largest(), sideWidth), Style: lostStyle(c.Total())}}
}
