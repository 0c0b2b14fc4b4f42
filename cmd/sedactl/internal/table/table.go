// Package table draws small tables, bars and a live view for a terminal. All
// but [Screen] is pure: the same input gives the same lines.
//
// Every rune is taken to be one column wide; the package's users print nothing
// else.
package table

import (
	"strings"
	"unicode/utf8"
)

// Style is how a piece of text looks where colours are on.
type Style uint8

// Styles.
const (
	Plain Style = iota
	Bold
	Dim
	Red
	Green
	Yellow
	Cyan
)

// codes are the terminal's names of the styles.
var codes = [...]string{Plain: "", Bold: "1", Dim: "2", Red: "31", Green: "32", Yellow: "33", Cyan: "36"}

// Span is a piece of text of one style.
type Span struct {
	Text  string
	Style Style
}

// Width returns the number of columns.
func (s Span) Width() int { return utf8.RuneCountInString(s.Text) }

// Line is a line of text.
type Line []Span

// Text returns the line of one unstyled text.
func Text(s string) Line { return Line{{Text: s}} }

// Width returns the number of columns.
func (l Line) Width() int {
	n := 0
	for _, s := range l {
		n += s.Width()
	}
	return n
}

// String returns the text without styles and without blanks at its end.
func (l Line) String() string { return l.Render(0, false) }

// Render returns the line for a terminal, cut to width columns if width is
// above 0, with colours or without. Blanks at the end are left out.
func (l Line) Render(width int, colour bool) string {
	var b strings.Builder
	left := width
	for i, s := range l {
		text := s.Text
		if width > 0 {
			text = cut(text, left)
			left -= utf8.RuneCountInString(text)
		}
		if i == len(l)-1 {
			text = strings.TrimRight(text, " ")
		}
		if colour && s.Style != Plain && text != "" {
			b.WriteString("\x1b[" + codes[s.Style] + "m" + text + "\x1b[0m")
		} else {
			b.WriteString(text)
		}
	}
	if colour {
		return b.String()
	}
	return strings.TrimRight(b.String(), " ")
}

// cut returns the first width runes of s.
func cut(s string, width int) string {
	for i := range s {
		if width <= 0 {
			return s[:i]
		}
		width--
	}
	return s
}

// Column is a column of a grid.
type Column struct {
	Title string
	Right bool // aligned to the right, as numbers are
	Min   int  // the least width, so that a column does not jump as its cells change
	Gap   int  // blanks before it, if it is not the first; 0 is two
	// Group is the title above this and the next columns of the same Group, which
	// a line of its own shows; "" is none.
	Group string
}

// defaultGap is the space between two columns.
const defaultGap = 2

func (c *Column) gap() int {
	if c.Gap > 0 {
		return c.Gap
	}
	return defaultGap
}

// Width returns the number of columns of the widest line.
func Width(lines []Line) int {
	n := 0
	for _, l := range lines {
		n = max(n, l.Width())
	}
	return n
}

// Grid lays rows out under their titles, each line indented by indent columns.
// A row may have fewer cells than there are columns; further ones are left out.
// A line with the groups comes first if there are any.
func Grid(indent int, columns []Column, rows [][]Span) []Line {
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = max(c.Min, utf8.RuneCountInString(c.Title))
	}
	for _, row := range rows {
		for i, cell := range row[:min(len(row), len(columns))] {
			widths[i] = max(widths[i], cell.Width())
		}
	}
	titles := make([]Span, len(columns))
	for i, c := range columns {
		titles[i] = Span{c.Title, Dim}
	}
	lines := make([]Line, 0, len(rows)+2)
	if groups := groupLine(indent, columns, widths); groups != nil {
		lines = append(lines, groups)
	}
	for _, row := range append([][]Span{titles}, rows...) {
		line := Line{{Text: strings.Repeat(" ", indent)}}
		for i, c := range columns {
			var cell Span
			if i < len(row) {
				cell = row[i]
			}
			blank := strings.Repeat(" ", widths[i]-cell.Width())
			if c.Right {
				cell.Text = blank + cell.Text
			} else {
				cell.Text += blank
			}
			if i > 0 {
				line = append(line, Span{Text: strings.Repeat(" ", c.gap())})
			}
			line = append(line, cell)
		}
		lines = append(lines, line)
	}
	return lines
}

// groupLine returns the line of the groups, or nil without any. The title of a
// group stands in a rule above its columns.
func groupLine(indent int, columns []Column, widths []int) Line {
	line := Line{{Text: strings.Repeat(" ", indent)}}
	found := false
	for i := 0; i < len(columns); {
		c := &columns[i]
		wide, end := widths[i], i+1
		for ; end < len(columns) && columns[end].Group == c.Group; end++ {
			wide += columns[end].gap() + widths[end]
		}
		if i > 0 {
			line = append(line, Span{Text: strings.Repeat(" ", c.gap())})
		}
		title := Span{Text: strings.Repeat(" ", wide)}
		if c.Group != "" {
			found = true
			title = Span{ruled(c.Group, wide), Bold}
		}
		line = append(line, title)
		i = end
	}
	if !found {
		return nil
	}
	return line
}

// ruled returns title in the middle of a rule of width columns.
func ruled(title string, width int) string {
	title = cut(" "+title+" ", width)
	left := (width - utf8.RuneCountInString(title)) / 2
	right := width - utf8.RuneCountInString(title) - left
	return strings.Repeat("─", left) + title + strings.Repeat("─", right)
}

// Short returns s, cut to width columns with a sign that there was more.
func Short(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return cut(s, max(width-1, 0)) + "…"
}

// Bar returns a bar of width columns, of which the share part is filled. part
// is bounded to 0 and 1; what is above 0 fills one column at least, and only
// what is 1 fills all.
func Bar(width int, part float64, style Style) Line {
	if !(part > 0) {
		part = 0
	}
	filled := int(part * float64(width))
	switch {
	case part >= 1:
		filled = width
	case part > 0:
		filled = min(max(filled, 1), width-1)
	}
	return Line{
		{strings.Repeat("█", filled), style},
		{strings.Repeat("░", width-filled), Dim},
	}
}
