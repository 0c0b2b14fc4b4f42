package credit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/credit"
)

// TestPassCountsInTurns: what an account got without asking counts when turns
// are given, and takes nothing of what is free.
func TestPassCountsInTurns(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 2})
	a, b := open(t, l, credit.AccountConfig{}), open(t, l, credit.AccountConfig{})
	l.Pass(a, 5)
	require.Equal(t, 2, l.Free())
	require.Equal(t, credit.Counts{Granted: 5, Spent: 5}, a.Counts())
	l.Want(a, 1)
	l.Want(b, 1)
	require.Same(t, b, l.Next(), "a asked first, but has had five")
	l.Pass(b, 50) // while it waits
	require.Same(t, a, l.Next())
	l.Pass(a, -1)
	l.Pass(nil, 1)
	require.NoError(t, l.Check())
}

// TestTuneShortensLeases: a shorter lease counts for credits that are out.
func TestTuneShortensLeases(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 4, Lease: time.Hour})
	a := open(t, l, credit.AccountConfig{})
	l.Grant(a, 3, 0)
	l.Tune(-1, time.Second)
	n, _ := l.Expire(time.Second-1, nil)
	require.Zero(t, n)
	n, next := l.Expire(time.Second, nil)
	require.Equal(t, 3, n)
	require.Zero(t, next)
	l.Grant(a, 1, time.Second)
	require.Zero(t, l.Keep(a, time.Second), "nobody keeps any without exclusive ones")
	require.NoError(t, l.Check())
}
