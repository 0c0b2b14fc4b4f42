package bus_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
)

// Places that were reserved for hops which the next stage then refuses come
// back: it must not look full for ever.
func TestPlacesOfRefusedHopsComeBack(t *testing.T) {
	const rounds, capacity = 20, 64
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		next := bustest.Stage(t, b, "next", bus.StageConfig{
			Capacity: capacity, Full: bus.Reject, Accepts: bus.TypeOf[string](),
		}, func(context.Context, *bus.Envelope) error { return nil })
		first := bustest.Stage(t, b, "first", bus.StageConfig{}, func(context.Context, *bus.Envelope) error { return nil })
		bustest.Start(t, b)
		slip := bus.Via("next")
		for range rounds {
			p := first.Producer().Begin(capacity)
			for e := p.Next(); e != nil; e = p.Next() {
				e.Payload, e.Slip = 1, slip // not a string
			}
			_, err := p.Publish(t.Context())
			require.NoError(t, err)
		}
		synctest.Wait()
		next.Suspend(bus.Hold{})
		for range capacity {
			require.NoError(t, next.TryPublish(&bus.Envelope{Payload: "x"}))
		}
		require.ErrorIs(t, next.TryPublish(&bus.Envelope{Payload: "x"}), bus.ErrFull)
		next.Resume("")
		r := bustest.Drain(t, b)
		require.EqualValues(t, capacity, r.Stats.Completed)
	})
}
