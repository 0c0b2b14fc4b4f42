package bus_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
)

// What a producer has published through its lane counts as spent as soon as
// the stage has it: else its credits, spent and come back, are still in its
// hand, and nobody's when they are granted to others.
func TestCreditBooksFollowLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		s := addStage(t, b, "s", credit(64), ack)
		require.NoError(t, b.Start())
		p, q := s.Producer(), s.Producer()
		require.NoError(t, p.Acquire(t.Context(), 64))
		for range 60 {
			require.NoError(t, p.TryPublish(&bus.Envelope{}))
		}
		synctest.Wait()
		require.NoError(t, q.TryAcquire(60))
		got := checkCredit(t, s)
		require.Equal(t, 64, got.InHand)
		require.EqualValues(t, 60, got.Spent)
		time.Sleep(2 * time.Second)
		got = checkCredit(t, s)
		require.Zero(t, got.InHand, "what was not spent lapses")
		require.Equal(t, 64, got.Free)
		require.EqualValues(t, 64, got.Expired)
		require.Zero(t, q.Credits())
		p.Close()
		q.Close()
		finish(t, b)
	})
}

// The part of the window that is left to hops cannot be acquired: who wants
// more is told so, and keeps nobody out.
func TestCreditAcquireLeavesTheReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		c := credit(10)
		c.Credit.HopReserve = 4
		s := addStage(t, b, "s", c, ack)
		require.NoError(t, b.Start())
		p, q := s.Producer(), s.Producer()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, p.Acquire(ctx, 7), bus.ErrInvalid)
		require.ErrorIs(t, p.TryAcquire(7), bus.ErrInvalid)
		require.NoError(t, p.Acquire(ctx, 6))
		asked := make(chan error, 1)
		go func() { asked <- q.Acquire(ctx, 6) }()
		synctest.Wait()
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Credit.HopReserve = 5 }))
		require.ErrorIs(t, <-asked, bus.ErrNoCredit, "it can no longer get them")
		p.Close()
		require.NoError(t, q.Acquire(ctx, 5))
		q.Close()
		finish(t, b)
	})
}

// A shorter lease is in force at once, also for those who wait.
func TestCreditLeaseIsTuned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		c := credit(10)
		c.Credit.Lease = 24 * time.Hour
		s := addStage(t, b, "s", c, ack)
		require.NoError(t, b.Start())
		p := s.Producer()
		require.NoError(t, p.Acquire(t.Context(), 10))
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- s.Publish(t.Context(), &bus.Envelope{}) }()
		synctest.Wait()
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Credit.Lease = 10 * time.Millisecond }))
		require.NoError(t, <-done)
		require.Equal(t, 10*time.Millisecond, time.Since(began))
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Credit.Lease = time.Hour }))
		require.NoError(t, p.Acquire(t.Context(), 9))
		time.Sleep(time.Hour - time.Second)
		require.Equal(t, 9, p.Credits())
		time.Sleep(time.Second + time.Millisecond)
		require.Zero(t, p.Credits())
		p.Close()
		finish(t, b)
	})
}

// A Producer without settings is one of the zero settings: of the last class.
func TestCreditProducerWithoutSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		c := credit(10)
		c.Classes = []bus.Class{{Name: "high"}, {Name: "low"}}
		s := addStage(t, b, "s", c, ack)
		require.NoError(t, b.Start())
		p := s.Producer()
		q, err := s.NewProducer(bus.ProducerConfig{})
		require.NoError(t, err)
		require.NoError(t, p.Acquire(t.Context(), 1))
		require.NoError(t, q.Acquire(t.Context(), 1))
		for _, a := range checkCredit(t, s).Producers {
			if !a.Plain {
				require.Equal(t, "low", a.Class)
			}
		}
		p.Close()
		q.Close()
		finish(t, b)
	})
}

// Who waits for credits of a producer that is closed meanwhile is told so.
func TestCreditCloseEndsAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		s := addStage(t, b, "s", credit(10), ack)
		require.NoError(t, b.Start())
		p, q := s.Producer(), s.Producer()
		require.NoError(t, p.Acquire(t.Context(), 10))
		done := make(chan error, 1)
		go func() { done <- q.Acquire(t.Context(), 5) }()
		synctest.Wait()
		q.Close()
		p.Close()
		require.Error(t, <-done)
		synctest.Wait()
		got := checkCredit(t, s)
		require.Zero(t, got.InHand)
		require.Equal(t, 10, got.Free)
		finish(t, b)
	})
}

// Nothing is in hand once the bus has ended.
func TestCreditEndsWithTheBus(t *testing.T) {
	for _, end := range []func(*bus.Bus){
		func(b *bus.Bus) { _, _ = b.Shutdown(context.Background()) },
		func(b *bus.Bus) { _ = b.Close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBus(t, bus.Config{})
			s := addStage(t, b, "s", credit(10), ack)
			require.NoError(t, b.Start())
			p := s.Producer()
			require.NoError(t, p.Acquire(t.Context(), 9))
			require.NoError(t, p.TryPublish(&bus.Envelope{}))
			synctest.Wait()
			end(b)
			got := checkCredit(t, s)
			require.Zero(t, got.InHand)
			require.Zero(t, p.Credits())
			require.ErrorIs(t, p.Acquire(t.Context(), 1), bus.ErrClosed)
			require.ErrorIs(t, p.TryAcquire(1), bus.ErrClosed)
			require.ErrorIs(t, p.TryPublish(&bus.Envelope{}), bus.ErrClosed)
			require.Zero(t, checkCredit(t, s).InHand)
			p.Close()
		})
	}
}

// TestCreditTakesOverWhatLanesHad: places that a producer had leased under another
// policy are not lost when the stage begins to grant credits.
func TestCreditTakesOverWhatLanesHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		s := addStage(t, b, "s", bus.StageConfig{Capacity: 100}, func(context.Context, *bus.Envelope) error { return nil })
		require.NoError(t, b.Start())
		p := s.Producer()
		require.NoError(t, p.Publish(t.Context(), &bus.Envelope{})) // leases more than one
		synctest.Wait()
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { // a lower capacity would call them back
			c.Full, c.Credit.Window, c.Capacity = bus.Credit, 100, 101
		}))
		got := checkCredit(t, s)
		require.Zero(t, got.Used, "%+v", got)
		require.Equal(t, 100, got.Free)
		p.Close()
		finish(t, b)
	})
}
