package bus_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
)

// TestOrderOfChecks publishes envelopes that fail several checks at once: the
// first one counts, once, and no other.
func TestOrderOfChecks(t *testing.T) {
	checks := []struct {
		why      reason.Reason
		sentinel error
	}{
		{reason.Invalid, bus.ErrInvalid},
		{reason.Closed, bus.ErrClosed},
		{reason.Type, bus.ErrType},
		{reason.Canceled, context.Canceled},
		{reason.Paused, bus.ErrPaused},
		{reason.Expired, bus.ErrExpired},
		{reason.Duplicate, bus.ErrDuplicate},
		{reason.Shed, bus.ErrShed},
		{reason.Full, bus.ErrFull},
	}
	for first, check := range checks {
		t.Run(check.why.String(), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				fails := func(why reason.Reason) bool {
					for _, c := range checks[first:] {
						if c.why == why {
							return true
						}
					}
					return false
				}
				shed := &bustest.Refuse{}
				s := bustest.Stage(t, b, "s", bus.StageConfig{
					Capacity: 1, Full: bus.Reject, Accepts: bus.TypeOf[int](), DedupWindow: 8, Shedder: shed.Shedder(),
				}, acknowledge)
				s.Suspend(bus.Hold{})
				bustest.Start(t, b)
				seen := &bus.Meta{Idempotency: "seen"}
				require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: 1, Meta: seen}))

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				e := &bus.Envelope{Payload: 2}
				if fails(reason.Type) {
					e.Payload = "text"
				}
				if fails(reason.Canceled) {
					cancel()
				}
				if fails(reason.Paused) {
					b.Pause(bus.Hold{})
				}
				if fails(reason.Expired) {
					e.SetDeadline(time.Now().Add(-time.Second))
				}
				if fails(reason.Duplicate) {
					e.Meta = seen
				}
				if fails(reason.Shed) {
					shed.Shed()
				}
				if fails(reason.Closed) {
					require.ErrorIs(t, b.Close(), bus.ErrNotDrained)
				}
				if fails(reason.Invalid) {
					e = nil
				}
				requireRefused(t, s.Publish(ctx, e), "s", check.why, check.sentinel)
				synctest.Wait()
				st := bustest.RequireBalanced(t, b)
				requireRefusals(t, st.Stages[0].Refused, map[reason.Reason]uint64{check.why: 1})
				requireRefusals(t, st.Refused, map[reason.Reason]uint64{check.why: 1})
				require.EqualValues(t, 1, st.Accepted)
				s.Resume("")
			})
		})
	}
}

// TestEveryWayToPublishRefusesAlike refuses once through each way in.
func TestEveryWayToPublishRefusesAlike(t *testing.T) {
	ways := map[string]func(context.Context, *bus.Bus, *bus.Stage, *bus.Envelope) error{
		"bus": func(ctx context.Context, b *bus.Bus, _ *bus.Stage, e *bus.Envelope) error {
			return b.Publish(ctx, "s", e)
		},
		"stage": func(ctx context.Context, _ *bus.Bus, s *bus.Stage, e *bus.Envelope) error { return s.Publish(ctx, e) },
		"try":   func(_ context.Context, _ *bus.Bus, s *bus.Stage, e *bus.Envelope) error { return s.TryPublish(e) },
		"at": func(ctx context.Context, _ *bus.Bus, s *bus.Stage, e *bus.Envelope) error {
			_, err := s.PublishAt(ctx, time.Now().Add(time.Hour), e)
			return err
		},
		"after": func(ctx context.Context, _ *bus.Bus, s *bus.Stage, e *bus.Envelope) error {
			_, err := s.PublishAfter(ctx, time.Hour, e)
			return err
		},
		"call": func(ctx context.Context, _ *bus.Bus, s *bus.Stage, e *bus.Envelope) error {
			_, err := s.Call(ctx, e)
			return err
		},
		"call as": func(ctx context.Context, _ *bus.Bus, s *bus.Stage, e *bus.Envelope) error {
			_, err := bus.CallAs[int](ctx, s, e)
			return err
		},
		"producer": func(ctx context.Context, _ *bus.Bus, s *bus.Stage, e *bus.Envelope) error {
			p := s.Producer()
			defer p.Close()
			return p.Publish(ctx, e)
		},
		"producer try": func(_ context.Context, _ *bus.Bus, s *bus.Stage, e *bus.Envelope) error {
			return s.Producer().TryPublish(e)
		},
	}
	for name, publish := range ways {
		t.Run(name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				s := bustest.Stage(t, b, "s", bus.StageConfig{Full: bus.DropNewest, Capacity: 1, NoHandler: bus.NoHandlerHold}, nil)
				ctx := t.Context()
				requireRefused(t, publish(ctx, b, s, nil), "s", reason.Invalid, bus.ErrInvalid)
				requireRefused(t, publish(ctx, b, s, &bus.Envelope{}), "s", reason.NotStarted, bus.ErrNotStarted)
				bustest.Start(t, b)
				b.Pause(bus.Hold{By: "test"})
				requireRefused(t, publish(ctx, b, s, &bus.Envelope{}), "s", reason.Paused, bus.ErrPaused)
				b.Resume("test")
				require.NoError(t, s.TryPublish(&bus.Envelope{}))
				requireRefused(t, publish(ctx, b, s, &bus.Envelope{}), "s", reason.Newest, bus.ErrDropped)
				late := &bus.Envelope{}
				late.SetDeadline(time.Now())
				requireRefused(t, publish(ctx, b, s, late), "s", reason.Expired, bus.ErrExpired)
				require.NoError(t, s.Handle(acknowledge))
				bustest.Drain(t, b)
				requireRefused(t, publish(ctx, b, s, &bus.Envelope{}), "s", reason.Closed, bus.ErrClosed)
				synctest.Wait()
				st := bustest.RequireBalanced(t, b)
				requireRefusals(t, st.Refused, map[reason.Reason]uint64{
					reason.Invalid: 1, reason.NotStarted: 1, reason.Paused: 1, reason.Newest: 1, reason.Expired: 1, reason.Closed: 1,
				})
			})
		})
	}
}

func TestUnknownStageIsRefusedOnTheBus(t *testing.T) {
	b := newBus(t, bus.Config{})
	requireRefused(t, b.Publish(t.Context(), "nope", &bus.Envelope{}), "nope", reason.NoStage, bus.ErrNoStage)
	requireRefused(t, b.Publish(t.Context(), "", nil), "", reason.Invalid, bus.ErrInvalid)
	requireRefused(t, b.Publish(nil, "../x", &bus.Envelope{}), "../x", reason.Invalid, bus.ErrInvalid) //nolint:staticcheck // nil on purpose
	over, cancel := context.WithCancel(t.Context())
	cancel()
	requireRefused(t, b.Publish(over, "nope", &bus.Envelope{}), "nope", reason.NoStage, bus.ErrNoStage)
	finish(t, b)
	requireRefused(t, b.Publish(t.Context(), "nope", &bus.Envelope{}), "nope", reason.Closed, bus.ErrClosed)
	var st bus.Stats
	b.ReadStats(&st)
	requireRefusals(t, st.Refused, map[reason.Reason]uint64{reason.NoStage: 2, reason.Invalid: 2, reason.Closed: 1})
}

func TestNilContexts(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
		pull := bustest.Stage(t, b, "pull", bus.StageConfig{Pull: true}, nil)
		bustest.Start(t, b)
		var none context.Context
		requireRefused(t, s.Publish(none, &bus.Envelope{}), "s", reason.Invalid, bus.ErrInvalid)
		_, err := s.Call(none, &bus.Envelope{})
		requireRefused(t, err, "s", reason.Invalid, bus.ErrInvalid)
		_, err = s.PublishAfter(none, 0, &bus.Envelope{})
		requireRefused(t, err, "s", reason.Invalid, bus.ErrInvalid)
		_, err = s.PublishAt(t.Context(), time.Time{}, &bus.Envelope{})
		requireRefused(t, err, "s", reason.Invalid, bus.ErrInvalid)
		require.ErrorContains(t, err, "time")
		n, err := s.PublishBatch(none, make([]bus.Envelope, 2), nil)
		require.Zero(t, n)
		requireRefused(t, err, "s", reason.Invalid, bus.ErrInvalid)
		batch := s.Producer().Begin(1)
		batch.Next()
		_, err = batch.Publish(none)
		requireRefused(t, err, "s", reason.Invalid, bus.ErrInvalid)
		_, err = pull.Receive(none)
		require.ErrorIs(t, err, bus.ErrInvalid)
		_, err = b.Letters().Redrive(none, bus.RedriveOptions{})
		require.ErrorIs(t, err, bus.ErrInvalid)
		_, err = b.Shutdown(none)
		require.ErrorIs(t, err, bus.ErrInvalid)
		require.ErrorIs(t, b.Run(none), bus.ErrInvalid)
		require.NoError(t, s.TryPublish(&bus.Envelope{}), "the bus is as it was")
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		requireRefusals(t, st.Refused, map[reason.Reason]uint64{reason.Invalid: 7})
	})
}

// shape is an interface that a stage may accept.
type shape interface{ Area() int }

type square struct{ side int }

func (s *square) Area() int { return s.side }

func TestPayloadTypes(t *testing.T) {
	for name, c := range map[string]struct {
		config  bus.StageConfig
		payload any
		fits    bool
	}{
		"nil for a type":           {bus.StageConfig{Accepts: bus.TypeOf[int]()}, nil, false},
		"nil for an interface":     {bus.StageConfig{Accepts: bus.TypeOf[shape]()}, nil, false},
		"nil for everything":       {bus.StageConfig{Accepts: bus.TypeOf[any]()}, nil, false},
		"nil without a filter":     {bus.StageConfig{}, nil, true},
		"value":                    {bus.StageConfig{Accepts: bus.TypeOf[int]()}, 1, true},
		"another size":             {bus.StageConfig{Accepts: bus.TypeOf[int]()}, int64(1), false},
		"pointer for value":        {bus.StageConfig{Accepts: bus.TypeOf[int]()}, new(int), false},
		"implements":               {bus.StageConfig{Accepts: bus.TypeOf[shape]()}, &square{}, true},
		"value does not implement": {bus.StageConfig{Accepts: bus.TypeOf[shape]()}, square{}, false},
		"typed nil":                {bus.StageConfig{Accepts: bus.TypeOf[*square]()}, (*square)(nil), true},
		"typed nil implements":     {bus.StageConfig{Accepts: bus.TypeOf[shape]()}, (*square)(nil), true},
		"anything":                 {bus.StageConfig{Accepts: bus.TypeOf[any]()}, struct{}{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBus(t, bus.Config{})
			s := addStage(t, b, "s", c.config, acknowledge)
			require.NoError(t, b.Start())
			err := s.Publish(t.Context(), &bus.Envelope{Payload: c.payload})
			want := map[reason.Reason]uint64{}
			if c.fits {
				require.NoError(t, err)
			} else {
				requireRefused(t, err, "s", reason.Type, bus.ErrType)
				require.Contains(t, err.Error(), c.config.Accepts.String(), "the bound")
				if c.payload != nil {
					require.Contains(t, err.Error(), fmt.Sprintf("%T", c.payload), "what was given")
				}
				want[reason.Type] = 1
			}
			r := finish(t, b)
			requireRefusals(t, r.Stats.Refused, want)
		})
	}
}

func TestDeadlines(t *testing.T) {
	for name, c := range map[string]struct {
		at      time.Time
		refused bool
		none    bool
	}{
		"zero":      {time.Time{}, false, true},
		"year 1":    {time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), true, false},
		"year 1970": {time.Unix(0, 0), true, false},
		"just over": {time.Date(1999, 12, 31, 23, 59, 59, 0, time.UTC), true, false},
		"year 2262": {time.Unix(0, math.MaxInt64), false, true},
		"year 9999": {time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), false, true},
		"minus":     {time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC), true, false},
		"2200":      {time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) { // the bubble begins in the year 2000
				s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
				bustest.Start(t, b)
				e := &bus.Envelope{}
				e.SetDeadline(c.at)
				_, has := e.Deadline()
				require.Equal(t, !c.none, has)
				err := s.Publish(t.Context(), e)
				if c.refused {
					requireRefused(t, err, "s", reason.Expired, bus.ErrExpired)
					return
				}
				require.NoError(t, err)
				synctest.Wait()
				require.EqualValues(t, 1, bustest.RequireBalanced(t, b).Completed)
			})
		})
	}
}

func TestLaterPublishesAtAbsurdTimes(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		for _, at := range []time.Time{time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), time.Unix(0, 0), time.Date(-9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
			_, err := s.PublishAt(t.Context(), at, &bus.Envelope{})
			require.NoError(t, err)
		}
		_, err := s.PublishAfter(t.Context(), math.MinInt64, &bus.Envelope{})
		require.NoError(t, err)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 4, bustest.RequireBalanced(t, b).Completed, "what has passed is due at once")

		far, err := s.PublishAt(t.Context(), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), &bus.Envelope{})
		require.NoError(t, err)
		longest, err := s.PublishAfter(t.Context(), math.MaxInt64, &bus.Envelope{})
		require.NoError(t, err)
		require.Len(t, s.Delayed(), 2)
		require.True(t, s.CancelDelayed(far))
		require.True(t, s.CancelDelayed(longest))
		require.False(t, s.CancelDelayed(longest))
		require.False(t, s.CancelDelayed(math.MaxUint64))
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 2, st.Dropped[reason.Canceled])
	})
}

func TestBatchesOfAnySize(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		n, err := s.PublishBatch(t.Context(), nil, nil)
		require.NoError(t, err)
		require.Zero(t, n)
		_, err = s.PublishBatch(t.Context(), make([]bus.Envelope, 2), make([]error, 1))
		require.ErrorIs(t, err, bus.ErrInvalid)
		p := s.Producer()
		for begin, want := range map[int]int{0: 1, -1: 1, math.MinInt: 1, 3: 3, 64: 64, 1e9: 64, math.MaxInt: 64} {
			batch := p.Begin(begin)
			got := 0
			for batch.Next() != nil {
				got++
			}
			require.Equal(t, want, got, begin)
			n, err := batch.Publish(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, n)
			n, err = batch.Publish(t.Context())
			require.NoError(t, err, "an empty batch")
			require.Zero(t, n)
		}
		p.Close()
		p.Close()
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 4*1+3+3*64-1, st.Accepted)
		requireRefusals(t, st.Refused, nil)
	})
}
