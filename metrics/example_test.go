package metrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/metrics"
)

// A program serves the figures of its bus to Prometheus.
func ExampleHandler() {
	b, err := bus.New(bus.Config{Name: "orders"})
	if err != nil {
		panic(err)
	}
	if _, err = b.Stage("parse", bus.StageConfig{}); err != nil {
		panic(err)
	}
	h, err := metrics.Handler(b)
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", h)

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", http.NoBody))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "seda_stage_concurrency") {
			fmt.Print(line)
		}
	}
	// Output: seda_stage_concurrency{bus="orders",stage="parse"} 1
}
