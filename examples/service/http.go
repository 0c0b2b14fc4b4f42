package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/reason"
)

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /work", s.serveWork)
	mux.HandleFunc("POST /work", s.serveWork)
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, "application/json", s.account())
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ready\n")
	})
	// Not about the bus: a probe that fails because of a backlog would have the
	// pod killed with the backlog.
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	return mux
}

// job is the payload of the work stage.
type job struct {
	hold      time.Duration // how long it takes
	untilDown bool          // first wait for the drain, as a long poll does
	stuck     bool          // never returns
	fail      bool          // fails
	body      int           // bytes of the request's body
}

// done is the reply, and the body of the answer.
type done struct {
	ID      uint64 `json:"id"`
	Attempt int    `json:"attempt"`
	Bytes   int    `json:"bytes"`
}

const maxHold = time.Hour

// parseJob reads the parameters of /work:
//
//	hold=50ms    how long the work takes, at most an hour
//	wait=drain   wait for the service to go down before that, as a long poll does
//	stuck=true   never return, as a defect would
//	fail=true    fail
func parseJob(q url.Values) (*job, error) {
	j := &job{}
	for name, values := range q {
		v := values[len(values)-1]
		var err error
		switch name {
		case "hold":
			j.hold, err = time.ParseDuration(v)
			if err == nil && (j.hold < 0 || j.hold > maxHold) {
				err = fmt.Errorf("must be from 0 to %v", maxHold)
			}
		case "wait":
			j.untilDown = v == "drain"
			if !j.untilDown {
				err = errors.New("must be drain")
			}
		case "stuck":
			j.stuck, err = strconv.ParseBool(v)
		case "fail":
			j.fail, err = strconv.ParseBool(v)
		default:
			err = errors.New("no such parameter")
		}
		if err != nil {
			return nil, fmt.Errorf("%s=%q: %w", name, v, err)
		}
	}
	return j, nil
}

// doJob is the handler of the work stage.
func (s *service) doJob(ctx context.Context, j *job, e *bus.Envelope) error {
	if j.stuck {
		select {} // deaf to its context too
	}
	if j.untilDown {
		select {
		case <-s.draining:
		case <-ctx.Done():
			return given(ctx)
		}
	}
	timer := time.NewTimer(j.hold)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return given(ctx)
	}
	if j.fail {
		return errors.New("the work failed")
	}
	e.Reply(done{ID: e.ID(), Attempt: e.Attempt(), Bytes: j.body})
	return nil
}

// given says how work ends whose context did. Nobody waits any more for what
// is past its deadline, so it is no failure to keep a dead letter of; anything
// else is the bus going down, which knows what to do.
func given(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return bus.Discard("its deadline passed while it was worked on")
	}
	return ctx.Err()
}

// serveWork hands the request to the stage and waits for the end. The bus
// takes the deadline of the request over, so work that nobody waits for any
// more is not started.
func (s *service) serveWork(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), s.o.requestTimeout)
	defer cancel()
	j, err := parseJob(r.URL.Query())
	if err != nil {
		problem{Status: http.StatusBadRequest, Reason: reason.Invalid.String(), Detail: err.Error()}.write(w)
		return
	}
	body, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, s.o.maxBody))
	if err != nil {
		p := problem{Status: http.StatusBadRequest, Reason: reason.Invalid.String(), Detail: err.Error()}
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			p.Status = http.StatusRequestEntityTooLarge
		}
		p.write(w)
		return
	}
	j.body = int(body)
	res, err := s.work.Call(ctx, &bus.Envelope{Payload: j})
	if p, bad := problemOf(res, err, ctx.Err()); bad {
		p.write(w)
		return
	}
	writeJSON(w, http.StatusOK, "application/json", res.Reply)
}

// problem is the body of an answer that is no success, in the shape of
// RFC 9457.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Reason string `json:"reason"` // the bus's word for it
	Detail string `json:"detail,omitempty"`

	retryAfter time.Duration
}

func (p problem) write(w http.ResponseWriter) {
	p.Title = http.StatusText(p.Status)
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		// Whole seconds, and never 0, which would ask for a storm.
		seconds := max(1, int64(math.Ceil(p.retryAfter.Seconds())))
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	writeJSON(w, p.Status, "application/problem+json", p)
}

// problemOf says in HTTP's words how a Call ended, and whether that is a
// problem at all. ctxErr is the request's.
func problemOf(res bus.Result, err, ctxErr error) (problem, bool) {
	if rejected, ok := errors.AsType[*bus.RejectedError](err); ok {
		p := problem{
			Status: refusalStatus(rejected.Reason), Reason: rejected.Reason.String(),
			Detail: err.Error(), retryAfter: rejected.RetryAfter,
		}
		if rejected.Cause != nil && ctxErr != nil {
			p.Status = http.StatusGatewayTimeout // it waited for room until its time was over
		}
		return p, true
	}
	if err != nil && ctxErr != nil {
		return problem{Status: http.StatusGatewayTimeout, Reason: reason.Expired.String(), Detail: ctxErr.Error()}, true
	}
	p := problem{Status: http.StatusInternalServerError, Reason: res.Reason.String()}
	if err != nil {
		p.Detail = err.Error()
	} else if res.Err != nil {
		p.Detail = res.Err.Error()
	}
	switch res.End {
	case bus.DeadLettered: // the work failed
	case bus.Completed:
		return p, err != nil
	case bus.Dropped:
		p.Status = http.StatusTooManyRequests // it made room for others
		if res.Reason == reason.Expired || res.Reason == reason.Discarded {
			p.Status = http.StatusGatewayTimeout
		}
	case bus.Abandoned:
		p.Status = http.StatusServiceUnavailable
	}
	return p, true
}

// refusalStatus is the status of a refused publish.
func refusalStatus(r reason.Reason) int {
	switch r {
	case reason.Full, reason.Newest, reason.Shed, reason.ShedDeadline, reason.Rate, reason.NoCredit:
		return http.StatusTooManyRequests
	case reason.Closed, reason.NotStarted, reason.Paused, reason.NoHandler, reason.Store, reason.Shutdown:
		return http.StatusServiceUnavailable
	case reason.Canceled, reason.Expired:
		return http.StatusGatewayTimeout
	case reason.Duplicate:
		return http.StatusConflict
	case reason.NoStage:
		return http.StatusNotFound
	case reason.Type:
		return http.StatusUnprocessableEntity
	case reason.Invalid:
		return http.StatusBadRequest
	default:
		return http.StatusInternalServerError
	}
}

func writeJSON(w http.ResponseWriter, status int, contentType string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a caller who has gone is not told
}
