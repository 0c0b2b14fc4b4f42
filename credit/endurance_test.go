package credit_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/credit"
)

// TestVirtualTimeStartsAnew: what was granted in all grows beyond what virtual
// time can hold, and shares stay what they are.
func TestVirtualTimeStartsAnew(t *testing.T) {
	const lot = 1 << 30
	l := newLedger(t, credit.Config{Window: lot})
	a, b := open(t, l, credit.AccountConfig{}), open(t, l, credit.AccountConfig{Weight: 2})
	sleeper := open(t, l, credit.AccountConfig{})
	got := make(map[*credit.Account]int)
	for i := range 40_000 { // 2^62 is reached after 8192 or so
		l.Want(a, lot)
		l.Want(b, lot)
		if i%1000 == 999 {
			l.Want(sleeper, lot)
		}
		next := l.Next()
		require.Equal(t, lot, l.Grant(next, lot, 0))
		l.Spend(next, lot)
		l.Release(lot)
		got[next]++
	}
	require.InDelta(t, 40, got[sleeper], 1)
	require.InDelta(t, 2, float64(got[b])/float64(got[a]), 0.01)
}

// TestLeasesOverAnAge: a clock that jumps back and forth moves the leases' own
// time on by a day and more each time, until it starts anew.
func TestLeasesOverAnAge(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 10, Lease: 24 * time.Hour})
	a, b := open(t, l, credit.AccountConfig{}), open(t, l, credit.AccountConfig{})
	for range 60_000 {
		require.Equal(t, 1, l.Grant(a, 1, math.MinInt64))
		require.Equal(t, 2, l.Grant(b, 2, math.MinInt64))
		n, _ := l.Expire(math.MaxInt64, nil)
		require.Equal(t, 3, n)
	}
	require.Equal(t, 3, l.Grant(a, 3, 0))
	n, next := l.Expire(23*time.Hour, nil)
	require.Zero(t, n)
	require.Equal(t, 24*time.Hour, next)
	n, _ = l.Expire(24*time.Hour, nil)
	require.Equal(t, 3, n)
}

// TestGateInParallel uses a gate from many goroutines by the real clock.
func TestGateInParallel(t *testing.T) {
	g := newGate(t, credit.GateConfig{Config: credit.Config{Window: 20, Lease: time.Millisecond}})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 5))
			for range long(20, 1000) {
				p, err := g.Producer(credit.AccountConfig{Weight: 1 + i})
				if err != nil {
					t.Error(err)
					return
				}
				for range 20 {
					n := 1 + rnd.IntN(8)
					if err := p.Acquire(t.Context(), n); err != nil {
						t.Error(err)
						return
					}
					for range n { // some may have lapsed by now
						if err := p.Use(t.Context()); err != nil {
							t.Error(err)
							return
						}
						g.Done(1, time.Microsecond)
					}
					p.Blocked()
				}
				if rnd.IntN(2) == 0 {
					p.Close()
				}
				if rnd.IntN(10) == 0 {
					g.Pause()
					_ = g.SetWindow(10 + rnd.IntN(20))
					g.Resume()
				}
				if st := g.State(); st.Granted != st.Spent+st.Returned+st.Expired+uint64(st.Outstanding) {
					t.Errorf("the books are wrong: %+v", st)
				}
			}
		})
	}
	wg.Wait()
	st := balanced(t, g)
	require.Zero(t, st.Used+st.Waiting)
	require.GreaterOrEqual(t, st.Spent, uint64(8*20*20))
	g.Close()
	require.Zero(t, balanced(t, g).Outstanding)
}
