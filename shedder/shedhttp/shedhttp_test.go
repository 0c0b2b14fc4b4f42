package shedhttp_test

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/shedhttp"
)

var fine = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") })

// TestAnswers is the table in the documentation: a client that is refused on
// purpose can tell that from a server that is down, and the user has the choice.
func TestB098_Answers(t *testing.T) {
	shed := shedder.Verdict{
		Action: shedder.Refuse, Rule: shedder.RuleBound, Reason: reason.Shed,
		Limit: 52, Value: 60, RetryAfter: 1200 * time.Millisecond,
	}
	for name, c := range map[string]struct {
		config  shedhttp.Config
		verdict shedder.Verdict
		status  int
		after   string
	}{
		"shed":         {shedhttp.Config{}, shed, 503, "2"},
		"shed, as 429": {shedhttp.Config{Status: 429}, shed, 429, "2"},
		"shed, as 529": {shedhttp.Config{Status: 529}, shed, 529, ""},
		"deadline":     {shedhttp.Config{}, shedder.Verdict{Action: shedder.Refuse, Rule: shedder.RuleDeadline, Reason: reason.ShedDeadline}, 503, "1"},
		"rate": {
			shedhttp.Config{},
			shedder.Verdict{Action: shedder.Refuse, Rule: "rate", Reason: reason.Rate, RetryAfter: time.Minute},
			429, "60",
		},
		"no reason":   {shedhttp.Config{Status: 429}, shedder.Verdict{Action: shedder.Refuse}, 429, "1"},
		"not waiting": {shedhttp.Config{Status: 429, NoWait: true}, shed, 429, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, c.config, 4, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("served") }))
				b.policy.answer(c.verdict)
				a := b.must()
				require.Equal(t, c.status, a.status)
				require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
				require.Equal(t, "no-store", a.header.Get("Cache-Control"))
				require.Equal(t, c.after, a.header.Get("Retry-After"))
				var p shedhttp.Problem
				require.NoError(t, json.Unmarshal([]byte(a.body), &p))
				require.Equal(t, c.status, p.Status)
				require.Equal(t, string(c.verdict.Rule), p.Rule)
				require.InDelta(t, c.verdict.Limit, p.Limit, 0)
				require.InDelta(t, c.verdict.Value, p.Value, 0)
				require.NotEmpty(t, p.Reason)
				require.Contains(t, p.Detail, p.Reason)
				require.Equal(t, a.body, b.must().body, "rendered once or not")
			})
		})
	}
}

func TestBodyWordForWord(t *testing.T) {
	p := shedhttp.Problem{Title: "T", Status: 503, Detail: "d", Reason: "shed", Rule: "bound", Limit: 1.5, Value: 2, RetryAfter: 3}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, nil)
	assert.Equal(t, 503, w.Code)
	assert.JSONEq(t, `{"title":"T","status":503,"detail":"d","reason":"shed","rule":"bound","limit":1.5,"value":2,"retry_after":3}`, w.Body.String())
	assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
}

func TestFiguresThatJSONCannotWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, shedhttp.Config{}, 1, fine)
		b.policy.answer(shedder.Verdict{Action: shedder.Refuse, Limit: math.NaN(), Value: math.Inf(1), RetryAfter: math.MaxInt64})
		a := b.must()
		var p shedhttp.Problem
		require.NoError(t, json.Unmarshal([]byte(a.body), &p))
		require.Equal(t, "shed", p.Reason)
		require.Zero(t, p.Limit)
		require.Equal(t, "9223372037", a.header.Get("Retry-After"))
	})
}

func TestRefuseOfOnesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, shedhttp.Config{Refuse: func(w http.ResponseWriter, _ *http.Request, p *shedhttp.Problem) {
			http.Error(w, "busy: "+p.Reason, http.StatusTeapot)
		}}, 1, fine)
		b.policy.answer(shedder.Verdict{Action: shedder.Refuse})
		a := b.must()
		require.Equal(t, http.StatusTeapot, a.status)
		require.Equal(t, "busy: shed\n", a.body)
	})
}

// TestConcurrencyIsEnforced: never more than Concurrency handlers at once, and
// service times are measured without the wait.
func TestConcurrencyIsEnforced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		b := newBed(t, shedhttp.Config{}, 3, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
		}))
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() { assert.Equal(t, 200, b.get(t.Context()).status) })
		}
		wg.Wait()
		require.EqualValues(t, 3, most.Load())
		n, failed := b.policy.learnt()
		require.Equal(t, 30, n)
		require.Zero(t, failed)
		for _, d := range b.policy.mu.done {
			require.Equal(t, time.Second, d.Service)
		}
	})
}

func TestNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBed(t, shedhttp.Config{NoWait: true}, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { assert.Equal(t, 200, b.get(t.Context()).status) })
		}
		synctest.Wait()
		require.Equal(t, 10, b.s.State(b.s.Now()).Promises.Outstanding, "all in their handlers")
		close(release)
		wg.Wait()
	})
}

// TestHangUp: a client that goes away while it waits, or while it is served,
// leaves no place taken, and teaches nothing.
func TestHangUp(t *testing.T) {
	for _, noWait := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			entered := 0
			b := newBed(t, shedhttp.Config{NoWait: noWait}, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				entered++
				<-r.Context().Done()
			}))
			ctx, cancel := context.WithCancel(t.Context())
			errs := make(chan error)
			go func() { errs <- b.get(ctx).err }()
			synctest.Wait()
			waiting, giveUp := context.WithCancel(t.Context())
			if !noWait {
				go func() { errs <- b.get(waiting).err }()
				synctest.Wait()
				require.Equal(t, 2, b.s.State(b.s.Now()).Promises.Outstanding)
				giveUp()
				require.ErrorIs(t, <-errs, context.Canceled)
				synctest.Wait()
				require.Equal(t, 1, b.s.State(b.s.Now()).Promises.Outstanding)
			}
			cancel()
			require.ErrorIs(t, <-errs, context.Canceled)
			synctest.Wait()
			giveUp()
			require.Equal(t, 1, entered)
			b.settled()
			n, _ := b.policy.learnt()
			require.Zero(t, n)
		})
	}
}

// TestPanic: the place is given back, and the panic goes on to net/http, which
// ends the connection.
func TestPanic(t *testing.T) {
	for name, end := range map[string]func(){
		"abort":  func() { panic(http.ErrAbortHandler) },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, shedhttp.Config{}, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { end() }))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // net/http leaves the connection of a Goexit open
				defer cancel()
				require.Error(t, b.get(ctx).err)
				b.settled()
				n, _ := b.policy.learnt()
				require.Zero(t, n)
				b.policy.answer(shedder.Verdict{Action: shedder.Refuse})
				require.Equal(t, 503, b.must().status, "and goes on")
			})
		})
	}
	s, err := shedder.New(shedder.Config{Concurrency: 1})
	require.NoError(t, err)
	m, err := shedhttp.New(shedhttp.Config{Shedder: s})
	require.NoError(t, err)
	h := m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("mine") }))
	require.PanicsWithValue(t, "mine", func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody)) })
	require.Zero(t, s.State(s.Now()).Promises.Outstanding)
}

func TestServerErrors(t *testing.T) {
	for status, fails := range map[int]bool{200: false, 302: false, 404: false, 499: false, 500: true, 503: true, 599: true} {
		for _, pass := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, shedhttp.Config{ServerErrorsPass: pass}, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusEarlyHints)
					w.WriteHeader(status)
				}))
				require.Equal(t, status, b.must().status)
				n, failed := b.policy.learnt()
				require.Equal(t, 1, n)
				require.Equal(t, fails && !pass, failed == 1, "%d, ServerErrorsPass %v", status, pass)
			})
		}
	}
}

func TestDescribesTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := 1
		b := newBed(t, shedhttp.Config{
			Class:   func(*http.Request) int { return class },
			Classes: 3,
			Sender:  func(r *http.Request) string { return r.Header.Get("From") },
			Key:     func(r *http.Request) string { return r.URL.Path },
			Timeout: shedhttp.HeaderTimeout("Within"),
		}, 1, fine)
		require.Equal(t, 200, b.must("From", "ann", "Within", "1.5s").status)
		q := b.policy.last()
		require.Equal(t, 1, q.Class)
		require.Equal(t, 3, q.Classes)
		require.Equal(t, "ann", q.Sender)
		require.Equal(t, "/", q.Key)
		require.Equal(t, 1500*time.Millisecond, q.Deadline-q.Now)

		for given, want := range map[int]int{-5: 0, 3: 2, math.MaxInt: 2} {
			class = given
			require.Equal(t, 200, b.must().status)
			require.Equal(t, want, b.policy.last().Class)
			require.Zero(t, b.policy.last().Deadline)
		}
	})
}

// within is a handler in front that gives requests a deadline.
func within(d time.Duration, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), d)
		defer cancel()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

func TestDeadlines(t *testing.T) {
	for _, noWait := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &script{}
			s, err := shedder.New(shedder.Config{Policy: p, Concurrency: 1})
			require.NoError(t, err)
			m, err := shedhttp.New(shedhttp.Config{Shedder: s, NoWait: noWait})
			require.NoError(t, err)
			slow := m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case <-r.Context().Done():
				case <-time.After(time.Second):
				}
			}))
			ask := func(h http.Handler) int {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
				return w.Code
			}
			require.Equal(t, 200, ask(within(2*time.Second, slow)))
			require.Equal(t, 2*time.Second, p.last().Deadline-p.last().Now, "the context's deadline counts")
			require.Equal(t, 504, ask(within(0, slow)))
			require.Equal(t, 504, ask(within(math.MinInt64, slow)))
			n, failed := p.learnt()
			require.Equal(t, []int{1, 0}, []int{n, failed})
			require.Equal(t, 200, ask(within(time.Second/2, slow)))
			n, failed = p.learnt()
			require.Equal(t, []int{2, 1}, []int{n, failed}, "a handler whose time was over failed")
			if !noWait {
				go ask(slow)
				synctest.Wait()
				require.Equal(t, 504, ask(within(time.Second/2, slow)), "while it waited")
				time.Sleep(time.Second)
				synctest.Wait()
			}
			require.Zero(t, s.State(s.Now()).Promises.Outstanding)
		})
	}
}

func TestPushedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBed(t, shedhttp.Config{
			Classes: 2,
			Class: func(r *http.Request) int {
				if r.Header.Get("Class") == "high" {
					return 0
				}
				return 1
			},
		}, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
		low := make(chan answer, 2)
		for range 2 {
			go func() { low <- b.get(t.Context()) }()
		}
		synctest.Wait()
		b.policy.answer(shedder.Verdict{Action: shedder.PushOut})
		high := make(chan answer, 1)
		go func() { high <- b.get(t.Context(), "Class", "high") }()
		a := <-low
		require.Equal(t, 503, a.status)
		require.Contains(t, a.body, `"reason":"pushed_out"`)
		close(release)
		require.Equal(t, 200, (<-high).status)
		require.Equal(t, 200, (<-low).status)
	})
}

func TestSkip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, shedhttp.Config{Skip: func(r *http.Request) bool { return r.Header.Get("Probe") != "" }}, 1, fine)
		b.policy.answer(shedder.Verdict{Action: shedder.Refuse})
		require.Equal(t, 503, b.must().status)
		require.Equal(t, "fine", b.must("Probe", "1").body)
		require.EqualValues(t, 1, b.s.State(b.s.Now()).Asked)
	})
}

// TestNoDecision: a shedder that cannot decide lets the requests through, and
// somebody is told.
func TestNoDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told error
		b := newBed(t, shedhttp.Config{OnError: func(_ *http.Request, err error) { told = err }}, 1, fine)
		require.NoError(t, b.s.Tune(func(c *shedder.Config) { c.Concurrency = 0 }))
		require.Equal(t, "fine", b.must().body)
		require.ErrorIs(t, told, shedder.ErrConcurrency)
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, shedhttp.Config{}, 1, nil)
		require.NoError(t, b.s.Attach())
		require.Equal(t, 404, b.must().status)
	})
}

func TestConfigFaults(t *testing.T) {
	_, err := shedhttp.New(shedhttp.Config{Status: 200, Classes: 9})
	for _, want := range []string{"Shedder is nil", "Status 200", "Classes 9"} {
		require.ErrorContains(t, err, want)
	}
	s, err := shedder.New(shedder.Config{})
	require.NoError(t, err)
	_, err = shedhttp.New(shedhttp.Config{Shedder: s, Status: 600, Class: func(*http.Request) int { return 0 }})
	for _, want := range []string{"Shedder has a Concurrency of 0", "Status 600", "Classes 0: must be 1 or more"} {
		require.ErrorContains(t, err, want)
	}
}

// TestAdaptiveUnderLoad: three times what the handlers can do, with the default
// policy, in a bubble: what is refused and what is served is all there is, and
// the server does as much as it can.
func TestAdaptiveUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, service, seconds = 8, 10 * time.Millisecond, 5
		s, err := shedder.New(shedder.Config{Policy: adaptive(t), Concurrency: workers})
		require.NoError(t, err)
		m, err := shedhttp.New(shedhttp.Config{Shedder: s})
		require.NoError(t, err)
		h := m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(service) }))
		var served, refused atomic.Int64
		var longest atomic.Int64
		var wg sync.WaitGroup
		const offered = 3 * workers * seconds * int(time.Second/service)
		for range offered {
			time.Sleep(service / (3 * workers))
			wg.Go(func() {
				began := time.Now()
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
				if w.Code == 200 {
					served.Add(1)
					longest.Store(max(longest.Load(), int64(time.Since(began))))
				} else {
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, offered, served.Load()+refused.Load())
		require.GreaterOrEqual(t, served.Load(), int64(offered/3*98/100), "goodput")
		require.Less(t, time.Duration(longest.Load()), 40*service, "nobody that was served waited long")
		st := s.State(s.Now())
		require.EqualValues(t, refused.Load(), st.Shed)
		require.Zero(t, st.Promises.Outstanding)
	})
}

func adaptive(t testing.TB) shedder.Policy {
	t.Helper()
	p, err := shedder.NewAdaptive(shedder.AdaptiveConfig{})
	require.NoError(t, err)
	return p
}

// nowhere is a ResponseWriter that costs nothing.
type nowhere struct{ h http.Header }

func (w nowhere) Header() http.Header       { return w.h }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) WriteHeader(int)             {}

func TestAllocs_Served(t *testing.T) {
	s, err := shedder.New(shedder.Config{Concurrency: 4})
	require.NoError(t, err)
	m, err := shedhttp.New(shedhttp.Config{Shedder: s})
	require.NoError(t, err)
	h := m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	r, w := httptest.NewRequest(http.MethodGet, "/", http.NoBody), nowhere{}
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }), 2.0, "what sees the status, and what net/http wants of it")
}

func FuzzHeaderTimeout(f *testing.F) {
	for _, text := range []string{"", "1", "1.5s", "250ms", "-1", "NaN", "Inf", "1e300", "1e-300", "9999999h", "0x1p-2", "1_000", strings.Repeat("1", 100)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := &http.Request{Header: http.Header{"Within": {text}}}
		d := shedhttp.HeaderTimeout("within")(r)
		if d < 0 || d > 365*24*time.Hour {
			t.Fatalf("%q: %v", text, d)
		}
		if want, err := time.ParseDuration(text); err == nil && want > 0 && want <= 365*24*time.Hour && len(text) <= 64 && d != want {
			t.Fatalf("%q: %v, not %v", text, d, want)
		}
	})
}

func TestHeaderTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "2": 2 * time.Second, "0.25": 250 * time.Millisecond, "1m": time.Minute, "-1s": 0, "0": 0, "soon": 0,
		"NaN": 0, "+Inf": 0, "1e10": 0, "9000h": 0, "8760h": 8760 * time.Hour,
	} {
		r := &http.Request{Header: http.Header{"Within": {text}}}
		assert.Equal(t, want, shedhttp.HeaderTimeout("Within")(r), text)
	}
}
