package shedhttp_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/shedhttp"
)

// TestStreaming: what a handler flushes arrives while it goes on.
func TestStreaming(t *testing.T) {
	for name, flush := range map[string]func(http.ResponseWriter) error{
		"type assertion": func(w http.ResponseWriter) error {
			w.(http.Flusher).Flush()
			return nil
		},
		"controller": func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				more := make(chan struct{})
				b := newBed(t, shedhttp.Config{}, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = io.WriteString(w, "one\n")
					assert.NoError(t, flush(w))
					<-more
					_, _ = io.WriteString(w, "two\n")
				}))
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://pipe/", http.NoBody)
				require.NoError(t, err)
				res, err := b.client.Do(r)
				require.NoError(t, err)
				lines := bufio.NewScanner(res.Body)
				require.True(t, lines.Scan())
				require.Equal(t, "one", lines.Text())
				require.Equal(t, 1, b.s.State(b.s.Now()).Promises.Outstanding, "a place is taken to the end of the stream")
				close(more)
				require.True(t, lines.Scan())
				require.Equal(t, "two", lines.Text())
				require.False(t, lines.Scan())
				require.NoError(t, res.Body.Close())
			})
		})
	}
}

func TestController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, shedhttp.Config{}, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c := http.NewResponseController(w)
			assert.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
			assert.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Hour)))
			assert.NoError(t, c.EnableFullDuplex())
		}))
		require.Equal(t, 200, b.must().status)
	})
}

// TestHijack: with the connection the place is given back, whatever the handler
// does with it afterwards.
func TestHijack(t *testing.T) {
	for name, hijack := range map[string]func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
		"type assertion": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() },
		"controller": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return http.NewResponseController(w).Hijack()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				more := make(chan struct{})
				b := newBed(t, shedhttp.Config{}, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					conn, _, err := hijack(w)
					if !assert.NoError(t, err) {
						return
					}
					<-more
					_, _ = io.WriteString(conn, "HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nmine")
					_ = conn.Close()
				}))
				got := make(chan answer, 1)
				go func() { got <- b.get(t.Context()) }()
				synctest.Wait()
				b.settled()
				close(more)
				require.Equal(t, "mine", (<-got).body)
				n, _ := b.policy.learnt()
				require.Zero(t, n, "how long a connection lives is no service time")
			})
		})
	}
}

// wrapped is another middleware's writer, which can do nothing by itself.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestOnlyWhatIsBelow: handlers find out what a writer can do by asking for it.
func TestOnlyWhatIsBelow(t *testing.T) {
	s, err := shedder.New(shedder.Config{Concurrency: 1})
	require.NoError(t, err)
	m, err := shedhttp.New(shedhttp.Config{Shedder: s})
	require.NoError(t, err)
	type flushing struct {
		http.ResponseWriter
		http.Flusher
	}
	type hijacking struct {
		http.ResponseWriter
		http.Hijacker
	}
	rec := httptest.NewRecorder()
	for name, c := range map[string]struct {
		w               http.ResponseWriter
		flush, hijack   bool
		flushed, wanted bool
	}{
		"neither":      {w: nowhere{}},
		"flush":        {w: flushing{nowhere{}, rec}, flush: true},
		"below":        {w: wrapped{rec}, flush: true},
		"hijack":       {w: hijacking{ResponseWriter: nowhere{}}, hijack: true},
		"hijack below": {w: wrapped{hijacking{ResponseWriter: nowhere{}}}, hijack: true},
	} {
		t.Run(name, func(t *testing.T) {
			m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, flush := w.(http.Flusher)
				_, hijack := w.(http.Hijacker)
				assert.Equal(t, c.flush, flush)
				assert.Equal(t, c.hijack, hijack)
				if !c.hijack {
					_, _, err := http.NewResponseController(w).Hijack()
					assert.ErrorIs(t, err, http.ErrNotSupported)
				}
				if flush {
					w.(http.Flusher).Flush()
				}
			})).ServeHTTP(c.w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		})
	}
	assert.True(t, rec.Flushed)
}

func TestHTTP2(t *testing.T) {
	s, err := shedder.New(shedder.Config{Concurrency: 1})
	require.NoError(t, err)
	m, err := shedhttp.New(shedhttp.Config{Shedder: s})
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, hijack := w.(http.Hijacker)
		_, flush := w.(http.Flusher)
		assert.False(t, hijack)
		assert.True(t, flush)
		_, _ = io.WriteString(w, r.Proto)
	})))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, http.NoBody)
	require.NoError(t, err)
	res, err := srv.Client().Do(r)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, "HTTP/2.0", string(body))
}

// readerFrom counts what takes the quick way.
type readerFrom struct {
	nowhere

	n *int64
}

func (w readerFrom) ReadFrom(src io.Reader) (int64, error) {
	n, err := io.Copy(io.Discard, src)
	*w.n += n
	return n, err
}

func TestFilesTakeTheQuickWay(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte(strings.Repeat("x", 100_000)), 0o600))
	p := &script{}
	s, err := shedder.New(shedder.Config{Policy: p, Concurrency: 1})
	require.NoError(t, err)
	m, err := shedhttp.New(shedhttp.Config{Shedder: s})
	require.NoError(t, err)
	h := m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) }))
	var quick int64
	h.ServeHTTP(readerFrom{nowhere{http.Header{}}, &quick}, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	require.Positive(t, quick)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	require.Equal(t, 100_000, rec.Body.Len(), "and without one it is a plain copy")
	n, failed := p.learnt()
	require.Equal(t, []int{2, 0}, []int{n, failed})
}

// TestCanceledContext: a server that ends answers those that wait.
func TestCanceledContext(t *testing.T) {
	s, err := shedder.New(shedder.Config{Concurrency: 1})
	require.NoError(t, err)
	m, err := shedhttp.New(shedhttp.Config{Shedder: s})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rec := httptest.NewRecorder()
	m.Wrap(fine).ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
	require.Equal(t, 503, rec.Code)
	require.Contains(t, rec.Body.String(), `"reason":"canceled"`)
}
