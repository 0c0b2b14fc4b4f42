package bench_test

import (
	"errors"
	"testing"

	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bench/internal/rival"
)

// benchmark runs b.N messages, at least one from every producer, through each
// workload of each system. Opening and checking are not timed, closing is.
func benchmark(b *testing.B, systems []load.System) {
	b.Helper()
	load.SetSpin(load.Calibrate())
	for _, spec := range load.All() {
		for _, sys := range systems {
			b.Run(spec.Name+"/"+sys.Name, func(b *testing.B) {
				b.ReportAllocs()
				each := uint64((b.N + spec.Producers - 1) / spec.Producers)
				err := load.RunCount(sys, spec, each, b.ResetTimer, b.StopTimer)
				if errors.Is(err, load.ErrUnsupported) {
					b.Skip(err)
				}
				if err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func BenchmarkRival(b *testing.B) { benchmark(b, rival.Systems()) }
