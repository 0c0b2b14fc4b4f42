package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// all reads every line, as "text", or "text...size" for one that is too long.
func all(t *testing.T, r io.Reader, maxLine int) []line {
	t.Helper()
	lr := newLineReader(r, maxLine)
	var got []line
	for {
		l, err := lr.next(t.Context())
		if errors.Is(err, io.EOF) {
			return got
		}
		require.NoError(t, err)
		require.Equal(t, uint64(len(got)+1), l.no)
		got = append(got, l)
	}
}

func texts(lines []line) []string {
	out := []string{}
	for _, l := range lines {
		out = append(out, l.text)
	}
	return out
}

func TestLineReader(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
	}{
		{"empty", "", []string{}},
		{"one", "a\n", []string{"a"}},
		{"no last newline", "a\nb", []string{"a", "b"}},
		{"CRLF", "a\r\nb\r\n", []string{"a", "b"}},
		{"CRLF cut short", "a\r\nb\r", []string{"a", "b"}},
		{"lone CR", "a\rb\n", []string{"a\rb"}},
		{"two CR", "a\r\r\n", []string{"a\r"}},
		{"blank lines", "\n\r\n\n", []string{"", "", ""}},
		{"NUL", "a\x00b\n", []string{"a\x00b"}},
		{"byte order mark", "\ufeffa\n\ufeffb\n", []string{"a", "\ufeffb"}},
		{"mark alone", "\ufeff", []string{}},
		{"mark and newline", "\ufeff\n", []string{""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, texts(all(t, strings.NewReader(tt.in), 100)))
			assert.Equal(t, tt.want, texts(all(t, iotest.OneByteReader(strings.NewReader(tt.in)), 100)))
		})
	}
}

// TestLineReaderBound walks over every length around the bound and the
// buffer's edge, with every ending, between two lines that must survive.
func TestLineReaderBound(t *testing.T) {
	for _, bound := range []int{1, 13, 14, 15, 30} {
		for n := range 80 {
			for _, ending := range []string{"\n", "\r\n", ""} {
				body := strings.Repeat("x", n)
				in := "a\n" + body + ending
				if ending != "" {
					in += "z"
				}
				got := all(t, iotest.HalfReader(strings.NewReader(in)), bound)
				want := 3
				if ending == "" {
					want = 2
					if n == 0 {
						want = 1
					}
				}
				require.Len(t, got, want, "bound %d, length %d, ending %q", bound, n, ending)
				if want == 1 {
					continue
				}
				require.Equal(t, int64(n), got[1].size, "bound %d, ending %q", bound, ending)
				require.Equal(t, n > bound, got[1].long, "bound %d, length %d, ending %q", bound, n, ending)
				require.Equal(t, body[:min(n, len(got[1].text))], got[1].text)
				if !got[1].long {
					require.Equal(t, body, got[1].text)
				}
				if want == 3 {
					require.Equal(t, "z", got[2].text)
				}
			}
		}
	}
}

func TestLineReaderError(t *testing.T) {
	broken := errors.New("disk on fire")
	for _, in := range []string{"half a line", strings.Repeat("x", 50)} {
		lr := newLineReader(io.MultiReader(strings.NewReader("a\n"+in), iotest.ErrReader(broken)), 20)
		l, err := lr.next(t.Context())
		require.NoError(t, err)
		require.Equal(t, "a", l.text)
		_, err = lr.next(t.Context())
		require.ErrorIs(t, err, broken)
	}
}

// TestLineReaderEndlessLine: a line without an end is left when the context
// ends.
func TestLineReaderEndlessLine(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	reads := 0
	lr := newLineReader(readerFunc(func(p []byte) (int, error) {
		if reads++; reads == 10 {
			cancel()
		}
		for i := range p {
			p[i] = 'x'
		}
		return len(p), nil
	}), 20)
	_, err := lr.next(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestSources(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.log", "a.log"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "aa"), 0o700))
	require.NoError(t, os.Symlink(filepath.Join(dir, "a.log"), filepath.Join(dir, "c.log")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "gone"), filepath.Join(dir, "d.log")))

	paths := func(list []*source) []string {
		var out []string
		for i, s := range list {
			require.Equal(t, i, s.index)
			out = append(out, strings.TrimPrefix(s.path, dir+"/"))
		}
		return out
	}
	list, err := sources([]string{"x", "-"}, dir)
	require.NoError(t, err)
	assert.Equal(t, []string{"x", "-", "a.log", "b.log", "c.log", "d.log"}, paths(list))

	list, err = sources(nil, "")
	require.NoError(t, err)
	assert.Equal(t, []string{"-"}, paths(list))

	list, err = sources([]string{"x"}, filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.Equal(t, []string{"x"}, paths(list))
}

// FuzzLineReader compares the reader with what it promises, done in the
// simplest way on the whole input.
func FuzzLineReader(f *testing.F) {
	f.Add("a\r\nb\rc\n\nlonger than the bound is\r\n\ufeff", uint8(3))
	f.Add("\ufeffx\n"+strings.Repeat("y", 40)+"\r", uint8(20))
	f.Add("\x00\r\r\n\r", uint8(1))
	f.Fuzz(func(t *testing.T, in string, bound uint8) {
		maxLine := int(bound) + 1
		var want []string
		rest := strings.TrimPrefix(in, byteOrderMark)
		for l := range strings.Lines(rest) {
			want = append(want, strings.TrimSuffix(strings.TrimSuffix(l, "\n"), "\r"))
		}
		got := all(t, iotest.HalfReader(strings.NewReader(in)), maxLine)
		require.Len(t, got, len(want))
		for i, l := range got {
			require.Equal(t, int64(len(want[i])), l.size)
			require.Equal(t, len(want[i]) > maxLine, l.long)
			if l.long {
				require.LessOrEqual(t, len(l.text), excerptMax)
				require.True(t, strings.HasPrefix(want[i], l.text))
			} else {
				require.Equal(t, want[i], l.text)
			}
		}
	})
}
