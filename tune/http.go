package tune

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sedabus/seda/tune/api"
)

// route is one operation. Everything the server does stands in this table.
type route struct {
	method, path string
	role         Role // None: without credentials
	serve        func(*call) (any, *api.Problem)
}

func (a *API) table() []route {
	return []route{
		{http.MethodGet, "/healthz", None, a.healthz},
		{http.MethodGet, "/readyz", None, a.readyz},
		{http.MethodGet, "/v1/stages", Read, a.getStages},
		{http.MethodGet, "/v1/bus", Read, a.getBus},
		{http.MethodPatch, "/v1/bus", Write, a.patch("")},
		{http.MethodPost, "/v1/bus/pause", Write, a.pause},
		{http.MethodPost, "/v1/bus/resume", Write, a.resume},
		{http.MethodGet, "/v1/stages/{name}", Read, a.getStage},
		{http.MethodPatch, "/v1/stages/{name}", Write, a.patch("")},
		{http.MethodGet, "/v1/stages/{name}/credit", Read, a.getPart("credit")},
		{http.MethodPatch, "/v1/stages/{name}/credit", Write, a.patch("credit")},
		{http.MethodGet, "/v1/stages/{name}/shedder", Read, a.getPart("shedder")},
		{http.MethodPatch, "/v1/stages/{name}/shedder", Write, a.patch("shedder")},
		{http.MethodPost, "/v1/stages/{name}/suspend", Write, a.pause},
		{http.MethodPost, "/v1/stages/{name}/resume", Write, a.resume},
		{http.MethodGet, "/v1/stages/{name}/advice", Read, a.getAdvice},
		{http.MethodGet, "/v1/stages/{name}/inflight", Read, a.getInFlight},
		{http.MethodDelete, "/v1/stages/{name}/inflight/{id}", Write, a.cancel},
		{http.MethodGet, "/v1/letters", Read, a.getLetters},
		{http.MethodGet, "/v1/letters/{id}", Read, a.getLetter},
		{http.MethodPost, "/v1/letters/redrive", Write, a.redrive},
		{http.MethodPost, "/v1/letters/purge", Write, a.purge},
		{http.MethodGet, "/v1/history", Read, a.getHistory},
	}
}

// call is one request under way.
type call struct {
	*http.Request
	id     identity
	body   []byte
	header http.Header // of the answer
}

func (a *API) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range a.table() {
		mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, q *http.Request) { a.run(w, q, &r) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, q *http.Request) { sendProblem(w, unrouted(mux, q, w.Header())) })
	return mux
}

// unrouted tells a wrong method from a wrong path.
func unrouted(mux *http.ServeMux, q *http.Request, h http.Header) *api.Problem {
	var allow []string
	for _, m := range []string{http.MethodGet, http.MethodPatch, http.MethodPost, http.MethodDelete} {
		other := *q
		other.Method = m
		if _, pattern := mux.Handler(&other); pattern != "/" && pattern != "" {
			allow = append(allow, m)
		}
	}
	if len(allow) == 0 {
		return problem(http.StatusNotFound, api.NotFound, "there is no such path")
	}
	h.Set("Allow", strings.Join(allow, ", "))
	return problem(http.StatusMethodNotAllowed, api.Method, "this path takes "+strings.Join(allow, " and "))
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	switch p := a.checkSite(r); {
	case p != nil:
		sendProblem(w, p)
	case r.URL == nil || !strings.HasPrefix(r.URL.Path, "/") || path.Clean(r.URL.Path) != r.URL.Path:
		sendProblem(w, problem(http.StatusNotFound, api.NotFound, "there is no such path"))
	default:
		a.mux.ServeHTTP(w, r)
	}
}

func (a *API) run(w http.ResponseWriter, q *http.Request, r *route) {
	c := &call{Request: q, header: w.Header()}
	var p *api.Problem
	if r.role != None {
		if c.id, p = a.who(q, r.role); p != nil {
			if p.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			sendProblem(w, p)
			return
		}
	}
	if r.role == Write {
		if p = a.admit(w, c); p != nil {
			sendProblem(w, p)
			return
		}
		a.remembered(w, c, r)
		return
	}
	send(w, c, r.serve)
}

// admit takes the body of a write in, within the limits.
func (a *API) admit(w http.ResponseWriter, c *call) *api.Problem {
	if !a.limit.Allow() {
		p := problem(http.StatusTooManyRequests, api.TooMany, "too many writes")
		p.RetryWait = time.Second.String()
		return p
	}
	if c.Method != http.MethodDelete {
		switch t, _, err := mime.ParseMediaType(c.Header.Get("Content-Type")); {
		case err == nil && t == api.TypeJSON, err == nil && t == api.TypePatch && c.Method == http.MethodPatch:
		default:
			return problem(http.StatusUnsupportedMediaType, api.MediaType, "send "+api.TypeJSON+", or with PATCH "+api.TypePatch)
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, c.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return problem(http.StatusRequestEntityTooLarge, api.TooLarge, "a body has at most 65536 bytes")
	}
	if err != nil {
		return problem(http.StatusBadRequest, api.Invalid, "the body could not be read")
	}
	c.body = body
	return nil
}

// answer is what a write with an Idempotency-Key was answered.
type answer struct {
	sum    [sha256.Size]byte
	status int
	etag   string
	body   []byte
}

const maxPast = 1024 // answers that are remembered

// remembered runs a write under the lock of writes, or repeats the answer that
// the same request got before. It sends without the lock: a slow reader holds
// nobody up.
func (a *API) remembered(w http.ResponseWriter, c *call, r *route) {
	key := c.Header.Get("Idempotency-Key")
	if len(key) > 256 {
		sendProblem(w, problem(http.StatusBadRequest, api.Invalid, "an Idempotency-Key has at most 256 bytes"))
		return
	}
	status, kind, body := a.answerOnce(c, r, key)
	sendBytes(w, status, kind, body)
}

func (a *API) answerOnce(c *call, r *route, key string) (status int, kind string, body []byte) {
	sum := sha256.Sum256([]byte(c.Method + "\n" + c.URL.RequestURI() + "\n" + strings.Join(c.Header.Values("If-Match"), ",") + "\n" + string(c.body)))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expireLocked()
	id := c.id.name + "\n" + key
	if old := a.mu.past[id]; key != "" && old != nil {
		if old.sum != sum {
			p := problem(http.StatusConflict, api.Conflict, "this Idempotency-Key was used for another request")
			return p.Status, api.TypeProblem, encode(p)
		}
		if old.etag != "" {
			c.header.Set("ETag", old.etag)
		}
		return old.status, api.TypeJSON, old.body
	}
	status, kind, body = answerOf(c, r.serve)
	if key != "" && status == http.StatusOK {
		a.keepLocked(id, &answer{sum, status, c.header.Get("ETag"), body})
	}
	return status, kind, body
}

func (a *API) keepLocked(key string, v *answer) {
	if len(a.mu.order) == maxPast {
		delete(a.mu.past, a.mu.order[0])
		a.mu.order = a.mu.order[1:]
	}
	a.mu.past[key] = v
	a.mu.order = append(a.mu.order, key)
}

func send(w http.ResponseWriter, c *call, serve func(*call) (any, *api.Problem)) {
	status, kind, body := answerOf(c, serve)
	sendBytes(w, status, kind, body)
}

func answerOf(c *call, serve func(*call) (any, *api.Problem)) (status int, kind string, body []byte) {
	out, p := serve(c)
	if p != nil {
		setRetry(c.header, p)
		return p.Status, api.TypeProblem, encode(p)
	}
	status = http.StatusOK
	if h, ok := out.(api.Health); ok && !h.OK {
		status = http.StatusServiceUnavailable
	}
	return status, api.TypeJSON, encode(out)
}

func encode(v any) []byte {
	var buf bytes.Buffer
	if err := json.NewEncoder(&buf).Encode(v); err != nil { // the types have nothing that fails
		return []byte("{}\n")
	}
	return buf.Bytes()
}

func sendBytes(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the reader may be gone
}

func setRetry(h http.Header, p *api.Problem) {
	if d, err := time.ParseDuration(p.RetryWait); err == nil && p.RetryWait != "" {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(d.Seconds()))))
	}
}

func sendProblem(w http.ResponseWriter, p *api.Problem) {
	setRetry(w.Header(), p)
	sendBytes(w, p.Status, api.TypeProblem, encode(p))
}

func problem(status int, why api.Reason, detail string) *api.Problem {
	return &api.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Reason: why}
}

func withFaults(status int, why api.Reason, detail string, faults []api.Fault) *api.Problem {
	p := problem(status, why, detail)
	p.Faults = faults
	return p
}

// matches says whether If-Match, if any, names the version in force.
func matches(ifMatch []string, etag string) bool {
	if len(ifMatch) == 0 {
		return true
	}
	for _, line := range ifMatch {
		for tag := range strings.SplitSeq(line, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || tag == etag {
				return true
			}
		}
	}
	return false
}
