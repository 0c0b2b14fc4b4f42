package bus_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
)

// forms are the ways to publish through a Producer; each must keep its order.
var forms = map[string]func(t *testing.T, p *bus.Producer, from, to int){
	"publish": func(t *testing.T, p *bus.Producer, from, to int) {
		for i := from; i < to; i++ {
			require.NoError(t, p.Publish(t.Context(), &bus.Envelope{Payload: i}))
		}
	},
	"batch": func(t *testing.T, p *bus.Producer, from, to int) {
		for i := from; i < to; {
			b := p.Begin(7)
			for ; i < to; i++ {
				e := b.Next()
				if e == nil {
					break
				}
				e.Payload = i
			}
			_, err := b.Publish(t.Context())
			require.NoError(t, err)
			require.Nil(t, b.Errs())
		}
	},
	"mixed": func(t *testing.T, p *bus.Producer, from, to int) {
		for i := from; i < to; {
			require.NoError(t, p.Publish(t.Context(), &bus.Envelope{Payload: i}))
			i++
			if i == to {
				return
			}
			b := p.Begin(1)
			b.Next().Payload = i
			i++
			_, err := b.Publish(t.Context())
			require.NoError(t, err)
		}
	},
}

func TestProducerKeepsItsOrder(t *testing.T) {
	const each, producers = 3001, 4
	for name, send := range forms {
		t.Run(name, func(t *testing.T) {
			b := bustest.New(t, bus.Config{})
			var got [producers][]int
			s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 100}, func(_ context.Context, e *bus.Envelope) error {
				n := e.Payload.(int)
				got[n/10_000] = append(got[n/10_000], n%10_000)
				return nil
			})
			bustest.Start(t, b)
			var wg sync.WaitGroup
			for k := range producers {
				wg.Go(func() {
					p := s.Producer()
					send(t, p, k*10_000, k*10_000+each)
					p.Close()
				})
			}
			wg.Wait()
			r := bustest.Drain(t, b)
			require.EqualValues(t, each*producers, r.Stats.Completed)
			for k := range producers {
				require.Len(t, got[k], each)
				for i, n := range got[k] {
					require.Equal(t, i, n, "producer %d", k)
				}
			}
		})
	}
}

// A lease that nobody uses must not keep others out, and capacity holds
// exactly over all ways in.
func TestUnusedLeasesKeepNobodyOut(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 100, Full: bus.Reject}, gate.Handler(nil))
		bustest.Start(t, b)
		var ps []*bus.Producer
		for range 8 {
			p := s.Producer()
			require.NoError(t, p.TryPublish(&bus.Envelope{}))
			ps = append(ps, p)
		}
		synctest.Wait() // one is in the handler, seven wait
		accepted := 0
		for s.TryPublish(&bus.Envelope{}) == nil {
			accepted++
		}
		require.Equal(t, 93, accepted)
		for _, p := range ps {
			require.ErrorIs(t, p.TryPublish(&bus.Envelope{}), bus.ErrFull)
		}
		st := bustest.RequireBalanced(t, b)
		require.Equal(t, 100, st.Stages[0].Depth)
		gate.Pass(1)
		synctest.Wait()
		require.NoError(t, ps[3].TryPublish(&bus.Envelope{}))
		require.ErrorIs(t, ps[4].TryPublish(&bus.Envelope{}), bus.ErrFull)
		gate.Open()
	})
}

func TestForgottenProducerLosesNothing(t *testing.T) {
	b := bustest.New(t, bus.Config{})
	s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 64, Full: bus.Reject}, nil)
	bustest.Start(t, b)
	require.NoError(t, s.Handle(func(context.Context, *bus.Envelope) error { return nil }))
	require.NoError(t, s.Producer().TryPublish(&bus.Envelope{}))
	for range 3 {
		runtime.GC()
	}
	r := bustest.Drain(t, b)
	require.EqualValues(t, 1, r.Stats.Completed)
}

func TestProducerOfStageThatIsClosed(t *testing.T) {
	b := bustest.New(t, bus.Config{})
	s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(context.Context, *bus.Envelope) error { return nil })
	bustest.Start(t, b)
	p := s.Producer()
	require.NoError(t, p.TryPublish(&bus.Envelope{}))
	bustest.Drain(t, b)
	require.ErrorIs(t, p.TryPublish(&bus.Envelope{}), bus.ErrClosed)
	require.ErrorIs(t, p.Publish(t.Context(), &bus.Envelope{}), bus.ErrClosed)
	p.Begin(2).Next()
	_, err := p.Begin(2).Publish(t.Context())
	require.NoError(t, err, "an empty batch publishes nothing")
	bt := p.Begin(2)
	bt.Next()
	n, err := bt.Publish(t.Context())
	require.Zero(t, n)
	require.ErrorIs(t, err, bus.ErrClosed)
	require.Len(t, bt.Errs(), 1)
	p.Close()
	p.Close()
}

// Shutdown while producers publish: whatever was accepted has an end.
func TestShutdownWhileProducersPublish(t *testing.T) {
	for range 50 {
		b := bustest.New(t, bus.Config{})
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 32, Concurrency: 2}, func(context.Context, *bus.Envelope) error { return nil })
		bustest.Start(t, b)
		var wg sync.WaitGroup
		var accepted [4]uint64
		started := make(chan struct{}, len(accepted))
		for i := range accepted {
			wg.Go(func() {
				p := s.Producer()
				for p.Publish(context.Background(), &bus.Envelope{}) == nil {
					if accepted[i]++; accepted[i] == 100 {
						started <- struct{}{}
					}
				}
			})
		}
		for range accepted {
			<-started
		}
		r := bustest.Drain(t, b)
		wg.Wait()
		var sum uint64
		for _, n := range accepted {
			sum += n
		}
		require.Equal(t, sum, r.Stats.Completed)
	}
}

// A change to DropOldest ends the lanes and keeps what is in them, in order.
func TestLanesEndWithDropOldest(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		var got []int
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 4}, gate.Handler(func(_ context.Context, e *bus.Envelope) error {
			got = append(got, e.Payload.(int))
			return nil
		}))
		bustest.Start(t, b)
		p := s.Producer()
		for i := range 5 {
			require.NoError(t, p.TryPublish(&bus.Envelope{Payload: i}))
			synctest.Wait()
		}
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Full = bus.DropOldest }))
		require.NoError(t, p.TryPublish(&bus.Envelope{Payload: 5})) // evicts 1
		gate.Open()
		bustest.Drain(t, b)
		require.Equal(t, []int{0, 2, 3, 4, 5}, got)
	})
}
