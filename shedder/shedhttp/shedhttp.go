// Package shedhttp puts a shedder.Shedder in front of an http.Handler, so that
// an HTTP server stays useful at any overload.
//
//	s, err := shedder.New(shedder.Config{Concurrency: 32})
//	...
//	m, err := shedhttp.New(shedhttp.Config{Shedder: s})
//	...
//	http.ListenAndServe(addr, m.Wrap(mux))
//
// Concurrency is how many requests are served at once: the number of database
// connections, or of whatever else the handlers share; GOMAXPROCS for handlers
// that only compute. A request that is let in waits for one of these places, so
// the number is enforced; see [Config.NoWait] for handlers that have a limit of
// their own. Refused requests are answered at once:
//
//	| what happened                                | reason        | answer                |
//	|----------------------------------------------|---------------|-----------------------|
//	| shed: too much work in hand                  | shed          | Config.Status, or 503 |
//	| shed: its deadline cannot be met             | shed_deadline | Config.Status, or 503 |
//	| pushed out by a request of a higher class    | pushed_out    | Config.Status, or 503 |
//	| above a rate limit                           | shed_rate     | 429                   |
//	| its deadline passed while it waited          | expired       | 504                   |
//	| the client went away, or the server ends     | canceled      | 503, if anybody reads |
//
// Answers 429 and 503 carry Retry-After in whole seconds, rounded up and at
// least 1. All have a body of the type application/problem+json (RFC 9457) with
// the members of [Problem]: what decided, its limit, and what stood against it.
//
// A place is given back, and nothing is learnt from the request, when the client
// goes away, when the handler panics (the panic goes on), and when the
// connection is hijacked: then at that moment, because from then on the server
// does not serve it any more. A client that goes away is noticed as net/http
// does: not before the body of its request was read.
//
// This is the only package of the shedder that imports net/http.
package shedhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sedabus/seda/internal/clock"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// maxClasses is that of a shedder.Request.
const maxClasses = 8

// Config configures a Middleware. Shedder is required; every other zero field
// means its documented default. The functions are called for each request, by
// the goroutine that serves it, before it is let in: they must be quick.
type Config struct {
	// Shedder decides. Its Concurrency must be set. It may serve several
	// Middlewares, which then share its places, but no stage of a bus.
	Shedder *shedder.Shedder
	// NoWait lets requests in without holding them back until one of
	// Concurrency places is free: for handlers that wait themselves, for a
	// connection of a pool for example. Concurrency must be that number then,
	// and classes push nothing out.
	NoWait bool
	// Status answers what is shed: from 400 to 599; 0 is 503. Many clients take
	// 503 for a server that is down and try another one, and 429 for something
	// that is their own doing.
	Status int
	// Skip says which requests are served without asking, such as those for
	// health and metrics, which an overloaded server should not refuse. Default
	// none.
	Skip func(*http.Request) bool
	// Class returns the priority class of a request, 0 the highest; what lies
	// outside 0 to Classes-1 counts as the nearest. Default 0.
	Class func(*http.Request) int
	// Classes is the number of classes, 0 or 1 to 8. With Class at least 1.
	Classes int
	// Sender and Key return whose request it is and what it is about, for
	// policies that are fair to, or limit, each of them. Default none. Do not
	// trust what the client can choose freely.
	Sender func(*http.Request) string
	Key    func(*http.Request) string
	// Timeout returns how long the client will wait from now; 0 or less is not
	// known. A request that cannot be done by then is refused. A deadline of
	// the request's context counts as well. The context that the handler gets
	// is not changed. See [HeaderTimeout].
	Timeout func(*http.Request) time.Duration
	// ServerErrorsPass counts answers of 500 and above as work that was done.
	// By default it failed.
	ServerErrorsPass bool
	// Refuse answers what is refused, in place of [Problem.ServeHTTP]. p must
	// not be changed.
	Refuse func(w http.ResponseWriter, r *http.Request, p *Problem)
	// OnError is told when the shedder cannot decide, which is no refusal: its
	// Concurrency was set to 0 or it was attached to a stage. The request is
	// served without it. Default: nobody is told.
	OnError func(r *http.Request, err error)
}

func (c *Config) validate() error {
	var errs []error
	fault := func(bad bool, format string, v ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("shedhttp: "+format, v...))
		}
	}
	fault(c.Shedder == nil, "Shedder is nil: it must be set")
	fault(c.Shedder != nil && c.Shedder.Config().Concurrency == 0,
		"Shedder has a Concurrency of 0: set it to the number of requests to be served at once")
	fault(c.Status != 0 && (c.Status < 400 || c.Status > 599), "Status %d: must be from 400 to 599, or 0 (503)", c.Status)
	fault(c.Classes < 0 || c.Classes > maxClasses, "Classes %d: must be from 0 to %d", c.Classes, maxClasses)
	fault(c.Class != nil && c.Classes == 0, "Classes 0: must be 1 or more where Class is set")
	return errors.Join(errs...)
}

// Middleware puts a shedder in front of handlers. It is immutable and safe for
// concurrent use.
type Middleware struct {
	cfg   Config
	clock *clock.Clock
	cache problemCache
}

// New returns a Middleware. All faults of the Config are returned at once.
func New(c Config) (*Middleware, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Status == 0 {
		c.Status = http.StatusServiceUnavailable
	}
	return &Middleware{cfg: c, clock: clock.New()}, nil
}

// Wrap returns a handler that asks the shedder and then calls h. A nil h
// answers 404.
func (m *Middleware) Wrap(h http.Handler) http.Handler {
	if h == nil {
		h = http.NotFoundHandler()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.cfg.Skip != nil && m.cfg.Skip(r) {
			h.ServeHTTP(w, r)
			return
		}
		p, err := m.ask(r)
		if err == nil {
			m.serve(h, w, r, p)
			return
		}
		if refused, ok := errors.AsType[*shedder.RefusedError](err); ok {
			m.refuse(w, r, refused)
			return
		}
		if m.cfg.OnError != nil {
			m.cfg.OnError(r, err)
		}
		h.ServeHTTP(w, r)
	})
}

// ask describes the request to the shedder.
func (m *Middleware) ask(r *http.Request) (shedder.Promise, error) {
	c := &m.cfg
	q := shedder.Request{Classes: c.Classes}
	if c.Class != nil {
		q.Class = min(max(0, c.Class(r)), c.Classes-1)
	}
	if c.Sender != nil {
		q.Sender = c.Sender(r)
	}
	if c.Key != nil {
		q.Key = c.Key(r)
	}
	if c.Timeout != nil {
		q.Deadline = c.deadline(c.Timeout(r))
	}
	if !c.NoWait {
		return c.Shedder.Acquire(r.Context(), q)
	}
	if r.Context().Err() != nil {
		q.Deadline = 1 // passed
	} else if t, ok := r.Context().Deadline(); ok {
		left := time.Duration(m.clock.FromWall(t) - m.clock.Now())
		if d := c.deadline(max(1, left)); q.Deadline == 0 || d < q.Deadline {
			q.Deadline = d
		}
	}
	return c.Shedder.AllowRequest(q)
}

// maxTimeout is beyond what anybody waits, and can be added to a clock.
const maxTimeout = 365 * 24 * time.Hour

// deadline is when timeout is over, on the clock of the shedder; 0 is never.
func (c *Config) deadline(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return 0
	}
	return c.Shedder.Now() + min(timeout, maxTimeout)
}

// serve calls the handler and settles p by what becomes of it.
func (m *Middleware) serve(h http.Handler, w http.ResponseWriter, r *http.Request, p shedder.Promise) {
	rec := &recorder{ResponseWriter: w, promise: p}
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit: it goes on
			rec.release()
		}
	}()
	h.ServeHTTP(rec.as(), r)
	returned = true
	switch {
	case rec.released.Load():
	case errors.Is(r.Context().Err(), context.Canceled):
		rec.release()
	case rec.status >= http.StatusInternalServerError && !m.cfg.ServerErrorsPass,
		r.Context().Err() != nil: // its time was over
		p.Fail()
	default:
		p.Pass()
	}
}

func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, e *shedder.RefusedError) {
	p := m.cache.get(e, m.status(e.Reason))
	if m.cfg.Refuse != nil {
		m.cfg.Refuse(w, r, &p.Problem)
		return
	}
	p.ServeHTTP(w, r)
}

// status is the table in the documentation of the package.
func (m *Middleware) status(why reason.Reason) int {
	switch why {
	case reason.Rate:
		return http.StatusTooManyRequests
	case reason.Expired:
		return http.StatusGatewayTimeout
	case reason.Canceled:
		return http.StatusServiceUnavailable
	default:
		return m.cfg.Status
	}
}
