package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asService makes the test binary the service itself, so that the processes
// under test are built with the tests' own flags, the race detector among
// them.
const asService = "SEDA_TEST_AS_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(asService) != "" {
		main()
	}
	os.Exit(m.Run())
}

// process is a running service.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr bytes.Buffer
	url    string
	client *http.Client
}

func launch(t *testing.T, args ...string) *process {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs signals")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	p := &process{t: t, client: &http.Client{Transport: &http.Transport{MaxConnsPerHost: 0, Proxy: nil}}}
	p.cmd = exec.Command(self, append([]string{"--listen", "127.0.0.1:0"}, args...)...)
	p.cmd.Env = append(os.Environ(), asService+"=1")
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.lines = bufio.NewScanner(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		_ = p.cmd.Process.Kill() // for a test that failed half way
		_ = p.cmd.Wait()
	})
	_, p.url, _ = strings.Cut(p.expect("listening on "), "listening on ")
	return p
}

// expect reads the output up to a line that contains text and returns it.
func (p *process) expect(text string) string {
	p.t.Helper()
	for p.lines.Scan() {
		if strings.Contains(p.lines.Text(), text) {
			return p.lines.Text()
		}
	}
	require.FailNow(p.t, "the output ended", "without %q; stderr: %s", text, p.stderr.String())
	return ""
}

// exit waits for the process and returns its status.
func (p *process) exit() int {
	p.t.Helper()
	for p.lines.Scan() { // to the end, as Wait asks
	}
	err := p.cmd.Wait()
	if _, failed := errors.AsType[*exec.ExitError](err); !failed {
		require.NoError(p.t, err)
	}
	require.NotContains(p.t, p.stderr.String(), "DATA RACE")
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(sig os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

// get returns status and body, or an error when there was no answer.
func (p *process) get(ctx context.Context, path string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), errors.Join(err, res.Body.Close())
}

// until asks for the figures until they are as wanted; the test's own deadline
// ends it otherwise.
func (p *process) until(want func(account) bool) {
	p.t.Helper()
	for {
		status, body, err := p.get(p.t.Context(), "/stats")
		require.NoError(p.t, err)
		require.Equal(p.t, http.StatusOK, status)
		var a account
		require.NoError(p.t, json.Unmarshal([]byte(body), &a))
		if want(a) {
			return
		}
	}
}

// answer is what one request got.
type answer struct {
	status int
	body   string
	err    error
}

// send starts n requests and returns where their answers arrive.
func (p *process) send(n int, path string) <-chan answer {
	answers := make(chan answer, n)
	for range n {
		go func() {
			status, body, err := p.get(p.t.Context(), path)
			answers <- answer{status, body, err}
		}()
	}
	return answers
}

func TestDrain(t *testing.T) {
	p := launch(t, "--concurrency", "20", "--capacity", "100", "--endpoints-wait", "0s", "--grace", "1h")
	// Workers first: the queue could be full before they have all begun.
	inFlight := p.send(20, "/work?wait=drain&hold=5ms")
	p.until(func(a account) bool { return a.InFlight == 20 && a.Depth == 0 })
	queued := p.send(100, "/work?wait=drain&hold=5ms")
	p.until(func(a account) bool { return a.InFlight == 20 && a.Depth == 100 })
	status, body, err := p.get(t.Context(), "/work")
	require.NoError(t, err)
	require.Equal(t, http.StatusTooManyRequests, status, body)

	p.signal(syscall.SIGTERM)
	for i := range 120 {
		answers := queued
		if i < 20 {
			answers = inFlight
		}
		a := <-answers
		require.NoError(t, a.err)
		require.Equal(t, http.StatusOK, a.status, a.body)
	}
	assert.Contains(t, p.expect("drained: "),
		"accepted=120 completed=120 dead_lettered=0 dropped=0 abandoned=0 pending=0 refused=1 balanced=true")
	assert.Equal(t, exitDrained, p.exit(), "%s", &p.stderr)
	_, _, err = p.get(t.Context(), "/healthz")
	assert.Error(t, err, "nobody listens any more")
}

func TestDrainIdle(t *testing.T) {
	p := launch(t, "--endpoints-wait", "0s")
	p.signal(os.Interrupt)
	assert.Contains(t, p.expect("drained: "), "accepted=0 completed=0")
	assert.Equal(t, exitDrained, p.exit(), "%s", &p.stderr)
}

// TestEndpointsWait: after the first signal the service is not ready but goes
// on serving, and a second one ends that.
func TestEndpointsWait(t *testing.T) {
	p := launch(t, "--endpoints-wait", "1h")
	status, _, err := p.get(t.Context(), "/readyz")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)

	p.signal(syscall.SIGTERM)
	p.expect("not ready, serving for 1h")
	for path, want := range map[string]int{"/readyz": 503, "/healthz": 200, "/work": 200} {
		status, body, err := p.get(t.Context(), path)
		require.NoError(t, err)
		require.Equal(t, want, status, "%s: %s", path, body)
	}
	p.until(func(a account) bool { return a.Completed == 1 && !a.Ready })
	p.signal(os.Interrupt)
	assert.Contains(t, p.expect("cut: "), "accepted=1 completed=1 ")
	assert.Equal(t, exitCut, p.exit(), "%s", &p.stderr)
}

func TestStuckHandler(t *testing.T) {
	p := launch(t, "--concurrency", "1", "--endpoints-wait", "0s", "--grace", "500ms")
	answers := p.send(2, "/work?stuck=true")
	p.until(func(a account) bool { return a.InFlight == 1 && a.Depth == 1 })
	p.signal(syscall.SIGTERM)
	assert.Contains(t, p.expect("deadline passed: "), "accepted=2 completed=0 dead_lettered=0 dropped=0 abandoned=2 pending=0")
	assert.Equal(t, exitFailed, p.exit(), "%s", &p.stderr)
	for range 2 {
		// A slow machine may not get the answer out before the end.
		if a := <-answers; a.err == nil {
			assert.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
		}
	}
}

func TestSecondSignal(t *testing.T) {
	p := launch(t, "--concurrency", "1", "--endpoints-wait", "0s", "--grace", "1h")
	answers := p.send(2, "/work?stuck=true")
	p.until(func(a account) bool { return a.InFlight == 1 && a.Depth == 1 })
	p.signal(syscall.SIGTERM)
	p.expect("draining for up to 1h")
	p.signal(syscall.SIGTERM)
	line := p.expect("cut: ")
	assert.Contains(t, line, "accepted=2 completed=0 ")
	assert.Contains(t, line, "balanced=true")
	assert.Equal(t, exitCut, p.exit(), "%s", &p.stderr)
	for range 2 {
		a := <-answers
		assert.NotEqual(t, http.StatusOK, a.status)
	}
}

func TestRunUsage(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"--nonsense"}, "nonsense"},
		{[]string{"extra"}, "extra"},
		{[]string{"--full", "explode"}, "explode"},
		{[]string{"--request-timeout", "0s"}, "--request-timeout"},
		{[]string{"--max-body", "-1"}, "--max-body"},
		{[]string{"--endpoints-wait", "-1s"}, "--endpoints-wait"},
		{[]string{"--grace", "0s"}, "--grace"},
		{[]string{"--capacity", "-1"}, "Capacity"},
		{[]string{"--concurrency", "-1"}, "Concurrency"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			var out, errs bytes.Buffer
			assert.Equal(t, exitUsage, run(tt.args, nil, &out, &errs))
			assert.Contains(t, errs.String(), tt.want)
			assert.Empty(t, out.String())
		})
	}
	var out, errs bytes.Buffer
	assert.Equal(t, 0, run([]string{"--help"}, nil, &out, &errs))
	assert.Contains(t, errs.String(), "-endpoints-wait")
}

func TestRunPortTaken(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	var out, errs bytes.Buffer
	assert.Equal(t, exitFailed, run([]string{"--listen", ln.Addr().String()}, nil, &out, &errs))
	assert.Contains(t, errs.String(), "address already in use")
}
