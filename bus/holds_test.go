package bus_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
)

// holder is what a bus and a stage have in common here.
type holder interface {
	Resume(by string) bool
	Holds() []bus.Hold
}

// bothHolders runs f for the bus's admission and for a stage; held says
// whether it is kept from its work.
func bothHolders(t *testing.T, f func(t *testing.T, h holder, hold func(bus.Hold), held func() bool)) {
	t.Helper()
	run := func(name string, pick func(b *bus.Bus, s *bus.Stage) (holder, func(bus.Hold), func() bool)) {
		t.Run(name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
				bustest.Start(t, b)
				h, hold, held := pick(b, s)
				f(t, h, hold, held)
			})
		})
	}
	run("bus", func(b *bus.Bus, s *bus.Stage) (holder, func(bus.Hold), func() bool) {
		return b, b.Pause, func() bool {
			err := s.TryPublish(&bus.Envelope{})
			if err != nil {
				require.ErrorIs(t, err, bus.ErrPaused)
			}
			synctest.Wait()
			return err != nil
		}
	})
	run("stage", func(b *bus.Bus, s *bus.Stage) (holder, func(bus.Hold), func() bool) {
		return s, s.Suspend, func() bool {
			before := readStage(s)
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
			synctest.Wait()
			st := readStage(s)
			require.Equal(t, st.Suspended, st.Completed == before.Completed)
			return st.Suspended
		}
	})
}

func TestHoldsOfSeveralHolders(t *testing.T) {
	bothHolders(t, func(t *testing.T, h holder, hold func(bus.Hold), held func() bool) {
		require.Empty(t, h.Holds())
		require.False(t, held())
		since := time.Now()
		hold(bus.Hold{Why: "release"})
		time.Sleep(time.Minute)
		hold(bus.Hold{By: "shedder", Why: "too much", For: time.Hour})
		list := h.Holds()
		require.Len(t, list, 2)
		for i := range list {
			require.WithinDuration(t, since.Add(time.Duration(i)*time.Minute), list[i].Since, 0)
			list[i].Since = time.Time{}
		}
		require.WithinDuration(t, since.Add(time.Hour+time.Minute), list[1].Until, 0)
		list[1].Until = time.Time{}
		require.Equal(t, []bus.Hold{
			{By: "operator", Why: "release"},
			{By: "shedder", Why: "too much", For: time.Hour},
		}, list)
		require.True(t, held())
		require.False(t, h.Resume("nobody"))
		require.True(t, h.Resume("shedder"))
		require.False(t, h.Resume("shedder"))
		require.True(t, held(), "what an operator holds, nobody else resumes")
		require.True(t, h.Resume(""))
		require.False(t, held())
		require.Empty(t, h.Holds())
	})
}

func TestHoldEndsByItself(t *testing.T) {
	bothHolders(t, func(t *testing.T, h holder, hold func(bus.Hold), held func() bool) {
		hold(bus.Hold{By: "timed", For: time.Minute})
		time.Sleep(time.Minute - 1)
		require.True(t, held())
		time.Sleep(1)
		synctest.Wait()
		require.False(t, held())
		require.Empty(t, h.Holds())
		require.False(t, h.Resume("timed"))

		hold(bus.Hold{})
		hold(bus.Hold{By: "timed", For: time.Minute})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, h.Holds(), 1)
		require.True(t, held(), "a manual hold outlives the timed one")
		require.True(t, h.Resume("operator"))
	})
}

func TestHoldIsReplacedByItsHolder(t *testing.T) {
	bothHolders(t, func(t *testing.T, h holder, hold func(bus.Hold), held func() bool) {
		hold(bus.Hold{For: time.Minute, Why: "first"})
		hold(bus.Hold{For: time.Hour, Why: "longer"})
		require.Len(t, h.Holds(), 1)
		require.Equal(t, "longer", h.Holds()[0].Why)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, held(), "the end of the first one is void")
		hold(bus.Hold{For: time.Second, Why: "shorter"})
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, held())
		hold(bus.Hold{For: time.Minute})
		hold(bus.Hold{}) // for good
		time.Sleep(time.Hour)
		synctest.Wait()
		require.True(t, held())
		require.True(t, h.Resume(""))
		hold(bus.Hold{For: time.Minute}) // and the end of one that was resumed
		require.True(t, h.Resume(""))
		hold(bus.Hold{By: "other", For: 2 * time.Minute})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, held())
		require.True(t, h.Resume("other"))
	})
}

func TestPauseAnswersWaiters(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1}, gate.Handler(nil))
		bustest.Start(t, b)
		for range 2 {
			require.NoError(t, s.TryPublish(&bus.Envelope{Slip: bus.Via("s")}))
			synctest.Wait()
		}
		answers := make(chan error, 3)
		for range 3 {
			go func() { answers <- s.Publish(context.Background(), &bus.Envelope{}) }()
		}
		synctest.Wait()
		require.Empty(t, answers)
		b.Pause(bus.Hold{})
		for range 3 {
			require.ErrorIs(t, <-answers, bus.ErrPaused)
		}
		_, err := s.PublishAfter(t.Context(), time.Hour, &bus.Envelope{})
		require.ErrorIs(t, err, bus.ErrPaused)
		later := bustest.Stage(t, b, "later", bus.StageConfig{}, acknowledge)
		require.ErrorIs(t, later.TryPublish(&bus.Envelope{}), bus.ErrPaused, "a new stage is paused as well")
		gate.Open() // what was accepted goes on, hops included
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 2, st.Completed)
		require.EqualValues(t, 2, st.Stages[0].Hopped)
		require.EqualValues(t, 5, st.Refused[reason.Paused])
		require.True(t, b.Resume(""))
		require.NoError(t, later.TryPublish(&bus.Envelope{}))
	})
}

func TestSuspendedStageKeepsItsQueue(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		handled := 0
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 5, Full: bus.Reject}, gate.Handler(func(context.Context, *bus.Envelope) error {
			handled++
			return nil
		}))
		bustest.Start(t, b)
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		synctest.Wait()
		s.Suspend(bus.Hold{})
		for range 5 {
			require.NoError(t, s.TryPublish(&bus.Envelope{}), "as long as there is room")
		}
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrFull)
		gate.Open()
		synctest.Wait()
		require.Equal(t, 1, handled, "what ran goes on, nothing starts")
		st := bustest.RequireBalanced(t, b).Stages[0]
		require.Equal(t, 5, st.Depth)
		require.True(t, st.Suspended)
		s.Resume("")
		synctest.Wait()
		require.Equal(t, 6, handled)
	})
}

// A shutdown does not lift holds: what they keep is abandoned at its deadline.
func TestShutdownOfASuspendedStage(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
		other := bustest.Stage(t, b, "other", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		s.Suspend(bus.Hold{})
		other.Suspend(bus.Hold{For: time.Second})
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		require.NoError(t, other.TryPublish(&bus.Envelope{}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := b.Shutdown(ctx)
		require.ErrorIs(t, err, bus.ErrNotDrained)
		require.EqualValues(t, 1, r.Stats.Abandoned)
		require.EqualValues(t, 1, r.Stats.Completed)
		require.True(t, r.Stats.Stages[0].Suspended)
	})
}
