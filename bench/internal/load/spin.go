package load

import (
	"runtime"
	"time"
)

// spinLoops is how many turns of the loop take a microsecond. Set once, before
// any run.
var spinLoops uint64

// Calibrate measures how many turns of the spinning loop take a microsecond on
// a quiet core: the best of many tries, since disturbances only slow it down.
func Calibrate() uint64 {
	const turns = 200_000
	best := time.Duration(1<<63 - 1)
	for range 25 {
		start := time.Now()
		runtime.KeepAlive(spinFor(turns))
		best = min(best, time.Since(start))
	}
	return uint64(turns * float64(time.Microsecond) / float64(best))
}

// SetSpin sets the turns of a microsecond for this process. Measurements that
// are to be compared use the same number. Not safe beside a run.
func SetSpin(turns uint64) { spinLoops = turns }

func spin() { runtime.KeepAlive(spinFor(spinLoops)) }

func spin10() { runtime.KeepAlive(spinFor(10 * spinLoops)) }

//go:noinline
func spinFor(n uint64) uint64 {
	x := uint64(88172645463325252)
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}
