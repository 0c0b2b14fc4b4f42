// Package spin holds a mutex for critical sections of some tens of
// nanoseconds that several goroutines enter for every message.
//
// sync.Mutex parks a goroutine at once when the local run queue is not empty,
// which is the normal state of a busy producer; a park and a wake cost more
// than the whole hand-over. Mutex therefore tries again for a moment, gives
// the processor away a few times, and only then parks.
package spin

import (
	"runtime"
	"sync"
)

const (
	tries  = 24 // attempts before the processor is given away
	yields = 12 // rounds of attempts before parking
)

// Mutex is a mutual exclusion lock. The zero value is unlocked. It must not be
// held while waiting for anything.
type Mutex struct {
	mu sync.Mutex
}

// Lock locks m: it spins, yields, and parks in the end.
func (m *Mutex) Lock() {
	if m.mu.TryLock() {
		return
	}
	m.lockSlow()
}

func (m *Mutex) lockSlow() {
	for range yields {
		for range tries {
			if m.mu.TryLock() {
				return
			}
		}
		runtime.Gosched()
	}
	m.mu.Lock()
}

// TryLock locks m if it is free and reports whether it did.
func (m *Mutex) TryLock() bool { return m.mu.TryLock() }

// Unlock unlocks m.
func (m *Mutex) Unlock() { m.mu.Unlock() }
