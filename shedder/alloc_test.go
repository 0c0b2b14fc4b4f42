package shedder_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shedder"
)

func requireNoAllocs(t *testing.T, f func()) {
	t.Helper()
	f()
	require.Zero(t, testing.AllocsPerRun(1000, f))
}

func TestAllocsDecideUndo(t *testing.T) {
	var r shedder.Request
	for name, p := range map[string]*script{"admit": {}, "refuse": refusing()} {
		s := newShedder(t, shedder.Config{Policy: p})
		t.Run(name, func(t *testing.T) {
			requireNoAllocs(t, func() {
				r = shedder.Request{Now: r.Now + 1, Load: shedder.Load{Concurrency: 1}}
				s.Decide(&r)
				s.Undo(&r)
			})
		})
	}
}

func TestAllocsDoneBoundDoomedOverloaded(t *testing.T) {
	fixed, err := shedder.NewFixed(10)
	require.NoError(t, err)
	s := newShedder(t, shedder.Config{Policy: fixed})
	var d shedder.Done
	requireNoAllocs(t, func() {
		d = shedder.Done{Now: d.Now + 1000, N: 1, Service: 500, Shortest: 500, Longest: 500}
		s.Done(&d)
		s.Bound()
		s.Doomed(1, 5)
		s.Overloaded(1)
	})
}

func TestAllocsAllowPass(t *testing.T) {
	fixed, err := shedder.NewFixed(10)
	require.NoError(t, err)
	s := newShedder(t, shedder.Config{Policy: fixed, Concurrency: 4})
	requireNoAllocs(t, func() {
		p, err := s.Allow()
		if err != nil {
			t.Fatal(err)
		}
		p.Pass()
	})
}

func TestAllocsAllowRequestRefused(t *testing.T) {
	s := newShedder(t, shedder.Config{Policy: refusing(), Concurrency: 4})
	r := shedder.Request{Classes: 4, Class: 2, Sender: "a"}
	requireNoAllocs(t, func() {
		if _, err := s.AllowRequest(r); err == nil {
			t.Fatal("let in")
		}
	})
}

func TestAllocsAcquire(t *testing.T) {
	s := newShedder(t, shedder.Config{Policy: &still{}, Concurrency: 1})
	ctx := t.Context()
	requireNoAllocs(t, func() {
		p, err := s.Acquire(ctx, shedder.Request{Class: 1, Classes: 2})
		if err != nil {
			t.Fatal(err)
		}
		p.Pass()
	})
	// One that waits and is told no allocates an error, but leaves its slot and
	// channel to the next.
	busy, err := s.Acquire(ctx, shedder.Request{})
	require.NoError(t, err)
	defer busy.Pass()
	s.Kill(true)
	few := testing.AllocsPerRun(100, func() { _, _ = s.Acquire(ctx, shedder.Request{Deadline: s.Now() + time.Microsecond}) })
	require.LessOrEqual(t, few, 8.0)
	require.Equal(t, 1, s.State(s.Now()).Promises.Outstanding)
}

func TestAllocsLearn(t *testing.T) {
	s := newShedder(t, shedder.Config{Concurrency: 2})
	requireNoAllocs(t, func() {
		p, err := s.Allow()
		if err != nil {
			return
		}
		p.Fail()
		p.Drop() // too late
	})
}
