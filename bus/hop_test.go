package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
)

// endLog collects the ends of envelopes by their callbacks.
type endLog struct {
	mu   sync.Mutex
	list []bus.Result
}

func (l *endLog) done(r bus.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, r)
}

func (l *endLog) all() []bus.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

func (l *endLog) count(end bus.End) (n int) {
	for _, r := range l.all() {
		if r.End == end {
			n++
		}
	}
	return n
}

// visits collects what handlers say, in order.
type visits struct {
	mu   sync.Mutex
	list []string
}

func (v *visits) add(s string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.list = append(v.list, s)
}

func (v *visits) all() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.list)
}

// noting returns a handler that notes the stage and the payload.
func (v *visits) noting(stage string) bus.Handler {
	return func(_ context.Context, e *bus.Envelope) error {
		v.add(fmt.Sprintf("%s%v", stage, e.Payload))
		return nil
	}
}

func ack(context.Context, *bus.Envelope) error { return nil }

// readStage is a reading of one stage when nothing moves.
func readStage(s *bus.Stage) bus.StageStats {
	synctest.Wait()
	var st bus.StageStats
	s.ReadStats(&st)
	return st
}

// settle waits until nothing moves and the watchdog has set free what was
// claimed behind a handler that is held up.
func settle() {
	time.Sleep(5 * time.Millisecond)
	synctest.Wait()
}

// publish publishes payloads one by one, each when the one before has settled
// down, and fails the test when one is refused.
func publish(t *testing.T, s *bus.Stage, slip bus.Slip, done func(bus.Result), payloads ...any) {
	t.Helper()
	for _, p := range payloads {
		require.NoError(t, s.TryPublish(&bus.Envelope{Payload: p, Slip: slip, OnDone: done}))
		synctest.Wait()
	}
}

func TestHopVisitsTheSlipInOrder(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var v visits
		var ends endLog
		for _, name := range []string{"b", "c", "d"} {
			bustest.Stage(t, b, name, bus.StageConfig{}, v.noting(name))
		}
		a := bustest.Stage(t, b, "a", bus.StageConfig{}, v.noting("a"))
		bustest.Start(t, b)
		publish(t, a, bus.Via("b", "c", "b", "d"), ends.done, 1)
		require.Equal(t, []string{"a1", "b1", "c1", "b1", "d1"}, v.all())
		require.Len(t, ends.all(), 1)
		require.Equal(t, bus.Completed, ends.all()[0].End)
		require.Equal(t, "d", ends.all()[0].Stage)
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 1, st.Accepted)
		require.EqualValues(t, 1, st.Completed)
		require.EqualValues(t, 1, readStage(a).Hopped)
	})
}

func TestHopsPushedComeBeforeTheRest(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var v visits
		for _, name := range []string{"b", "c", "x", "y"} {
			bustest.Stage(t, b, name, bus.StageConfig{}, v.noting(name))
		}
		a := bustest.Stage(t, b, "a", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			e.Push("x", "y")
			return nil
		})
		last := bustest.Stage(t, b, "last", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			if len(v.all()) < 8 {
				e.Push("x", "last")
			}
			return nil
		})
		bustest.Start(t, b)
		slip := bus.Via("b", "c")
		publish(t, a, slip, nil, 1)
		require.Equal(t, []string{"x1", "y1", "b1", "c1"}, v.all())
		require.Equal(t, []string{"b", "c"}, slip.Stages(), "a shared slip never changes")
		publish(t, last, bus.Slip{}, nil, 2)
		require.Equal(t, []string{"x2", "x2", "x2", "x2"}, v.all()[4:])
	})
}

func TestHopCarriesWhatTheHandlerWrote(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var seen []string
		a := bustest.Stage(t, b, "a", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			e.Payload = "new"
			e.SetHeader("h", "2")
			e.Rekey("other")
			seen = append(seen, e.Key)
			return nil
		})
		note := func(_ context.Context, e *bus.Envelope) error {
			h, _ := e.Header("h")
			seen = append(seen, fmt.Sprint(e.Payload, h, e.Key, e.Meta.Sender))
			return nil
		}
		bustest.Stage(t, b, "b", bus.StageConfig{Order: bus.ByKey}, note)
		bustest.Stage(t, b, "c", bus.StageConfig{}, note)
		bustest.Start(t, b)
		headers := []bus.Header{{Name: "h", Value: "1"}}
		meta := &bus.Meta{Sender: "me"}
		e := &bus.Envelope{Payload: "old", Key: "k", Headers: headers, Meta: meta, Slip: bus.Via("b", "c")}
		require.NoError(t, a.TryPublish(e))
		synctest.Wait()
		require.Equal(t, []string{"k", "new2otherme", "new2otherme"}, seen)
		require.Equal(t, "1", headers[0].Value, "the publisher's headers are its own")
		require.Equal(t, &bus.Meta{Sender: "me"}, meta)
		require.Equal(t, "old", e.Payload)
	})
}

func TestHopStartsAttemptsAnew(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var seen []int
		failTwice := func(_ context.Context, e *bus.Envelope) error {
			seen = append(seen, e.Attempt())
			if e.Attempt() < 3 {
				return errors.New("again")
			}
			return nil
		}
		c := bus.StageConfig{Retry: retry.Policy{MaxAttempts: 3}}
		a := bustest.Stage(t, b, "a", c, failTwice)
		c.Retry = retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: time.Second}
		bustest.Stage(t, b, "b", c, failTwice)
		bustest.Start(t, b)
		var ends endLog
		publish(t, a, bus.Via("b", "a"), ends.done, 1)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Equal(t, []int{1, 2, 3, 1, 2, 3, 1, 2, 3}, seen)
		require.Equal(t, 3, ends.all()[0].Attempts)
	})
}

func TestHopToWhereItCannotGoIsLetteredAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name   string
		next   bus.StageConfig
		to     string
		reason reason.Reason
		is     error
	}{
		{"unknown stage", bus.StageConfig{}, "nowhere", reason.NoStage, bus.ErrNoStage},
		{"empty name", bus.StageConfig{}, "", reason.NoStage, bus.ErrNoStage},
		{"wrong type", bus.StageConfig{Accepts: bus.TypeOf[string]()}, "next", reason.Type, bus.ErrType},
		{"no handler, dead letter", bus.StageConfig{}, "next", reason.NoHandler, bus.ErrNoHandler},
		{"no handler, reject", bus.StageConfig{NoHandler: bus.NoHandlerReject}, "next", reason.NoHandler, bus.ErrNoHandler},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				a := bustest.Stage(t, b, "a", bus.StageConfig{}, ack)
				var h bus.Handler
				if tc.next.Accepts != nil {
					h = ack
				}
				bustest.Stage(t, b, "next", tc.next, h)
				bustest.Stage(t, b, "after", bus.StageConfig{}, ack)
				bustest.Start(t, b)
				var ends endLog
				publish(t, a, bus.Via(tc.to, "after"), ends.done, 1)
				letters := b.Letters().List(bus.LetterFilter{})
				require.Len(t, letters, 1)
				require.Equal(t, tc.reason, letters[0].Reason)
				require.Equal(t, tc.to, letters[0].Stage, "a redrive resumes where it could not get in")
				require.Equal(t, "a", letters[0].From)
				require.Equal(t, []string{"after"}, letters[0].Slip)
				require.Len(t, ends.all(), 1)
				r := ends.all()[0]
				require.Equal(t, bus.DeadLettered, r.End)
				require.Equal(t, "a", r.Stage)
				require.ErrorIs(t, r.Err, tc.is)
				hop, ok := errors.AsType[*bus.HopError](r.Err)
				require.True(t, ok)
				require.Equal(t, tc.to, hop.To)
				st := bustest.RequireBalanced(t, b)
				require.EqualValues(t, 1, st.DeadLettered)
			})
		})
	}
}

func TestHopIntoAStageThatHolds(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		a := bustest.Stage(t, b, "a", bus.StageConfig{}, ack)
		next := bustest.Stage(t, b, "next", bus.StageConfig{NoHandler: bus.NoHandlerHold}, nil)
		bustest.Start(t, b)
		var ends endLog
		publish(t, a, bus.Via("next"), ends.done, 1, 2)
		require.Equal(t, 2, readStage(next).Depth)
		require.Empty(t, ends.all())
		require.NoError(t, next.Handle(ack))
		synctest.Wait()
		require.Equal(t, 2, ends.count(bus.Completed))
	})
}

// A mixed chunk: each envelope finds its own way, and those that cannot go on
// do not hold up the others.
func TestHopSortsAChunk(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		const n = 600
		var ends endLog
		a := bustest.Stage(t, b, "a", bus.StageConfig{Batch: 64, Capacity: n}, ack)
		var got [6]int
		slips := make([]bus.Slip, 0, 8)
		for i := range got {
			name := fmt.Sprintf("s%d", i)
			bustest.Stage(t, b, name, bus.StageConfig{Capacity: n}, func(context.Context, *bus.Envelope) error {
				got[i]++
				return nil
			})
			slips = append(slips, bus.Via(name))
		}
		slips = append(slips, bus.Via("nowhere"), bus.Slip{})
		require.ErrorIs(t, a.TryPublish(&bus.Envelope{}), bus.ErrNotStarted)
		a.Suspend(bus.Hold{})
		bustest.Start(t, b)
		for i := range n {
			require.NoError(t, a.TryPublish(&bus.Envelope{Slip: slips[i%len(slips)], OnDone: ends.done}))
		}
		a.Resume("")
		synctest.Wait()
		for i := range got {
			require.Equal(t, n/8, got[i], "stage s%d", i)
		}
		require.Equal(t, n/8, ends.count(bus.DeadLettered))
		require.Equal(t, n-n/8, ends.count(bus.Completed))
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, n/8*7, st.Completed)
	})
}

func TestHopIgnoresPauseAndShutdown(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		refuse := &bustest.Refuse{}
		a := bustest.Stage(t, b, "a", bus.StageConfig{}, gate.Handler(nil))
		bustest.Stage(t, b, "b", bus.StageConfig{Shedder: refuse.Shedder()}, ack)
		bustest.Start(t, b)
		var ends endLog
		publish(t, a, bus.Via("b"), ends.done, 1, 2)
		b.Pause(bus.Hold{})
		refuse.Shed()
		gate.Pass(1)
		synctest.Wait()
		require.Equal(t, 1, ends.count(bus.Completed))
		time.AfterFunc(time.Second, gate.Open)
		bustest.Drain(t, b)
		require.Equal(t, 2, ends.count(bus.Completed))
	})
}

func TestHopIntoItself(t *testing.T) {
	for _, c := range []bus.StageConfig{
		{Capacity: 1},
		{Capacity: 1, Concurrency: 3},
		{Capacity: 4, Concurrency: 2, Order: bus.ByKey},
		{Capacity: 2, Order: bus.InOrder},
		{Capacity: 3, Concurrency: 2, Batch: 64},
		{Capacity: 2, Classes: []bus.Class{{Name: "hi"}, {Name: "lo"}}},
	} {
		t.Run(fmt.Sprintf("%d-%d-%v", c.Capacity, c.Concurrency, c.Order), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				const n, hops = 12, 40
				var ends endLog
				count := 0
				var mu sync.Mutex
				s := bustest.Stage(t, b, "s", c, func(context.Context, *bus.Envelope) error {
					mu.Lock()
					count++
					mu.Unlock()
					time.Sleep(time.Millisecond)
					return nil
				})
				bustest.Start(t, b)
				slip := bus.Via(slices.Repeat([]string{"s"}, hops)...)
				for i := range n {
					require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Slip: slip, Key: fmt.Sprint(i), OnDone: ends.done}))
				}
				bustest.Drain(t, b)
				require.Equal(t, n, ends.count(bus.Completed))
				require.Equal(t, n*(hops+1), count)
			})
		})
	}
}
