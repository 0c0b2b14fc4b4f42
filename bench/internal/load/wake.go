package load

import (
	"runtime"
	"runtime/metrics"
	"strings"
)

// turnSampling is in how many of a goroutine's turns the runtime takes the time
// that it waited for its turn: a constant of the runtime's.
const turnSampling = 8

// turnCount is how often goroutines were set running since the program started:
// after they waited, after they yielded and after they were preempted. It is
// estimated from the runtime's histogram of the time between, which samples.
func turnCount() float64 {
	s := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0
	}
	var n uint64
	for _, c := range s[0].Value.Float64Histogram().Counts {
		n += c
	}
	return float64(n) * turnSampling
}

// waitCount is how often goroutines waited in Instance.Produce since the block
// profile was switched on. A yield is not a wait.
func waitCount() float64 {
	records := make([]runtime.BlockProfileRecord, 1024)
	for {
		n, ok := runtime.BlockProfile(records)
		if ok {
			records = records[:n]
			break
		}
		records = make([]runtime.BlockProfileRecord, 2*n)
	}
	var waits int64
	for i := range records {
		if isProducing(records[i].Stack()) {
			waits += records[i].Count
		}
	}
	return float64(waits)
}

func isProducing(stack []uintptr) bool {
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, ").Produce") {
			return true
		}
		if !more {
			return false
		}
	}
}
