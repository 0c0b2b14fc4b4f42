package credit_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/credit"
)

func newLedger(t *testing.T, c credit.Config) *credit.Ledger {
	t.Helper()
	l, err := credit.NewLedger(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Check()) })
	return l
}

func open(t *testing.T, l *credit.Ledger, c credit.AccountConfig) *credit.Account {
	t.Helper()
	a, err := l.Open(c)
	require.NoError(t, err)
	return a
}

// serve grants what is wanted, in order, for as long as there is enough.
func serve(l *credit.Ledger) []*credit.Account {
	var served []*credit.Account
	for {
		a := l.Next()
		if a == nil || a.Wanted() > l.Free() {
			return served
		}
		l.Grant(a, a.Wanted(), 0)
		served = append(served, a)
	}
}

func TestConfigNamesAllFaults(t *testing.T) {
	_, err := credit.NewLedger(credit.Config{
		Window: -1, Exclusive: -2, Batch: 1<<16 + 1, Lease: -time.Second,
		Classes: []credit.Class{{MinShare: 101}, {MinShare: -1}},
	})
	require.ErrorIs(t, err, credit.ErrInvalid)
	for _, part := range []string{
		"Window is -1: 0 to 1073741824", "Exclusive is -2: -1 to 1048576", "Batch is 65537: -1 to 65536",
		"Lease is -1s: 0 to 24h", "Classes[0].MinShare is 101: 0 to 100", "Classes[1].MinShare is -1",
	} {
		require.ErrorContains(t, err, part)
	}
	_, err = credit.NewLedger(credit.Config{Classes: []credit.Class{{MinShare: 60}, {MinShare: 41}}})
	require.ErrorContains(t, err, "minimum shares of 101 in all: at most 100")
	_, err = credit.NewLedger(credit.Config{Classes: make([]credit.Class, 17)})
	require.ErrorContains(t, err, "a list of 17: at most 16")

	l := newLedger(t, credit.Config{})
	_, err = l.Open(credit.AccountConfig{Weight: 1001, Class: 1})
	require.ErrorIs(t, err, credit.ErrInvalid)
	require.ErrorContains(t, err, "Weight is 1001: 0 to 1000")
	require.ErrorContains(t, err, "Class is 1: 0 to 0")
}

func TestCreditsAreInOnePlace(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 10})
	a := open(t, l, credit.AccountConfig{})
	l.Want(a, 4)
	require.Same(t, a, l.Next())
	require.Equal(t, 6, l.Grant(a, 6, 0))
	require.Nil(t, l.Next(), "the want is over")
	require.Equal(t, 2, l.Spend(a, 2))
	require.Equal(t, 1, l.Return(a, 1))
	require.Equal(t, credit.Counts{Granted: 6, Spent: 2, Returned: 1, Outstanding: 3}, a.Counts())
	require.Equal(t, []int{10, 2, 3, 5}, []int{l.Window(), l.Used(), l.Unspent(), l.Free()})
	l.Release(1)
	require.Equal(t, 6, l.Free())
	n, next := l.Expire(time.Second, nil)
	require.Equal(t, 3, n)
	require.Zero(t, next)
	require.Equal(t, credit.Counts{Granted: 6, Spent: 2, Returned: 1, Expired: 3}, a.Counts())
	require.Equal(t, a.Counts(), l.Counts())
	l.Close(a)
	l.Close(a)
	require.Equal(t, credit.Counts{Granted: 6, Spent: 2, Returned: 1, Expired: 3}, l.Counts(), "closing loses no count")
	require.Zero(t, l.Live())
}

func TestNumbersOutOfRangeAreClipped(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 3})
	a := open(t, l, credit.AccountConfig{})
	require.Equal(t, 3, l.Grant(a, math.MaxInt, math.MaxInt64), "no more than is free")
	require.Zero(t, l.Grant(a, 1, math.MinInt64))
	require.Equal(t, 3, l.Spend(a, math.MaxInt))
	require.Zero(t, l.Spend(a, 1)+l.Spend(a, -1)+l.Return(a, 1)+l.Return(a, math.MinInt))
	l.Release(-1)
	require.Equal(t, 3, l.Used())
	l.Release(math.MaxInt)
	require.Zero(t, l.Used())
	l.Use(math.MaxInt)
	l.Use(math.MaxInt)
	l.SetUsed(-1)
	l.SetWindow(math.MaxInt)
	l.SetWindow(-1)
	l.Want(a, math.MaxInt)
	l.Hold(a, math.MaxInt)
	require.Zero(t, l.Window()+l.Free()+l.Used())
	require.Same(t, a, l.Next())
	require.Zero(t, l.Grant(a, 1, 0), "there is nothing")

	other := open(t, newLedger(t, credit.Config{}), credit.AccountConfig{})
	l.Close(a)
	for _, bad := range []*credit.Account{a, other, nil} {
		l.Want(bad, 1)
		l.Hold(bad, 1)
		l.Close(bad)
		require.Zero(t, l.Grant(bad, 1, 0)+l.Spend(bad, 1)+l.Return(bad, 1)+l.Ahead(bad, 100)+l.Keep(bad, 0)+l.Waiting())
	}
}

func TestWantIsAllOrNothing(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 4})
	a, b := open(t, l, credit.AccountConfig{}), open(t, l, credit.AccountConfig{})
	l.Use(2)
	l.Want(a, 4)
	l.Want(b, 1)
	require.Empty(t, serve(l), "the small want does not overtake")
	require.Zero(t, l.Grant(a, 2, 0))
	require.Equal(t, 2, l.Free())
	l.Release(2)
	require.Equal(t, []*credit.Account{a}, serve(l))
	l.Spend(a, 4)
	l.Release(1)
	require.Equal(t, []*credit.Account{b}, serve(l))
}

func TestWantKeepsItsPlace(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 100})
	a, b := open(t, l, credit.AccountConfig{}), open(t, l, credit.AccountConfig{})
	l.Want(a, 1)
	l.Want(b, 1)
	l.Want(a, 5)
	require.Equal(t, 5, a.Wanted())
	require.Same(t, a, l.Next())
	l.Want(a, 0)
	l.Want(a, 1)
	require.Same(t, b, l.Next(), "it went away and came back")
	require.Equal(t, 2, l.Waiting())
}

func TestSharesFollowWeights(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 1 << 20})
	got := make(map[*credit.Account]int)
	var all []*credit.Account
	for _, w := range []int{1, 3, 6} {
		a := open(t, l, credit.AccountConfig{Weight: w})
		all = append(all, a)
		l.Want(a, 2)
	}
	for range 1000 {
		a := l.Next()
		got[a] += l.Grant(a, 2, 0)
		l.Want(a, 2)
	}
	require.InDelta(t, 200, got[all[0]], 4)
	require.InDelta(t, 600, got[all[1]], 4)
	require.InDelta(t, 1200, got[all[2]], 4)

	idle := open(t, l, credit.AccountConfig{})
	l.Want(idle, 2)
	first := 0
	for range 100 {
		if a := l.Next(); a == idle {
			first++
		}
		l.Grant(l.Next(), 2, 0)
		for _, a := range append(all, idle) {
			l.Want(a, 2)
		}
	}
	require.LessOrEqual(t, first, 11, "having wanted nothing for long earns nothing")
}

func TestReturnedCreditsDoNotCount(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 1000})
	a, b := open(t, l, credit.AccountConfig{}), open(t, l, credit.AccountConfig{})
	l.Want(a, 100)
	serve(l)
	l.Return(a, 100)
	l.Want(b, 1)
	l.Want(a, 1)
	l.Grant(b, 1, 0)
	require.Same(t, a, l.Next())
}

func TestClassesAreServedHighestFirst(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 1 << 20, Classes: []credit.Class{{}, {MinShare: 10}, {}}})
	var all []*credit.Account
	for class := range 3 {
		a := open(t, l, credit.AccountConfig{Class: class})
		all = append(all, a)
		l.Want(a, 1)
	}
	got := make([]int, 3)
	for range 1000 {
		a := l.Next()
		n := l.Grant(a, a.Wanted(), 0)
		for i := range all {
			if all[i] == a {
				got[i] += n
			}
		}
		l.Want(a, 1)
	}
	require.InDelta(t, 900, got[0], 2)
	require.InDelta(t, 100, got[1], 2)
	require.Zero(t, got[2], "no share of its own")
	l.Want(all[0], 0)
	l.Want(all[1], 0)
	require.Same(t, all[2], l.Next())
}

// TestMinimumShareOfUnequalWants: a class gets its share, no less and no more,
// when it wants many at once and the others few, and the other way round.
func TestMinimumShareOfUnequalWants(t *testing.T) {
	for _, wants := range [][2]int{{1, 1}, {1, 500}, {500, 1}, {500, 500}} {
		l := newLedger(t, credit.Config{Window: 1 << 30, Classes: []credit.Class{{}, {MinShare: 20}}})
		high, low := open(t, l, credit.AccountConfig{}), open(t, l, credit.AccountConfig{Class: 1})
		got := make(map[*credit.Account]int)
		for got[high]+got[low] < 1e5 {
			l.Want(high, wants[0])
			l.Want(low, wants[1])
			a := l.Next()
			got[a] += l.Grant(a, a.Wanted(), 0)
		}
		require.InDelta(t, 0.2, float64(got[low])/float64(got[low]+got[high]), 0.01, "wants %v", wants)
	}
}

func TestAhead(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 1000})
	a := open(t, l, credit.AccountConfig{})
	open(t, l, credit.AccountConfig{})
	require.Equal(t, 16, l.Ahead(a, 1000))
	require.Equal(t, 10, l.Ahead(a, 40))
	require.Zero(t, l.Ahead(a, 3)+l.Ahead(a, -1))
	l.Grant(a, 9, 0)
	require.Zero(t, l.Ahead(a, 1000), "it has more than half a batch")
	l.Spend(a, 1)
	require.Equal(t, 16, l.Ahead(a, 1000))
	none := newLedger(t, credit.Config{Window: 1000, Batch: -1})
	require.Zero(t, none.Ahead(open(t, none, credit.AccountConfig{}), 1000))
}

func TestKeep(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 100, Exclusive: 3})
	a := open(t, l, credit.AccountConfig{})
	l.Grant(a, 20, 0)
	require.Equal(t, 3, l.Keep(a, 0))
	l.Grant(a, 10, 0)
	l.Hold(a, 10)
	require.Equal(t, 13, l.Keep(a, 0))
	l.Spend(a, 4)
	require.Equal(t, 9, l.Keep(a, 0), "what is on hold is spent first")
	l.Return(a, 20)
	require.Equal(t, 6, l.Keep(a, 0))
	require.Equal(t, 6, l.Keep(a, time.Second-1))
	require.Zero(t, l.Keep(a, time.Second), "the lease is over")
	for range 24 {
		open(t, l, credit.AccountConfig{})
	}
	l.Spend(a, 6)
	l.Grant(a, 5, 0)
	require.Equal(t, 2, l.Keep(a, 0), "half the window over all accounts")
}

func TestLeases(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 100, Lease: time.Second})
	a, b := open(t, l, credit.AccountConfig{}), open(t, l, credit.AccountConfig{})
	l.Grant(a, 5, time.Second)
	l.Grant(b, 7, 1500*time.Millisecond)
	n, next := l.Expire(1600*time.Millisecond, nil)
	require.Zero(t, n)
	require.Equal(t, 2*time.Second, next)
	l.Grant(a, 1, 1700*time.Millisecond)
	lost := make(map[*credit.Account]int)
	n, next = l.Expire(2500*time.Millisecond, func(a *credit.Account, n int) { lost[a] = n })
	require.Equal(t, 7, n)
	require.Equal(t, 2700*time.Millisecond, next, "the grant renewed it")
	require.Equal(t, map[*credit.Account]int{b: 7}, lost)
	l.Spend(a, 6)
	_, next = l.Expire(2600*time.Millisecond, nil)
	require.Zero(t, next, "nobody has any")
}

// TestLeasesWhenTheClockJumps: credits lapse a lease after they were granted
// at the latest, by the clock as it goes on.
func TestLeasesWhenTheClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{math.MinInt64, -time.Hour, -time.Millisecond, 0, time.Hour, math.MaxInt64} {
		l := newLedger(t, credit.Config{Window: 100, Lease: time.Second})
		a, b := open(t, l, credit.AccountConfig{}), open(t, l, credit.AccountConfig{})
		l.Grant(a, 5, time.Minute)
		at := jump
		if jump > math.MinInt64 && jump < math.MaxInt64 {
			at += time.Minute
		}
		n, next := l.Expire(at, nil)
		if n == 0 {
			require.NotZero(t, next)
			require.Equal(t, 1, l.Grant(b, 1, at))
			n, _ = l.Expire(at+time.Second+time.Millisecond, nil)
			require.Equal(t, 6, n, "jump %v", jump)
		} else {
			require.Equal(t, 5, n)
		}
	}
}

func TestTune(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 100})
	a, b := open(t, l, credit.AccountConfig{}), open(t, l, credit.AccountConfig{})
	l.Grant(a, 10, 0)
	l.Grant(b, 10, 0)
	l.Tune(7, 300*time.Millisecond)
	require.Equal(t, 7, l.Keep(a, 0))
	_, next := l.Expire(0, nil)
	require.Equal(t, 300*time.Millisecond, next)
	l.Grant(b, 1, 100*time.Millisecond)
	n, next := l.Expire(300*time.Millisecond, nil)
	require.Equal(t, 10, n)
	require.Equal(t, 400*time.Millisecond, next)
	l.Tune(-1, math.MaxInt64)
	require.Zero(t, l.Keep(b, 0))
	l.Tune(math.MaxInt, -1)
	require.Equal(t, 11, l.Keep(b, 0))
}

func TestShrinkingTakesNothingBack(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 10})
	a := open(t, l, credit.AccountConfig{})
	l.Grant(a, 10, 0)
	l.Spend(a, 5)
	l.SetWindow(3)
	require.Zero(t, l.Free())
	require.Equal(t, 10, l.Used()+l.Unspent())
	l.Release(5)
	l.Return(a, 2)
	require.Zero(t, l.Free())
	l.Return(a, 1)
	require.Equal(t, 1, l.Free())
	l.SetWindow(20)
	require.Equal(t, 18, l.Free())
}

func TestWorkWithoutCredit(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 4})
	l.Use(3)
	require.Equal(t, 1, l.Free())
	l.Use(3)
	require.Zero(t, l.Free())
	require.NoError(t, l.Check())
	l.SetUsed(1)
	require.Equal(t, 3, l.Free())
}

func TestAllMayCloseAsItGoes(t *testing.T) {
	l := newLedger(t, credit.Config{})
	for range 10 {
		open(t, l, credit.AccountConfig{})
	}
	seen := make(map[*credit.Account]bool)
	for a := range l.All() {
		require.False(t, seen[a])
		seen[a] = true
		l.Close(a)
	}
	require.Len(t, seen, 10)
	require.Zero(t, l.Live())
}
