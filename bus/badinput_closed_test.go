package bus_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
)

// closedCalls calls everything that can be called on a closed bus, and says
// what each must answer; nil is no error.
func closedCalls(ctx context.Context, b *bus.Bus, s, topic, pull *bus.Stage) map[string]func() (have, want error) {
	return map[string]func() (error, error){
		"publish":     func() (error, error) { return s.Publish(ctx, &bus.Envelope{}), bus.ErrClosed },
		"bus publish": func() (error, error) { return b.Publish(ctx, "s", &bus.Envelope{}), bus.ErrClosed },
		"try":         func() (error, error) { return s.TryPublish(&bus.Envelope{}), bus.ErrClosed },
		"batch": func() (error, error) {
			_, err := s.PublishBatch(ctx, make([]bus.Envelope, 1), nil)
			return err, bus.ErrClosed
		},
		"begin": func() (error, error) {
			batch := s.Producer().Begin(2)
			batch.Next()
			_, err := batch.Publish(ctx)
			return err, bus.ErrClosed
		},
		"later":        func() (error, error) { _, err := s.PublishAfter(ctx, 1, &bus.Envelope{}); return err, bus.ErrClosed },
		"call":         func() (error, error) { _, err := s.Call(ctx, &bus.Envelope{}); return err, bus.ErrClosed },
		"topic":        func() (error, error) { return topic.Publish(ctx, &bus.Envelope{}), bus.ErrClosed },
		"start":        func() (error, error) { return b.Start(), bus.ErrClosed },
		"run":          func() (error, error) { return b.Run(ctx), bus.ErrClosed },
		"stage":        func() (error, error) { _, err := b.Stage("new", bus.StageConfig{}); return err, bus.ErrClosed },
		"stage again":  func() (error, error) { _, err := b.Stage("s", bus.StageConfig{}); return err, bus.ErrClosed },
		"handle":       func() (error, error) { return s.Handle(acknowledge), bus.ErrClosed },
		"tune":         func() (error, error) { return s.Tune(func(c *bus.StageConfig) { c.Capacity++ }), bus.ErrClosed },
		"tune nothing": func() (error, error) { return s.Tune(func(*bus.StageConfig) {}), bus.ErrClosed },
		"bus tune":     func() (error, error) { return b.Tune(func(c *bus.Config) { c.MaxHandlers = 1 }), bus.ErrClosed },
		"receive":      func() (error, error) { _, err := pull.Receive(ctx); return err, bus.ErrClosed },
		"try receive":  func() (error, error) { _, err := pull.TryReceive(); return err, bus.ErrClosed },
		"subscribe": func() (error, error) {
			_, err := topic.Subscribe("x", bus.StageConfig{}, bus.LagWait, acknowledge)
			return err, bus.ErrClosed
		},
		"subscribe stage": func() (error, error) { return topic.SubscribeStage(s, bus.LagWait), bus.ErrClosed },
		"unsubscribe":     func() (error, error) { return topic.Unsubscribe("none"), bus.ErrNoStage },
		"remove":          func() (error, error) { return s.RemoveHandler(), nil },
		"redrive": func() (error, error) {
			rep, err := b.Letters().Redrive(ctx, bus.RedriveOptions{})
			return errors.Join(rep.Err, err), bus.ErrClosed
		},
		"shutdown": func() (error, error) { _, err := b.Shutdown(ctx); return err, nil },
		"close":    func() (error, error) { return b.Close(), nil },
	}
}

func TestEverythingOnAClosedBus(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(context.Context, *bus.Envelope) error { return errors.New("no") })
		topic := bustest.Stage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
		pull := bustest.Stage(t, b, "pull", bus.StageConfig{Pull: true}, nil)
		bustest.Start(t, b)
		require.NoError(t, s.TryPublish(&bus.Envelope{})) // a letter to redrive
		first := bustest.Drain(t, b)
		for range 3 {
			for name, call := range closedCalls(t.Context(), b, s, topic, pull) {
				have, want := call()
				if want == nil {
					require.NoError(t, have, name)
					continue
				}
				require.ErrorIs(t, have, want, name)
			}
			b.Pause(bus.Hold{For: time.Hour})
			s.Suspend(bus.Hold{For: time.Hour})
			require.True(t, b.Resume(""))
			require.True(t, s.Resume(""))
			require.False(t, s.Cancel(1))
			require.False(t, s.CancelDelayed(1))
			require.Empty(t, s.Delayed())
			require.Empty(t, s.InFlight())
			require.Len(t, b.Letters().List(bus.LetterFilter{}), 1)
		}
		again := bustest.Drain(t, b)
		require.Equal(t, first.Stats.Accepted, again.Stats.Accepted)
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 1, st.Accepted)
		requireRefusals(t, st.Refused, map[reason.Reason]uint64{reason.Closed: 3 * 8})
		require.Len(t, st.Stages, 3)
	})
}

func TestPushAndPullKeepApart(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		push := bustest.Stage(t, b, "push", bus.StageConfig{}, acknowledge)
		pull := bustest.Stage(t, b, "pull", bus.StageConfig{Pull: true}, nil)
		bustest.Start(t, b)
		_, err := push.Receive(t.Context())
		require.ErrorIs(t, err, bus.ErrInvalid)
		require.ErrorContains(t, err, `"push"`)
		require.ErrorContains(t, err, "Pull")
		_, err = push.TryReceive()
		require.ErrorIs(t, err, bus.ErrInvalid)
		_, err = push.ReceiveBatch(t.Context(), make([]*bus.Lease, 3))
		require.ErrorIs(t, err, bus.ErrInvalid)
		_, err = pull.ReceiveBatch(t.Context(), nil)
		require.ErrorIs(t, err, bus.ErrInvalid)
		require.ErrorIs(t, pull.Handle(acknowledge), bus.ErrConflict)
		_, err = pull.TryReceive()
		require.ErrorIs(t, err, bus.ErrEmpty)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = pull.Receive(over)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// settleAgain tries every settlement of l.
func settleAgain(t *testing.T, l *bus.Lease, want error) {
	t.Helper()
	require.ErrorIs(t, l.Ack(), want)
	require.ErrorIs(t, l.Nack(nil), want)
	require.ErrorIs(t, l.Nack(errors.New("no")), want)
	require.ErrorIs(t, l.RetryAfter(-1), want)
	require.ErrorIs(t, l.DeadLetter(""), want)
}

func TestSettleTwice(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "pull", bus.StageConfig{Pull: true, Lease: time.Minute}, nil)
		bustest.Start(t, b)
		receive := func() *bus.Lease {
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
			l, err := s.TryReceive()
			require.NoError(t, err)
			return l
		}
		acked := receive()
		require.NoError(t, acked.Ack())
		settleAgain(t, acked, bus.ErrSettled)
		require.ErrorIs(t, acked.Extend(time.Second), bus.ErrSettled)

		lapsed := receive()
		require.NoError(t, lapsed.Extend(math.MaxInt64))
		require.NoError(t, lapsed.Extend(-1), "without end")
		require.NoError(t, lapsed.Extend(1))
		time.Sleep(time.Millisecond)
		synctest.Wait()
		settleAgain(t, lapsed, bus.ErrLeaseExpired)
		require.ErrorIs(t, lapsed.Extend(time.Second), bus.ErrLeaseExpired)

		canceled := receive()
		require.True(t, s.Cancel(canceled.Envelope().ID()))
		require.False(t, s.Cancel(canceled.Envelope().ID()))
		settleAgain(t, canceled, context.Canceled)

		held := receive()
		require.ErrorIs(t, b.Close(), bus.ErrNotDrained)
		settleAgain(t, held, bus.ErrClosed)

		synctest.Wait()
		st := bustest.RequireBalanced(t, b).Stages[0]
		require.EqualValues(t, 1, st.Completed)
		require.EqualValues(t, 1, st.DeadLettered, "the lease that lapsed")
		require.EqualValues(t, 1, st.Dropped[reason.Canceled])
		require.EqualValues(t, 1, st.Abandoned)
		require.EqualValues(t, 1, st.Lapsed)
		require.EqualValues(t, 15, st.Late)
	})
}

func TestSlipsThatLeadNowhere(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		a := bustest.Stage(t, b, "a", bus.StageConfig{}, acknowledge)
		bustest.Stage(t, b, "ints", bus.StageConfig{Accepts: bus.TypeOf[int]()}, acknowledge)
		bustest.Stage(t, b, "b", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			if e.Payload == "push" {
				e.Push("", "a")
			}
			return nil
		})
		bustest.Start(t, b)
		for name, c := range map[string]struct {
			slip    bus.Slip
			payload any
			at      string // where a letter resumes; "" is none
			why     reason.Reason
			rest    []string
		}{
			"empty slip":      {bus.Via(), nil, "", reason.None, nil},
			"empty name":      {bus.Via(""), nil, "", reason.NoStage, nil},
			"unknown first":   {bus.Via("nope", "b"), nil, "nope", reason.NoStage, []string{"b"}},
			"unknown later":   {bus.Via("b", "../etc", "b"), nil, "../etc", reason.NoStage, []string{"b"}},
			"pushed no name":  {bus.Via("b"), "push", "", reason.NoStage, []string{"a"}},
			"wrong type":      {bus.Via("b", "ints", "b"), "text", "ints", reason.Type, []string{"b"}},
			"same stage":      {bus.Via("a", "a", "a"), nil, "", reason.None, nil},
			"a type that fit": {bus.Via("ints", "b"), 1, "", reason.None, nil},
		} {
			r, err := a.Call(t.Context(), &bus.Envelope{Slip: c.slip, Payload: c.payload})
			require.NoError(t, err, name)
			if c.why == reason.None {
				require.Equal(t, bus.Completed, r.End, name)
				continue
			}
			require.Equal(t, bus.DeadLettered, r.End, name)
			require.Equal(t, c.why, r.Reason, name)
			hop, ok := errors.AsType[*bus.HopError](r.Err)
			require.True(t, ok, name)
			require.Equal(t, c.at, hop.To, name)
			l, ok := b.Letters().Get(r.ID)
			require.True(t, ok, name)
			require.Equal(t, c.at, l.Stage, name)
			require.Equal(t, c.rest, l.Slip, name)
		}
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		requireRefusals(t, st.Refused, nil)
		rep, err := b.Letters().Redrive(t.Context(), bus.RedriveOptions{})
		require.NoError(t, err)
		require.Equal(t, 5, rep.Refused, "they stay in the store")
		require.ErrorIs(t, rep.Err, bus.ErrRejected)
		require.Len(t, b.Letters().List(bus.LetterFilter{}), 5)
	})
}

func TestBadRedrives(t *testing.T) {
	b := newBus(t, bus.Config{})
	for name, o := range map[string]bus.RedriveOptions{
		"delay":    {Delay: -1},
		"rate":     {Rate: math.NaN()},
		"infinite": {Rate: math.Inf(1)},
		"negative": {Rate: -1},
		"identity": {Identity: 9},
		"count":    {MaxRedrives: -1},
		"limit":    {Filter: bus.LetterFilter{Limit: -1}},
	} {
		_, err := b.Letters().Redrive(t.Context(), o)
		require.ErrorIs(t, err, bus.ErrInvalid, name)
	}
	rep, err := b.Letters().Redrive(t.Context(), bus.RedriveOptions{Rate: math.SmallestNonzeroFloat64, Delay: math.MaxInt64 / 4})
	require.NoError(t, err)
	require.Zero(t, rep)
	require.Zero(t, b.Letters().Purge(bus.LetterFilter{After: math.MaxUint64, Limit: -1}))
	finish(t, b)
}
