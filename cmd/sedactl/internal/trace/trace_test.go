package trace

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func at(t *testing.T, s string) time.Time {
	t.Helper()
	v, err := time.Parse("2006-01-02T15:04:05", s)
	require.NoError(t, err)
	return v
}

func TestReadGood(t *testing.T) {
	t.Parallel()
	first := Row{At: at(t, "2023-11-16T18:17:03.97996"), Context: 4808, Generated: 10}
	second := Row{At: at(t, "2023-11-16T18:17:04"), Context: 110, Generated: 27}
	same := Row{At: second.At, Context: 0, Generated: 0}
	cases := map[string]struct {
		in   string
		want []Row
	}{
		"unix lines":         {Header + "\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04,110,27\n", []Row{first, second}},
		"windows lines":      {Header + "\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04,110,27\r\n", []Row{first, second}},
		"no last line end":   {Header + "\n2023-11-16 18:17:03.9799600,4808,10", []Row{first}},
		"byte order mark":    {"\xef\xbb\xbf" + Header + "\n2023-11-16 18:17:04,110,27", []Row{second}},
		"blank lines":        {Header + "\n\n2023-11-16 18:17:04,110,27\n\r\n\n", []Row{second}},
		"blanks around":      {Header + "\n 2023-11-16 18:17:04 , 110 , 27 \n", []Row{second}},
		"sorted by time":     {Header + "\n2023-11-16 18:17:04,110,27\n2023-11-16 18:17:03.9799600,4808,10\n", []Row{first, second}},
		"same time in order": {Header + "\n2023-11-16 18:17:04,110,27\n2023-11-16 18:17:04.0,0,0\n", []Row{second, same}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Read(strings.NewReader(c.in), "t.csv")
			require.NoError(t, err)
			assert.Equal(t, c.want, got.Rows)
			assert.Zero(t, got.Skipped)
			assert.Empty(t, got.Faults)
		})
	}
}

func TestReadErrors(t *testing.T) {
	t.Parallel()
	const good = "\n2023-11-16 18:17:04,110,27"
	cases := map[string]struct{ in, want string }{
		"empty":            {"", "t.csv: empty file, want the header " + Header},
		"wrong header":     {"a,b" + good, `t.csv:1: header is "a,b", want ` + Header},
		"no header":        {good[1:] + "\n", `t.csv:1: header is "2023-11-16 18:17:04,110,27", want ` + Header},
		"long header":      {strings.Repeat("x", 2*maxLine), "t.csv:1: longer than 4096 bytes"},
		"header only":      {Header + "\n\n", "t.csv: no line after the header"},
		"no good line":     {Header + "\n1\n2\n", "t.csv: not one good line; the first fault: t.csv:2: 1 fields, want 3"},
		"more bad lines":   {Header + "\n1" + good + "\n2\n", "t.csv: 2 bad lines and 1 good ones; the first fault: t.csv:2: 1 fields, want 3"},
		"control bytes":    {"\x1b[2J", `t.csv:1: header is "\x1b[2J", want ` + Header},
		"long wrong value": {strings.Repeat("y", 60), `t.csv:1: header is "` + strings.Repeat("y", 40) + `"..., want ` + Header},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Read(strings.NewReader(c.in), "t.csv")
			assert.Nil(t, got)
			assert.EqualError(t, err, c.want)
		})
	}
}

func TestReadSkipsBadLines(t *testing.T) {
	t.Parallel()
	const good = "2023-11-16 18:17:04,110,27\n"
	const form = " is not of the form 2006-01-02 15:04:05.0000000"
	const whole = " is not a whole number from 0 to 1000000000"
	cases := map[string]struct{ line, want string }{
		"too few fields":   {"2023-11-16 18:17:04,110", "t.csv:3: 2 fields, want 3"},
		"too many fields":  {"2023-11-16 18:17:04,110,1,2", "t.csv:3: 4 fields, want 3"},
		"no time":          {",110,1", `t.csv:3: TIMESTAMP ""` + form},
		"no such day":      {"2023-02-30 18:17:04,110,1", `t.csv:3: TIMESTAMP "2023-02-30 18:17:04"` + form},
		"time with zone":   {"2023-02-03T18:17:04Z,110,1", `t.csv:3: TIMESTAMP "2023-02-03T18:17:04Z"` + form},
		"negative tokens":  {"2023-11-16 18:17:04,-1,1", `t.csv:3: ContextTokens "-1"` + whole},
		"broken tokens":    {"2023-11-16 18:17:04,1,1.5", `t.csv:3: GeneratedTokens "1.5"` + whole},
		"too many tokens":  {"2023-11-16 18:17:04,1,1000000001", `t.csv:3: GeneratedTokens "1000000001"` + whole},
		"overflow":         {"2023-11-16 18:17:04,99999999999999999999,1", `t.csv:3: ContextTokens "99999999999999999999"` + whole},
		"line too long":    {strings.Repeat("9", 3*maxLine), "t.csv:3: longer than 4096 bytes"},
		"header once more": {Header, `t.csv:3: TIMESTAMP "TIMESTAMP"` + form},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Read(strings.NewReader(Header+"\n"+good+c.line+"\n"+good), "t.csv")
			require.NoError(t, err)
			assert.Len(t, got.Rows, 2, "the lines around it are kept")
			assert.Equal(t, 1, got.Skipped)
			require.Len(t, got.Faults, 1)
			assert.EqualError(t, got.Faults[0], c.want)
		})
	}
}

func TestReadKeepsTheFirstFaultsOnly(t *testing.T) {
	t.Parallel()
	in := Header + strings.Repeat("\n2023-11-16 18:17:04,110,27\nbad", 20)
	got, err := Read(strings.NewReader(in), "t.csv")
	require.NoError(t, err)
	assert.Equal(t, 20, got.Skipped)
	require.Len(t, got.Faults, keptErrors)
	assert.Equal(t, 11, got.Faults[keptErrors-1].Line)
}

func TestReadPassesOnTheReadersError(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	for name, r := range map[string]io.Reader{
		"in the header": iotest.ErrReader(broken),
		"in a row":      io.MultiReader(strings.NewReader(Header+"\n2023"), iotest.ErrReader(broken)),
		"in a long row": io.MultiReader(strings.NewReader(Header+"\n"+strings.Repeat("1", 2*maxLine)), iotest.ErrReader(broken)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(r, "t.csv")
			require.ErrorIs(t, err, broken)
			assert.ErrorContains(t, err, "t.csv: line ")
		})
	}
}

func TestSpanAndGenerated(t *testing.T) {
	t.Parallel()
	var empty Trace
	assert.Zero(t, empty.Span())
	assert.Zero(t, empty.Generated())
	got, err := Read(strings.NewReader(Header+"\n2023-11-16 18:17:04,1,27\n2023-11-16 18:17:05.5,1,3\n"), "t.csv")
	require.NoError(t, err)
	assert.Equal(t, 1500*time.Millisecond, got.Span())
	assert.Equal(t, int64(30), got.Generated())
}

func FuzzRead(f *testing.F) {
	f.Add(Header + "\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04,110,27")
	f.Add(Header + "\n2023-11-16 18:17:04,110,27\nbad\n\n2023-11-16 18:17:03,110,27\n")
	f.Add(Header + "\n" + strings.Repeat("1", maxLine+1) + "\n2023-11-16 18:17:04,110,27\n")
	f.Add("\xef\xbb\xbf" + Header)
	f.Add("\x00\n")
	f.Fuzz(func(t *testing.T, in string) {
		got, err := Read(strings.NewReader(in), "t.csv")
		if err != nil {
			require.Nil(t, got)
			require.ErrorContains(t, err, "t.csv:")
			return
		}
		require.NotEmpty(t, got.Rows)
		require.LessOrEqual(t, got.Skipped, len(got.Rows))
		require.LessOrEqual(t, len(got.Faults), got.Skipped)
		require.LessOrEqual(t, len(got.Rows)+got.Skipped, strings.Count(in, "\n"), "one line each, after the header")
		for i, row := range got.Rows {
			require.True(t, row.Context >= 0 && row.Context <= MaxTokens)
			require.True(t, row.Generated >= 0 && row.Generated <= MaxTokens)
			require.False(t, i > 0 && row.At.Before(got.Rows[i-1].At), "sorted by time")
		}
		require.GreaterOrEqual(t, got.Span(), time.Duration(0))
		require.GreaterOrEqual(t, got.Generated(), int64(0))
	})
}
