package bus_test

import (
	"context"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/reason"
)

// checkCredit checks the books of a stage's credits and returns them.
func checkCredit(t testing.TB, s *bus.Stage) bus.CreditState {
	t.Helper()
	var c bus.CreditState
	s.ReadCredit(&c)
	require.True(t, c.On)
	require.Equal(t, c.Granted, c.Spent+c.Returned+c.Expired+uint64(c.InHand), "%+v", c)
	var sum bus.ProducerCredit
	for _, p := range c.Producers {
		require.Equal(t, p.Granted, p.Spent+p.Returned+p.Expired+uint64(p.InHand), "%+v", p)
		sum.InHand += p.InHand
	}
	require.Equal(t, c.InHand, sum.InHand)
	return c
}

func credit(window int) bus.StageConfig {
	return bus.StageConfig{Full: bus.Credit, Credit: bus.CreditConfig{Window: window}}
}

func TestCreditWindowCountsHandlersToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		gate := make(chan struct{})
		c := credit(4)
		c.Concurrency = 2
		s := addStage(t, b, "s", c, func(context.Context, *bus.Envelope) error { <-gate; return nil })
		require.NoError(t, b.Start())
		for range 4 {
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
			synctest.Wait()
		}
		err := s.TryPublish(&bus.Envelope{})
		require.ErrorIs(t, err, bus.ErrNoCredit)
		require.ErrorIs(t, err, bus.ErrRejected)
		got := checkCredit(t, s)
		require.Equal(t, 4, got.Used)
		require.Equal(t, 0, got.Free)

		var wg sync.WaitGroup
		wg.Go(func() { require.NoError(t, s.Publish(t.Context(), &bus.Envelope{})) })
		synctest.Wait()
		require.Equal(t, 1, checkCredit(t, s).Waiting)
		gate <- struct{}{}
		wg.Wait()
		close(gate)
		r := finish(t, b)
		require.EqualValues(t, 5, r.Stats.Completed)
		require.EqualValues(t, 1, r.Stats.Refused[reason.NoCredit])
	})
}

func TestCreditAcquireAndLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		s := addStage(t, b, "s", credit(10), func(context.Context, *bus.Envelope) error { return nil })
		require.NoError(t, b.Start())
		p, q := s.Producer(), s.Producer()
		require.NoError(t, p.Acquire(t.Context(), 10))
		require.Equal(t, 10, p.Credits())
		require.ErrorIs(t, q.TryPublish(&bus.Envelope{}), bus.ErrNoCredit)
		require.Equal(t, reason.NoCredit, q.Blocked().Reason)
		began := time.Now()
		require.NoError(t, q.Publish(t.Context(), &bus.Envelope{}))
		require.Equal(t, time.Second, time.Since(began))
		require.Zero(t, p.Credits())
		require.EqualValues(t, 10, checkCredit(t, s).Expired)
		require.NoError(t, p.Acquire(t.Context(), 3))
		for range 3 {
			require.NoError(t, p.TryPublish(&bus.Envelope{}))
		}
		p.Close()
		q.Close()
		checkCredit(t, s)
		finish(t, b)
	})
}

func TestCreditKeepsEverything(t *testing.T) {
	b := newBus(t, bus.Config{})
	var n atomic.Int64
	c := credit(64) // above what is acquired at once
	c.Concurrency = 4
	s := addStage(t, b, "s", c, func(context.Context, *bus.Envelope) error { n.Add(1); return nil })
	require.NoError(t, b.Start())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			p := s.Producer()
			defer p.Close()
			for i := range 20_000 {
				if i%100 == 0 {
					if err := p.Acquire(t.Context(), 1+i/100%20); err != nil {
						t.Error(err)
					}
				}
				if err := p.Publish(t.Context(), &bus.Envelope{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	checkCredit(t, s)
	finish(t, b)
	require.EqualValues(t, 160_000, n.Load())
}

// ringRun sends n envelopes round a ring of size stages, laps times each, and
// returns how long that takes.
func ringRun(t *testing.T, size, laps, n int, took time.Duration, c bus.StageConfig) time.Duration {
	b := newBus(t, bus.Config{})
	stages := make([]*bus.Stage, 0, size)
	var via []string
	for i := range size {
		name := "s" + string(rune('a'+i))
		stages = append(stages, addStage(t, b, name, c, func(context.Context, *bus.Envelope) error { time.Sleep(took); return nil }))
		via = append(via, name)
	}
	require.NoError(t, b.Start())
	slip := bus.Via(slices.Repeat(via, laps)[1:]...)
	began := time.Now()
	for range n {
		require.NoError(t, stages[0].Publish(t.Context(), &bus.Envelope{Slip: slip}))
	}
	r := finish(t, b)
	require.EqualValues(t, n, r.Stats.Completed)
	for _, s := range stages {
		checkCredit(t, s)
	}
	return time.Since(began)
}

// TestCreditRing: a ring goes round as fast as its stages can handle, whether or
// not publishes leave room, and down to the last credit.
func TestCreditRing(t *testing.T) {
	more := 1
	if os.Getenv("SEDA_LONG") != "" {
		more = 17 // a million hops and more
	}
	for _, size := range []int{3, 8} {
		for _, reserve := range []int{-1, 0} {
			synctest.Test(t, func(t *testing.T) {
				const laps, workers = 10, 4
				n := 2000 * more
				c := credit(0)
				c.Concurrency = workers
				c.Credit.HopReserve = reserve
				took := ringRun(t, size, laps, n, time.Millisecond, c)
				require.Less(t, took, time.Duration(n)*laps/workers*time.Millisecond*100/95, "size %d, reserve %d", size, reserve)
			})
		}
		synctest.Test(t, func(t *testing.T) {
			c := credit(2)
			c.Credit.HopReserve = -1
			ringRun(t, size, 50*more*4/size, 100*more, time.Millisecond, c)
		})
	}
}

// fanRun publishes to four next stages through one, at a rate each of share of
// what a healthy one can do, and returns the p99 of the first three's times and
// what they completed.
func fanRun(t *testing.T, slow time.Duration, full bus.FullPolicy) (p99 time.Duration, done int64) {
	const took, workers = time.Millisecond, 8
	b := newBus(t, bus.Config{})
	front := addStage(t, b, "front", bus.StageConfig{Concurrency: 4 * workers, Full: full},
		func(context.Context, *bus.Envelope) error { time.Sleep(took); return nil })
	var mu sync.Mutex
	var times []time.Duration
	names := []string{"d0", "d1", "d2", "d3"}
	for i, name := range names {
		d := took
		if i == 3 {
			d = slow
		}
		addStage(t, b, name, bus.StageConfig{Concurrency: workers, Full: full}, func(_ context.Context, e *bus.Envelope) error {
			time.Sleep(d)
			if published, ok := e.Payload.(time.Time); ok && i < 3 {
				mu.Lock()
				times = append(times, time.Since(published))
				mu.Unlock()
			}
			return nil
		})
	}
	require.NoError(t, b.Start())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, name := range names {
		slip := bus.Via(name)
		wg.Go(func() {
			p := front.Producer()
			defer p.Close()
			for p.Publish(ctx, &bus.Envelope{Payload: time.Now(), Slip: slip}) == nil {
				time.Sleep(took * 10 / (workers * 8)) // 80 % of what a healthy one can do
			}
		})
	}
	wg.Wait()
	finish(t, b)
	slices.Sort(times)
	return times[len(times)*99/100], int64(len(times))
}

// TestCreditSlowBranch: of four next stages one is ten times slower; the work of
// the others neither waits for it nor becomes less. With Block it does.
func TestCreditSlowBranch(t *testing.T) {
	type result struct {
		p99  time.Duration
		done int64
	}
	run := func(full bus.FullPolicy, slow time.Duration) (r result) {
		synctest.Test(t, func(t *testing.T) { r.p99, r.done = fanRun(t, slow, full) })
		return r
	}
	healthy := run(bus.Credit, time.Millisecond)
	got := run(bus.Credit, 10*time.Millisecond)
	require.Equal(t, healthy.p99, got.p99)
	require.InEpsilon(t, healthy.done, got.done, 0.005)
	blocked := run(bus.Block, 10*time.Millisecond)
	require.Greater(t, blocked.p99, 2*healthy.p99, "the test does not see what it is for")
	require.Less(t, blocked.done, healthy.done/2)
}

// TestCreditWindowGrowsForAcquire: an adaptive window is as large as the largest
// Acquire that waits needs, and shrinks again; a fixed one is not.
func TestCreditWindowGrowsForAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		c := credit(0)
		c.Capacity = 500
		s := addStage(t, b, "s", c, func(context.Context, *bus.Envelope) error { time.Sleep(time.Millisecond); return nil })
		require.NoError(t, b.Start())
		for range 200 { // until the service time is known
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
		}
		synctest.Wait()
		usual := checkCredit(t, s).Window
		require.Less(t, usual, 100)
		p := s.Producer()
		require.ErrorIs(t, p.Acquire(t.Context(), 501), bus.ErrInvalid)
		require.ErrorIs(t, p.TryAcquire(400), bus.ErrNoCredit)
		require.NoError(t, p.Acquire(t.Context(), 400))
		require.Equal(t, 400, p.Credits())
		for range 400 {
			require.NoError(t, p.TryPublish(&bus.Envelope{}))
		}
		p.Close()
		time.Sleep(2 * time.Second)
		require.Less(t, checkCredit(t, s).Window, 100)
		finish(t, b)
	})
}
