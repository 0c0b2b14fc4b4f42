package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
	"github.com/sedabus/seda/shedder"
)

// waitFor publishes in the background and returns where the verdict will come.
func waitFor(ctx context.Context, s *bus.Stage, e *bus.Envelope) chan error {
	verdict := make(chan error, 1)
	go func() { verdict <- s.Publish(ctx, e) }()
	synctest.Wait()
	return verdict
}

func TestFullStageAnswersByPolicy(t *testing.T) {
	for _, tc := range []struct {
		policy bus.FullPolicy
		is     error
		reason reason.Reason
	}{
		{bus.Block, bus.ErrFull, reason.Full}, // TryPublish does not wait
		{bus.Reject, bus.ErrFull, reason.Full},
		{bus.DropNewest, bus.ErrDropped, reason.Newest},
		{bus.DropOldest, nil, 0},
	} {
		for _, order := range []bus.Order{bus.Unordered, bus.ByKey, bus.InOrder} {
			t.Run(fmt.Sprint(tc.policy, order), func(t *testing.T) {
				bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
					s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 2, Full: tc.policy, Order: order}, ack)
					s.Suspend(bus.Hold{})
					bustest.Start(t, b)
					publish(t, s, bus.Slip{}, nil, 1, 2)
					err := s.TryPublish(&bus.Envelope{})
					if tc.is == nil {
						require.NoError(t, err)
						require.EqualValues(t, 1, readStage(s).Dropped[reason.Evicted])
						return
					}
					require.ErrorIs(t, err, tc.is)
					require.ErrorIs(t, err, bus.ErrRejected)
					r, ok := errors.AsType[*bus.RejectedError](err)
					require.True(t, ok)
					require.Equal(t, "s", r.Stage)
					require.Equal(t, tc.reason, r.Reason)
					require.Equal(t, tc.policy, r.Policy)
					require.Equal(t, 2, r.Capacity)
					require.Equal(t, 2, r.Depth)
					st := readStage(s)
					require.EqualValues(t, 1, st.Refused[tc.reason])
					require.EqualValues(t, 2, st.Accepted)
				})
			})
		}
	}
}

func TestWaitersAreServedInOrder(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var v visits
		gate := bustest.NewGate()
		s := full(t, b, "s", bus.Block, gate, v.noting(""))
		bustest.Start(t, b)
		publish(t, s, bus.Slip{}, nil, 1, 2)
		var verdicts []chan error
		for i := 3; i <= 8; i++ {
			verdicts = append(verdicts, waitFor(t.Context(), s, &bus.Envelope{Payload: i}))
		}
		require.Equal(t, 6, readStage(s).Waiters)
		for i, verdict := range verdicts {
			require.Empty(t, verdict)
			gate.Pass(1)
			settle()
			require.Len(t, verdict, 1, "waiter %d", i)
			require.NoError(t, <-verdict)
			if i < len(verdicts)-1 {
				require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrFull, "newcomers queue behind")
			}
		}
		gate.Open()
		synctest.Wait()
		require.Equal(t, []string{"1", "2", "3", "4", "5", "6", "7", "8"}, v.all())
	})
}

func TestWaiterWhoseContextEnds(t *testing.T) {
	mine := errors.New("mine")
	for _, tc := range []struct {
		name string
		ctx  func(context.Context) (context.Context, func())
		is   []error
	}{
		{"canceled", func(ctx context.Context) (context.Context, func()) {
			return context.WithCancel(ctx)
		}, []error{context.Canceled}},
		{"deadline", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			return ctx, func() { time.Sleep(time.Second + 1); cancel() }
		}, []error{context.DeadlineExceeded}},
		{"cause", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(mine) }
		}, []error{context.Canceled, mine}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				var v visits
				gate := bustest.NewGate()
				s := full(t, b, "s", bus.Block, gate, v.noting(""))
				bustest.Start(t, b)
				publish(t, s, bus.Slip{}, nil, 1, 2)
				ctx, end := tc.ctx(t.Context())
				first := waitFor(ctx, s, &bus.Envelope{Payload: 3})
				second := waitFor(t.Context(), s, &bus.Envelope{Payload: 4})
				end()
				err := <-first
				require.ErrorIs(t, err, bus.ErrFull)
				require.ErrorIs(t, err, bus.ErrRejected)
				for _, is := range tc.is {
					require.ErrorIs(t, err, is)
				}
				if tc.name == "deadline" {
					require.NotErrorIs(t, err, context.Canceled)
				}
				require.Equal(t, 1, readStage(s).Waiters)
				gate.Pass(1)
				settle()
				require.Len(t, second, 1, "who gave up took no slot")
				require.NoError(t, <-second)
				gate.Open()
				synctest.Wait()
				require.Equal(t, []string{"1", "2", "4"}, v.all())
				require.EqualValues(t, 1, readStage(s).Refused[reason.Full])

				// Over before the call: refused although there is room.
				err = s.Publish(ctx, &bus.Envelope{})
				require.ErrorIs(t, err, bus.ErrRejected)
				require.NotErrorIs(t, err, bus.ErrFull)
				for _, is := range tc.is {
					require.ErrorIs(t, err, is)
				}
				if tc.name == "deadline" {
					require.NotErrorIs(t, err, context.Canceled)
				}
				require.EqualValues(t, 1, readStage(s).Refused[reason.Canceled])
			})
		})
	}
}

// Publishers that give up just when they are served: each is either accepted
// or refused, and the account shows which.
func TestWaitersGiveUpWhileServed(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1}, func(context.Context, *bus.Envelope) error {
			time.Sleep(time.Millisecond)
			return nil
		})
		bustest.Start(t, b)
		const n = 200
		verdicts := make(chan error, n)
		for i := range n {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%50)*time.Millisecond)
				defer cancel()
				verdicts <- s.Publish(ctx, &bus.Envelope{OnDone: ends.done})
			}()
		}
		accepted := 0
		for range n {
			if err := <-verdicts; err == nil {
				accepted++
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		}
		time.Sleep(time.Second)
		st := readStage(s)
		require.EqualValues(t, accepted, st.Accepted)
		require.Equal(t, accepted, ends.count(bus.Completed))
		require.EqualValues(t, n-accepted, st.Refused[reason.Full]+st.Refused[reason.Canceled])
		require.Greater(t, accepted, 40)
	})
}

func TestMaxWaiters(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1, MaxWaiters: 2}, gate.Handler(nil))
		bustest.Start(t, b)
		publish(t, s, bus.Slip{}, nil, 1, 2)
		first, second := waitFor(t.Context(), s, &bus.Envelope{}), waitFor(t.Context(), s, &bus.Envelope{})
		require.ErrorIs(t, s.Publish(t.Context(), &bus.Envelope{}), bus.ErrFull)
		require.Equal(t, 2, readStage(s).Waiters)
		gate.Open()
		require.NoError(t, errors.Join(<-first, <-second))
	})
}

func TestDropOldestVictims(t *testing.T) {
	for _, order := range []bus.Order{bus.Unordered, bus.ByKey, bus.InOrder} {
		t.Run(order.String(), func(t *testing.T) {
			var drops []any
			hooks := bus.Hooks{Drop: func(list []bus.DropInfo) {
				for _, d := range list {
					drops = append(drops, d.Envelope.Payload)
				}
			}}
			bustest.Run(t, bus.Config{Hooks: hooks}, func(t *testing.T, b *bus.Bus) {
				var v visits
				var ends endLog
				gate := bustest.NewGate()
				s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 2, Full: bus.DropOldest, Order: order}, gate.Handler(v.noting("")))
				bustest.Start(t, b)
				for i := range 7 {
					e := &bus.Envelope{Payload: i, Key: fmt.Sprint(i % 3), OnDone: ends.done}
					require.NoError(t, s.TryPublish(e))
					settle()
				}
				require.Equal(t, []any{1, 2, 3, 4}, drops)
				require.Equal(t, 4, ends.count(bus.Dropped))
				for i, r := range ends.all() {
					require.Equal(t, reason.Evicted, r.Reason, "victim %d", i)
					require.Equal(t, "s", r.Stage)
				}
				st := readStage(s)
				require.EqualValues(t, 4, st.Dropped[reason.Evicted])
				require.EqualValues(t, 7, st.Accepted)
				require.Equal(t, 2, st.Depth)
				gate.Open()
				synctest.Wait()
				if order == bus.ByKey { // keys have no order among themselves
					require.ElementsMatch(t, []string{"0", "5", "6"}, v.all())
					return
				}
				require.Equal(t, []string{"0", "5", "6"}, v.all())
			})
		})
	}
}

// What was started once is not evicted: when nothing else is left, the
// newcomer is refused.
func TestDropOldestSparesRetries(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		s := bustest.Stage(t, b, "s", bus.StageConfig{
			Capacity: 2, Full: bus.DropOldest,
			Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Second},
		}, func(_ context.Context, e *bus.Envelope) error {
			if e.Attempt() == 1 {
				return errors.New("no")
			}
			return nil
		})
		bustest.Start(t, b)
		publish(t, s, bus.Slip{}, ends.done, 1, 2)
		require.Equal(t, 2, readStage(s).Delayed)
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrFull)
		s.Suspend(bus.Hold{})
		time.Sleep(time.Second)
		require.Zero(t, readStage(s).Delayed, "due, and waiting at the head")
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrFull)
		s.Resume("")
		synctest.Wait()
		require.Equal(t, 2, ends.count(bus.Completed))
	})
}

// What is set aside because its next stage has no room was never started.
func TestDropOldestTakesWhatIsSetAside(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		gate := bustest.NewGate()
		a := bustest.Stage(t, b, "a", bus.StageConfig{Capacity: 3, Full: bus.DropOldest}, ack)
		full(t, b, "next", bus.Block, gate, nil)
		bustest.Start(t, b)
		publish(t, a, bus.Via("next"), ends.done, 1, 2, 3, 4, 5, 6) // 4 is parked, 5 and 6 are set aside
		st := readStage(a)
		require.Equal(t, 1, st.Parked)
		require.Equal(t, 3, st.Depth)
		publish(t, a, bus.Via("next"), ends.done, 7)
		require.Equal(t, 1, ends.count(bus.Dropped))
		require.Equal(t, 3, readStage(a).Depth)
		gate.Open()
		synctest.Wait()
		require.Equal(t, 6, ends.count(bus.Completed))
	})
}

func TestPublishFromAHandlerWaitsNoLongerThanTheHopTimeout(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		next := bustest.Stage(t, b, "next", bus.StageConfig{Capacity: 1, HopTimeout: 2 * time.Second}, gate.Handler(nil))
		var got error
		var took time.Duration
		a := bustest.Stage(t, b, "a", bus.StageConfig{}, func(ctx context.Context, _ *bus.Envelope) error {
			began := time.Now()
			got = next.Publish(ctx, &bus.Envelope{})
			took = time.Since(began)
			return nil
		})
		bustest.Start(t, b)
		publish(t, next, bus.Slip{}, nil, 1, 2)
		publish(t, a, bus.Slip{}, nil, 1)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.ErrorIs(t, got, bus.ErrFull)
		require.Equal(t, 2*time.Second, took)
		gate.Open()
	})
}

// The order of the checks: the first that fails counts, once.
func TestFirstCheckThatFailsCounts(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	type step struct {
		reason reason.Reason
		ctx    context.Context
		do     func(b *bus.Bus, s *bus.Stage) // what makes it pass from here on
	}
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		refuse := &bustest.Refuse{}
		refuse.Shed()
		s := bustest.Stage(t, b, "s", bus.StageConfig{
			Capacity: 1, Full: bus.Reject, DedupWindow: 10, Shedder: refuse.Shedder(), Accepts: bus.TypeOf[string](), NoHandler: bus.NoHandlerHold,
		}, nil)
		e := &bus.Envelope{Payload: 1, Meta: &bus.Meta{Idempotency: "k"}}
		e.SetDeadline(time.Now().Add(-time.Second))
		fillUp := func() {
			refuse.With(shedder.Verdict{})
			require.NoError(t, s.TryPublish(&bus.Envelope{Payload: "x", Meta: &bus.Meta{Idempotency: "k"}}))
			refuse.Shed()
		}
		for _, st := range []step{
			{reason.Type, over, func(*bus.Bus, *bus.Stage) { e.Payload = "s" }},
			{reason.Canceled, over, func(*bus.Bus, *bus.Stage) {}},
			{reason.NotStarted, t.Context(), func(b *bus.Bus, _ *bus.Stage) { bustest.Start(t, b); fillUp(); b.Pause(bus.Hold{}) }},
			{reason.Paused, t.Context(), func(b *bus.Bus, _ *bus.Stage) { b.Resume("") }},
			{reason.Expired, t.Context(), func(*bus.Bus, *bus.Stage) { e.SetDeadline(time.Time{}) }},
			{reason.Duplicate, t.Context(), func(*bus.Bus, *bus.Stage) { e.Meta = nil }},
			{reason.Shed, t.Context(), func(*bus.Bus, *bus.Stage) { refuse.With(shedder.Verdict{}) }},
			{reason.Full, t.Context(), func(*bus.Bus, *bus.Stage) {}},
		} {
			before := readStage(s)
			err := s.Publish(st.ctx, e)
			require.ErrorIs(t, err, bus.ErrRejected)
			r, ok := errors.AsType[*bus.RejectedError](err)
			require.True(t, ok)
			require.Equal(t, st.reason, r.Reason, "%v", err)
			after := readStage(s)
			for why := range after.Refused {
				want := before.Refused[why]
				if reason.Reason(why) == st.reason {
					want++
				}
				require.Equal(t, want, after.Refused[why], "%v is counted once", st.reason)
			}
			st.do(b, s)
		}
		require.Error(t, b.Close())
		e.Payload = 1 // of the wrong type again
		require.ErrorIs(t, s.Publish(over, e), bus.ErrClosed)
		require.ErrorIs(t, s.Publish(over, nil), bus.ErrInvalid)
	})
}

func TestClosingWakesEveryWaiter(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := full(t, b, "s", bus.Block, gate, nil)
		bustest.Start(t, b)
		publish(t, s, bus.Slip{}, nil, 1, 2)
		var verdicts []chan error
		for range 5 {
			verdicts = append(verdicts, waitFor(t.Context(), s, &bus.Envelope{}))
		}
		time.AfterFunc(time.Second, gate.Open)
		bustest.Drain(t, b)
		for _, verdict := range verdicts {
			require.ErrorIs(t, <-verdict, bus.ErrClosed)
		}
		require.EqualValues(t, 5, readStage(s).Refused[reason.Closed])
	})
}

// Room that does not come from a handler reaches those who wait, too.
func TestWaitersGetRoomFromElsewhere(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 8}, func(ctx context.Context, e *bus.Envelope) error {
			if e.Payload != nil {
				return gate.Wait(ctx)
			}
			return nil
		})
		bustest.Start(t, b)
		for range 200 { // known to be fast
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
			synctest.Wait()
		}
		publish(t, s, bus.Slip{}, nil, "stuck")
		id, err := s.PublishAfter(t.Context(), time.Hour, &bus.Envelope{})
		require.NoError(t, err)
		for range 7 {
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
		}
		verdict := waitFor(t.Context(), s, &bus.Envelope{})
		require.Empty(t, verdict)
		require.True(t, s.CancelDelayed(id))
		synctest.Wait()
		require.Len(t, verdict, 1)
		require.NoError(t, <-verdict)
		gate.Open()
	})
}

// In a stage of slow handlers room is handed out in lots of what they take in
// half a millisecond. When they then take longer, what is free does not stay so.
func TestRoomInASlowStageIsNotKeptBack(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 8, Concurrency: 8}, func(ctx context.Context, e *bus.Envelope) error {
			time.Sleep(time.Millisecond) // of the bubble
			if e.Payload == "held" {
				return gate.Wait(ctx)
			}
			return nil
		})
		bustest.Start(t, b)
		for range 3 { // now it is known to be slow
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
			settle()
		}
		for i := range 8 + 8 { // all handlers are busy, one for a millisecond, and the queue is full
			e := &bus.Envelope{Payload: "held"}
			if i == 7 {
				e.Payload = nil
			}
			require.NoError(t, s.TryPublish(e))
			synctest.Wait()
		}
		verdict := waitFor(t.Context(), s, &bus.Envelope{})
		require.Empty(t, verdict, "it waits")
		time.Sleep(3 * time.Millisecond) // the one place that becomes free is less than a lot
		synctest.Wait()
		require.Len(t, verdict, 1)
		require.NoError(t, <-verdict)
		gate.Open()
		synctest.Wait()
		time.Sleep(time.Second)
		bustest.RequireBalanced(t, b)
	})
}

// An executor that is held up is not counted on: what comes is started beside it.
func TestStartsBesideWhatIsHeldUp(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var v visits
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Concurrency: 2, Batch: 64}, func(ctx context.Context, e *bus.Envelope) error {
			if e.Key == "held" {
				return gate.Wait(ctx)
			}
			v.add(e.Key)
			return nil
		})
		bustest.Start(t, b)
		require.NoError(t, s.TryPublish(&bus.Envelope{Key: "held"}))
		settle()
		for i := range 5 { // others make the stage a fast one again
			require.NoError(t, s.TryPublish(&bus.Envelope{Key: "free"}))
			settle()
			require.Len(t, v.all(), i+1)
		}
		gate.Open()
		synctest.Wait()
	})
}
