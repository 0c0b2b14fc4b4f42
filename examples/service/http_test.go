package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/reason"
)

// testService is a service without a listener, in a bubble.
func testService(t *testing.T, c bus.StageConfig) *service {
	t.Helper()
	s, err := newService(options{stage: c, requestTimeout: time.Minute, maxBody: 10, grace: time.Second}, io.Discard)
	require.NoError(t, err)
	return s
}

// finish ends a service and checks that its account balances.
func finish(t *testing.T, s *service) {
	t.Helper()
	_, _ = s.bus.Shutdown(t.Context())
	synctest.Wait()
	a := s.account()
	require.True(t, a.Balanced, "%+v", a)
	require.Zero(t, a.Pending)
}

// ask sends a request to the handler and returns the answer.
func ask(s *service, ctx context.Context, method, target, body string) *httptest.ResponseRecorder { //nolint:revive // the service reads first
	w := httptest.NewRecorder()
	s.routes().ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body)))
	return w
}

// pending is a request that is under way.
type pending struct {
	answer chan *httptest.ResponseRecorder
}

func begin(s *service, ctx context.Context, target string) pending { //nolint:revive // the service reads first
	p := pending{make(chan *httptest.ResponseRecorder, 1)}
	go func() { p.answer <- ask(s, ctx, http.MethodGet, target, "") }()
	synctest.Wait()
	return p
}

func requireProblem(t *testing.T, w *httptest.ResponseRecorder, status int, why string) {
	t.Helper()
	require.Equal(t, status, w.Code, "%s", w.Body)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	var p problem
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, status, p.Status)
	require.Equal(t, why, p.Reason, "%s", p.Detail)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
		require.NoError(t, err)
		require.Positive(t, seconds)
	}
}

func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testService(t, bus.StageConfig{})
		require.NoError(t, s.bus.Start())
		w := ask(s, t.Context(), http.MethodPost, "/work?hold=10s", "12345")
		require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
		var d done
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &d))
		assert.Equal(t, 5, d.Bytes)
		assert.Equal(t, 1, d.Attempt)
		assert.NotZero(t, d.ID)
		finish(t, s)
		assert.EqualValues(t, 1, s.account().Completed)
	})
}

func TestCallerErrors(t *testing.T) {
	tests := []struct {
		name, method, target, body string
		status                     int
	}{
		{"hold", http.MethodGet, "/work?hold=soon", "", 400},
		{"negative hold", http.MethodGet, "/work?hold=-1s", "", 400},
		{"long hold", http.MethodGet, "/work?hold=2h", "", 400},
		{"wait", http.MethodGet, "/work?wait=forever", "", 400},
		{"stuck", http.MethodGet, "/work?stuck=maybe", "", 400},
		{"fail", http.MethodGet, "/work?fail=", "", 400},
		{"unknown", http.MethodGet, "/work?sleep=1s", "", 400},
		{"large", http.MethodPost, "/work", "12345678901", 413},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := testService(t, bus.StageConfig{})
				require.NoError(t, s.bus.Start())
				requireProblem(t, ask(s, t.Context(), tt.method, tt.target, tt.body), tt.status, "invalid")
				finish(t, s)
				require.Zero(t, s.account().Accepted)
			})
		})
	}
	t.Run("method", func(t *testing.T) {
		s := testService(t, bus.StageConfig{})
		require.Equal(t, http.StatusMethodNotAllowed, ask(s, t.Context(), http.MethodDelete, "/work", "").Code)
		require.NoError(t, s.bus.Close())
	})
}

func TestRefusalsWhenFull(t *testing.T) {
	tests := []struct {
		policy bus.FullPolicy
		why    string
	}{
		{bus.Reject, "full"},
		{bus.DropNewest, "newest"},
	}
	for _, tt := range tests {
		t.Run(tt.policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := testService(t, bus.StageConfig{Capacity: 1, Full: tt.policy})
				require.NoError(t, s.bus.Start())
				running := begin(s, t.Context(), "/work?wait=drain")
				queued := begin(s, t.Context(), "/work")
				requireProblem(t, ask(s, t.Context(), http.MethodGet, "/work", ""), http.StatusTooManyRequests, tt.why)
				require.EqualValues(t, 1, s.account().Refused)
				close(s.draining)
				require.Equal(t, http.StatusOK, (<-running.answer).Code)
				require.Equal(t, http.StatusOK, (<-queued.answer).Code)
				finish(t, s)
			})
		})
	}
}

func TestEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testService(t, bus.StageConfig{Capacity: 1, Full: bus.DropOldest})
		require.NoError(t, s.bus.Start())
		running := begin(s, t.Context(), "/work?wait=drain")
		oldest := begin(s, t.Context(), "/work")
		newest := begin(s, t.Context(), "/work")
		requireProblem(t, <-oldest.answer, http.StatusTooManyRequests, "evicted")
		close(s.draining)
		require.Equal(t, http.StatusOK, (<-running.answer).Code)
		require.Equal(t, http.StatusOK, (<-newest.answer).Code)
		finish(t, s)
	})
}

func TestUnavailable(t *testing.T) {
	tests := []struct {
		name  string
		setUp func(t *testing.T, s *service)
		why   string
	}{
		{"not started", func(*testing.T, *service) {}, "not_started"},
		{"paused", func(t *testing.T, s *service) {
			t.Helper()
			require.NoError(t, s.bus.Start())
			s.bus.Pause(bus.Hold{By: "operator", Why: "maintenance"})
		}, "paused"},
		{"closed", func(t *testing.T, s *service) {
			t.Helper()
			require.NoError(t, s.bus.Start())
			require.NoError(t, s.bus.Close())
		}, "closed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := testService(t, bus.StageConfig{})
				tt.setUp(t, s)
				requireProblem(t, ask(s, t.Context(), http.MethodGet, "/work", ""), http.StatusServiceUnavailable, tt.why)
				finish(t, s)
			})
		})
	}
}

// TestContextEnds covers the places where a request's time can run out.
func TestContextEnds(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := testService(t, bus.StageConfig{})
			require.NoError(t, s.bus.Start())
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			requireProblem(t, ask(s, ctx, http.MethodGet, "/work", ""), http.StatusGatewayTimeout, "canceled")
			finish(t, s)
		})
	})
	t.Run("while it waits for room", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := testService(t, bus.StageConfig{Capacity: 1, Full: bus.Block})
			require.NoError(t, s.bus.Start())
			running := begin(s, t.Context(), "/work?wait=drain")
			queued := begin(s, t.Context(), "/work")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			waiting := begin(s, ctx, "/work")
			require.Equal(t, 1, s.account().Waiters)
			w := <-waiting.answer
			require.Equal(t, http.StatusGatewayTimeout, w.Code, "%s", w.Body)
			require.EqualValues(t, 1, s.account().Refused)
			close(s.draining)
			require.Equal(t, http.StatusOK, (<-running.answer).Code)
			require.Equal(t, http.StatusOK, (<-queued.answer).Code)
			finish(t, s)
		})
	})
	t.Run("in the handler", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := testService(t, bus.StageConfig{})
			require.NoError(t, s.bus.Start())
			w := ask(s, t.Context(), http.MethodGet, "/work?hold=1h", "")
			require.Equal(t, http.StatusGatewayTimeout, w.Code, "%s", w.Body)
			finish(t, s)
			require.EqualValues(t, 1, s.account().Dropped)
		})
	})
	t.Run("in the queue", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := testService(t, bus.StageConfig{})
			require.NoError(t, s.bus.Start())
			running := begin(s, t.Context(), "/work?hold=50s")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			w := ask(s, ctx, http.MethodGet, "/work", "")
			require.Equal(t, http.StatusGatewayTimeout, w.Code, "%s", w.Body)
			require.Equal(t, http.StatusOK, (<-running.answer).Code)
			finish(t, s)
			a := s.account()
			require.EqualValues(t, 1, a.Completed)
			require.EqualValues(t, 1, a.Dropped, "expired work is not started")
		})
	})
}

func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testService(t, bus.StageConfig{})
		require.NoError(t, s.bus.Start())
		requireProblem(t, ask(s, t.Context(), http.MethodGet, "/work?fail=true", ""), http.StatusInternalServerError, "attempts")
		finish(t, s)
		require.EqualValues(t, 1, s.account().DeadLettered)
	})
}

func TestAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testService(t, bus.StageConfig{})
		require.NoError(t, s.bus.Start())
		running := begin(s, t.Context(), "/work?wait=drain")
		queued := begin(s, t.Context(), "/work")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.bus.Shutdown(ctx)
		require.Error(t, err)
		requireProblem(t, <-running.answer, http.StatusServiceUnavailable, "shutdown")
		requireProblem(t, <-queued.answer, http.StatusServiceUnavailable, "shutdown")
		close(s.draining)
		finish(t, s)
		require.EqualValues(t, 2, s.account().Abandoned)
	})
}

func TestRefusalStatusKnowsEveryReason(t *testing.T) {
	// What may refuse a publish has an answer of its own; 500 is for the rest.
	for r := reason.Invalid; r <= reason.Store; r++ {
		assert.NotEqual(t, http.StatusInternalServerError, refusalStatus(r), "%v", r)
	}
	assert.Equal(t, http.StatusInternalServerError, refusalStatus(reason.Attempts))
}

func TestProbes(t *testing.T) {
	s := testService(t, bus.StageConfig{})
	status := func(path string) int { return ask(s, t.Context(), http.MethodGet, path, "").Code }
	assert.Equal(t, http.StatusServiceUnavailable, status("/readyz"), "before the start")
	s.ready.Store(true)
	assert.Equal(t, http.StatusOK, status("/readyz"))
	assert.Equal(t, http.StatusOK, status("/healthz"))
	assert.Equal(t, http.StatusNotFound, status("/"))
	require.NoError(t, s.bus.Close())
}
