package bus_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// overloaded is what came of offering a stage twice what it can do for a while.
type overloaded struct {
	stats   bus.StageStats
	state   bus.CreditState
	blocked time.Duration // of all producers
	waits   []time.Duration
}

// overload offers twice what 4 handlers of 1 ms can do, from 8 producers, each of
// which is behind its plan as soon as it is held up.
func overload(t *testing.T, c bus.StageConfig) (o overloaded) {
	const took, producers, lasts = time.Millisecond, 8, 3 * time.Second
	b := newBus(t, bus.Config{})
	c.Concurrency = 4
	var mu sync.Mutex
	s := addStage(t, b, "s", c, func(_ context.Context, e *bus.Envelope) error {
		if published, ok := e.Payload.(time.Time); ok {
			mu.Lock()
			o.waits = append(o.waits, time.Since(published))
			mu.Unlock()
		}
		time.Sleep(took)
		return nil
	})
	require.NoError(t, b.Start())
	var wg sync.WaitGroup
	began := time.Now()
	for range producers {
		wg.Go(func() {
			p := s.Producer()
			defer p.Close()
			for next := began; time.Since(began) < lasts; next = next.Add(took) {
				time.Sleep(time.Until(next))
				if p.Acquire(t.Context(), 1) == nil {
					_ = p.Publish(t.Context(), &bus.Envelope{Payload: time.Now()})
				}
			}
			mu.Lock()
			o.blocked += p.Blocked().Total
			mu.Unlock()
		})
	}
	wg.Wait()
	s.ReadCredit(&o.state)
	r := finish(t, b)
	o.stats = r.Stats.Stages[0]
	slices.Sort(o.waits)
	return o
}

// TestCreditOverload: with twice the load nothing is refused, and nothing that was
// accepted is lost; the producers wait instead, and what waits in the stage
// stays within the target.
func TestCreditOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := overload(t, bus.StageConfig{Full: bus.Credit})
		for why := range o.stats.Refused {
			require.Zero(t, o.stats.Refused[why], "refused as %v", reason.Reason(why))
		}
		require.Equal(t, o.stats.Accepted, o.stats.Completed)
		require.Greater(t, o.stats.Completed, uint64(3*4*1000*99/100), "of what can be done in 3 s")
		require.Greater(t, o.blocked, 11*time.Second, "half of the time of 8 producers")
		p99 := o.waits[len(o.waits)*99/100]
		require.Less(t, p99, 6*time.Millisecond, "the target is two service times; with Block it is 256")
		t.Logf("%d completed, none refused; 8 producers were blocked for %v of 24 s together; p99 of the wait in the stage %v",
			o.stats.Completed, o.blocked, p99)
	})
}

// TestCreditWithShedder: with both, the shedder answers first, and what it lets in
// waits for a credit. Nothing is lost between the two.
func TestCreditWithShedder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh, err := shedder.New(shedder.Config{})
		require.NoError(t, err)
		o := overload(t, bus.StageConfig{Full: bus.Credit, Shedder: sh})
		require.Equal(t, o.stats.Accepted, o.stats.Completed)
		require.Greater(t, o.stats.Completed, uint64(3*4*1000*98/100), "of what can be done in 3 s")
		require.Zero(t, o.stats.Refused[reason.NoCredit])
		require.Less(t, o.waits[len(o.waits)*99/100], 6*time.Millisecond)
		require.Equal(t, o.state.Granted, o.state.Spent+o.state.Returned+o.state.Expired+uint64(o.state.InHand))
	})
}

// TestAllocsOfCredits: a publish with a credit in hand, and one that takes a free
// one, need no memory.
func TestAllocsOfCredits(t *testing.T) {
	c := bus.StageConfig{Full: bus.Credit}
	noAllocs(t, echo(t, c, 0))
	noAllocs(t, echo(t, c, 2))

	b := bustest.New(t, bus.Config{})
	s := bustest.Stage(t, b, "s", c, ack)
	bustest.Start(t, b)
	p := s.Producer()
	defer p.Close()
	noAllocs(t, func() {
		if p.Acquire(t.Context(), 1) == nil {
			_ = p.Publish(t.Context(), &bus.Envelope{})
		}
	})
	var state bus.CreditState
	noAllocs(t, func() { s.ReadCredit(&state) })
}
