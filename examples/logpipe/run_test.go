package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
)

// result is what a run left behind.
type result struct {
	code        int
	out, errors string
}

func runWith(t *testing.T, stdin io.Reader, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), args, stdin, &out, &errs)
	return result{code, out.String(), errs.String()}
}

// report reads a result that was asked for as JSON and checks the account.
func (r result) report(t *testing.T) report {
	t.Helper()
	var got report
	require.NoError(t, json.Unmarshal([]byte(r.out), &got), "%s%s", r.out, r.errors)
	requireBalanced(t, &got)
	return got
}

func requireBalanced(t *testing.T, r *report) {
	t.Helper()
	var lines, levels, components uint64
	for _, f := range r.Files {
		lines += f.Lines
	}
	for _, c := range r.Levels {
		levels += c.Lines
	}
	for _, c := range r.Components {
		components += c.Lines
	}
	require.True(t, r.Account.Balanced, "%+v", r.Account)
	require.True(t, r.Bus.Balanced, "%+v", r.Bus)
	require.Equal(t, lines, r.Account.Read)
	require.Equal(t, r.Account.Counted, levels)
	require.Equal(t, r.Account.Counted, components)
	require.Equal(t, lines, r.Account.Counted+r.Account.DeadLettered)
	require.Equal(t, r.Account.DeadLettered, r.Bus.DeadLettered)
	require.Zero(t, r.Bus.Dropped+r.Bus.Abandoned+r.Bus.Pending)
}

// file writes a file for a test and returns its path.
func file(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

const (
	apacheLines = "[Tue Mar 03 10:00:01 2026] [error] mod_x child in state 6\r\n" +
		"[Tue Mar 03 10:00:02 2026] [notice] pool.init() ok /etc/pool.conf\r\n" +
		"[Tue Mar 03 10:00:02 2026] [error] [client 192.0.2.7] no such file\r\n" +
		"[Tue Mar 03 10:00:03 2026] [error] mod_x child in state 7" // no last newline
	hdfsLines = "260303 100001 17 INFO dfs.Node$Worker: block 1\n" +
		"260303 100001 17 WARN dfs.Node$Worker: block 1 is late\n" +
		"not a line of a log\n"
	zooKeeperLines = "2026-03-03 10:00:01,123 - INFO  [main:Election@12] - vote: 3\n" +
		"2026-03-03 10:00:01,124 - ERROR [Peer[myid=1]/0:0:0:2181:Net$Send@12] - broken\n"
)

func TestRunText(t *testing.T) {
	t.Chdir(t.TempDir())
	file(t, ".", "apache.log", apacheLines)
	file(t, ".", "hdfs.log", hdfsLines)
	file(t, ".", "zoo\x1b.log", zooKeeperLines)
	r := runWith(t, nil, "hdfs.log", "apache.log", "zoo\x1b.log")
	assert.Equal(t, exitOK, r.code)
	assert.Empty(t, r.errors)
	want := `FILE           LINES
hdfs.log       3
apache.log     4
"zoo\x1b.log"  2

FORM       LEVEL   LINES
apache     error   3
apache     notice  1
hdfs       INFO    1
hdfs       WARN    1
zookeeper  ERROR   1
zookeeper  INFO    1

FORM       COMPONENT        LINES
apache     mod_x            2
apache     client           1
apache     pool.init()      1
hdfs       dfs.Node$Worker  2
zookeeper  Election         1
zookeeper  Net$Send         1

MALFORMED   1, listed 1
hdfs.log:3  not in a known form  "not a line of a log"

ACCOUNT
lines: read 9 = counted 8 + dead-lettered 1: balanced
bus: accepted 12 = completed 11 + dead-lettered 1 + dropped 0 + abandoned 0 + pending 0: balanced
`
	assert.Equal(t, want, r.out)
}

// TestRunOddBytes puts what real files hold through the whole program.
func TestRunOddBytes(t *testing.T) {
	good := "260303 100001 17 INFO dfs.Node: "
	tests := []struct {
		name, in string
		counted  uint64
		bad      []letterRow // without file
	}{
		{"empty", "", 0, nil},
		{"no last newline", good + "x", 1, nil},
		{"CRLF", good + "x\r\n" + good + "y\r\n", 2, nil},
		{"lone CR", good + "x\ry\n", 1, nil},
		{"blank", good + "x\n\n" + good + "y\n", 2, []letterRow{{Line: 2, Reason: "empty line"}}},
		{"NUL", "\x00\x00\n" + good + "x\x00\n", 0, []letterRow{
			{Line: 1, Reason: string(errNUL), Text: "\x00\x00"},
			{Line: 2, Reason: string(errNUL), Text: good + "x\x00"},
		}},
		{"longest", good + strings.Repeat("x", 200-len(good)) + "\r\n", 1, nil},
		{"too long", good + "\n" + good + strings.Repeat("x", 201-len(good)) + "\n" + good + "\n", 2, []letterRow{
			{Line: 2, Reason: "201 bytes, more than 200", Text: good + strings.Repeat("x", excerptMax-len(good))},
		}},
		{"far too long", strings.Repeat("x", 1<<20), 0, []letterRow{
			{Line: 1, Reason: "1048576 bytes, more than 200", Text: strings.Repeat("x", excerptMax)},
		}},
		{"not UTF-8", "\xff\xfe\n", 0, []letterRow{{Line: 1, Reason: string(errUnknown), Text: "\ufffd"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := runWith(t, strings.NewReader(tt.in), "--json", "--max-line", "200", "-")
			assert.Equal(t, exitOK, r.code)
			got := r.report(t)
			assert.Equal(t, tt.counted, got.Account.Counted)
			require.Len(t, got.Malformed.Lines, len(tt.bad))
			for i, want := range tt.bad {
				want.File = "-"
				if tt.name == "not UTF-8" {
					want.Text = got.Malformed.Lines[i].Text
					assert.Contains(t, want.Text, "\ufffd")
				}
				assert.Equal(t, want, got.Malformed.Lines[i])
			}
		})
	}
}

func TestRunUnreadable(t *testing.T) {
	dir := t.TempDir()
	good := file(t, dir, "good.log", hdfsLines)
	r := runWith(t, nil, "--json", filepath.Join(dir, "none.log"), good, dir)
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.errors, "none.log")
	assert.Contains(t, r.errors, "is a folder")
	got := r.report(t)
	require.Len(t, got.Files, 3)
	assert.NotEmpty(t, got.Files[0].Error)
	assert.Empty(t, got.Files[1].Error)
	assert.NotEmpty(t, got.Files[2].Error)
	assert.EqualValues(t, 3, got.Account.Read)

	r = runWith(t, nil, "--json", "--dir", filepath.Join(dir, "none"), good)
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.errors, "none")
	assert.EqualValues(t, 3, r.report(t).Account.Read)
}

func TestRunReadError(t *testing.T) {
	broken := errors.New("disk on fire")
	r := runWith(t, io.MultiReader(strings.NewReader(hdfsLines+"half"), errReader{broken}), "--json")
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.errors, "-, after line 3: disk on fire")
	assert.EqualValues(t, 3, r.report(t).Account.Read)
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestRunDir(t *testing.T) {
	dir := t.TempDir()
	file(t, dir, "b.log", apacheLines)
	file(t, dir, "a.log", zooKeeperLines)
	file(t, dir, "empty.log", "")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	r := runWith(t, nil, "--json", "--dir", dir)
	assert.Equal(t, exitOK, r.code)
	got := r.report(t)
	require.Len(t, got.Files, 3)
	assert.Equal(t, filepath.Join(dir, "a.log"), got.Files[0].File)
	assert.Equal(t, []uint64{2, 4, 0}, []uint64{got.Files[0].Lines, got.Files[1].Lines, got.Files[2].Lines})

	r = runWith(t, nil, "--json", "--dir", t.TempDir())
	assert.Equal(t, exitOK, r.code, "an empty folder is nothing to count")
	assert.Empty(t, r.report(t).Files)
}

func TestRunForm(t *testing.T) {
	r := runWith(t, strings.NewReader(apacheLines+"\n"+hdfsLines), "--json", "--form", "hdfs")
	assert.Equal(t, exitOK, r.code)
	got := r.report(t)
	assert.EqualValues(t, 2, got.Account.Counted)
	assert.EqualValues(t, 5, got.Account.DeadLettered)
	assert.Equal(t, "hdfs: bad time", got.Malformed.Lines[0].Reason)
}

// many makes lines of which every seventh is malformed.
func many(n int) string {
	var b strings.Builder
	for i := range n {
		if i%7 == 0 {
			fmt.Fprintf(&b, "line %d\n", i)
			continue
		}
		level := []string{"INFO", "WARN", "ERROR"}[i%3]
		fmt.Fprintf(&b, "260303 100001 %d %s dfs.Node%d: block %d\n", i, level, i%11, i)
	}
	return b.String()
}

// TestRunStable: the report is the same whatever the number of parsers.
func TestRunStable(t *testing.T) {
	dir := t.TempDir()
	file(t, dir, "a.log", many(9_000))
	file(t, dir, "b.log", many(2_000))
	var first result
	for _, workers := range []string{"1", "2", "8"} {
		r := runWith(t, nil, "--json", "--letters", "1500", "--workers", workers, "--dir", dir)
		require.Equal(t, exitOK, r.code)
		if first.out == "" {
			first = r
			got := r.report(t)
			assert.EqualValues(t, 11_000, got.Account.Read)
			assert.EqualValues(t, 1286+286, got.Account.DeadLettered)
			require.Len(t, got.Malformed.Lines, 1500)
			assert.EqualValues(t, 8, got.Malformed.Lines[1].Line)
			assert.Equal(t, filepath.Join(dir, "b.log"), got.Malformed.Lines[1286].File)
		}
		require.Equal(t, first.out, r.out, "workers %s", workers)
	}
}

func TestRunLetters(t *testing.T) {
	for n, want := range map[string]int{"0": 0, "2": 2, "1000": 15} {
		r := runWith(t, strings.NewReader(many(100)), "--json", "--letters", n)
		got := r.report(t)
		assert.Len(t, got.Malformed.Lines, want)
		assert.EqualValues(t, 15, got.Malformed.Total)
	}
}

// TestBackPressure: however long the input, no stage holds more than its
// capacity.
func TestBackPressure(t *testing.T) {
	o := options{form: formAuto, workers: 2, maxLine: 1000, grace: 1 << 40}
	list := []*source{{path: "-"}}
	p, err := newPipeline(t.Context(), o, list, strings.NewReader(many(20_000)))
	require.NoError(t, err)
	require.NoError(t, p.run(t.Context()))
	r := p.report()
	requireBalanced(t, &r)
	require.EqualValues(t, 20_000, r.Account.Read)
	var st bus.Stats
	p.bus.ReadStats(&st)
	for i := range st.Stages {
		// One escape place for hops.
		assert.LessOrEqual(t, st.Stages[i].MaxDepth, capacity+1, st.Stages[i].Name)
	}
}

func TestRunUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--nonsense"},
		{"--form", "syslog"},
		{"--workers", "0"},
		{"--workers", "1025"},
		{"--max-line", "0"},
		{"--max-line", "16777217"},
		{"--letters", "-1"},
		{"--letters", "100001"},
		{"--grace", "0s"},
	} {
		r := runWith(t, nil, args...)
		assert.Equal(t, exitUsage, r.code, args)
		assert.Contains(t, r.errors, args[0][2:])
		assert.Empty(t, r.out)
	}
	r := runWith(t, nil, "--help")
	assert.Equal(t, exitOK, r.code)
	assert.Contains(t, r.errors, "-max-line")
}

func TestRunCannotWrite(t *testing.T) {
	var errs bytes.Buffer
	code := run(t.Context(), nil, strings.NewReader(hdfsLines), errWriter{}, &errs)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs.String(), "writing the report: full")
}

type errWriter struct{}

func (errWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

// TestRunInterrupted: an interrupt while the input is silent ends the reading,
// and what was read is reported.
func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, feed := io.Pipe()
	var out, errs bytes.Buffer
	code := make(chan int)
	go func() {
		code <- run(ctx, []string{"--json", "-", filepath.Join(t.TempDir(), "never opened")}, in, &out, &errs)
	}()
	// The second write begins when the first was taken, the end of the second
	// means that the reader waits for more.
	for _, s := range []string{hdfsLines, strings.Repeat(hdfsLines, 1000), "half a li"} {
		_, err := io.WriteString(feed, s)
		require.NoError(t, err)
	}
	cancel()
	require.Equal(t, exitInterrupted, <-code, "%s", &errs)
	require.NoError(t, feed.Close())
	got := result{out: out.String()}.report(t)
	assert.True(t, got.Interrupted)
	require.Len(t, got.Files, 2)
	assert.True(t, got.Files[0].Interrupted)
	assert.True(t, got.Files[1].Interrupted)
	assert.LessOrEqual(t, got.Account.Read, uint64(3*1001))
}
