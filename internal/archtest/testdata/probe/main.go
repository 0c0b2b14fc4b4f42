// The probe says what the packages that it is built with did to the process
// before main began, in one line of JSON, and then whether SIGTERM still ends it.
package main

import (
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func main() {
	stacks := make([]byte, 1<<20)
	// An init function may start a goroutine that has not got to its point yet.
	for range 50 {
		time.Sleep(2 * time.Millisecond)
		if n := runtime.Stack(stacks, true); strings.Contains(string(stacks[:n]), "os/signal.loop") {
			time.Sleep(200 * time.Millisecond) // the signals are asked for one by one after that
			break
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]int{
		"procs":      runtime.GOMAXPROCS(0),
		"goroutines": runtime.NumGoroutine(),
	})
	// To this very thread, so that the signal is dealt with before the call is over.
	runtime.LockOSThread()
	_, _, _ = syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(syscall.Gettid()), uintptr(syscall.SIGTERM))
	os.Exit(42)
}
