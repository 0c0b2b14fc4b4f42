package bus_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/retry"
	"github.com/sedabus/seda/shedder"
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

// A shedder that only observes, or is killed, changes nothing.
func TestObserveLeavesRetriesAlone(t *testing.T) {
	for name, off := range map[string]func(*bus.Bus, *shedder.Shedder) error{
		"observe": func(_ *bus.Bus, s *shedder.Shedder) error {
			return s.Tune(func(c *shedder.Config) { c.Mode = shedder.Observe })
		},
		"off": func(_ *bus.Bus, s *shedder.Shedder) error {
			return s.Tune(func(c *shedder.Config) { c.Mode = shedder.Off })
		},
		"killed": func(b *bus.Bus, _ *shedder.Shedder) error { b.SetShedding(false); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				c := bus.StageConfig{Shedder: shedder.Default(""), Retry: retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: time.Second}}
				s := bustest.Stage(t, b, "s", c, func(_ context.Context, e *bus.Envelope) error {
					time.Sleep(time.Millisecond)
					if e.Attempt() == 1 {
						return errFails
					}
					return nil
				})
				require.NoError(t, off(b, s.Shedder()))
				bustest.Start(t, b)
				for range 50 {
					require.NoError(t, s.TryPublish(&bus.Envelope{}))
				}
				time.Sleep(time.Minute)
				st := bustest.RequireBalanced(t, b)
				require.EqualValues(t, 50, st.Completed, "letters: %d", st.DeadLettered)
			})
		})
	}
}
