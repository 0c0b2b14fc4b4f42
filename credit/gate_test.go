package credit_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/credit"
	"github.com/sedabus/seda/reason"
)

func newGate(t testing.TB, c credit.GateConfig) *credit.Gate {
	t.Helper()
	g, err := credit.NewGate(c)
	require.NoError(t, err)
	return g
}

func fixed(n int) credit.GateConfig { return credit.GateConfig{Config: credit.Config{Window: n}} }

func producer(t testing.TB, g *credit.Gate) *credit.Producer {
	t.Helper()
	p, err := g.Producer(credit.AccountConfig{})
	require.NoError(t, err)
	return p
}

// balanced fails unless every credit of g is in one place.
func balanced(t testing.TB, g *credit.Gate) credit.GateState {
	t.Helper()
	st := g.State()
	require.Equal(t, st.Granted, st.Spent+st.Returned+st.Expired+uint64(st.Outstanding))
	return st
}

func TestGateConfigNamesAllFaults(t *testing.T) {
	_, err := credit.NewGate(credit.GateConfig{
		Config: credit.Config{Window: -1},
		Size:   credit.Sizing{Workers: -1, Capacity: -1, SizerConfig: credit.SizerConfig{TargetFactor: -1}},
	})
	require.ErrorIs(t, err, credit.ErrInvalid)
	for _, part := range []string{"Config.Window is -1", "Sizing.Workers is -1", "Sizing.Capacity is -1", "TargetFactor is -1"} {
		require.ErrorContains(t, err, part)
	}
	g := newGate(t, credit.GateConfig{})
	_, err = g.Producer(credit.AccountConfig{Class: 3})
	require.ErrorIs(t, err, credit.ErrInvalid)
	require.True(t, g.State().Adapts)
}

func TestUseAndDone(t *testing.T) {
	g := newGate(t, fixed(4))
	p := producer(t, g)
	for range 4 {
		require.NoError(t, p.Use(t.Context()))
	}
	require.ErrorIs(t, p.TryUse(), credit.ErrNoCredit)
	require.ErrorIs(t, p.TryAcquire(1), credit.ErrNoCredit)
	g.Done(1, 0)
	require.NoError(t, p.TryUse())
	g.Done(4, 0)
	require.NoError(t, p.TryAcquire(4))
	require.Equal(t, 4, p.Credits())
	p.Return(1)
	require.Equal(t, 3, p.Credits())
	require.NoError(t, p.TryUse(), "one in hand")
	st := balanced(t, g)
	require.Equal(t, []int{4, 1, 2, 1}, []int{st.Window, st.Used, st.Outstanding, st.Free})
	require.Equal(t, st.Counts, p.Counts())
}

func TestGateTakesBadInput(t *testing.T) {
	g := newGate(t, fixed(4))
	p := producer(t, g)
	require.ErrorIs(t, p.Acquire(nil, 1), credit.ErrInvalid) //nolint:staticcheck // a nil context is the point
	require.ErrorIs(t, p.Use(nil), credit.ErrInvalid)        //nolint:staticcheck // a nil context is the point
	for _, n := range []int{0, -1, math.MinInt} {
		require.ErrorIs(t, p.Acquire(t.Context(), n), credit.ErrInvalid)
		require.ErrorIs(t, p.TryAcquire(n), credit.ErrInvalid)
		require.Error(t, g.SetWindow(n-1))
		p.Return(n)
		g.Done(n, -time.Hour)
	}
	for _, n := range []int{5, math.MaxInt} {
		for _, err := range []error{p.Acquire(t.Context(), n), p.TryAcquire(n)} {
			require.ErrorIs(t, err, credit.ErrNoCredit)
			var limit *credit.LimitError
			require.ErrorAs(t, err, &limit)
			require.Equal(t, credit.LimitError{Want: n, Limit: 4}, *limit)
			require.ErrorContains(t, err, "at most 4")
		}
	}
	g.Done(math.MaxInt, math.MaxInt64)
	p.Return(math.MaxInt)
	over, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	for _, err := range []error{p.Use(over), p.Acquire(over, 1)} {
		require.ErrorIs(t, err, credit.ErrNoCredit)
		require.ErrorIs(t, err, why)
	}
	require.Zero(t, g.State().Granted, "a context that is over gets nothing")
	for _, none := range []*credit.Producer{nil, {}} {
		require.Error(t, none.Use(t.Context()))
		require.Error(t, none.Acquire(t.Context(), 1))
		require.Error(t, none.TryUse())
		none.Return(1)
		none.Close()
		_, blocked := none.Blocked()
		require.True(t, blocked)
		require.Zero(t, none.Credits()+none.Counts().Outstanding)
	}
}

// waiting starts f and returns once it waits, and a function that returns its
// result, or fails if it goes on waiting. For use in a bubble.
func waiting(t testing.TB, f func() error) func() error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	synctest.Wait()
	return func() error {
		t.Helper()
		synctest.Wait()
		select {
		case err := <-done:
			return err
		default:
			require.Fail(t, "it goes on waiting")
			return nil
		}
	}
}

func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, fixed(3))
		p := producer(t, g)
		require.NoError(t, p.Acquire(t.Context(), 3))
		for range 3 {
			require.NoError(t, p.Use(t.Context()))
		}
		first := waiting(t, func() error { return p.Acquire(t.Context(), 3) })
		second := waiting(t, func() error { return p.Use(t.Context()) })
		g.Done(2, 0)
		require.ErrorIs(t, p.TryUse(), credit.ErrNoCredit, "others wait")
		g.Done(1, 0)
		require.NoError(t, first())
		require.Equal(t, 3, p.Credits())
		p.Return(1)
		require.NoError(t, second())
		require.Zero(t, balanced(t, g).Waiting)
	})
}

func TestCancelledWaitHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, fixed(3))
		a, b, c := producer(t, g), producer(t, g), producer(t, g)
		require.NoError(t, a.Acquire(t.Context(), 2))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		large := waiting(t, func() error { return c.Acquire(ctx, 3) })
		small := waiting(t, func() error { return b.Acquire(t.Context(), 1) })
		require.Equal(t, 2, g.State().Waiting)
		time.Sleep(2 * time.Millisecond)
		err := large()
		require.ErrorIs(t, err, credit.ErrNoCredit)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, small())
		require.Equal(t, 3, balanced(t, g).Outstanding)
	})
}

// TestTwoAcquireTheWholeWindow: neither gets a part and waits for the rest.
func TestTwoAcquireTheWholeWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, fixed(10))
		h := producer(t, g)
		require.NoError(t, h.Acquire(t.Context(), 10))
		a, b := producer(t, g), producer(t, g)
		first := waiting(t, func() error { return a.Acquire(t.Context(), 10) })
		second := waiting(t, func() error { return b.Acquire(t.Context(), 10) })
		h.Return(5)
		require.Zero(t, a.Credits()+b.Credits())
		h.Return(5)
		require.NoError(t, first())
		for range 10 {
			require.NoError(t, a.TryUse())
		}
		g.Done(10, 0)
		require.NoError(t, second())
	})
}

// TestHoarderCostsOneLease: who takes all credits and stops keeps the others
// waiting for a lease, no longer.
func TestHoarderCostsOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, fixed(100))
		h, p := producer(t, g), producer(t, g)
		require.NoError(t, h.Acquire(t.Context(), 100))
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, p.Acquire(ctx, 50))
		require.Equal(t, time.Second, time.Since(began))
		require.Zero(t, h.Credits())
		require.Equal(t, uint64(100), h.Counts().Expired)
		require.ErrorIs(t, h.TryAcquire(60), credit.ErrNoCredit)
		require.NoError(t, h.TryAcquire(30))
	})
}

// TestWhatWasGrantedAheadIsCalledBack: but for the exclusive ones, and for what
// was acquired.
func TestWhatWasGrantedAheadIsCalledBack(t *testing.T) {
	g := newGate(t, fixed(20))
	a, b := producer(t, g), producer(t, g)
	require.NoError(t, a.Use(t.Context()))
	require.Equal(t, 4, a.Credits(), "a quarter of the 19 that were left")
	require.NoError(t, b.TryAcquire(17))
	require.Equal(t, 2, a.Credits())
	require.ErrorIs(t, b.TryAcquire(1), credit.ErrNoCredit)
	require.ErrorIs(t, a.TryAcquire(1), credit.ErrNoCredit)
	require.Equal(t, 17, b.Credits(), "what was acquired stays")
	require.NoError(t, a.Use(t.Context()))
	require.NoError(t, a.Use(t.Context()))
}

func TestPauseHandsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, fixed(10))
		p := producer(t, g)
		require.NoError(t, p.Use(t.Context()))
		require.NoError(t, p.Acquire(t.Context(), 3))
		time.Sleep(time.Second)
		g.Pause()
		g.Pause()
		require.Zero(t, p.Credits())
		st := balanced(t, g)
		require.True(t, st.Paused)
		require.Equal(t, 9, st.Free)
		require.ErrorIs(t, p.TryUse(), credit.ErrNoCredit)
		why, blocked := p.Blocked()
		require.True(t, blocked)
		require.Equal(t, reason.Paused, why.Reason)
		got := waiting(t, func() error { return p.Use(t.Context()) })
		g.Done(1, 0)
		time.Sleep(time.Minute)
		require.Equal(t, 1, g.State().Waiting)
		why, _ = p.Blocked()
		require.Equal(t, reason.Paused, why.Reason)
		require.Equal(t, 1, why.Want)
		g.Resume()
		require.NoError(t, got())
	})
}

func TestCloseWakesEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, fixed(2))
		a, b, c := producer(t, g), producer(t, g), producer(t, g)
		require.NoError(t, a.Acquire(t.Context(), 2))
		one := waiting(t, func() error { return b.Use(t.Context()) })
		two := waiting(t, func() error { return b.Acquire(t.Context(), 2) })
		three := waiting(t, func() error { return c.Use(t.Context()) })
		b.Close()
		b.Close()
		require.ErrorIs(t, one(), credit.ErrClosed)
		require.ErrorIs(t, two(), credit.ErrClosed)
		require.ErrorIs(t, b.Use(t.Context()), credit.ErrClosed)
		require.ErrorIs(t, b.TryAcquire(1), credit.ErrClosed)
		a.Close()
		require.NoError(t, three(), "the credits of a came free")
		four := waiting(t, func() error { return c.Acquire(t.Context(), 2) })
		g.Close()
		g.Close()
		require.ErrorIs(t, four(), credit.ErrClosed)
		require.ErrorIs(t, c.TryUse(), credit.ErrClosed)
		_, err := g.Producer(credit.AccountConfig{})
		require.ErrorIs(t, err, credit.ErrClosed)
		why, blocked := c.Blocked()
		require.True(t, blocked)
		require.Equal(t, reason.Closed, why.Reason)
		g.Pause()
		g.Resume()
		g.Adapt()
		g.Done(1, 0)
		st := balanced(t, g)
		require.True(t, st.Closed)
		require.Zero(t, st.Outstanding+st.Used+st.Waiting+st.Live)
	})
}

// TestCollectedProducerGivesBack: one that is dropped without Close costs the
// others nothing for long.
func TestCollectedProducerGivesBack(t *testing.T) {
	g := newGate(t, fixed(8))
	func() { require.NoError(t, producer(t, g).Acquire(t.Context(), 8)) }()
	for deadline := time.Now().Add(10 * time.Second); g.State().Live > 0 && time.Now().Before(deadline); {
		runtime.GC()
		runtime.Gosched()
	}
	st := balanced(t, g)
	require.Zero(t, st.Live)
	require.Equal(t, uint64(8), st.Returned)
	require.Equal(t, 8, st.Free)
}

func TestWindowShrinksBelowAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, fixed(10))
		a, b := producer(t, g), producer(t, g)
		require.NoError(t, a.Acquire(t.Context(), 5))
		large := waiting(t, func() error { return b.Acquire(t.Context(), 8) })
		small := waiting(t, func() error { return b.Acquire(t.Context(), 6) })
		require.NoError(t, g.SetWindow(7))
		var limit *credit.LimitError
		require.ErrorAs(t, large(), &limit)
		require.Equal(t, 7, limit.Limit)
		a.Return(5)
		require.NoError(t, small())
	})
}

// TestAdaptiveWindowStretches: one that adapts is no bound for what can be asked
// for at once; the capacity is.
func TestAdaptiveWindowStretches(t *testing.T) {
	g := newGate(t, credit.GateConfig{Size: credit.Sizing{Workers: 1, Capacity: 200}})
	p := producer(t, g)
	for range 100 {
		require.NoError(t, p.Use(t.Context()))
		g.Done(1, 10*time.Millisecond)
	}
	require.Less(t, g.State().Window, 10)
	require.NoError(t, p.Acquire(t.Context(), 150))
	for range 150 {
		require.NoError(t, p.TryUse())
	}
	g.Done(150, time.Second)
	require.Less(t, g.State().Window, 10)
	require.Error(t, p.Acquire(t.Context(), 201))
	balanced(t, g)
}

// TestB007 changes the window 10,000 times while work flows.
func TestB007WindowChangesUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, credit.GateConfig{Config: credit.Config{Window: 10}, Size: credit.Sizing{Capacity: 100}})
		var done atomic.Int64
		for range 4 {
			p := producer(t, g)
			go func() {
				for range 2500 {
					if p.Use(t.Context()) != nil {
						return
					}
					time.Sleep(3 * time.Millisecond)
					g.Done(1, 3*time.Millisecond)
					done.Add(1)
				}
			}()
		}
		for i := 0; done.Load() < 10_000; i++ {
			n := []int{12, 14, 9, 20, 10}[i%5]
			require.NoError(t, g.SetWindow(n))
			for range 10 {
				time.Sleep(5 * time.Millisecond)
				st := balanced(t, g)
				require.Equal(t, n, st.Window)
				require.LessOrEqual(t, st.Used+st.Outstanding, 20)
				require.GreaterOrEqual(t, st.Used, 0)
			}
			require.Less(t, i, 10_000, "stuck")
		}
		require.NoError(t, g.SetWindow(1000))
		st := g.State()
		require.Equal(t, 100, st.Window)
		require.Equal(t, 1000, st.Asked)
		require.Equal(t, "a window of 1000 was asked for; the capacity is 100", st.Note)
		require.Zero(t, st.Used)
	})
}

// TestB031 lowers the window to where nothing goes on, and back.
func TestB031LoweredCreditTakesEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, fixed(100))
		p := producer(t, g)
		for range 100 {
			require.NoError(t, p.Use(t.Context()))
		}
		got := waiting(t, func() error { return p.Use(t.Context()) })
		require.NoError(t, g.SetWindow(10))
		require.Equal(t, 10, g.State().Window)
		g.Done(90, 0)
		synctest.Wait()
		require.Equal(t, 1, g.State().Waiting, "10 are out")
		require.NoError(t, g.SetWindow(0))
		require.Equal(t, 0, g.State().Window)
		g.Done(10, 0)
		time.Sleep(time.Minute)
		require.Equal(t, 1, g.State().Waiting, "nothing is granted, and nothing lost")
		require.ErrorIs(t, p.TryUse(), credit.ErrNoCredit)
		require.NoError(t, g.SetWindow(5))
		require.NoError(t, got())
		require.Equal(t, 5, g.State().Window)
		balanced(t, g)
	})
}

// TestB089: a producer that asks before it reads its source is never refused,
// is told when there is room again, and need not poll.
func TestB089ProducerKnowsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, fixed(5))
		p := producer(t, g)
		work := make(chan struct{}, 5)
		go func() {
			for range work {
				time.Sleep(10 * time.Millisecond)
				g.Done(1, 10*time.Millisecond)
			}
		}()
		for range 1000 {
			require.NoError(t, p.Acquire(t.Context(), 1))
			require.NoError(t, p.TryUse())
			select {
			case work <- struct{}{}:
			default:
				require.Fail(t, "refused with a credit")
			}
		}
		defer close(work)
		for _, blocked := p.Blocked(); !blocked; _, blocked = p.Blocked() {
			require.NoError(t, p.TryUse())
			work <- struct{}{}
		}
		require.ErrorIs(t, p.TryUse(), credit.ErrNoCredit)
		why, blocked := p.Blocked()
		require.True(t, blocked)
		require.Equal(t, reason.NoCredit, why.Reason)
		time.Sleep(time.Second)
		_, blocked = p.Blocked()
		require.False(t, blocked)
	})
}

// TestRefillAtHalf: the next batch is fetched when half of one is left, so that a
// producer with enough credits never runs dry; not while others wait.
func TestRefillAtHalf(t *testing.T) {
	g, err := credit.NewGate(credit.GateConfig{Config: credit.Config{Window: 100, Batch: 8}})
	require.NoError(t, err)
	defer g.Close()
	p, err := g.Producer(credit.AccountConfig{})
	require.NoError(t, err)
	require.NoError(t, p.TryUse())
	require.Equal(t, 8, p.Credits())
	for range 4 {
		require.NoError(t, p.TryUse())
	}
	require.Equal(t, 12, p.Credits(), "four were left, and eight came")
}
