package conformance_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Kit{
		New: bustest.New,
	})
}

// The suite holds with shards, too: as many as processors, fewer and more. The
// long form has all pairs.
func TestConformanceSharded(t *testing.T) {
	type pair struct{ shards, procs int }
	pairs := []pair{{1, 1}, {2, 2}, {8, 2}, {64, 8}}
	if os.Getenv("SEDA_LONG") != "" {
		pairs = nil
		for _, shards := range []int{1, 2, 8, 64} {
			for _, procs := range []int{1, 2, 8} {
				pairs = append(pairs, pair{shards, procs})
			}
		}
	}
	for _, p := range pairs {
		t.Run(fmt.Sprintf("%d shards on %d", p.shards, p.procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(p.procs))
			conformance.Run(t, conformance.Kit{Shards: p.shards, New: func(t testing.TB, c bus.Config) *bus.Bus {
				t.Helper()
				c.Shards = p.shards
				return bustest.New(t, c)
			}})
		})
	}
}
