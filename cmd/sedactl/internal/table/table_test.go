package table

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGrid(t *testing.T) {
	t.Parallel()
	columns := []Column{{Title: "STAGE"}, {Title: "DEPTH", Right: true, Min: 6}, {Title: "REFUSED"}}
	rows := [][]Span{
		{{Text: "parse"}, {Text: "1,024", Style: Red}, {Text: "full 3"}},
		{{Text: "a longer name"}, {Text: "7"}},
		{{Text: "größer"}, {Text: "7"}, {Text: "-"}, {Text: "left out"}},
	}
	lines := Grid(2, columns, rows)
	got := make([]string, 0, len(lines))
	for _, l := range lines {
		got = append(got, l.String())
	}
	assert.Equal(t, []string{
		"  STAGE           DEPTH  REFUSED",
		"  parse           1,024  full 3",
		"  a longer name       7",
		"  größer              7  -",
	}, got)
	assert.Contains(t, lines[1].Render(0, true), "\x1b[31m 1,024\x1b[0m  full 3", "padding and style do not mix up")
}

func TestRender(t *testing.T) {
	t.Parallel()
	l := Line{{Text: "ab "}, {"cde", Green}, {"  ", Plain}}
	assert.Equal(t, 8, l.Width())
	cases := []struct {
		width  int
		colour bool
		want   string
	}{
		{0, false, "ab cde"},
		{0, true, "ab \x1b[32mcde\x1b[0m"},
		{5, false, "ab cd"},
		{5, true, "ab \x1b[32mcd\x1b[0m"},
		{3, false, "ab"},
		{1, true, "a"},
		{100, false, "ab cde"},
	}
	for _, c := range cases {
		assert.Equal(t, c.want, l.Render(c.width, c.colour), "width %d, colour %v", c.width, c.colour)
	}
	assert.Equal(t, "█░", Bar(4, 0.3, Plain).Render(2, false), "cut between runes, not bytes")
	assert.Empty(t, Line(nil).Render(10, true))
	assert.Equal(t, "x", Text("x ").String())
}

func TestBar(t *testing.T) {
	t.Parallel()
	cases := []struct {
		part float64
		want string
	}{
		{-1, "░░░░░░░░░░"},
		{math.NaN(), "░░░░░░░░░░"},
		{0, "░░░░░░░░░░"},
		{0.001, "█░░░░░░░░░"},
		{0.5, "█████░░░░░"},
		{0.999, "█████████░"},
		{1, "██████████"},
		{math.Inf(1), "██████████"},
	}
	for _, c := range cases {
		assert.Equal(t, c.want, Bar(10, c.part, Green).String(), "%v", c.part)
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 12345: "12,345", 1234567: "1,234,567",
		-1: "-1", -1000: "-1,000", math.MinInt64: "-9,223,372,036,854,775,808",
	} {
		assert.Equal(t, want, Count(n))
	}
	assert.Equal(t, "18,446,744,073,709,551,615", Count(uint64(math.MaxUint64)))

	for r, want := range map[float64]string{
		-1: "0", 0: "0", 0.04: "0.0", 5: "5.0", 99.94: "99.9", 99.96: "100", 1912.4: "1,912",
		math.Inf(1): "∞",
	} {
		assert.Equal(t, want, Rate(r), "%v", r)
	}
	assert.Equal(t, "0", Rate(math.NaN()))

	for d, want := range map[time.Duration]string{
		-time.Second: "0", 0: "0", 812: "812ns", time.Microsecond: "1.00µs", 9_996: "10.0µs",
		1_240 * time.Microsecond: "1.24ms", 48_300 * time.Microsecond: "48.3ms",
		999_400: "999µs", 999_600: "1.00ms", 999_600 * time.Microsecond: "1.00s",
		4 * time.Second: "4.00s", 99 * time.Second: "99.0s", 100 * time.Second: "1m40s", time.Hour: "1h0m0s",
	} {
		assert.Equal(t, want, Duration(d), "%d", int64(d))
	}
}

func TestScreen(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s, err := NewScreen(&out, false)
	require.NoError(t, err)
	assert.Equal(t, "\x1b[?25l", take(&out))

	require.NoError(t, s.Draw([]Line{Text("one"), Text("two")}, 80, 24))
	assert.Equal(t, "\rone\x1b[K\n\rtwo\x1b[K\n\x1b[J", take(&out), "the first block goes where the cursor is")

	require.NoError(t, s.Draw([]Line{Text("three")}, 3, 24))
	assert.Equal(t, "\x1b[2A\rthr\x1b[K\n\x1b[J", take(&out), "up over the block before, cut, the rest cleared")

	require.NoError(t, s.Draw([]Line{Text("1"), Text("2"), Text("3"), Text("4")}, 80, 3))
	assert.Equal(t, "\x1b[1A\r1\x1b[K\n\r2\x1b[K\n\x1b[J", take(&out), "no taller than the terminal")

	require.NoError(t, s.Draw([]Line{Text("1")}, 80, 2))
	assert.Equal(t, "\x1b[1A\r1\x1b[K\n\x1b[J", take(&out), "a terminal that became smaller")

	require.NoError(t, s.Close())
	assert.Equal(t, "\x1b[?25h", take(&out))
}

func take(b *strings.Builder) string {
	defer b.Reset()
	return b.String()
}

type brokenPipe struct{}

var errPipe = errors.New("pipe is gone")

func (brokenPipe) Write([]byte) (int, error) { return 0, errPipe }

func TestScreenPassesOnErrors(t *testing.T) {
	t.Parallel()
	_, err := NewScreen(brokenPipe{}, false)
	require.ErrorIs(t, err, errPipe)
	s := &Screen{w: brokenPipe{}}
	require.ErrorIs(t, s.Draw([]Line{Text("x")}, 80, 24), errPipe)
	require.ErrorIs(t, s.Close(), errPipe)
}

func TestGridWithGroups(t *testing.T) {
	t.Parallel()
	columns := []Column{
		{Title: "NAME"},
		{Title: "a", Right: true, Min: 6, Group: "one"},
		{Title: "b", Right: true, Min: 6, Group: "one", Gap: 1},
		{Title: "c", Right: true, Group: "a long title"},
	}
	lines := Grid(1, columns, [][]Span{{{Text: "x"}, {Text: "1"}, {Text: "22"}, {Text: "3333"}}})
	var got []string
	for _, l := range lines {
		got = append(got, l.String())
	}
	assert.Equal(t, []string{
		"       ──── one ────   a l",
		" NAME       a      b     c",
		" x          1     22  3333",
	}, got)
	assert.Equal(t, 26, Width(lines))
	assert.Zero(t, Width(nil))
}

func TestShort(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "µs", Short("µs", 2))
	assert.Equal(t, "µs…", Short("µs and more", 3))
	assert.Equal(t, "…", Short("more", 1))
	assert.Equal(t, "…", Short("more", 0), "no room at all")
}
