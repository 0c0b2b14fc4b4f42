package bus_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
)

// ring is a ring of stages r0, r1, ... whose envelopes go round.
type ring struct {
	stages []*bus.Stage
	slips  []bus.Slip // of envelopes that begin at each stage
	ends   endLog
	moves  atomic.Int64
}

// newRing makes a ring of n stages for envelopes of that many hops.
func newRing(t *testing.T, b *bus.Bus, n, hops int, c bus.StageConfig, work func()) *ring {
	t.Helper()
	r := &ring{}
	for i := range n {
		r.stages = append(r.stages, bustest.Stage(t, b, fmt.Sprintf("r%d", i), c, func(context.Context, *bus.Envelope) error {
			r.moves.Add(1)
			work()
			return nil
		}))
		var names []string
		for h := range hops {
			names = append(names, fmt.Sprintf("r%d", (i+1+h)%n))
		}
		r.slips = append(r.slips, bus.Via(names...))
	}
	return r
}

// fill publishes to all stages until none takes any more.
func (r *ring) fill(t *testing.T) (n int) {
	t.Helper()
	for refused := 0; refused < len(r.stages); {
		refused = 0
		for i, s := range r.stages {
			e := &bus.Envelope{Slip: r.slips[i], Key: fmt.Sprint(n), OnDone: r.ends.done}
			if err := s.TryPublish(e); err != nil {
				require.ErrorIs(t, err, bus.ErrFull)
				refused++
				continue
			}
			n++
		}
	}
	return n
}

func TestFullRingsKeepMoving(t *testing.T) {
	type setting struct {
		name string
		c    bus.StageConfig
		max  int // MaxHandlers
	}
	settings := []setting{
		{"one place", bus.StageConfig{Capacity: 1}, 0},
		{"four places", bus.StageConfig{Capacity: 4}, 0},
		{"two handlers", bus.StageConfig{Capacity: 4, Concurrency: 2}, 0},
		{"more handlers than places", bus.StageConfig{Capacity: 2, Concurrency: 6}, 0},
		{"more egress than places", bus.StageConfig{Capacity: 2, EgressCap: 8}, 0},
		{"batches", bus.StageConfig{Capacity: 80, Batch: 64}, 0},
		{"by key", bus.StageConfig{Capacity: 4, Concurrency: 2, Order: bus.ByKey}, 0},
		{"in order", bus.StageConfig{Capacity: 3, Order: bus.InOrder}, 0},
		{"in order, batches", bus.StageConfig{Capacity: 3, Order: bus.InOrder, Batch: 64}, 0},
		{"classes", bus.StageConfig{Capacity: 3, Classes: []bus.Class{{Name: "a"}, {Name: "b"}}}, 0},
		{"reject", bus.StageConfig{Capacity: 2, Full: bus.Reject}, 0},
		{"one permit", bus.StageConfig{Capacity: 2, Concurrency: 2}, 1},
	}
	for _, stages := range []int{2, 3, 8} {
		for _, s := range settings {
			for _, slow := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d/%s/slow=%v", stages, s.name, slow), func(t *testing.T) {
					bustest.Run(t, bus.Config{MaxHandlers: s.max}, func(t *testing.T, b *bus.Bus) {
						const hops = 30
						work := func() {}
						if slow {
							work = func() { time.Sleep(time.Millisecond) }
						}
						r := newRing(t, b, stages, hops, s.c, work)
						for _, st := range r.stages {
							st.Suspend(bus.Hold{})
						}
						bustest.Start(t, b)
						n := r.fill(t)
						for _, st := range r.stages {
							st.Resume("")
						}
						synctest.Wait()
						m := r.fill(t) // to the last place, while it moves
						bustest.Drain(t, b)
						require.Equal(t, n+m, r.ends.count(bus.Completed), "%+v", r.ends.count(bus.DeadLettered))
						require.EqualValues(t, (n+m)*(hops+1), r.moves.Load())
					})
				})
			}
		}
	}
}

// Publishers push as hard as they can: they wait, and the ring goes on.
func TestFullRingUnderPublishers(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		r := newRing(t, b, 3, 12, bus.StageConfig{Capacity: 2, Concurrency: 2}, func() { time.Sleep(time.Millisecond) })
		bustest.Start(t, b)
		for i, s := range r.stages {
			for range 4 {
				go func() {
					for range 10 {
						if err := s.Publish(t.Context(), &bus.Envelope{Slip: r.slips[i], OnDone: r.ends.done}); err != nil {
							t.Error(err)
						}
					}
				}()
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 120, r.ends.count(bus.Completed))
		require.Empty(t, b.Letters().List(bus.LetterFilter{}))
	})
}

// A ring beside a stage that keeps the only permit: when it comes back, the
// ring goes on.
func TestFullRingGetsItsPermitBack(t *testing.T) {
	bustest.Run(t, bus.Config{MaxHandlers: 1}, func(t *testing.T, b *bus.Bus) {
		r := newRing(t, b, 3, 30, bus.StageConfig{Capacity: 1}, func() {})
		busy := bustest.Stage(t, b, "busy", bus.StageConfig{Capacity: 1000}, func(context.Context, *bus.Envelope) error {
			time.Sleep(time.Millisecond)
			return nil
		})
		bustest.Start(t, b)
		n := 0
		for range 50 {
			for range 5 {
				require.NoError(t, busy.TryPublish(&bus.Envelope{}))
			}
			n += r.fill(t)
			time.Sleep(time.Millisecond)
		}
		bustest.Drain(t, b)
		require.Equal(t, n, r.ends.count(bus.Completed))
	})
}

// The escape place is one: a stage never holds more than its capacity and one
// arrival, besides what it has parked itself.
func TestEscapePlaceIsOne(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		for i := range 4 {
			bustest.Stage(t, b, fmt.Sprintf("up%d", i), bus.StageConfig{}, ack)
		}
		next := bustest.Stage(t, b, "next", bus.StageConfig{Capacity: 3}, gate.Handler(nil))
		bustest.Start(t, b)
		for i := range 12 {
			up, _ := b.Lookup(fmt.Sprintf("up%d", i%4))
			publish(t, up, bus.Via("next"), nil, i)
			require.LessOrEqual(t, readStage(next).Depth, 4)
		}
		require.Equal(t, 4, readStage(next).Depth)
		for range 6 {
			gate.Pass(1)
			settle()
			require.Equal(t, 4, readStage(next).Depth, "the parked come up")
		}
		gate.Open()
	})
}

// A ring whose envelopes fail and are retried loses none either.
func TestRingWithRetries(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		const hops = 20
		r := &ring{}
		var calls atomic.Int64
		for i := range 3 {
			c := bus.StageConfig{Capacity: 2}
			r.stages = append(r.stages, bustest.Stage(t, b, fmt.Sprintf("r%d", i), c, func(_ context.Context, e *bus.Envelope) error {
				if n := calls.Add(1); n%3 == 0 {
					return bus.RetryAfter(time.Duration(n%2) * time.Millisecond)
				}
				time.Sleep(time.Millisecond)
				return nil
			}))
			var names []string
			for h := range hops {
				names = append(names, fmt.Sprintf("r%d", (i+1+h)%3))
			}
			r.slips = append(r.slips, bus.Via(names...))
		}
		bustest.Start(t, b)
		n := r.fill(t)
		bustest.Drain(t, b)
		require.Equal(t, n, r.ends.count(bus.Completed))
	})
}
