package shedhttp

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sedabus/seda/shedder"
)

// Problem says why a request was refused, as RFC 9457 has it. It is also the
// handler that answers so.
type Problem struct {
	Title  string `json:"title"`  // of the status
	Status int    `json:"status"` // the HTTP status
	Detail string `json:"detail"` // a sentence for people
	// Reason and Rule are the kind of refusal, in the words of package reason,
	// and the rule that decided, in those of package shedder.
	Reason string `json:"reason"`
	Rule   string `json:"rule,omitempty"`
	// Limit is the limit that decided and Value what stood against it.
	Limit float64 `json:"limit,omitempty"`
	Value float64 `json:"value,omitempty"`
	// RetryAfter is after how many whole seconds another try may do better, as
	// in the header: 1 or more; 0 where it would not.
	RetryAfter int64 `json:"retry_after,omitempty"`
}

// newProblem puts a refusal in HTTP's words.
func newProblem(e *shedder.RefusedError, status int) Problem {
	p := Problem{
		Title: http.StatusText(status), Status: status, Detail: e.Error(),
		Reason: e.Reason.String(), Rule: string(e.Rule), Limit: number(e.Limit), Value: number(e.Value),
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		p.RetryAfter = wholeSeconds(e.RetryAfter)
	}
	return p
}

// number leaves out what JSON has no way to write.
func number(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

// wholeSeconds rounds up, and to 1 at least: 0 would ask for a storm.
func wholeSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return max(1, s)
}

// body returns p as JSON.
func (p *Problem) body() []byte {
	body, err := json.Marshal(p)
	if err != nil { // not with these fields
		return []byte("{}\n")
	}
	return append(body, '\n')
}

// ServeHTTP answers with p.
func (p *Problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) { p.write(w, p.body()) }

func (p *Problem) write(w http.ResponseWriter, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) //nolint:gosec // it is JSON, and says so; a client that has gone is not told
}

// rendered is a Problem and its JSON, of one refusal.
type rendered struct {
	Problem

	of   *shedder.RefusedError
	json []byte
}

// ServeHTTP answers with what is rendered already.
func (r *rendered) ServeHTTP(w http.ResponseWriter, _ *http.Request) { r.write(w, r.json) }

// problemCache keeps the latest refusal in HTTP's words: a shedder hands the
// same error to many, and refusals should be cheap when there are most.
type problemCache struct {
	latest atomic.Pointer[rendered] // what it points to is immutable
}

func (c *problemCache) get(e *shedder.RefusedError, status int) *rendered {
	if r := c.latest.Load(); r != nil && r.of == e {
		return r
	}
	r := &rendered{Problem: newProblem(e, status), of: e}
	r.json = r.body()
	c.latest.Store(r)
	return r
}
