package load

import "runtime/metrics"

// wakeSampling is in how many of a goroutine's turns the runtime takes the time
// that it waited for its turn: a constant of the runtime's.
const wakeSampling = 8

// wakeCount is how often goroutines were set running since the program started:
// after they waited, after they yielded and after they were preempted. It is
// estimated from the runtime's histogram of the time between, which samples.
func wakeCount() float64 {
	s := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0
	}
	var n uint64
	for _, c := range s[0].Value.Float64Histogram().Counts {
		n += c
	}
	return float64(n) * wakeSampling
}
