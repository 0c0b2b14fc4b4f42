package credit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/credit"
)

// call is one call that may wait.
type call struct {
	p      *credit.Producer
	n      int
	use    bool
	cancel context.CancelFunc
	done   chan error
}

// crowd drives a gate with random producers, from one goroutine.
type crowd struct {
	g      *credit.Gate
	rnd    *rand.Rand
	live   []*credit.Producer
	calls  []*call
	most   int // what was out
	busy   int // units in service
	paused bool
}

var errMine = errors.New("mine")

func (c *crowd) step(t *testing.T) {
	if len(c.live) == 0 {
		p, err := c.g.Producer(credit.AccountConfig{Weight: 1 + c.rnd.IntN(5), Class: c.rnd.IntN(2)})
		require.NoError(t, err)
		c.live = append(c.live, p)
	}
	i := c.rnd.IntN(len(c.live))
	p := c.live[i]
	n := 1 + c.rnd.IntN(12)
	switch c.rnd.IntN(18) {
	case 0:
		if len(c.live) < 6 {
			other, err := c.g.Producer(credit.AccountConfig{Class: c.rnd.IntN(2)})
			require.NoError(t, err)
			c.live = append(c.live, other)
		}
	case 1:
		p.Close()
		c.live = slices.Delete(c.live, i, i+1)
	case 2, 3, 4:
		c.start(t, p, n, false)
	case 5, 6, 7:
		c.start(t, p, 1, true)
	case 8:
		if p.TryAcquire(n) == nil {
			require.GreaterOrEqual(t, p.Credits(), n)
		}
	case 9, 10:
		if p.TryUse() == nil {
			c.busy++
		}
	case 11:
		p.Return(n)
	case 12, 13:
		c.end(min(n, c.busy))
	case 14:
		if len(c.calls) > 0 {
			c.calls[c.rnd.IntN(len(c.calls))].cancel()
		}
	case 15:
		if c.paused = !c.paused; c.paused {
			c.g.Pause()
			require.Zero(t, c.g.State().Outstanding)
		} else {
			c.g.Resume()
		}
	case 16:
		if c.rnd.IntN(4) == 0 {
			c.g.Adapt()
		} else {
			require.NoError(t, c.g.SetWindow(c.rnd.IntN(40)))
		}
	case 17:
		time.Sleep(time.Duration(c.rnd.IntN(700)) * time.Millisecond)
	}
}

// start begins a call.
func (c *crowd) start(t *testing.T, p *credit.Producer, n int, use bool) {
	if len(c.calls) >= 20 {
		return
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	k := &call{p: p, n: n, use: use, cancel: func() { cancel(errMine) }, done: make(chan error, 1)}
	c.calls = append(c.calls, k)
	go func() {
		if use {
			k.done <- p.Use(ctx)
		} else {
			k.done <- p.Acquire(ctx, n)
		}
	}()
}

// end ends the work of n spent credits; some of it panics.
func (c *crowd) end(n int) {
	for range n {
		func() {
			defer func() { _ = recover() }()
			defer c.g.Done(1, time.Duration(c.rnd.IntN(20))*time.Millisecond)
			if c.rnd.IntN(5) == 0 {
				panic("handler")
			}
		}()
		c.busy--
	}
}

// verify takes the results of the calls that have ended and looks at the books.
func (c *crowd) verify(t *testing.T) {
	synctest.Wait()
	largest := 0
	c.calls = slices.DeleteFunc(c.calls, func(k *call) bool {
		select {
		case err := <-k.done:
			var limit *credit.LimitError
			switch {
			case err == nil && k.use:
				c.busy++
			case err == nil, errors.Is(err, credit.ErrClosed), errors.As(err, &limit) && limit.Want > limit.Limit:
			default:
				require.ErrorIs(t, err, credit.ErrNoCredit)
				require.ErrorIs(t, err, errMine)
			}
			return true
		default:
			largest = max(largest, k.n)
			return false
		}
	})
	st := balanced(t, c.g)
	require.Equal(t, c.busy, st.Used)
	require.Equal(t, len(c.calls), st.Waiting)
	require.Equal(t, len(c.live), st.Live)
	sum := 0
	for _, p := range c.live {
		one := p.Counts()
		require.Equal(t, one.Granted, one.Spent+one.Returned+one.Expired+uint64(one.Outstanding))
		sum += one.Outstanding
	}
	require.Equal(t, st.Outstanding, sum)
	out := st.Used + st.Outstanding
	if st.Adapts { // it may have been larger within the step
		c.most = 40
	}
	require.LessOrEqual(t, out, max(st.Window, c.most), "more is out than the window and what was out when it shrank")
	c.most = out
	if st.Waiting > 0 && !st.Paused && st.Window > 0 {
		require.Less(t, st.Free, largest, "there is enough for each of those that wait")
		if st.Window >= largest {
			require.False(t, st.Used == 0 && st.Outstanding == 0, "all credits are free, and somebody waits")
		}
	}
}

// TestGateModel: in whatever order producers come, cancel, panic, close and let
// leases lapse, and the window changes and pauses, no credit is lost and nobody
// waits without a reason.
func TestGateModel(t *testing.T) {
	seeds := long(500, 10_000)
	const chunk = 100
	for first := 0; first < seeds; first += chunk {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			for seed := first; seed < first+chunk; seed++ {
				synctest.Test(t, func(t *testing.T) { runCrowd(t, uint64(seed)) })
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

func runCrowd(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 4))
	g := newGate(t, credit.GateConfig{
		Config: credit.Config{Window: rnd.IntN(30), Lease: time.Second, Classes: []credit.Class{{}, {MinShare: 10 * rnd.IntN(5)}}},
		Size:   credit.Sizing{Workers: 1 + rnd.IntN(4), Capacity: 40},
	})
	c := &crowd{g: g, rnd: rnd}
	for range 60 {
		c.step(t)
		c.verify(t)
	}
	// let everything end: all calls must, one after the other
	c.paused = false
	g.Resume()
	require.NoError(t, g.SetWindow(40))
	for i := 0; len(c.calls) > 0; i++ {
		require.Less(t, i, 200, "somebody waits for ever")
		c.end(c.busy)
		time.Sleep(time.Second)
		c.verify(t)
	}
	c.end(c.busy)
	g.Close()
	st := balanced(t, g)
	require.Zero(t, st.Used+st.Outstanding+st.Waiting+st.Live)
}
