package shedder_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shedder"
)

// flaky is a policy that answers anything, and panics now and then. It notices
// when it is called by two goroutines at a time.
type flaky struct {
	rng    *rand.Rand
	inside atomic.Int32
	twice  atomic.Int32
	open   int // admissions that were not undone
}

func (p *flaky) enter() func() {
	if p.inside.Add(1) > 1 {
		p.twice.Add(1)
	}
	return func() { p.inside.Add(-1) }
}

func (p *flaky) Admit(*shedder.Request) (v shedder.Verdict) {
	defer p.enter()()
	switch n := p.rng.IntN(100); {
	case n < 2:
		panic("flaky")
	case n < 20:
		return shedder.Verdict{Action: shedder.Refuse, Rule: shedder.RuleBound}
	case n < 40:
		v.Action = shedder.PushOut
	case n < 42:
		v.Action = 77
	}
	p.open++
	return v
}

func (p *flaky) Undo(*shedder.Request) {
	defer p.enter()()
	p.open--
	if p.rng.IntN(20) == 0 {
		panic("flaky")
	}
}

func (p *flaky) Done(*shedder.Done) {
	defer p.enter()()
	if p.rng.IntN(20) == 0 {
		panic("flaky")
	}
}

func (p *flaky) Bound() int { return p.rng.IntN(100) - 10 }

func (p *flaky) Inspect(time.Duration, *shedder.State) {
	defer p.enter()()
	if p.rng.IntN(5) == 0 {
		panic("flaky")
	}
}

// worker uses the shedder in every way, and counts what it was told.
type worker struct {
	s   *shedder.Shedder
	rng *rand.Rand

	allowed, acquired, shed, late, gone int
}

func (w *worker) run(ctx context.Context, n int) {
	for range n {
		r := shedder.Request{Class: w.rng.IntN(4), Classes: 4, Sender: "w"}
		if w.rng.IntN(3) == 0 {
			r.Deadline = w.s.Now() + time.Duration(w.rng.IntN(int(20*milli)))
		}
		var p shedder.Promise
		var err error
		if w.rng.IntN(4) == 0 {
			p, err = w.s.AllowRequest(r)
			if err == nil {
				w.allowed++
			}
		} else {
			p, err = w.acquire(ctx, r)
		}
		switch {
		case err == nil:
			time.Sleep(time.Duration(w.rng.IntN(int(2 * milli))))
			w.settle(p)
		case errors.Is(err, shedder.ErrShed):
			w.shed++
		case errors.Is(err, shedder.ErrDeadline):
			w.late++
		default:
			w.gone++
		}
	}
}

func (w *worker) acquire(ctx context.Context, r shedder.Request) (shedder.Promise, error) {
	switch w.rng.IntN(4) {
	case 0:
		c, cancel := context.WithCancel(ctx)
		defer time.AfterFunc(time.Duration(w.rng.IntN(int(5*milli))), cancel).Stop()
		ctx = c
	case 1:
		c, cancel := context.WithTimeout(ctx, time.Duration(w.rng.IntN(int(10*milli))))
		defer cancel()
		ctx = c
	}
	p, err := w.s.Acquire(ctx, r)
	if err == nil {
		w.acquired++
	}
	return p, err
}

func (w *worker) settle(p shedder.Promise) {
	switch w.rng.IntN(5) {
	case 0:
		p.Pass()
	case 1:
		p.Fail()
	case 2:
		p.Drop()
	case 3:
		p.Done(errors.New("x"))
	default:
		p.Pass()
		p.Drop()
	}
}

// Whatever happens at the same time, nothing is lost or counted twice.
func TestChaosKeepsTheAccount(t *testing.T) {
	for name, makePolicy := range map[string]func() shedder.Policy{
		"flaky":    func() shedder.Policy { return &flaky{rng: rand.New(rand.NewPCG(1, 2))} },
		"adaptive": func() shedder.Policy { return nil },
		"fixed":    func() shedder.Policy { f, _ := shedder.NewFixed(40); return f },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, makePolicy()) })
		})
	}
}

func chaos(t *testing.T, policy shedder.Policy) {
	t.Helper()
	s := newShedder(t, shedder.Config{Policy: policy, Concurrency: 8, Guards: shedder.Guards{FloorInFlight: 2, Exempt: []int{1}}})
	workers := make([]*worker, 48)
	var wg sync.WaitGroup
	for i := range workers {
		w := &worker{s: s, rng: rand.New(rand.NewPCG(7, uint64(i)))}
		workers[i] = w
		wg.Go(func() { w.run(t.Context(), 150) })
	}
	stop := make(chan struct{})
	var trouble sync.WaitGroup
	trouble.Go(func() {
		rng := rand.New(rand.NewPCG(9, 9))
		for i := 0; ; i++ {
			select {
			case <-stop:
				s.Kill(false)
				return
			case <-time.After(time.Duration(rng.IntN(int(milli)))):
			}
			s.Kill(rng.IntN(4) == 0)
			err := s.Tune(func(c *shedder.Config) {
				c.Concurrency = []int{1, 64}[i%2]
				c.Mode = shedder.Mode(rng.IntN(3))
				c.Guards.MaxShare = float64(rng.IntN(2)) / 2
			})
			if err != nil {
				t.Error(err)
			}
			if err := s.CheckSlots(); err != nil {
				t.Error(err)
				return
			}
			requireAccount(t, s.State(s.Now()))
			s.Leaks(0)
		}
	})
	wg.Wait()
	close(stop)
	trouble.Wait()

	var sum worker
	for _, w := range workers {
		sum.allowed += w.allowed
		sum.acquired += w.acquired
		sum.shed += w.shed
		sum.late += w.late
		sum.gone += w.gone
	}
	require.NoError(t, s.CheckSlots())
	st := s.State(s.Now())
	requireAccount(t, st)
	p := st.Promises
	require.Zero(t, p.Outstanding)
	require.EqualValues(t, sum.allowed+sum.acquired, p.Settled)
	require.EqualValues(t, 48*150, st.Asked+p.Expired, "every call was decided once")
	require.EqualValues(t, sum.shed+sum.late+sum.gone, 48*150-p.Settled)
	require.Positive(t, p.Canceled)
	require.Positive(t, p.Twice)
	if f, ok := policy.(*flaky); ok {
		require.Zero(t, f.twice.Load(), "the policy is called by one goroutine at a time")
		require.Positive(t, st.Panics)
	}
}

// With real goroutines and a fixed limit, never more are in service than it
// allows, and everybody gets a place in the end.
func TestAcquireNeverOvershootsNorForgets(t *testing.T) {
	const limit, goroutines, each = 3, 16, 400
	s := newShedder(t, shedder.Config{Policy: &script{}, Concurrency: limit})
	var inside, most atomic.Int64
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for j := range each {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+j)%5 == 0 {
					go cancel()
				}
				if p, err := s.Acquire(ctx, class(j%4)); err == nil {
					n := inside.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					inside.Add(-1)
					p.Pass()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, most.Load(), int64(limit))
	require.NoError(t, s.CheckSlots())
	st := s.State(s.Now())
	requireAccount(t, st)
	require.Zero(t, st.Promises.Outstanding)
}

func TestDecideFromManyGoroutines(t *testing.T) {
	f := &flaky{rng: rand.New(rand.NewPCG(3, 4))}
	s := newShedder(t, shedder.Config{Policy: f})
	const goroutines, each = 8, 2000
	var wg sync.WaitGroup
	var admitted, undone atomic.Uint64
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				r := &shedder.Request{Now: time.Duration(i) * milli, Load: shedder.Load{Evictable: i % 2}}
				if s.Decide(r).Action == shedder.Refuse {
					continue
				}
				admitted.Add(1)
				if i%3 == 0 {
					s.Undo(r)
					undone.Add(1)
				} else {
					s.Done(&shedder.Done{Now: r.Now, N: 1, Service: milli})
				}
				s.Bound()
				s.Overloaded(r.Now)
				s.Doomed(r.Now, r.Now+1)
				if i%100 == g {
					s.State(r.Now)
				}
			}
		})
	}
	wg.Wait()
	st := s.State(0)
	requireAccount(t, st)
	require.EqualValues(t, goroutines*each, st.Asked)
	require.Equal(t, admitted.Load(), st.Admitted)
	require.Equal(t, undone.Load(), st.Undone)
	require.Zero(t, f.twice.Load())
}
