package bus_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
)

// B007: a window that changes while envelopes flow must neither grant more than
// it has nor forget what is out, and one above the capacity says where it ends.
func TestB007_TheWindowChangesWhileEnvelopesFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		c := credit(10)
		c.Concurrency = 4
		s := addStage(t, b, "s", c, func(context.Context, *bus.Envelope) error { time.Sleep(time.Millisecond); return nil })
		require.NoError(t, b.Start())
		const all, each = 10, 1000
		ended := make(chan struct{}, all)
		for range all {
			go func() {
				p := s.Producer()
				defer p.Close()
				for range each {
					if err := p.Publish(t.Context(), &bus.Envelope{}); err != nil {
						t.Error(err)
					}
				}
				ended <- struct{}{}
			}()
		}
		ceiling := 10
		for i := 0; len(ended) < all; i++ {
			window := []int{10, 12, 14, 9, 20}[i%5]
			require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Credit.Window = window }))
			for range 10 {
				got := checkCredit(t, s)
				require.Equal(t, window, got.Window)
				ceiling = max(window, min(ceiling, got.InHand+got.Used))
				require.LessOrEqual(t, got.InHand+got.Used, ceiling)
				time.Sleep(5 * time.Millisecond)
			}
			require.Less(t, i, 100, "it is stuck")
		}
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Credit.Window = 1 << 20 }))
		got := checkCredit(t, s)
		require.Equal(t, s.Config().Capacity, got.Window)
		require.Contains(t, got.Note, "1048576")
		require.Equal(t, got.Window, got.Free+got.Used)
		p := s.Producer()
		require.NoError(t, p.Acquire(t.Context(), 20))
		s.Suspend(bus.Hold{})
		require.Zero(t, checkCredit(t, s).InHand, "a suspended stage has its credits back")
		s.Resume("")
		p.Close()
		require.EqualValues(t, all*each, finish(t, b).Stats.Completed)
	})
}

// B031: credit lowered while all of it is out.
func TestB031_TheCreditIsLoweredWhileAllOfItIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		pass := make(chan struct{})
		s := addStage(t, b, "s", credit(100), func(context.Context, *bus.Envelope) error { <-pass; return nil })
		require.NoError(t, b.Start())
		p := s.Producer()
		for range 100 {
			require.NoError(t, p.TryPublish(&bus.Envelope{}))
		}
		set := func(window int) {
			require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Credit.Window = window }))
			require.Equal(t, window, s.Config().Credit.Window, "what is read back is what was set")
			require.Equal(t, max(window, 0), checkCredit(t, s).Window)
		}
		set(10)
		out := 100
		for ; out >= 10; out-- {
			require.ErrorIs(t, p.TryPublish(&bus.Envelope{}), bus.ErrNoCredit, "%d are out", out)
			pass <- struct{}{}
			time.Sleep(10 * time.Millisecond)
		}
		require.NoError(t, p.TryPublish(&bus.Envelope{}), "9 were out")
		set(bus.CreditNone)
		admitted := make(chan error, 3)
		for range 3 {
			go func() { admitted <- s.Publish(t.Context(), &bus.Envelope{}) }()
		}
		close(pass)
		time.Sleep(time.Hour)
		require.Empty(t, admitted)
		got := checkCredit(t, s)
		require.Equal(t, 3, got.Waiting)
		require.Zero(t, got.Used)
		require.EqualValues(t, 101, got.Spent)
		require.Equal(t, bus.CreditNone, got.Asked)
		require.NotEmpty(t, p.Blocked().Why)
		set(5)
		for range 3 {
			require.NoError(t, <-admitted)
		}
		for range 50 {
			require.NoError(t, p.Publish(t.Context(), &bus.Envelope{}))
		}
		p.Close()
		require.EqualValues(t, 101+3+50, finish(t, b).Stats.Completed)
	})
}

// B089: a producer that has a credit before it reads its source never sees a
// refusal, needs no polling and misses no wake-up.
func TestB089_WithCreditsNothingIsReadInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		s := addStage(t, b, "s", credit(3), func(context.Context, *bus.Envelope) error { time.Sleep(20 * time.Millisecond); return nil })
		require.NoError(t, b.Start())
		p := s.Producer()
		const n = 500
		calls := 0
		began := time.Now()
		for source := range n {
			require.NoError(t, p.Acquire(t.Context(), 1))
			calls++
			require.Positive(t, p.Credits())
			require.NoError(t, p.TryPublish(&bus.Envelope{Payload: source}))
		}
		require.Equal(t, n, calls, "one wait for each, and no more")
		require.Less(t, time.Since(began), n*21*time.Millisecond, "a wake-up was late")
		require.Positive(t, p.Blocked().Total)
		p.Close()
		r := finish(t, b)
		require.EqualValues(t, n, r.Stats.Completed)
		for _, refused := range r.Stats.Refused {
			require.Zero(t, refused)
		}
	})
}
