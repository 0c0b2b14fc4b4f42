package bustest_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
)

func TestGateHoldsHandlers(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "work", bus.StageConfig{Concurrency: 2, Capacity: 1, Full: bus.Reject}, gate.Handler(nil))
		bustest.Start(t, b)
		for range 3 { // two in handlers, one queued
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
			synctest.Wait() // the handler has it
		}
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrFull)
		require.Equal(t, 2, gate.Waiting())
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 3, st.Pending)
		gate.Pass(1)
		synctest.Wait()
		require.Equal(t, 1, gate.Passed())
		require.Equal(t, 2, gate.Waiting())
		gate.Open()
		r := bustest.Drain(t, b)
		require.EqualValues(t, 3, r.Stats.Completed)
	})
}

func TestRefuseSheds(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		refuse := &bustest.Refuse{}
		s := bustest.Stage(t, b, "work", bus.StageConfig{Shedder: refuse.Shedder(), NoHandler: bus.NoHandlerHold}, nil)
		bustest.Start(t, b)
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		refuse.Shed()
		err := s.TryPublish(&bus.Envelope{})
		require.ErrorIs(t, err, bus.ErrShed)
		require.ErrorIs(t, err, bus.ErrRejected)
		rejected, ok := errors.AsType[*bus.RejectedError](err)
		require.True(t, ok)
		require.Equal(t, "work", rejected.Stage)
		require.Equal(t, 2, refuse.Asked())
		require.Error(t, b.Close())
	})
}
