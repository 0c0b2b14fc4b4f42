package tune_test

import (
	"fmt"
	"net/http"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/tune"
)

// A program mounts the API below a prefix of a server of its own, and says how
// far anybody may go.
func ExampleNew() {
	b, err := bus.New(bus.Config{})
	if err != nil {
		panic(err)
	}
	a, err := tune.New(b, tune.Options{
		Bounds: map[string]tune.Bound{"concurrency": {Min: 1, Max: 64, MaxStep: 8}},
	})
	if err != nil {
		panic(err)
	}
	defer a.Close()
	mux := http.NewServeMux()
	mux.Handle("/seda/", http.StripPrefix("/seda", a))
	fmt.Println(do(mux, "GET", "/seda/v1/bus", "").Code)
	// Output: 200
}
