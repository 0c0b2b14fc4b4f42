// Package bustest helps to test programs that use package bus: buses in
// virtual time, gates for handlers, refusals on demand, and the check that
// nothing was lost.
//
// Most tests need no more than [Run] and a [Gate]. It imports testing and is
// for tests only.
package bustest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sedabus/seda/bus"
)

// Run runs f in a synctest bubble, where time is virtual, with a new bus that
// is not started. When f has returned, the bus is drained unless f has shut it
// down, and its account must balance. When f
// fails the test, the bus is closed, so that gated handlers end.
func Run(t *testing.T, c bus.Config, f func(t *testing.T, b *bus.Bus)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := New(t, c)
		defer func() {
			if t.Failed() { // also when f was left by FailNow
				_ = b.Close() // lets gated handlers go
			}
			synctest.Wait()
		}()
		f(t, b)
		end(t, b)
	})
}

// end shuts b down and checks the account, whatever f has left of b.
func end(t testing.TB, b *bus.Bus) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	r, err := b.Shutdown(ctx)
	if err != nil {
		t.Log(r.String())
	}
	requireBalanced(t, &r.Stats)
}

// New returns a bus and fails the test if c is not valid.
func New(t testing.TB, c bus.Config) *bus.Bus {
	t.Helper()
	b, err := bus.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Stage registers a stage, with h as its handler unless it is nil.
func Stage(t testing.TB, b *bus.Bus, name string, c bus.StageConfig, h bus.Handler) *bus.Stage {
	t.Helper()
	s, err := b.Stage(name, c)
	if err != nil {
		t.Fatal(err)
	}
	if h != nil {
		if err := s.Handle(h); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Start starts b.
func Start(t testing.TB, b *bus.Bus) {
	t.Helper()
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
}

// Drain shuts b down without a deadline and fails the test unless everything
// was drained and the account balances.
func Drain(t testing.TB, b *bus.Bus) bus.Report {
	t.Helper()
	r, err := b.Shutdown(context.Background())
	if err != nil {
		t.Fatalf("not drained: %v\n%s", err, r.String())
	}
	requireBalanced(t, &r.Stats)
	if r.Stats.Pending != 0 {
		t.Fatalf("pending after the shutdown: %s", r.Stats.Account())
	}
	return r
}

// RequireBalanced fails the test unless every account of b balances. Nothing
// may be moving: in a bubble, call synctest.Wait first.
func RequireBalanced(t testing.TB, b *bus.Bus) bus.Stats {
	t.Helper()
	var st bus.Stats
	b.ReadStats(&st)
	requireBalanced(t, &st)
	return st
}

func requireBalanced(t testing.TB, st *bus.Stats) {
	t.Helper()
	if err := st.Check(); err != nil {
		for i := range st.Stages {
			s := &st.Stages[i]
			t.Logf("%s: entered %d, hopped %d, completed %d, dead-lettered %d, abandoned %d, depth %d, in flight %d, copies %+v",
				s.Name, s.Entered, s.Hopped, s.Completed, s.DeadLettered, s.Abandoned, s.Depth, s.InFlight, s.Copies)
		}
		t.Fatal(err)
	}
}
