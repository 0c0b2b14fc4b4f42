package bus_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
)

// handledAt returns a handler that notes what it gets and when.
type handledAt struct {
	began time.Time
	log   []string
}

func (h *handledAt) handle(_ context.Context, e *bus.Envelope) error {
	h.log = append(h.log, fmt.Sprint(e.Payload, " at ", time.Since(h.began)))
	return nil
}

// later runs f with a started bus of one stage, and the log of its handler.
func later(t *testing.T, c bus.StageConfig, f func(t *testing.T, b *bus.Bus, s *bus.Stage, h *handledAt)) {
	t.Helper()
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		h := &handledAt{began: time.Now()}
		s := bustest.Stage(t, b, "s", c, h.handle)
		bustest.Start(t, b)
		f(t, b, s, h)
	})
}

func after(t *testing.T, s *bus.Stage, d time.Duration, payload any) uint64 {
	t.Helper()
	id, err := s.PublishAfter(t.Context(), d, &bus.Envelope{Payload: payload, Key: fmt.Sprint(payload)})
	require.NoError(t, err)
	require.NotZero(t, id)
	return id
}

func TestLaterPublishesComeWhenTheyAreDue(t *testing.T) {
	later(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, s *bus.Stage, h *handledAt) {
		after(t, s, time.Hour, "hour")
		after(t, s, time.Second, "second")
		after(t, s, 0, "now")
		after(t, s, -time.Hour, "before")
		for when, payload := range map[time.Duration]any{time.Minute: "minute", -time.Minute: "past"} {
			_, err := s.PublishAt(t.Context(), time.Now().Add(when), &bus.Envelope{Payload: payload})
			require.NoError(t, err)
		}
		synctest.Wait()
		require.ElementsMatch(t, []string{"now at 0s", "before at 0s", "past at 0s"}, h.log)
		h.log = nil
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 6, st.Accepted)
		require.EqualValues(t, 3, st.Pending)
		require.Equal(t, 3, st.Stages[0].Delayed)
		require.Equal(t, 3, st.Stages[0].Depth)
		bustest.Drain(t, b) // waits for them
		require.Equal(t, []string{"second at 1s", "minute at 1m0s", "hour at 1h0m0s"}, h.log)
		require.Equal(t, time.Hour, time.Since(h.began))
	})
}

func TestEqualTimesKeepTheirOrder(t *testing.T) {
	for _, c := range []bus.StageConfig{{}, {Order: bus.ByKey}, {Order: bus.InOrder}} {
		t.Run(c.Order.String(), func(t *testing.T) {
			later(t, c, func(t *testing.T, b *bus.Bus, s *bus.Stage, h *handledAt) {
				var want []string
				at := time.Now().Add(time.Second)
				for i := range 200 {
					_, err := s.PublishAt(t.Context(), at, &bus.Envelope{Payload: i, Key: "one"})
					require.NoError(t, err)
					want = append(want, fmt.Sprint(i, " at 1s"))
				}
				bustest.Drain(t, b)
				require.Equal(t, want, h.log)
			})
		})
	}
}

func TestLaterPublishesCountInTheCapacity(t *testing.T) {
	for _, p := range []bus.FullPolicy{bus.Block, bus.Reject, bus.DropNewest, bus.DropOldest} {
		t.Run(p.String(), func(t *testing.T) {
			later(t, bus.StageConfig{Capacity: 2, Full: p}, func(t *testing.T, b *bus.Bus, s *bus.Stage, h *handledAt) {
				after(t, s, time.Hour, 1)
				after(t, s, time.Hour, 2)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				want := bus.ErrFull // what is delayed is not evicted
				if p == bus.DropNewest {
					want = bus.ErrDropped
				}
				require.ErrorIs(t, s.Publish(ctx, &bus.Envelope{}), want)
				_, err := s.PublishAfter(ctx, 1, &bus.Envelope{})
				require.ErrorIs(t, err, bus.ErrRejected)
				require.Equal(t, 2, depthOf(s))
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Len(t, h.log, 2)
				require.NoError(t, s.TryPublish(&bus.Envelope{Payload: 3}))
				require.EqualValues(t, 3, bustest.Drain(t, b).Stats.Completed)
			})
		})
	}
	t.Run("waits for room", func(t *testing.T) {
		later(t, bus.StageConfig{Capacity: 1}, func(t *testing.T, b *bus.Bus, s *bus.Stage, h *handledAt) {
			after(t, s, time.Minute, 1)
			after(t, s, 90*time.Second, 2) // enters after a minute, due from now
			bustest.Drain(t, b)
			require.Equal(t, []string{"1 at 1m0s", "2 at 1m30s"}, h.log)
		})
	})
}

func TestDelayedAreListed(t *testing.T) {
	c := bus.StageConfig{Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Minute}}
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", c, func(_ context.Context, e *bus.Envelope) error {
			if e.Attempt() == 1 {
				return errFails
			}
			return nil
		})
		other := bustest.Stage(t, b, "other", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		require.Empty(t, s.Delayed())
		now := time.Now()
		after(t, other, time.Second, "other's")
		hour := after(t, s, time.Hour, "hour")
		second := after(t, s, time.Second, "second")
		require.NoError(t, s.TryPublish(&bus.Envelope{Key: "retry"}))
		synctest.Wait()
		require.Len(t, other.Delayed(), 1)
		list := s.Delayed()
		require.Len(t, list, 3)
		retried := list[1].ID
		for i, want := range []bus.DelayedInfo{
			{ID: second, Key: "second", Due: now.Add(time.Second)},
			{ID: retried, Key: "retry", Due: now.Add(time.Minute), Retry: true},
			{ID: hour, Key: "hour", Due: now.Add(time.Hour)},
		} {
			require.WithinDuration(t, want.Due, list[i].Due, 0)
			list[i].Due = want.Due
			require.Equal(t, want, list[i])
		}
		require.Equal(t, 3, bustest.RequireBalanced(t, b).Stages[0].Delayed)
	})
}

func TestDelayedCanBeCanceled(t *testing.T) {
	c := bus.StageConfig{Capacity: 2, Order: bus.ByKey, Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Minute}}
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var handled []any
		s := bustest.Stage(t, b, "s", c, func(_ context.Context, e *bus.Envelope) error {
			handled = append(handled, e.Payload)
			if e.Payload == "retry" {
				return errFails
			}
			return nil
		})
		other := bustest.Stage(t, b, "other", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		var ends []bus.Result
		done := func(r bus.Result) { ends = append(ends, r) }
		id, err := s.PublishAfter(t.Context(), time.Hour, &bus.Envelope{OnDone: done})
		require.NoError(t, err)
		require.False(t, other.CancelDelayed(id), "another stage's")
		require.False(t, s.CancelDelayed(id+1000))
		require.True(t, s.CancelDelayed(id))
		require.False(t, s.CancelDelayed(id))
		require.NoError(t, s.TryPublish(&bus.Envelope{Key: "k", Payload: "retry", OnDone: done}))
		synctest.Wait()
		require.NoError(t, s.TryPublish(&bus.Envelope{Key: "k", Payload: "follower"}))
		synctest.Wait()
		require.Equal(t, []any{"retry"}, handled)
		require.True(t, s.CancelDelayed(s.Delayed()[0].ID))
		synctest.Wait()
		require.Equal(t, []any{"retry", "follower"}, handled, "the follower of the retry goes on")
		require.Len(t, ends, 2)
		for _, r := range ends {
			require.Equal(t, bus.Dropped, r.End)
			require.Equal(t, reason.Canceled, r.Reason)
		}
		require.Equal(t, 1, ends[1].Attempts-1, "it was about to be its second")
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 2, st.Dropped[reason.Canceled])
		require.Zero(t, st.Pending)
		require.NoError(t, s.TryPublish(&bus.Envelope{}), "its place is free")
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
	})
}

func TestDeadlineOfALaterPublish(t *testing.T) {
	later(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, s *bus.Stage, h *handledAt) {
		var ends []bus.Result
		e := bus.Envelope{Payload: "late", OnDone: func(r bus.Result) { ends = append(ends, r) }}
		e.SetDeadline(time.Now().Add(time.Minute))
		_, err := s.PublishAfter(t.Context(), time.Hour, &e)
		require.NoError(t, err, "it is checked when it is due")
		e.Payload = "in time"
		_, err = s.PublishAfter(t.Context(), time.Second, &e)
		require.NoError(t, err)
		e.SetDeadline(time.Now().Add(-1))
		_, err = s.PublishAfter(t.Context(), time.Second, &e)
		require.ErrorIs(t, err, bus.ErrExpired, "and now")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"in time at 1s"}, h.log)
		require.Len(t, ends, 2)
		require.Equal(t, bus.Completed, ends[0].End)
		require.Equal(t, bus.Dropped, ends[1].End)
		require.Equal(t, reason.Expired, ends[1].Reason)
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 1, st.Dropped[reason.Expired])
		require.EqualValues(t, 1, st.Refused[reason.Expired])
	})
}

func TestLaterPublishesGoOnAlongTheirSlip(t *testing.T) {
	later(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, s *bus.Stage, h *handledAt) {
		bustest.Stage(t, b, "next", bus.StageConfig{}, h.handle)
		_, err := s.PublishAfter(t.Context(), time.Second, &bus.Envelope{Payload: 1, Slip: bus.Via("next")})
		require.NoError(t, err)
		bustest.Drain(t, b)
		require.Equal(t, []string{"1 at 1s", "1 at 1s"}, h.log)
	})
}

func TestLaterPublishesWaitWhileTheStageIsSuspended(t *testing.T) {
	later(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, s *bus.Stage, h *handledAt) {
		after(t, s, time.Second, 1)
		s.Suspend(bus.Hold{For: time.Minute})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Empty(t, h.log)
		require.Empty(t, s.Delayed(), "it is due")
		require.Equal(t, 1, depthOf(s))
		bustest.Drain(t, b)
		require.Equal(t, []string{"1 at 1m0s"}, h.log)
	})
}

func TestShutdownAbandonsWhatIsDueTooLate(t *testing.T) {
	later(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, s *bus.Stage, h *handledAt) {
		var ends []bus.Result
		done := func(r bus.Result) { ends = append(ends, r) }
		for _, d := range []time.Duration{time.Second, time.Hour, 2 * time.Hour} {
			_, err := s.PublishAfter(t.Context(), d, &bus.Envelope{Payload: d, OnDone: done})
			require.NoError(t, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := b.Shutdown(ctx)
		require.ErrorIs(t, err, bus.ErrNotDrained)
		require.Equal(t, time.Second, time.Since(h.began), "it does not wait for the others")
		require.Equal(t, []string{"1s at 1s"}, h.log)
		require.EqualValues(t, 1, r.Stats.Completed)
		require.EqualValues(t, 2, r.Stats.Abandoned)
		require.Len(t, r.Abandoned, 2)
		require.NoError(t, r.Stats.Check())
		synctest.Wait()
		require.Len(t, ends, 3)
		require.Empty(t, s.Delayed())
	})
}

// A later publish of a subscriber's retry: the publish that waits for its
// copies is no reason to wait for it.
func TestShutdownDoesNotWaitForALateRetryOfACopy(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		topic := bustest.Stage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
		c := bus.StageConfig{Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Hour}}
		_, err := topic.Subscribe("sub", c, bus.LagWait, fails)
		require.NoError(t, err)
		_, err = topic.Subscribe("fine", bus.StageConfig{}, bus.LagWait, acknowledge)
		require.NoError(t, err)
		bustest.Start(t, b)
		require.NoError(t, topic.TryPublish(&bus.Envelope{}))
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := b.Shutdown(ctx)
		require.ErrorIs(t, err, bus.ErrNotDrained)
		require.Zero(t, time.Since(began))
		require.NoError(t, r.Stats.Check())
		require.EqualValues(t, 1, r.Stats.Abandoned)
		require.EqualValues(t, 1, r.Stats.Copies.Abandoned)
	})
}

// What falls due while the bus is closed is handled or abandoned, never lost.
func TestLaterPublishesThatFallDueAtTheEnd(t *testing.T) {
	for range scaled(20, 500) {
		bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
			s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
			bustest.Start(t, b)
			ends := 0
			for range 100 {
				_, err := s.PublishAfter(t.Context(), time.Second, &bus.Envelope{OnDone: func(bus.Result) { ends++ }})
				require.NoError(t, err)
			}
			time.Sleep(time.Second)
			_ = b.Close()
			synctest.Wait()
			st := bustest.RequireBalanced(t, b)
			require.Zero(t, st.Pending, st.Account())
			require.Equal(t, 100, ends)
		})
	}
}
