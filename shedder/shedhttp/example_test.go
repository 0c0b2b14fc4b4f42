package shedhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/shedhttp"
)

// A server that works on 32 requests at once, keeps the rest waiting for as
// long as that makes sense, and answers 429 beyond. Health checks always get
// through.
func Example() {
	s, err := shedder.New(shedder.Config{Concurrency: 32})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := shedhttp.New(shedhttp.Config{
		Shedder: s,
		Status:  http.StatusTooManyRequests,
		Skip:    func(r *http.Request) bool { return r.URL.Path == "/healthz" },
		Timeout: shedhttp.HeaderTimeout("X-Request-Timeout"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "hello")
	}))

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	fmt.Print(w.Code, " ", w.Body)
	// Output: 200 hello
}
