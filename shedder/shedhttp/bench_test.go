package shedhttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/shedhttp"
)

// BenchmarkWrap is what the middleware costs a request: served, refused, and
// without it.
func BenchmarkWrap(b *testing.B) {
	p := &always{}
	s, err := shedder.New(shedder.Config{Policy: p, Concurrency: 4})
	require.NoError(b, err)
	m, err := shedhttp.New(shedhttp.Config{Shedder: s})
	require.NoError(b, err)
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for _, c := range []struct {
		name    string
		h       http.Handler
		verdict shedder.Verdict
	}{
		{"bare", bare, shedder.Verdict{}},
		{"served", m.Wrap(bare), shedder.Verdict{}},
		{"refused", m.Wrap(bare), shedder.Verdict{Action: shedder.Refuse, Rule: shedder.RuleBound, Reason: reason.Shed, Limit: 1, Value: 2}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p.verdict = c.verdict
			r, w := httptest.NewRequest(http.MethodGet, "/", http.NoBody), nowhere{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				c.h.ServeHTTP(w, r)
			}
		})
	}
}

// always is a policy that always says the same.
type always struct {
	shedder.Passive

	verdict shedder.Verdict
}

func (p *always) Admit(*shedder.Request) shedder.Verdict { return p.verdict }
