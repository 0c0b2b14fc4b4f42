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
)

// due returns an envelope whose deadline is d from now.
func due(d time.Duration, payload any, done func(bus.Result)) *bus.Envelope {
	e := &bus.Envelope{Payload: payload, OnDone: done}
	e.SetDeadline(time.Now().Add(d))
	return e
}

func TestDeadlineAtAdmission(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, ack)
		bustest.Start(t, b)
		for _, d := range []time.Duration{0, -1, -time.Hour} {
			require.ErrorIs(t, s.TryPublish(due(d, 1, nil)), bus.ErrExpired)
			require.ErrorIs(t, s.Publish(t.Context(), due(d, 1, nil)), bus.ErrExpired)
		}
		require.NoError(t, s.TryPublish(due(1, 1, nil)))
		synctest.Wait()
		st := readStage(s)
		require.EqualValues(t, 6, st.Refused[reason.Expired])
		require.EqualValues(t, 1, st.Completed)
	})
}

func TestDeadlineWhileWaitingInTheQueue(t *testing.T) {
	for _, c := range []bus.StageConfig{
		{},
		{Batch: 64},
		{Order: bus.ByKey},
		{Order: bus.InOrder, Batch: 64},
		{Classes: []bus.Class{{Name: "a"}}},
		{ExactTiming: true},
		{HandlerTimeout: time.Hour},
	} {
		t.Run(fmt.Sprint(c.Order, c.Batch, len(c.Classes), c.ExactTiming, c.HandlerTimeout), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				var v visits
				var ends endLog
				gate := bustest.NewGate()
				s := bustest.Stage(t, b, "s", c, gate.Handler(v.noting("")))
				bustest.Start(t, b)
				publish(t, s, bus.Slip{}, nil, 1)
				for i, d := range []time.Duration{time.Second, 3 * time.Second, time.Second} {
					require.NoError(t, s.TryPublish(due(d, i+2, ends.done)))
				}
				time.Sleep(time.Second)
				gate.Open()
				synctest.Wait()
				require.Equal(t, []string{"1", "3"}, v.all(), "expired work is never handled")
				require.Equal(t, 2, ends.count(bus.Dropped))
				require.Equal(t, reason.Expired, ends.all()[0].Reason)
				st := readStage(s)
				require.EqualValues(t, 2, st.Dropped[reason.Expired])
				require.EqualValues(t, 2, st.Delivered)
				require.Empty(t, b.Letters().List(bus.LetterFilter{}))
			})
		})
	}
}

func TestDeadlineBeforeARetry(t *testing.T) {
	for _, base := range []time.Duration{0, time.Second, time.Minute} {
		t.Run(base.String(), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				var ends endLog
				p := retry.Policy{MaxAttempts: 100}
				if base > 0 {
					p.Kind, p.Base = retry.Constant, base
				}
				calls := 0
				s := bustest.Stage(t, b, "s", bus.StageConfig{Retry: p}, func(context.Context, *bus.Envelope) error {
					calls++
					time.Sleep(time.Second)
					return errors.New("no")
				})
				bustest.Start(t, b)
				require.NoError(t, s.TryPublish(due(3500*time.Millisecond, 1, ends.done)))
				time.Sleep(time.Minute)
				synctest.Wait()
				want := map[time.Duration]int{0: 4, time.Second: 2, time.Minute: 1}[base]
				require.Equal(t, want, calls)
				require.Len(t, ends.all(), 1)
				require.Equal(t, bus.Dropped, ends.all()[0].End)
				require.Equal(t, reason.Expired, ends.all()[0].Reason)
			})
		})
	}
}

func TestDeadlineWhileAPublisherWaits(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var v visits
		gate := bustest.NewGate()
		s := full(t, b, "s", bus.Block, gate, v.noting(""))
		bustest.Start(t, b)
		publish(t, s, bus.Slip{}, nil, 1, 2)
		verdict := waitFor(t.Context(), s, due(time.Second, 3, nil))
		time.Sleep(time.Second - 1)
		synctest.Wait()
		require.Empty(t, verdict)
		time.Sleep(1)
		err := <-verdict
		require.ErrorIs(t, err, bus.ErrExpired)
		require.EqualValues(t, 1, readStage(s).Refused[reason.Expired])
		gate.Open()
		synctest.Wait()
		require.Equal(t, []string{"1", "2"}, v.all())
	})
}

func TestDeadlineCancelsTheHandler(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		var at time.Duration
		began := time.Now()
		s := bustest.Stage(t, b, "s", bus.StageConfig{HandlerTimeout: time.Minute}, func(ctx context.Context, _ *bus.Envelope) error {
			deadline, ok := ctx.Deadline()
			if !ok || !deadline.Equal(began.Add(time.Second)) {
				t.Error("the context does not have the envelope's deadline", deadline)
			}
			<-ctx.Done()
			at = time.Since(began)
			return ctx.Err()
		})
		bustest.Start(t, b)
		require.NoError(t, s.TryPublish(due(time.Second, 1, ends.done)))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, time.Second, at)
		require.Len(t, ends.all(), 1)
	})
}

func TestDeadlineTravelsAlong(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ends endLog
		sleep := func(d time.Duration) bus.Handler {
			return func(context.Context, *bus.Envelope) error {
				time.Sleep(d)
				return nil
			}
		}
		a := bustest.Stage(t, b, "a", bus.StageConfig{}, sleep(time.Second))
		bustest.Stage(t, b, "b", bus.StageConfig{}, sleep(time.Second))
		last := bustest.Stage(t, b, "c", bus.StageConfig{}, ack)
		bustest.Start(t, b)
		e := due(1500*time.Millisecond, 1, ends.done)
		e.Slip = bus.Via("b", "c")
		require.NoError(t, a.TryPublish(e))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, ends.count(bus.Dropped))
		require.Equal(t, "c", ends.all()[0].Stage)
		require.Zero(t, readStage(last).Delivered)
	})
}
