package prefetch_test

import (
	"testing"

	"github.com/sedabus/seda/internal/prefetch"
)

// No address is wrong: the hint must never fault.
func TestReadTakesAnyAddress(*testing.T) {
	for _, p := range []uintptr{0, 1, 4095, 1 << 30, ^uintptr(0), ^uintptr(0) >> 1} {
		prefetch.Read(p)
	}
}

func BenchmarkRead(b *testing.B) {
	for b.Loop() {
		prefetch.Read(0)
	}
}
