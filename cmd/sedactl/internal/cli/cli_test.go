package cli

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/cmd/sedactl/internal/demo"
	"github.com/sedabus/seda/cmd/sedactl/internal/trace"
)

// result is what a call of the command left behind.
type result struct {
	code        int
	out, errors string
}

// world is what the tests change of the environment.
type world struct {
	signals  <-chan os.Signal
	terminal bool
	vars     map[string]string
	stdout   io.Writer // instead of a buffer
}

func (w world) call(args ...string) result {
	var out, errs strings.Builder
	env := Env{
		Args: args, Stdout: &out, Stderr: &errs,
		Getenv: func(name string) string { return w.vars[name] },
		Notify: func() (<-chan os.Signal, func()) { return w.signals, func() {} },
		Size:   func(of io.Writer) (int, int, bool) { return 100, 30, w.terminal && of == &out },
	}
	if w.stdout != nil {
		env.Stdout = w.stdout
	}
	return result{Main(env), out.String(), errs.String()}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		args []string
		code int
		out  string // what standard output holds; "" is nothing
		errs string
	}{
		"nothing":               {nil, 2, "", "sedactl: no command given\n\nUsage:\n  sedactl command [flags]"},
		"unknown command":       {[]string{"bake"}, 2, "", "sedactl: unknown command \"bake\"\n\nUsage:\n  sedactl command"},
		"near a command":        {[]string{"demoo"}, 2, "", `unknown command "demoo", do you mean demo?`},
		"unknown flag":          {[]string{"demo", "--fast"}, 2, "", "sedactl: unknown flag: --fast\n\nUsage:\n  sedactl demo [flags]"},
		"unknown flag of root":  {[]string{"--fast"}, 2, "", "sedactl: unknown flag: --fast\n\nUsage:\n  sedactl command"},
		"argument of demo":      {[]string{"demo", "x"}, 2, "", "sedactl demo [flags]"},
		"argument of version":   {[]string{"version", "x"}, 2, "", "sedactl version"},
		"flag without value":    {[]string{"demo", "--seed"}, 2, "", "flag needs an argument: --seed"},
		"flag of a wrong type":  {[]string{"demo", "--seed", "-1"}, 2, "", `invalid argument "-1" for "--seed"`},
		"unknown policy":        {[]string{"demo", "--policy", "x"}, 2, "", `--policy is "x", must be one of block, reject`},
		"settings out of bound": {[]string{"demo", "--capacity", "0", "--service", "-1s"}, 2, "", "--capacity is 0, must be from 1 to 16777216\n--service is -1s"},
		"unknown shedding":      {[]string{"demo", "--shed", "x"}, 2, "", `--shed is "x", must be one of both, on, off`},
		"budget out of bound":   {[]string{"demo", "--budget", "NaN"}, 2, "", "--budget is NaN, must be from 1 to 1000000"},
		"speed without trace":   {[]string{"demo", "--speed", "2"}, 2, "", "--speed and --load need --trace"},
		"load without trace":    {[]string{"demo", "--load", "2"}, 2, "", "--speed and --load need --trace"},
		"help":                  {[]string{"help"}, 0, "Commands:\n  demo ", ""},
		"help flag":             {[]string{"--help"}, 0, "Commands:\n  demo ", ""},
		"help of demo":          {[]string{"help", "demo"}, 0, "--no-color", ""},
		"help flag of demo":     {[]string{"demo", "--help"}, 0, "Exit codes: 0 all well", ""},
		"help of the unknown":   {[]string{"help", "bake"}, 2, "", `unknown command "bake"`},
		"version":               {[]string{"version"}, 0, "sedactl ", ""},
		"version flag":          {[]string{"--version"}, 0, "sedactl ", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := world{}.call(c.args...)
			assert.Equal(t, c.code, got.code)
			for _, s := range []struct{ got, want string }{{got.out, c.out}, {got.errors, c.errs}} {
				if s.want == "" {
					assert.Empty(t, s.got)
				} else {
					assert.Contains(t, s.got, s.want)
				}
			}
		})
	}
}

// small are the flags of a short run.
var small = []string{"demo", "--duration", "500ms", "--capacity", "64", "--concurrency", "2", "--service", "2ms"}

func TestDemoPrintsLinesWithoutATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := world{}.call(append(small, "--duration", "2s")...)
		require.Zero(t, got.code, got.errors)
		assert.Empty(t, got.errors)
		assert.NotContains(t, got.out, "\x1b")
		assert.True(t, strings.HasPrefix(got.out, "seda demo  policy reject  capacity 64  concurrency 2  service 2.00ms  seed 1\n  in time: done within 40.0ms (20 service times) of the arrival\n\n"), got.out)
		assert.Contains(t, got.out, "\n   2.0s  ", "a line each second")
		assert.Contains(t, got.out, "   without shedding                    with shedding\n   TIME  PHASE  ")
		assert.Contains(t, got.out, "account of the whole run, calibration included: balanced, balanced\n  SHED  ACCEPTED = COMPLETED +")
		assert.Contains(t, got.out, "\n  refused: full ")
		assert.Contains(t, got.out, "\n  shed: work bound ")
	})
}

func TestDemoRedrawsOnATerminal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		vars   map[string]string
		live   bool
		colour bool
	}{
		"plain terminal": {nil, nil, true, true},
		"no-color":       {[]string{"--no-color"}, nil, true, false},
		"NO_COLOR":       {nil, map[string]string{"NO_COLOR": "1"}, true, false},
		"dumb":           {nil, map[string]string{"TERM": "dumb"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := world{terminal: true, vars: c.vars}.call(append(small, c.args...)...)
				require.Zero(t, got.code, got.errors)
				assert.Equal(t, c.live, strings.HasPrefix(got.out, "\x1b[?25l"), "the cursor is hidden")
				assert.Equal(t, c.live, strings.Contains(got.out, "\x1b[?25h"), "and comes back")
				assert.Equal(t, c.live, strings.Contains(got.out, "█"), "bars")
				assert.Equal(t, c.colour, strings.Contains(got.out, "\x1b[1m"), "colours")
				assert.Contains(t, got.out, "balanced")
			})
		})
	}
}

func TestDemoShowsOneSideIfAsked(t *testing.T) {
	t.Parallel()
	for shed, other := range map[string]string{"on": "without shedding", "off": "with shedding"} {
		t.Run(shed, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := world{}.call(append(small, "--shed", shed, "--deadlines", "--budget", "10")...)
				require.Zero(t, got.code, got.errors)
				assert.NotContains(t, got.out, " "+other)
				assert.Contains(t, got.out, "done within 20.0ms (10 service times) of the arrival, its deadline\n")
				assert.Contains(t, got.out, "calibration included: balanced\n  SHED ")
				assert.Contains(t, got.out, "\n  "+shed+" ")
			})
		})
	}
}

func TestDemoJSON(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := world{terminal: true}.call(append(small, "--json", "--policy", "drop-oldest", "--seed", "7")...)
		require.Zero(t, got.code, got.errors)
		assert.Empty(t, got.errors, "standard error is no terminal here")
		d := json.NewDecoder(strings.NewReader(got.out))
		d.DisallowUnknownFields()
		var s demo.Summary
		require.NoError(t, d.Decode(&s))
		_, err := d.Token()
		require.ErrorIs(t, err, io.EOF, "nothing else")
		assert.Equal(t, demo.Settings{Policy: "drop-oldest", Capacity: 64, Concurrency: 2, ServiceMS: 2, Seed: 7, Budget: 20, BudgetMS: 40}, s.Settings)
		require.Len(t, s.Sides, 2)
		assert.Len(t, s.Sides[0].Phases, 4)
		assert.True(t, s.Balanced())
		assert.Positive(t, s.Sides[0].Account.Dropped["evicted"])
		assert.Positive(t, s.Sides[1].Account.Refused["shed"])
	})
}

func TestFirstInterruptDrains(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				signals := make(chan os.Signal, 2)
				defer time.AfterFunc(1700*time.Millisecond, func() { signals <- signal }).Stop()
				begin := time.Now()
				got := world{signals: signals}.call(append(small, "--duration", "2s")...)
				require.Zero(t, got.code, got.errors)
				assert.Less(t, time.Since(begin), 2*time.Second, "virtual time: it did not go on")
				assert.Contains(t, got.out, " 0.5x stopped ")
				assert.Contains(t, got.out, "stopped; what was under way has been drained")
				assert.Contains(t, got.out, "balanced")
			})
		})
	}
}

func TestSecondInterruptCuts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		defer time.AfterFunc(80*time.Second, func() { signals <- os.Interrupt }).Stop()
		defer time.AfterFunc(80200*time.Millisecond, func() { signals <- os.Interrupt }).Stop() // an echo of the first
		defer time.AfterFunc(80300*time.Millisecond, func() { signals <- os.Interrupt }).Stop()
		begin := time.Now()
		got := world{signals: signals}.call("demo", "--service", "2s", "--duration", "40s", "--json")
		assert.Equal(t, ExitCut, got.code, got.errors)
		assert.Equal(t, 80300*time.Millisecond, time.Since(begin))
		assert.Empty(t, got.errors)
		var s demo.Summary
		require.NoError(t, json.Unmarshal([]byte(got.out), &s))
		assert.Equal(t, demo.EndCut, s.End)
		require.Len(t, s.Sides, 2)
		for _, side := range s.Sides {
			assert.Positive(t, side.Account.Abandoned)
		}
		assert.True(t, s.Balanced())
	})
}

func writeTrace(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.csv")
	require.NoError(t, os.WriteFile(path, []byte(trace.Header+"\n"+strings.Join(lines, "\n")), 0o600))
	return path
}

func TestDemoTrace(t *testing.T) {
	t.Parallel()
	path := writeTrace(t,
		"2023-11-16 18:17:03.0000000,4808,10",
		"2023-11-16 18:17:05.0000000,110,20",
		"not a line",
		"2023-11-16 18:17:07.0000000,1,10",
		"2023-11-16 18:17:23.0000000,1,10",
	)
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		got := world{}.call("demo", "--trace", path, "--speed", "2", "--concurrency", "4", "--shed", "off")
		require.Zero(t, got.code, got.errors)
		assert.Equal(t, "sedactl: skipped: "+path+":4: 1 fields, want 3\n", got.errors)
		assert.Contains(t, got.out, "trace "+path+": 4 arrivals, 1 bad lines skipped\n")
		// 4 servers for 10 s are 40 s of work, for 50 tokens.
		assert.Contains(t, got.out, "2x speed: 10.0s, load 1: 800ms of service a generated token\n")
		assert.Contains(t, got.out, "balanced\n")
		// All of it, beyond the length of a phase without a trace. The second row
		// takes 16 s from 1 s on, the last one 8 s from 10 s on.
		assert.Equal(t, 18*time.Second, time.Since(begin))
	})
}

func TestDemoTraceErrors(t *testing.T) {
	t.Parallel()
	bad := writeTrace(t, "1", "2")
	missing := filepath.Join(t.TempDir(), "none.csv")
	for path, want := range map[string]string{
		bad:     "sedactl: read the trace: " + bad + ": not one good line; the first fault: " + bad + ":2: 1 fields, want 3\n",
		missing: "sedactl: open the trace: open " + missing + ": no such file or directory\n",
	} {
		got := world{}.call("demo", "--trace", path)
		assert.Equal(t, ExitFailure, got.code)
		assert.Empty(t, got.out)
		assert.Equal(t, want, got.errors)
	}
}

func TestManySkippedLines(t *testing.T) {
	t.Parallel()
	lines := []string{}
	for range 8 {
		lines = append(lines, "2023-11-16 18:17:03,1,1", "bad")
	}
	path := writeTrace(t, lines...)
	synctest.Test(t, func(t *testing.T) {
		got := world{}.call("demo", "--trace", path)
		require.Zero(t, got.code, got.errors)
		assert.Equal(t, 6, strings.Count(got.errors, "sedactl: skipped: "))
		assert.Contains(t, got.errors, "sedactl: skipped: 3 more lines\n")
	})
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	s := &demo.Summary{End: demo.EndComplete, Sides: []demo.Result{
		{Account: demo.Account{Balanced: true}}, {Account: demo.Account{Balanced: true}},
	}}
	require.NoError(t, verdict(s))
	s.End = demo.EndDrained
	require.NoError(t, verdict(s))

	s.End = demo.EndCut
	f, ok := errors.AsType[*failure](verdict(s))
	require.True(t, ok)
	assert.Equal(t, ExitCut, f.code)
	assert.EqualError(t, f, "exit code 130")

	s.Sides[1].Account.Balanced = false
	f, ok = errors.AsType[*failure](verdict(s))
	require.True(t, ok)
	assert.Equal(t, ExitFailure, f.code, "an account that does not balance is what matters most")
	assert.EqualError(t, f, "the account does not balance")
}

type closedPipe struct{}

var errClosed = errors.New("pipe is closed")

func (closedPipe) Write([]byte) (int, error) { return 0, errClosed }

func TestOutputThatFails(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"version": {"version"},
		"lines":   small,
		"json":    append([]string{"demo", "--json"}, small[1:]...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := world{stdout: closedPipe{}}.call(args...)
				assert.Equal(t, ExitFailure, got.code)
				assert.Contains(t, got.errors, "pipe is closed")
			})
		})
	}
}
