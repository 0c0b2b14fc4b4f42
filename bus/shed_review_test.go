package bus_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
)

// Publishers that wait for room in the first stage are not at the door of the
// stages behind it.
func TestWhoWaitsForRoomIsNotAtTheDoorOfLaterStages(t *testing.T) {
	for _, journal := range []bool{false, true} {
		c := bus.Config{}
		if journal {
			c.Journal = &logbook{}
		}
		bustest.Run(t, c, func(t *testing.T, b *bus.Bus) {
			gate := bustest.NewGate()
			policy := &asked{}
			a := bustest.Stage(t, b, "a", bus.StageConfig{Capacity: 1}, gate.Handler(nil))
			s := bustest.Stage(t, b, "s", bus.StageConfig{Shedder: shell(t, policy)}, acknowledge)
			bustest.Start(t, b)
			for range 12 {
				go func() { _ = a.Publish(context.Background(), &bus.Envelope{Slip: bus.Via("s")}) }()
				synctest.Wait()
			}
			require.Equal(t, 10, readStage(a).Waiters)
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
			last := policy.asks[len(policy.asks)-1]
			require.Zero(t, last.Waiting, "s is idle, and will be for as long as a stands still")
			gate.Open()
			synctest.Wait()
			require.Zero(t, policy.undone)
			require.EqualValues(t, 13, bustest.RequireBalanced(t, b).Completed)
		})
	}
}
