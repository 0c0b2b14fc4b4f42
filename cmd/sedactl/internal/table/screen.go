package table

import (
	"fmt"
	"io"
	"strings"
)

// Screen redraws a block of lines in place on a terminal. It is for one
// goroutine at a time.
type Screen struct {
	w      io.Writer
	colour bool
	drawn  int // lines on the screen above the cursor
}

// NewScreen returns a screen that draws at the cursor of w, and hides the
// cursor until [Screen.Close].
func NewScreen(w io.Writer, colour bool) (*Screen, error) {
	if _, err := io.WriteString(w, "\x1b[?25l"); err != nil {
		return nil, fmt.Errorf("draw on the terminal: %w", err)
	}
	return &Screen{w: w, colour: colour}, nil
}

// Draw replaces what it drew last with lines, cut to the terminal's width and
// height: a block taller than the terminal could not be redrawn in place. It
// writes once, so that a redraw does not flicker.
func (s *Screen) Draw(lines []Line, width, height int) error {
	lines = lines[:min(len(lines), max(height-1, 1))]
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", min(s.drawn, max(height-1, 1)))
	}
	for _, l := range lines {
		b.WriteString("\r" + l.Render(width, s.colour) + "\x1b[K\n")
	}
	b.WriteString("\x1b[J") // what a taller block before left below
	s.drawn = len(lines)
	if _, err := io.WriteString(s.w, b.String()); err != nil {
		return fmt.Errorf("draw on the terminal: %w", err)
	}
	return nil
}

// Close shows the cursor again and leaves the last block as it is.
func (s *Screen) Close() error {
	if _, err := io.WriteString(s.w, "\x1b[?25h"); err != nil {
		return fmt.Errorf("draw on the terminal: %w", err)
	}
	return nil
}
