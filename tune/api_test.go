package tune_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/tune"
	"github.com/sedabus/seda/tune/api"
)

func newBus(tb testing.TB) *bus.Bus {
	tb.Helper()
	b, err := bus.New(bus.Config{NewShedder: shedder.Default})
	require.NoError(tb, err)
	_, err = b.Stage("parse", bus.StageConfig{Capacity: 77, Full: bus.Reject, MaxWaiters: 5, HopTimeout: time.Second})
	require.NoError(tb, err)
	require.NoError(tb, b.Start())
	tb.Cleanup(func() { _ = b.Close() })
	return b
}

func newAPI(tb testing.TB, b *bus.Bus, o tune.Options) *tune.API {
	tb.Helper()
	o.Open = len(o.Tokens) == 0
	o.WritesPerSecond = 1e6
	a, err := tune.New(b, o)
	require.NoError(tb, err)
	tb.Cleanup(a.Close)
	return a
}

func do(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, "http://localhost"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", api.TypeJSON)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if r.Header.Get("Host") != "" {
		r.Host = r.Header.Get("Host")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func write(actor, settings, more string) string {
	return `{"actor":"` + actor + `","reason":"test","settings":` + settings + more + `}`
}

func problemOf(t *testing.T, w *httptest.ResponseRecorder, status int, why api.Reason) api.Problem {
	t.Helper()
	var p api.Problem
	require.Equal(t, status, w.Code, w.Body)
	require.Equal(t, api.TypeProblem, w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, why, p.Reason, w.Body)
	return p
}

func TestOnlyTheNamedSettingChanges(t *testing.T) {
	b := newBus(t)
	s, _ := b.Lookup("parse")
	old := s.Config()
	w := do(newAPI(t, b, tune.Options{}), "PATCH", "/v1/stages/parse", write("ann", `{"concurrency":8}`, ""))
	require.Equal(t, 200, w.Code, w.Body)
	require.JSONEq(t, `{"resource":"stages/parse","version":2,"dry_run":false,"changes":[{"setting":"concurrency","from":1,"to":8}]}`, w.Body.String())
	require.Equal(t, `"2"`, w.Header().Get("ETag"))
	old.Concurrency = 8
	require.Equal(t, old, s.Config())
}

func TestAChangeIsInForceWhenTheAnswerIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t)
		s, _ := b.Lookup("parse")
		gate := make(chan struct{})
		require.NoError(t, s.Handle(func(context.Context, *bus.Envelope) error { <-gate; return nil }))
		for range 5 {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
		}
		synctest.Wait()
		a := newAPI(t, b, tune.Options{})
		require.Equal(t, 200, do(a, "PATCH", "/v1/stages/parse", write("ann", `{"concurrency":5}`, "")).Code)
		var st bus.StageStats
		s.ReadStats(&st)
		require.Equal(t, 5, st.Executors)
		synctest.Wait()
		require.Len(t, s.InFlight(), 5)
		close(gate)
		synctest.Wait()
	})
}

func TestBadWritesChangeNothing(t *testing.T) {
	b := newBus(t)
	a := newAPI(t, b, tune.Options{Bounds: map[string]tune.Bound{"concurrency": {Min: 1, Max: 50, MaxStep: 10}}})
	s, _ := b.Lookup("parse")
	old := s.Config()
	for name, c := range map[string]struct {
		body   string
		status int
		why    api.Reason
	}{
		"empty":            {"", 400, api.Invalid},
		"no object":        {"[]", 400, api.Invalid},
		"no actor":         {`{"reason":"x","settings":{"concurrency":2}}`, 400, api.Invalid},
		"no settings":      {write("a", "{}", ""), 400, api.Invalid},
		"unknown field":    {write("a", `{"concurrency":2}`, `,"x":1`), 400, api.Invalid},
		"unknown setting":  {write("a", `{"concurrency":2,"cocurrency":3}`, ""), 400, api.Invalid},
		"twice":            {write("a", `{"concurrency":2,"concurrency":3}`, ""), 400, api.Invalid},
		"text":             {write("a", `{"concurrency":"2"}`, ""), 400, api.Invalid},
		"fraction":         {write("a", `{"concurrency":2.5}`, ""), 400, api.Invalid},
		"NaN":              {write("a", `{"retry_factor":NaN}`, ""), 400, api.Invalid},
		"huge":             {write("a", `{"concurrency":9223372036854775808}`, ""), 400, api.Invalid},
		"trailing":         {write("a", `{"concurrency":2}`, "") + "{}", 400, api.Invalid},
		"lease too short":  {write("a", `{"concurrency":2}`, `,"lease":"1ms"`), 400, api.Invalid},
		"negative":         {write("a", `{"capacity":-1}`, ""), 422, api.Invalid},
		"the third is bad": {write("a", `{"capacity":9,"batch":2,"max_waiters":-3}`, ""), 422, api.Invalid},
		"enum":             {write("a", `{"full":"explode"}`, ""), 422, api.Invalid},
		"above the bound":  {write("a", `{"concurrency":51}`, ""), 422, api.OutOfBounds},
		"step":             {write("a", `{"concurrency":12,"capacity":9}`, ""), 422, api.OutOfBounds},
		"pull only":        {write("a", `{"pull_lease":"1s"}`, ""), 422, api.Invalid},
		"deep":             {strings.Repeat("[", 50_000), 400, api.Invalid},
		"too long":         {strings.Repeat(" ", 70_000), 413, api.TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			problemOf(t, do(a, "PATCH", "/v1/stages/parse", c.body), c.status, c.why)
			require.Equal(t, old, s.Config())
		})
	}
	w := do(a, "PATCH", "/v1/stages/parse", write("a", `{"concurrency":9}`, `,"dry_run":true`))
	require.Equal(t, 200, w.Code, w.Body)
	require.Contains(t, w.Body.String(), `"to":9`)
	require.Equal(t, old, s.Config())
}

func TestNullGoesBackToTheEmbeddersValue(t *testing.T) {
	b := newBus(t)
	a := newAPI(t, b, tune.Options{})
	s, _ := b.Lookup("parse")
	require.Equal(t, 200, do(a, "PATCH", "/v1/stages/parse", write("a", `{"capacity":5}`, "")).Code)
	require.Equal(t, 5, s.Config().Capacity)
	require.Equal(t, 200, do(a, "PATCH", "/v1/stages/parse", write("a", `{"capacity":null}`, "")).Code)
	require.Equal(t, 77, s.Config().Capacity)
	require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Capacity = 99 }))
	require.Contains(t, do(a, "GET", "/v1/stages/parse", "").Body.String(), `"capacity":{"value":99,"baseline":99`)
	require.Equal(t, `"4"`, do(a, "GET", "/v1/stages/parse", "").Header().Get("ETag"), "a change in Go is a new version")
}

func TestTheShortestIntervalIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, newBus(t), tune.Options{Bounds: map[string]tune.Bound{"stages/parse:batch": {Interval: time.Minute}}})
		require.Equal(t, 200, do(a, "PATCH", "/v1/stages/parse", write("a", `{"batch":5}`, "")).Code)
		time.Sleep(59 * time.Second)
		w := do(a, "PATCH", "/v1/stages/parse", write("a", `{"batch":6}`, ""))
		problemOf(t, w, 429, api.TooSoon)
		require.Equal(t, "1", w.Header().Get("Retry-After"))
		time.Sleep(time.Second)
		require.Equal(t, 200, do(a, "PATCH", "/v1/stages/parse", write("a", `{"batch":6}`, "")).Code)
	})
}

func TestLeasesHaveOneOwnerAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t)
		a := newAPI(t, b, tune.Options{})
		s, _ := b.Lookup("parse")
		set := func(actor, v, more string) *httptest.ResponseRecorder {
			return do(a, "PATCH", "/v1/stages/parse", write(actor, `{"concurrency":`+v+`}`, more))
		}
		require.Equal(t, 200, set("hpa", "4", `,"lease":"30s","on_expiry":"revert"`).Code)
		time.Sleep(10 * time.Second)
		p := problemOf(t, set("other", "2", `,"lease":"30s"`), 409, api.Owned)
		require.Equal(t, &api.Owner{Actor: "hpa", Kind: "lease", Left: "20s", OnExpiry: "revert"}, p.Owner)
		require.Equal(t, 200, set("hpa", "5", `,"lease":"30s","on_expiry":"revert"`).Code, "restarted under its name")
		require.Equal(t, 200, set("ann", "6", `,"hold":"60s"`).Code, "a person outranks it")
		problemOf(t, set("hpa", "5", `,"lease":"30s"`), 409, api.Owned)
		problemOf(t, set("bob", "5", `,"hold":"30s"`), 409, api.Owned)
		time.Sleep(61 * time.Second)
		require.EqualValues(t, 1, a.Expiries())
		require.Equal(t, 6, s.Config().Concurrency, "kept")
		require.Equal(t, 200, set("hpa", "7", `,"lease":"5s","on_expiry":"revert"`).Code)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, s.Config().Concurrency, "reverted without any request")
		require.Contains(t, do(a, "GET", "/v1/history", "").Body.String(),
			`"actor":"hpa","action":"expired","resource":"stages/parse","reason":"the lease ran out","changes":[{"setting":"concurrency","from":7,"to":1}]`)
		require.Equal(t, 200, do(a, "PATCH", "/v1/stages/parse/shedder", write("x", `{"mode":"off"}`, `,"lease":"1s"`)).Code)
		require.Equal(t, shedder.Off, s.Shedder().Config().Mode)
		time.Sleep(2 * time.Second)
		require.Equal(t, shedder.On, s.Shedder().Config().Mode, "reverts unless told to keep")
	})
}

func TestIfMatchAndRetries(t *testing.T) {
	b := newBus(t)
	a := newAPI(t, b, tune.Options{})
	body := write("a", `{"batch":5}`, "")
	first := do(a, "PATCH", "/v1/stages/parse", body, "If-Match", `"1"`, "Idempotency-Key", "k")
	require.Equal(t, 200, first.Code, first.Body)
	again := do(a, "PATCH", "/v1/stages/parse", body, "If-Match", `"1"`, "Idempotency-Key", "k")
	require.Equal(t, first.Body.String(), again.Body.String())
	require.Equal(t, first.Header(), again.Header())
	problemOf(t, do(a, "PATCH", "/v1/stages/parse", write("a", `{"batch":6}`, ""), "Idempotency-Key", "k"), 409, api.Conflict)
	problemOf(t, do(a, "PATCH", "/v1/stages/parse", body, "If-Match", `"1"`), 412, api.Stale)
}

func TestTenThousandWritersGetVersionsOfTheirOwn(t *testing.T) {
	a := newAPI(t, newBus(t), tune.Options{})
	const writers, all = 100, 10_000
	var mu sync.Mutex
	seen := map[uint64]int{}
	var wg sync.WaitGroup
	for g := range writers {
		wg.Go(func() {
			for range all / writers {
				tag := do(a, "GET", "/v1/stages/parse", "").Header().Get("ETag")
				w := do(a, "PATCH", "/v1/stages/parse", write("w", `{"capacity":`+strings.Repeat("1", 1+g%5)+`}`, ""), "If-Match", tag)
				var out api.Written
				if w.Code != 200 || json.Unmarshal(w.Body.Bytes(), &out) != nil || len(out.Changes) == 0 {
					continue
				}
				mu.Lock()
				seen[out.Version]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.NotEmpty(t, seen)
	for v := uint64(2); v < uint64(2+len(seen)); v++ {
		require.Equal(t, 1, seen[v], "version %d", v)
	}
}

func TestHoldsAreKeptApart(t *testing.T) {
	b := newBus(t)
	a := newAPI(t, b, tune.Options{})
	s, _ := b.Lookup("parse")
	require.Equal(t, 200, do(a, "POST", "/v1/stages/parse/suspend", `{"actor":"ann","reason":"db is down"}`).Code)
	require.Equal(t, "db is down", s.Holds()[0].Why)
	problemOf(t, do(a, "POST", "/v1/stages/parse/resume", `{"actor":"hpa","reason":"x"}`), 409, api.Conflict)
	require.Len(t, s.Holds(), 1)
	require.Equal(t, 200, do(a, "POST", "/v1/stages/parse/resume", `{"actor":"ann","reason":"up"}`).Code)
	require.Empty(t, s.Holds())
	require.Equal(t, 200, do(a, "POST", "/v1/bus/pause", `{"actor":"ann","reason":"x","for":"1h"}`).Code)
	require.Len(t, b.Holds(), 1)
	require.Equal(t, 200, do(a, "GET", "/readyz", "").Code, "paused is ready")
}

func TestLettersShowNoPayload(t *testing.T) {
	b := newBus(t)
	a := newAPI(t, b, tune.Options{})
	s, _ := b.Lookup("parse")
	for range 3 { // no handler: letters at once
		require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: "s3cret", Headers: []bus.Header{{Name: "auth", Value: "s3cret"}}}))
	}
	w := do(a, "GET", "/v1/letters?limit=2", "")
	var page api.Letters
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &page))
	require.Len(t, page.Letters, 2)
	require.Equal(t, "string", page.Letters[0].Payload)
	require.NotContains(t, w.Body.String(), "s3cret")
	require.NotContains(t, do(a, "GET", "/v1/letters/"+page.Next, "").Body.String(), "s3cret")
	w = do(a, "GET", "/v1/letters?limit=2&after="+page.Next, "")
	page = api.Letters{}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &page))
	require.Len(t, page.Letters, 1)
	require.NoError(t, s.Handle(func(context.Context, *bus.Envelope) error { return nil }))
	require.JSONEq(t, `{"redriven":2,"refused":0,"purged":0}`, do(a, "POST", "/v1/letters/redrive", `{"actor":"a","reason":"r","limit":2}`).Body.String())
	require.JSONEq(t, `{"redriven":0,"refused":0,"purged":1}`, do(a, "POST", "/v1/letters/purge", `{"actor":"a","reason":"r","stage":"parse"}`).Body.String())
}

func TestTokensAndSites(t *testing.T) {
	b := newBus(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, []byte(text), 0o600))
		return p
	}
	a := newAPI(t, b, tune.Options{Tokens: []tune.Token{
		{Name: "viewer", Path: file("r", "reader-0123456789\n"), Role: tune.Read},
		{Name: "admin", Path: file("w", "writer-0123456789\n"), Role: tune.Write},
	}})
	body := write("ann", `{"batch":5}`, "")
	r, w := "Bearer reader-0123456789", "Bearer writer-0123456789"
	problemOf(t, do(a, "GET", "/v1/stages", ""), 401, api.Unauthorized)
	problemOf(t, do(a, "GET", "/v1/stages", "", "Authorization", "Bearer "), 401, api.Unauthorized)
	problemOf(t, do(a, "GET", "/v1/stages", "", "Authorization", r+"x"), 401, api.Unauthorized)
	require.Equal(t, 200, do(a, "GET", "/v1/stages", "", "Authorization", r).Code)
	problemOf(t, do(a, "PATCH", "/v1/stages/parse", body, "Authorization", r), 403, api.Forbidden)
	require.Equal(t, 200, do(a, "PATCH", "/v1/stages/parse", body, "Authorization", w).Code)
	require.Contains(t, do(a, "GET", "/v1/history", "", "Authorization", r).Body.String(), `"identity":"admin"`)
	problemOf(t, do(a, "PATCH", "/v1/stages/parse", body, "Authorization", w, "Origin", "https://evil.example"), 403, api.Forbidden)
	problemOf(t, do(a, "GET", "/v1/stages", "", "Authorization", r, "Host", "evil.example"), 403, api.Forbidden)
	problemOf(t, do(a, "GET", "/v1/stages", "", "Authorization", r, "Sec-Fetch-Site", "cross-site"), 403, api.Forbidden)
	problemOf(t, do(a, "PATCH", "/v1/stages/parse", body, "Authorization", w, "Content-Type", "text/plain"), 415, api.MediaType)
	require.Equal(t, 200, do(a, "GET", "/healthz", "").Code)
}

func TestARevokedTokenLetsNobodyIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := filepath.Join(t.TempDir(), "t")
		require.NoError(t, os.WriteFile(p, []byte("first-0123456789"), 0o600))
		a := newAPI(t, newBus(t), tune.Options{Tokens: []tune.Token{{Name: "x", Path: p, Role: tune.Read}}})
		code := func(tok string) int { return do(a, "GET", "/v1/stages", "", "Authorization", "Bearer "+tok).Code }
		require.Equal(t, 200, code("first-0123456789"))
		require.NoError(t, os.WriteFile(p, []byte("other-0123456789"), 0o600))
		time.Sleep(time.Second)
		require.Equal(t, 401, code("first-0123456789"))
		require.Equal(t, 200, code("other-0123456789"))
		require.NoError(t, os.Remove(p))
		time.Sleep(time.Second)
		require.Equal(t, 401, code("other-0123456789"))
	})
}

func TestWithoutCredentialsNobodyWrites(t *testing.T) {
	a, err := tune.New(newBus(t), tune.Options{})
	require.NoError(t, err)
	require.Equal(t, 200, do(a, "GET", "/v1/stages", "").Code)
	problemOf(t, do(a, "PATCH", "/v1/stages/parse", write("a", `{"batch":5}`, "")), 403, api.Forbidden)
}

func TestReadyAndHealth(t *testing.T) {
	b, err := bus.New(bus.Config{})
	require.NoError(t, err)
	h := tune.Health(b)
	require.Equal(t, 503, do(h, "GET", "/readyz", "").Code)
	require.NoError(t, b.Start())
	require.Equal(t, 200, do(h, "GET", "/readyz", "").Code)
	require.Equal(t, 404, do(h, "PATCH", "/v1/bus", write("a", `{"max_handlers":5}`, "")).Code, "nothing else is reachable")
	a := newAPI(t, b, tune.Options{})
	require.NoError(t, b.Close())
	w := do(h, "GET", "/readyz", "")
	require.Equal(t, 503, w.Code)
	require.Contains(t, w.Body.String(), "closed")
	problemOf(t, do(a, "PATCH", "/v1/bus", write("a", `{"max_handlers":5}`, "")), 503, api.Closed)
}

func TestServe(t *testing.T) {
	b := newBus(t)
	for _, l := range []tune.Listen{{Address: "0.0.0.0:0"}, {Address: "[::]:0"}, {Network: "udp"}, {Network: "unix"}} {
		require.ErrorIs(t, tune.Serve(t.Context(), b, l, tune.Options{Open: true}, nil), tune.ErrInvalid, "%v", l)
	}
	ctx, stop := context.WithCancel(t.Context())
	addr, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- tune.Serve(ctx, b, tune.Listen{Address: "127.0.0.1:0"}, tune.Options{}, func(a net.Addr) { addr <- a.String() })
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+<-addr+"/v1/stages", http.NoBody)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, 200, res.StatusCode)
	stop()
	require.NoError(t, <-done)
}

func TestBadOptionsComeAllAtOnce(t *testing.T) {
	_, err := tune.New(nil, tune.Options{History: -1, Tokens: []tune.Token{{}}, Open: true})
	require.ErrorIs(t, err, tune.ErrInvalid)
	for _, field := range []string{"bus", "History", "Tokens[0].Name", "Tokens[0].Role", "Tokens[0].Path", "Open"} {
		require.ErrorContains(t, err, "Options."+field)
	}
}

func TestAdviceFollowsTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t)
		s, _ := b.Lookup("parse")
		require.NoError(t, s.Handle(func(context.Context, *bus.Envelope) error { time.Sleep(100 * time.Millisecond); return nil }))
		a := newAPI(t, b, tune.Options{})
		for range 300 { // 16 a second for 0.1 s each
			_ = s.TryPublish(&bus.Envelope{})
			time.Sleep(time.Second / 16)
		}
		var v api.Advice
		require.NoError(t, json.Unmarshal(do(a, "GET", "/v1/stages/parse/advice", "").Body.Bytes(), &v))
		require.InDelta(t, 16, v.Offered, 0.2)
		require.InDelta(t, 10, v.Drain, 0.5)
		require.InDelta(t, 1, v.Utilisation, 0.05)
		require.Equal(t, 2, v.For80)
		_, err := b.Shutdown(t.Context())
		require.NoError(t, err)
	})
}
