package shedhttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/sedabus/seda/shedder"
)

// recorder is a ResponseWriter that sees the status and a hijacking. It can do
// what the one below it can: see as.
type recorder struct {
	http.ResponseWriter

	promise  shedder.Promise
	released atomic.Bool // the place was given back
	status   int         // written and read by the handler's goroutine; 0 is none yet
}

// release gives the place back, once. Nothing is learnt from the request.
func (w *recorder) release() {
	if !w.released.Swap(true) {
		w.promise.Drop()
	}
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes the status.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write notes that the status is 200 if none was set.
func (w *recorder) Write(b []byte) (int, error) {
	w.ok()
	return w.ResponseWriter.Write(b)
}

// ReadFrom keeps the quick way from files to connections.
func (w *recorder) ReadFrom(src io.Reader) (int64, error) {
	w.ok()
	return io.Copy(w.ResponseWriter, src)
}

func (w *recorder) ok() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}

// flush and hijack are what the recorder passes on if it can.

func (w *recorder) flush() error {
	w.ok()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *recorder) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.release()
	}
	return conn, rw, err
}

// The methods under the names that others look for. These are as large as a
// pointer, so that it costs nothing to hand them on.
type (
	flusher  struct{ *recorder }
	hijacker struct{ *recorder }
	both     struct{ *recorder }
)

// Flush implements http.Flusher.
func (w flusher) Flush() { _ = w.flush() }

// FlushError is what http.ResponseController prefers.
func (w flusher) FlushError() error { return w.flush() }

// Hijack implements http.Hijacker.
func (w hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

// Flush implements http.Flusher.
func (w both) Flush() { _ = w.flush() }

// FlushError is what http.ResponseController prefers.
func (w both) FlushError() error { return w.flush() }

// Hijack implements http.Hijacker.
func (w both) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

// as returns w with the methods Flush and Hijack if what is below has them, and
// only then: handlers ask for them by type assertion, to find out.
func (w *recorder) as() http.ResponseWriter {
	flushes := below[http.Flusher](w.ResponseWriter) || below[interface{ FlushError() error }](w.ResponseWriter)
	hijacks := below[http.Hijacker](w.ResponseWriter)
	switch {
	case flushes && hijacks:
		return both{w}
	case flushes:
		return flusher{w}
	case hijacks:
		return hijacker{w}
	default:
		return w
	}
}

// below tells whether w, or one that it wraps, is a T.
func below[T any](w http.ResponseWriter) bool {
	for {
		if _, ok := w.(T); ok {
			return true
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = u.Unwrap()
	}
}
