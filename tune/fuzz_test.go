package tune_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/tune"
	"github.com/sedabus/seda/tune/api"
)

// operations are one request for each row of the route table.
func operations() [][3]string {
	signed := `{"actor":"a","reason":"r"}`
	return [][3]string{
		{"GET", "/healthz"},
		{"GET", "/readyz"},
		{"GET", "/v1/stages"},
		{"GET", "/v1/bus"},
		{"PATCH", "/v1/bus", write("a", `{"max_handlers":3}`, `,"lease":"5s"`)},
		{"POST", "/v1/bus/pause", signed},
		{"POST", "/v1/bus/resume", signed},
		{"GET", "/v1/stages/parse"},
		{"PATCH", "/v1/stages/parse", write("a", `{"concurrency":2,"full":"credit","hop_timeout":"3s"}`, "")},
		{"GET", "/v1/stages/parse/credit"},
		{"PATCH", "/v1/stages/parse/credit", write("a", `{"window":3,"target_factor":2.5}`, `,"dry_run":true`)},
		{"GET", "/v1/stages/parse/shedder"},
		{"PATCH", "/v1/stages/parse/shedder", write("a", `{"mode":"observe","max_share":0.5}`, `,"hold":"5s","on_expiry":"keep"`)},
		{"POST", "/v1/stages/parse/suspend", `{"actor":"a","reason":"r","for":"1h"}`},
		{"POST", "/v1/stages/parse/resume", signed},
		{"GET", "/v1/stages/parse/advice"},
		{"GET", "/v1/stages/parse/inflight"},
		{"DELETE", "/v1/stages/parse/inflight/1?actor=a&reason=r"},
		{"GET", "/v1/letters?after=1&limit=2&letter_reason=attempts"},
		{"GET", "/v1/letters/1"},
		{"POST", "/v1/letters/redrive", `{"actor":"a","reason":"r","per_second":5}`},
		{"POST", "/v1/letters/purge", signed},
		{"GET", "/v1/history?after=1"},
	}
}

func FuzzRequest(f *testing.F) {
	for _, o := range operations() {
		f.Add(o[0], o[1], "If-Match", `"1"`, []byte(o[2]))
	}
	f.Add("PATCH", "/v1/stages/..%2fx", "Origin", "null", []byte("{"))
	b := newBus(f)
	a := newAPI(f, b, tune.Options{})
	s, _ := b.Lookup("parse")
	f.Fuzz(func(t *testing.T, method, target, name, v string, body []byte) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		r := (&http.Request{
			Method: method, URL: u, Host: "localhost", Body: http.NoBody,
			Header: http.Header{"Content-Type": {api.TypeJSON}, http.CanonicalHeaderKey(name): {v}},
		}).WithContext(t.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
		before := s.Config()
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		switch {
		case w.Code >= 300 && w.Code < 400:
			t.Fatalf("%s %q redirects", method, target)
		case !json.Valid(w.Body.Bytes()):
			t.Fatalf("%s %q: no JSON: %q", method, target, w.Body)
		case w.Code >= 400 && !assert.ObjectsAreEqual(before, s.Config()):
			t.Fatalf("%s %q: refused with %d and changed", method, target, w.Code)
		}
	})
}

func TestEveryRouteHasASeed(t *testing.T) {
	b := newBus(t)
	a := newAPI(t, b, tune.Options{})
	seen := map[string]bool{}
	for _, o := range operations() {
		w := do(a, o[0], o[1], o[2])
		require.NotEqual(t, 405, w.Code, o)
		var p api.Problem
		if w.Code == 404 {
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
			require.NotContains(t, p.Detail, "path", o)
		} else {
			require.Less(t, w.Code, 300, "%v: %s", o, w.Body)
		}
		seen[o[0]+o[1]] = true
	}
	require.Len(t, seen, a.Routes())
}
