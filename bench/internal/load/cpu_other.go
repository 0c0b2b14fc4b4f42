//go:build !unix

package load

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }

// switchCount is not known here.
func switchCount() float64 { return 0 }
