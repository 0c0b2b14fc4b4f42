package bus_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
)

// scaled is n, or long where the long tests are asked for.
func scaled(n, long int) int {
	if os.Getenv("SEDA_LONG") != "" {
		return long
	}
	return n
}

func TestB053_WaitingPublishersAreBounded(t *testing.T) {
	const waiters, publishers = 100, 1000
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 5, MaxWaiters: waiters}, gate.Handler(nil))
		bustest.Start(t, b)
		require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
		synctest.Wait() // the handler has it
		var accepted, full atomic.Int64
		var wg sync.WaitGroup
		for range publishers {
			wg.Go(func() {
				if err := s.Publish(t.Context(), &bus.Envelope{}); err == nil {
					accepted.Add(1)
				} else if errors.Is(err, bus.ErrFull) {
					full.Add(1)
				}
			})
		}
		synctest.Wait()
		st := bustest.RequireBalanced(t, b).Stages[0]
		require.Equal(t, waiters, st.Waiters)
		require.Equal(t, 5, st.Depth)
		require.Equal(t, 5, st.MaxDepth, "never above the capacity")
		require.EqualValues(t, publishers-5-waiters, full.Load())
		gate.Open()
		wg.Wait()
		require.EqualValues(t, 5+waiters, accepted.Load())
		r := bustest.Drain(t, b)
		require.EqualValues(t, 1+5+waiters, r.Stats.Completed)
		require.EqualValues(t, publishers-5-waiters, r.Stats.Refused[reason.Full])
	})
}

func TestB054_OpenDeliveriesAreBounded(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		const capacity = 50
		attempts := scaled(2_000, 1_000_000)
		s := bustest.Stage(t, b, "pull", bus.StageConfig{Pull: true, Capacity: capacity, Full: bus.Reject}, nil)
		bustest.Start(t, b)
		open, refused := 0, 0
		for range attempts { // nothing is ever settled
			if err := s.TryPublish(&bus.Envelope{}); err != nil {
				requireRefused(t, err, "pull", reason.Full, bus.ErrFull)
				refused++
			}
			if _, err := s.TryReceive(); err == nil {
				open++
			}
		}
		require.Equal(t, capacity, open, "MaxOutstanding is the capacity by default")
		require.Equal(t, attempts-2*capacity, refused)
		synctest.Wait()
		st := bustest.RequireBalanced(t, b).Stages[0]
		require.Equal(t, capacity, st.InFlight)
		require.Equal(t, capacity, st.Depth)
		require.Len(t, s.InFlight(), capacity)
		require.ErrorIs(t, b.Close(), bus.ErrNotDrained)
	})
}

// heapNow is the live heap after a collection.
func heapNow() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// blob is a payload whose collection is counted.
func blob(collected *atomic.Int64) *[1024]byte {
	p := new([1024]byte)
	runtime.AddCleanup(p, func(n *atomic.Int64) { n.Add(1) }, collected)
	return p
}

// TestB055_BurstGivesItsMemoryBack fills a queue of every kind, empties it, and
// looks at what is left. Virtual time does not matter here, so that there is no
// bubble, in which cleanups would not run.
func TestB055_BurstGivesItsMemoryBack(t *testing.T) {
	n := scaled(1_500, 200_000)
	hold := bus.StageConfig{Capacity: n, NoHandler: bus.NoHandlerHold}
	with := func(change func(*bus.StageConfig)) bus.StageConfig {
		c := hold
		change(&c)
		return c
	}
	for name, c := range map[string]bus.StageConfig{
		"plain":   hold,
		"by key":  with(func(c *bus.StageConfig) { c.Order = bus.ByKey }),
		"classes": with(func(c *bus.StageConfig) { c.Classes = []bus.Class{{Name: "a"}, {Name: "b"}} }),
		"retries": with(func(c *bus.StageConfig) {
			c.Retry = retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Millisecond}
		}),
		"dead letters": with(func(c *bus.StageConfig) { c.Retry.MaxAttempts = 3 }),
		"pull":         with(func(c *bus.StageConfig) { c.Pull = true }),
		"evicted":      with(func(c *bus.StageConfig) { c.Capacity, c.Full = n/10, bus.DropOldest }),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBus(t, bus.Config{})
			s := addStage(t, b, "s", c, nil)
			require.NoError(t, b.Start())
			before := heapNow()
			var collected atomic.Int64
			for range n {
				require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: blob(&collected), Key: name}))
			}
			emptyBurst(t, b, s, name)
			grown := heapNow() - before
			require.Less(t, grown, int64(5<<20), "the burst was of %d KiB", n)
			for range 100 { // cleanups run on a goroutine of their own
				if collected.Load() == int64(n) {
					break
				}
				runtime.GC()
				runtime.Gosched()
			}
			require.EqualValues(t, n, collected.Load(), "no payload is reachable any more")
			finish(t, b)
		})
	}
}

// emptyBurst takes everything out of s, in the way that the case is about.
func emptyBurst(t *testing.T, b *bus.Bus, s *bus.Stage, name string) {
	t.Helper()
	var pending sync.WaitGroup
	var st bus.StageStats
	s.ReadStats(&st)
	left := st.Depth
	if name == "pull" {
		for range left {
			l, err := s.Receive(t.Context())
			require.NoError(t, err)
			require.NoError(t, l.Ack())
		}
		return
	}
	pending.Add(left)
	require.NoError(t, s.Handle(func(_ context.Context, e *bus.Envelope) error {
		switch name {
		case "retries":
			if e.Attempt() == 1 {
				return errFails
			}
		case "dead letters":
			if e.Attempt() < 3 {
				return errFails
			}
			pending.Done()
			return errFails
		}
		pending.Done()
		return nil
	}))
	pending.Wait()
	for b.Letters().Stats().Count < left && name == "dead letters" {
		runtime.Gosched()
	}
	require.Equal(t, b.Letters().Stats().Count, b.Letters().Purge(bus.LetterFilter{}))
	for { // the last executor has still to hand its results in
		s.ReadStats(&st)
		if st.Executors == 0 && st.Depth+st.InFlight == 0 {
			return
		}
		runtime.Gosched()
	}
}

func TestB056_DeadLettersAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		bounds  bus.LetterBounds
		payload []byte
		keeps   int
	}{
		"count": {bus.LetterBounds{MaxCount: 100, MaxBytes: 1 << 20, MaxAge: time.Hour}, nil, 100},
		"bytes": {bus.LetterBounds{MaxCount: 1000, MaxBytes: 1 << 20, MaxAge: time.Hour}, make([]byte, 100_000), 10},
		"one":   {bus.LetterBounds{MaxCount: 1000, MaxBytes: 1, MaxAge: time.Hour}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bustest.Run(t, bus.Config{DeadLetters: c.bounds}, func(t *testing.T, b *bus.Bus) {
				s := bustest.Stage(t, b, "s", bus.StageConfig{}, fails)
				bustest.Start(t, b)
				for range 1000 {
					require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: c.payload}))
				}
				synctest.Wait()
				st := bustest.RequireBalanced(t, b).Letters
				require.Equal(t, c.keeps, st.Count)
				require.LessOrEqual(t, st.Bytes, c.bounds.MaxBytes)
				require.EqualValues(t, 1000, st.Added)
				require.EqualValues(t, 1000-c.keeps, st.Evicted)
				require.Zero(t, st.Purged)
				list := b.Letters().List(bus.LetterFilter{})
				require.Len(t, list, c.keeps)
				for i := 1; i < len(list); i++ {
					require.Greater(t, list[i].ID, list[i-1].ID, "the oldest went first")
				}
				time.Sleep(30 * time.Minute)
				if c.keeps > 0 {
					require.GreaterOrEqual(t, b.Letters().Stats().Oldest, 30*time.Minute)
				}
				time.Sleep(30*time.Minute + time.Second)
				synctest.Wait()
				st = b.Letters().Stats()
				require.Zero(t, st.Count, "age")
				require.Zero(t, st.Bytes)
				require.EqualValues(t, 1000, st.Evicted)
				synctest.Wait()
				require.EqualValues(t, 1000, bustest.RequireBalanced(t, b).DeadLettered, "the account does not forget")
			})
		})
	}
}

func TestB058_DelayedWorkCountsInTheCapacity(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		const capacity, concurrency = 100, 3
		s := bustest.Stage(t, b, "s", bus.StageConfig{
			Capacity: capacity, Concurrency: concurrency, Full: bus.Reject,
			Retry: retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: time.Hour, Cap: time.Hour},
		}, fails)
		bustest.Start(t, b)
		n := scaled(10_000, 100_000)
		accepted := 0
		for i := range n {
			if s.TryPublish(&bus.Envelope{}) == nil {
				accepted++
			}
			if i%100 == 0 {
				time.Sleep(time.Millisecond)
				synctest.Wait()
				var st bus.StageStats
				s.ReadStats(&st)
				require.LessOrEqual(t, st.Depth, capacity+concurrency)
			}
		}
		synctest.Wait()
		st := bustest.RequireBalanced(t, b).Stages[0]
		require.Equal(t, st.Depth, st.Delayed, "all wait for their retry")
		require.GreaterOrEqual(t, st.Delayed, capacity)
		require.Equal(t, accepted, st.Delayed)
		require.EqualValues(t, n-accepted, st.Refused[reason.Full])
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.EqualValues(t, accepted, bustest.RequireBalanced(t, b).DeadLettered)
		require.NoError(t, s.TryPublish(&bus.Envelope{}), "there is room again")
	})
}
