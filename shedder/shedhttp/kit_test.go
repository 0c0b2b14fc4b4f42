package shedhttp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/shedhttp"
)

// script is a policy that answers as told and notes what it is told.
type script struct {
	shedder.Passive

	mu struct {
		sync.Mutex

		verdict shedder.Verdict
		asked   []shedder.Request
		done    []shedder.Done
	}
}

func (p *script) Admit(r *shedder.Request) shedder.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.asked = append(p.mu.asked, *r)
	return p.mu.verdict
}

func (p *script) Done(d *shedder.Done) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.done = append(p.mu.done, *d)
}

func (p *script) answer(v shedder.Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.verdict = v
}

// learnt is how many units the policy was told of, and how many of them failed.
func (p *script) learnt() (n, failed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.mu.done {
		n += d.N
		failed += d.Failed
	}
	return n, failed
}

func (p *script) last() shedder.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.asked[len(p.mu.asked)-1]
}

// pipes is a listener within the process, so that servers and clients work in
// a bubble of testing/synctest.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (*pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (l *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bed is a server with a shedder in front of a handler, and a client.
type bed struct {
	t      *testing.T
	s      *shedder.Shedder
	policy *script
	client *http.Client
}

// newBed serves h in the bubble of the test. The end of the test checks that
// every promise was settled.
func newBed(t *testing.T, c shedhttp.Config, concurrency int, h http.Handler) *bed {
	t.Helper()
	b := &bed{t: t, policy: &script{}}
	var err error
	b.s, err = shedder.New(shedder.Config{Policy: b.policy, Concurrency: concurrency})
	require.NoError(t, err)
	c.Shedder = b.s
	m, err := shedhttp.New(c)
	require.NoError(t, err)
	l := newPipes()
	srv := &http.Server{Handler: m.Wrap(h), ReadHeaderTimeout: time.Hour}
	served := make(chan struct{})
	go func() { // ends with the server
		defer close(served)
		_ = srv.Serve(l)
	}()
	tr := &http.Transport{DialContext: l.dial}
	b.client = &http.Client{Transport: tr}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		assert.NoError(t, srv.Shutdown(context.Background()))
		<-served
		b.settled()
	})
	return b
}

// settled checks that no place is taken.
func (b *bed) settled() {
	b.t.Helper()
	p := b.s.State(b.s.Now()).Promises
	assert.Zero(b.t, p.Outstanding)
	assert.Zero(b.t, p.Twice)
}

type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func (b *bed) get(ctx context.Context, header ...string) answer {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://pipe/", http.NoBody)
	if err != nil {
		return answer{err: err}
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := b.client.Do(r)
	if err != nil {
		return answer{err: err}
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	return answer{res.StatusCode, res.Header, string(body), err}
}

func (b *bed) must(header ...string) answer {
	b.t.Helper()
	a := b.get(b.t.Context(), header...)
	require.NoError(b.t, a.err)
	return a
}
