package spin_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sedabus/seda/internal/spin"
)

func TestMutexExcludes(t *testing.T) {
	const workers, rounds = 8, 5_000
	var m spin.Mutex
	var wg sync.WaitGroup
	n, inside := 0, 0 // guarded by m; the race detector looks as well
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				m.Lock()
				if inside++; inside != 1 {
					t.Errorf("%d are inside", inside)
				}
				n++
				if (i+w)%64 == 0 {
					runtime.Gosched() // so that others come to spin, yield and park
				}
				inside--
				m.Unlock()
			}
		})
	}
	wg.Wait()
	if n != workers*rounds {
		t.Fatalf("counted %d, not %d", n, workers*rounds)
	}
}

func TestLockAmongExcludes(t *testing.T) {
	const workers, rounds = 8, 2_000
	var m spin.Mutex
	var waiting atomic.Int32
	var wg sync.WaitGroup
	n := 0 // guarded by m; the race detector looks as well
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				if w == 0 {
					m.Lock() // both ways at once
				} else {
					m.LockAmong(&waiting)
				}
				n++
				if (i+w)%64 == 0 {
					runtime.Gosched() // so that others come to wait, together
				}
				m.Unlock()
			}
		})
	}
	wg.Wait()
	if n != workers*rounds {
		t.Fatalf("counted %d, not %d", n, workers*rounds)
	}
	if w := waiting.Load(); w != 0 {
		t.Fatalf("%d are still counted as waiting", w)
	}
}

func TestTryLock(t *testing.T) {
	var m spin.Mutex
	if !m.TryLock() {
		t.Fatal("the zero value is not unlocked")
	}
	if m.TryLock() {
		t.Fatal("locked twice")
	}
	got := make(chan bool)
	go func() {
		m.Lock() // parks in the end
		got <- true
		m.Unlock()
	}()
	for range 10_000 {
		runtime.Gosched()
	}
	select {
	case <-got:
		t.Fatal("locked twice")
	default:
	}
	m.Unlock()
	<-got
	m.Lock()
	m.Unlock() //nolint:staticcheck // it must be free again
}

func BenchmarkMutex(b *testing.B) {
	for name, m := range map[string]sync.Locker{"spin": &spin.Mutex{}, "sync": &sync.Mutex{}} {
		b.Run(name, func(b *testing.B) {
			n := 0
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m.Lock()
					n++
					m.Unlock()
				}
			})
		})
	}
}
