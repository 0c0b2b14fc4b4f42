package tune_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/tune"
)

func manyStages(tb testing.TB) *bus.Bus {
	tb.Helper()
	b := newBus(tb)
	for i := range 199 {
		_, err := b.Stage(fmt.Sprintf("s%d", i), bus.StageConfig{})
		require.NoError(tb, err)
	}
	return b
}

// BenchmarkReadStats200 is what the bus's part of a reading of 200 stages costs.
func BenchmarkReadStats200(b *testing.B) {
	bb := manyStages(b)
	var s bus.Stats
	bb.ReadStats(&s)
	b.ReportAllocs()
	for b.Loop() {
		bb.ReadStats(&s)
	}
}

// BenchmarkGetStages200 is the whole request without a network.
func BenchmarkGetStages200(b *testing.B) {
	a := newAPI(b, manyStages(b), tune.Options{})
	b.ReportAllocs()
	for b.Loop() {
		do(a, "GET", "/v1/stages", "")
	}
}

// BenchmarkPatch is a change of one setting, in force and answered.
func BenchmarkPatch(b *testing.B) {
	a := newAPI(b, newBus(b), tune.Options{})
	bodies := [2]string{write("a", `{"concurrency":2}`, ""), write("a", `{"concurrency":3}`, "")}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		do(a, "PATCH", "/v1/stages/parse", bodies[i&1])
	}
}
