package credit_test

import (
	"context"
	"testing"
	"time"

	"github.com/sedabus/seda/credit"
)

// TestAllocs_WantNextGrantAheadSpendReturnHoldKeepReleaseUseSetUsedExpirePass: the
// ledger needs no memory once it knows its accounts.
func TestAllocs_WantNextGrantAheadSpendReturnHoldKeepReleaseUseSetUsedExpirePass(t *testing.T) {
	l := newLedger(t, credit.Config{Window: 64, Classes: make([]credit.Class, 2)})
	a, b := open(t, l, credit.AccountConfig{}), open(t, l, credit.AccountConfig{Class: 1})
	now := time.Duration(0)
	got := testing.AllocsPerRun(1000, func() {
		now += 10 * time.Millisecond
		l.Want(a, 2)
		l.Want(b, 1)
		for c := l.Next(); c != nil && l.Free() >= 20; c = l.Next() {
			l.Grant(c, c.Wanted()+l.Ahead(c, 8), now)
		}
		l.Hold(a, 1)
		l.Keep(a, now)
		l.Spend(a, 1)
		l.Return(a, 1)
		l.Spend(b, 3)
		l.Release(1)
		l.Use(1)
		l.SetUsed(0)
		l.Expire(now, nil)
		l.Pass(a, 3)
	})
	if got != 0 {
		t.Fatalf("%v allocations, want 0", got)
	}
}

func TestAllocs_SizerEndedWindow(t *testing.T) {
	s, err := credit.NewSizer(credit.SizerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Duration(0)
	got := testing.AllocsPerRun(1000, func() {
		now += time.Millisecond
		s.Ended(credit.Sample{Now: now, N: 1, Service: time.Millisecond, Squares: 1e12, Waiting: 1, Workers: 4})
		s.Starved(now)
		s.Window(4, 1000)
	})
	if got != 0 {
		t.Fatalf("%v allocations, want 0", got)
	}
}

// TestAllocs_UseTryUseDone: with a credit in hand or free, nobody waiting.
func TestAllocs_UseTryUseDone(t *testing.T) {
	for name, c := range map[string]credit.GateConfig{"fixed": fixed(100), "adaptive": {}} {
		g := newGate(t, c)
		p := producer(t, g)
		ctx := context.Background()
		got := testing.AllocsPerRun(1000, func() {
			if p.Use(ctx) != nil || p.TryUse() != nil {
				t.Fatal("no credit")
			}
			g.Done(2, time.Millisecond)
		})
		if got != 0 {
			t.Fatalf("%s: %v allocations, want 0", name, got)
		}
	}
}
