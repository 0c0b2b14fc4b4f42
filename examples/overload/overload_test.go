package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pipes is a network within the process, so that a bubble's time rules.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (*pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func inProcess() (*network, error) {
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	return &network{p, func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case p.conns <- theirs:
			return ours, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}, nil
}

// TestWhatAShedderIsGoodFor is exact, because its time is a bubble's.
func TestWhatAShedderIsGoodFor(t *testing.T) {
	o, err := parseFlags([]string{"--workers", "8", "--service", "40ms", "--for", "3s", "--patience", "800ms", "--outstanding", "5000"}, io.Discard)
	require.NoError(t, err)
	in := func(shed bool, load float64) (out *outcome) {
		synctest.Test(t, func(t *testing.T) {
			var err error
			out, err = measure(t.Context(), &o, inProcess, shed, load)
			require.NoError(t, err, "the account balances")
			require.Zero(t, out.failed)
			require.Zero(t, out.unsent)
		})
		return out
	}
	capacity := int(o.capacity() * o.length.Seconds())

	below := in(true, 0.7)
	assert.Zero(t, below.refused, "below capacity nothing is refused")
	assert.Zero(t, below.late)

	with, without := in(true, 3), in(false, 3)
	assert.GreaterOrEqual(t, with.inTime, capacity*95/100, "goodput stays near the capacity")
	assert.Zero(t, with.late)
	assert.LessOrEqual(t, with.quantile(.99), 20*o.service, "who is served waits for the length of a burst at most")
	assert.Greater(t, with.refused, capacity)

	assert.Zero(t, without.refused)
	assert.Less(t, without.inTime, capacity/2, "without a shedder only those are in time who come first")
	assert.Greater(t, without.quantile(.99), 5*with.quantile(.99))
	t.Logf("3 times the capacity: p99 %v with, %v without a shedder; %d and %d of %d in time",
		with.quantile(.99), without.quantile(.99), with.inTime, without.inTime, capacity)
}

// TestRunOnLoopback runs the program as it is. How fast this machine is today is
// not looked at: only that the account balances and that something was shed.
func TestRunOnLoopback(t *testing.T) {
	var out, errs bytes.Buffer
	status := run(t.Context(), []string{
		"--workers", "4", "--service", "10ms", "--for", "1s", "--loads", "0.3,3", "--outstanding", "200", "--status", "429",
	}, &out, &errs)
	t.Log("\n" + out.String())
	require.Equal(t, exitFine, status, "%s", &errs)
	assert.Contains(t, out.String(), "4 workers of 10ms: a capacity of 400 a second")
	assert.Contains(t, out.String(), "the account balances")
	rows := regexp.MustCompile(`(?m)^ *(\S+) +(on|off) +(\d+) +\d+ +\d+ +(\d+) `).FindAllStringSubmatch(out.String(), -1)
	require.Len(t, rows, 4)
	for i, want := range []string{"0.3 off", "0.3 on", "3 off", "3 on"} {
		row := rows[i]
		assert.Equal(t, want, row[1]+" "+row[2])
		assert.NotEqual(t, "0", row[3], "sent")
		if want == "3 on" {
			assert.NotEqual(t, "0", row[4], "refused")
		} else if row[2] == "off" {
			assert.Equal(t, "0", row[4], "refused")
		}
	}
}

// lines hands on what is written, a line at a time.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, done := make(lines, 1), make(chan int, 1)
	go func() { done <- run(ctx, []string{"--listen", "127.0.0.1:0", "--service", "1ms"}, out, io.Discard) }()
	_, rest, ok := strings.Cut(<-out, "listening on ")
	require.True(t, ok)
	url, _, _ := strings.Cut(rest, ",")
	client := &http.Client{Transport: &http.Transport{}}
	fetch := func(path string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, http.NoBody)
		require.NoError(t, err)
		res, err := client.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode, string(body)
	}
	status, body := fetch("/work")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "done\n", body)
	status, body = fetch("/stats")
	require.Equal(t, http.StatusOK, status)
	var st figures
	require.NoError(t, json.Unmarshal([]byte(body), &st))
	require.EqualValues(t, 1, st.Admitted)
	require.Equal(t, "adaptive", st.Policy)
	client.CloseIdleConnections()
	cancel()
	require.Equal(t, exitFine, <-done)
}

func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, err := parseFlags([]string{"--loads", "2", "--for", "1h"}, io.Discard)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var out bytes.Buffer
		require.NoError(t, compare(ctx, &o, inProcess, &out))
		require.Contains(t, out.String(), "on")
	})
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"--nonsense", []string{"nonsense"}},
		{"extra", []string{"unexpected argument"}},
		{"--workers 0 --service 0s --for -1s --patience 0s --outstanding 0 --status 200", []string{
			"--workers 0", "--service 0s", "--for -1s", "--patience 0s", "--outstanding 0", "--status 200",
		}},
		{"--loads 1,x", []string{`--loads "1,x"`}},
		{"--loads NaN", []string{`--loads "NaN"`}},
		{"--loads 100 --service 1ns", []string{"requests a second"}},
	} {
		var out, errs bytes.Buffer
		assert.Equal(t, exitUsage, run(t.Context(), strings.Fields(c.args), &out, &errs))
		for _, want := range c.want {
			assert.Contains(t, errs.String(), want)
		}
		assert.Empty(t, out.String())
	}
	var out, errs bytes.Buffer
	assert.Equal(t, exitFine, run(t.Context(), []string{"--help"}, &out, &errs))
	assert.Contains(t, errs.String(), "-patience")
	assert.Equal(t, exitFailed, run(t.Context(), []string{"--listen", "256.0.0.1:0"}, &out, &errs))
}
