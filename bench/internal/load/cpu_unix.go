//go:build unix

package load

import (
	"syscall"
	"time"
)

// cpuTime is the CPU time of this process, user and system.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// switchCount is how often a thread of this process gave up the processor to
// wait.
func switchCount() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Nvcsw)
}
