package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sedabus/seda/bus"
)

// Handler serves the figures of buses, and nothing else of the process, from a
// registry of its own. It changes nothing: any method but GET and HEAD is
// answered with 405. It is meant for a port that scrapers reach without a
// token. Errors are those of [Register].
func Handler(buses ...*bus.Bus) (http.Handler, error) {
	reg := prometheus.NewRegistry()
	if err := Register(reg, Options{}, buses...); err != nil {
		return nil, err
	}
	scrape := promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "metrics are read only: use GET", http.StatusMethodNotAllowed)
			return
		}
		scrape.ServeHTTP(w, r)
	}), nil
}
