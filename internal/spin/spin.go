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
	"sync/atomic"
)

const (
	tries  = 24 // attempts before the processor is given away
	yields = 12 // rounds of attempts before parking

	pauseTurns = 10_000 // of an empty loop: two to three microseconds
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

// LockAmong is Lock for one of many that each want the lock for one message, and
// count themselves in waiting while they try. Where they are several, they stay
// away from the lock for longer: each look at it takes the cache line away from the
// owner, and a processor does best with several turns in a row.
func (m *Mutex) LockAmong(waiting *atomic.Int32) {
	if m.mu.TryLock() {
		return
	}
	waiting.Add(1)
	m.lockAmong(waiting)
	waiting.Add(-1)
}

func (m *Mutex) lockAmong(waiting *atomic.Int32) {
	for range yields {
		if waiting.Load() > 1 {
			if pause(); m.mu.TryLock() {
				return
			}
		} else {
			for range tries {
				if m.mu.TryLock() {
					return
				}
			}
		}
		runtime.Gosched()
	}
	m.mu.Lock()
}

// pause lets time pass without touching memory.
//
//go:noinline
func pause() {
	for range pauseTurns {
	}
}

// TryLock locks m if it is free and reports whether it did.
func (m *Mutex) TryLock() bool { return m.mu.TryLock() }

// Unlock unlocks m.
func (m *Mutex) Unlock() { m.mu.Unlock() }
