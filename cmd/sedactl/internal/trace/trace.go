// Package trace reads recorded arrivals from a CSV file whose header is
// TIMESTAMP,ContextTokens,GeneratedTokens, the form in which traces of language
// model services are published.
package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Header is the first line that a trace must have.
const Header = "TIMESTAMP,ContextTokens,GeneratedTokens"

const (
	// Layout is the form of a time stamp. Any number of digits may follow the
	// decimal point, or none.
	Layout = "2006-01-02 15:04:05"

	// MaxTokens bounds both token counts of a row.
	MaxTokens = 1_000_000_000

	// maxLine bounds a line in bytes; a longer one is skipped.
	maxLine = 4096

	// keptErrors is how many of the skipped lines are kept with their reason.
	keptErrors = 5

	fields   = 3
	byteMark = "\xef\xbb\xbf"
)

// Row is one recorded arrival.
type Row struct {
	At        time.Time // UTC
	Context   int       // tokens read, 0 to [MaxTokens]
	Generated int       // tokens written, 0 to [MaxTokens]
}

// Trace is what a file held.
type Trace struct {
	// Rows holds at least one row, sorted by time; rows of the same time keep
	// the order of the file.
	Rows []Row
	// Skipped counts the lines that could not be read. Blank lines do not count.
	Skipped int
	// Faults says where and why for the first of the skipped lines, at most five.
	Faults []*LineError
}

// Span returns the time between the first row and the last.
func (t *Trace) Span() time.Duration {
	if len(t.Rows) == 0 {
		return 0
	}
	return t.Rows[len(t.Rows)-1].At.Sub(t.Rows[0].At)
}

// Generated returns the sum of the tokens written.
func (t *Trace) Generated() int64 {
	var n int64
	for i := range t.Rows {
		n += int64(t.Rows[i].Generated)
	}
	return n
}

// LineError says why a line of a trace cannot be used.
type LineError struct {
	File   string
	Line   int // from 1
	Reason string
}

// Error returns file:line: reason.
func (e *LineError) Error() string {
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
}

// Read reads a trace; name stands for the file in errors. A line that cannot be
// read is skipped and told in the result. It is an error, a [*LineError] among
// its causes where a line is to blame, when the header is missing, when no line
// is good, or when fewer lines are good than bad: then the file is no trace.
func Read(r io.Reader, name string) (*Trace, error) {
	lines := &lineReader{r: bufio.NewReaderSize(r, maxLine)}
	if err := readHeader(lines, name); err != nil {
		return nil, err
	}
	t := &Trace{}
	for {
		line, fault, err := lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, lines.n, err)
		}
		if fault == "" {
			if line == "" {
				continue
			}
			var row Row
			if row, fault = parseRow(line); fault == "" {
				t.Rows = append(t.Rows, row)
				continue
			}
		}
		t.skip(&LineError{File: name, Line: lines.n, Reason: fault})
	}
	if err := t.check(name); err != nil {
		return nil, err
	}
	slices.SortStableFunc(t.Rows, func(a, b Row) int { return a.At.Compare(b.At) })
	return t, nil
}

func (t *Trace) skip(e *LineError) {
	t.Skipped++
	if len(t.Faults) < keptErrors {
		t.Faults = append(t.Faults, e)
	}
}

func (t *Trace) check(name string) error {
	switch {
	case len(t.Rows) == 0 && t.Skipped == 0:
		return fmt.Errorf("%s: no line after the header", name)
	case len(t.Rows) == 0:
		return fmt.Errorf("%s: not one good line; the first fault: %w", name, t.Faults[0])
	case t.Skipped > len(t.Rows):
		return fmt.Errorf("%s: %d bad lines and %d good ones; the first fault: %w",
			name, t.Skipped, len(t.Rows), t.Faults[0])
	}
	return nil
}

func readHeader(lines *lineReader, name string) error {
	line, fault, err := lines.next()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: empty file, want the header %s", name, Header)
	}
	if err != nil {
		return fmt.Errorf("%s: line 1: %w", name, err)
	}
	if fault == "" && strings.TrimPrefix(line, byteMark) == Header {
		return nil
	}
	return &LineError{File: name, Line: 1, Reason: cmp.Or(fault, "header is "+quote(line)+", want "+Header)}
}

// parseRow returns the row of a line, or why there is none.
func parseRow(line string) (row Row, fault string) {
	f := strings.Split(line, ",")
	if len(f) != fields {
		return Row{}, fmt.Sprintf("%d fields, want %d", len(f), fields)
	}
	at, err := time.Parse(Layout, strings.TrimSpace(f[0]))
	if err != nil {
		return Row{}, "TIMESTAMP " + quote(f[0]) + " is not of the form " + Layout + ".0000000"
	}
	row.At = at
	if row.Context, fault = parseTokens("ContextTokens", f[1]); fault != "" {
		return Row{}, fault
	}
	if row.Generated, fault = parseTokens("GeneratedTokens", f[2]); fault != "" {
		return Row{}, fault
	}
	return row, ""
}

func parseTokens(field, s string) (n int, fault string) {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < 0 || n > MaxTokens {
		return 0, fmt.Sprintf("%s %s is not a whole number from 0 to %d", field, quote(s), MaxTokens)
	}
	return n, ""
}

// quote makes what a file held safe to print, and short.
func quote(s string) string {
	const longest = 40
	if len(s) > longest {
		return strconv.Quote(s[:longest]) + "..."
	}
	return strconv.Quote(s)
}

// lineReader cuts a stream into lines of a bounded length.
type lineReader struct {
	r *bufio.Reader
	n int // number of the line read last, from 1
}

// next returns the next line without its end. A line beyond maxLine is read
// over and told as a fault, so that one of them cannot take all the memory.
func (l *lineReader) next() (line, fault string, err error) {
	raw, err := l.r.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(raw) > 0 {
		err = nil
	}
	long := errors.Is(err, bufio.ErrBufferFull)
	if err != nil && !long {
		return "", "", err
	}
	l.n++
	if !long {
		return string(bytes.TrimRight(raw, "\r\n")), "", nil
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = l.r.ReadSlice('\n')
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", "", err
	}
	return "", fmt.Sprintf("longer than %d bytes", maxLine), nil
}
