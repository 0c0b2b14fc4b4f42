package bus_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/retry"
)

// TestB080_EverythingWhileOthersClose calls everything from many goroutines
// while some of them shut the bus down.
func TestB080_EverythingWhileOthersClose(t *testing.T) {
	rounds := scaled(8, 200)
	for round := range rounds {
		b := newBus(t, bus.Config{MaxHandlers: round % 3})
		s := addStage(t, b, "s", bus.StageConfig{Capacity: 8, Concurrency: 2, Retry: retry.Policy{MaxAttempts: 2}},
			func(_ context.Context, e *bus.Envelope) error {
				if e.Attempt() == 1 && e.ID()%3 == 0 {
					return errFails
				}
				return nil
			})
		addStage(t, b, "next", bus.StageConfig{Capacity: 4}, acknowledge)
		topic := addStage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub, Capacity: 8}, nil)
		copies := addStage(t, b, "copies", bus.StageConfig{Capacity: 4}, acknowledge)
		pull := addStage(t, b, "pull", bus.StageConfig{Pull: true, Capacity: 4}, nil)
		require.NoError(t, b.Start())
		var owed atomic.Int64
		w := world{t: t, b: b, s: s, topic: topic, copies: copies, pull: pull, owed: &owed}
		var wg sync.WaitGroup
		for worker := range 10 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(round), uint64(worker)))
				for range 100 {
					w.anything(r)
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(3))*time.Millisecond)
				defer cancel()
				if worker >= 8 {
					_, _ = b.Shutdown(ctx)
				} else if worker == 7 {
					_ = b.Close()
				}
				w.anything(r)
			})
		}
		wg.Wait()
		report, _ := b.Shutdown(t.Context())
		require.NoError(t, report.Stats.Check())
		require.Zero(t, report.Stats.Pending)
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrClosed)
		for owed.Load() != 0 { // a callback may be on its way
			runtime.Gosched()
		}
	}
}

// world is a bus on which anything may be called.
type world struct {
	t                      *testing.T
	b                      *bus.Bus
	s, topic, copies, pull *bus.Stage
	owed                   *atomic.Int64 // results
}

// publish owes a result if it was accepted.
func (w *world) publish(f func(e *bus.Envelope) error) {
	w.owed.Add(1)
	err := f(&bus.Envelope{OnDone: func(bus.Result) { w.owed.Add(-1) }, Slip: bus.Via("next")})
	if err != nil {
		w.owed.Add(-1)
		if !errors.Is(err, bus.ErrRejected) {
			w.t.Errorf("refused without a reason: %v", err)
		}
	}
}

func (w *world) anything(r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	switch r.IntN(14) {
	case 0, 1:
		w.publish(func(e *bus.Envelope) error { return w.s.Publish(ctx, e) })
	case 2:
		w.publish(func(e *bus.Envelope) error { return w.topic.TryPublish(e) })
	case 3:
		w.publish(func(e *bus.Envelope) error { _, err := w.s.PublishAfter(ctx, time.Millisecond, e); return err })
	case 4:
		_ = w.topic.SubscribeStage(w.copies, bus.Lag(r.IntN(3)))
	case 5:
		_ = w.topic.Unsubscribe("copies")
	case 6:
		w.b.Pause(bus.Hold{By: "test", For: time.Millisecond})
	case 7:
		w.b.Resume("test")
	case 8:
		w.s.Suspend(bus.Hold{By: "test", For: time.Millisecond})
	case 9:
		w.s.Resume("test")
	case 10:
		_ = w.s.Tune(func(c *bus.StageConfig) {
			c.Concurrency, c.Capacity, c.Full = 1+r.IntN(4), 1+r.IntN(16), bus.FullPolicy(r.IntN(4))
		})
	case 11:
		_ = w.b.Tune(func(c *bus.Config) { c.MaxHandlers = r.IntN(4) })
	case 12:
		w.publish(func(e *bus.Envelope) error { e.Slip = bus.Slip{}; return w.pull.TryPublish(e) })
		if l, err := w.pull.TryReceive(); err == nil {
			_ = l.Ack()
		}
	case 13:
		var st bus.Stats
		w.b.ReadStats(&st)
		_, _ = w.b.Letters().Redrive(ctx, bus.RedriveOptions{Filter: bus.LetterFilter{Limit: 3}})
		_ = w.s.RemoveHandler()
		_ = w.s.Handle(acknowledge)
	}
}

// TestB081_SubscriptionsChangeUnderDelivery changes subscriptions and handlers
// from inside handlers, while subscribers write to their copies.
func TestB081_SubscriptionsChangeUnderDelivery(t *testing.T) {
	b := newBus(t, bus.Config{})
	topic := addStage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
	var extra *bus.Stage
	var seen [2]atomic.Int64
	write := func(i int) bus.Handler {
		return func(_ context.Context, e *bus.Envelope) error {
			seen[i].Add(1)
			e.SetHeader("seen", "me")
			e.Headers = append(e.Headers, bus.Header{Name: "x"})
			if v, _ := e.Header("given"); v != "first" {
				return errors.New("another's header")
			}
			e.SetHeader("given", "second")
			p, ok := e.Payload.(counts)
			if !ok || len(p) != 1 {
				return errors.New("another's payload")
			}
			p["written"]++
			if n := seen[i].Load(); i == 0 && n%7 == 0 {
				_ = topic.SubscribeStage(extra, bus.LagDrop)
			} else if i == 0 && n%7 == 3 {
				_ = topic.Unsubscribe("extra")
			}
			return nil
		}
	}
	extra = addStage(t, b, "extra", bus.StageConfig{}, acknowledge)
	for i, name := range []string{"a", "b"} {
		_, err := topic.Subscribe(name, bus.StageConfig{Concurrency: 2}, bus.LagWait, write(i))
		require.NoError(t, err)
	}
	require.NoError(t, b.Start())
	n := scaled(1000, 50_000)
	shared := &bus.Envelope{Headers: []bus.Header{{Name: "given", Value: "first"}}, Payload: counts{"given": 1}}
	var wg sync.WaitGroup
	wg.Go(func() { // the registry changes meanwhile
		for i := range 50 {
			_, err := b.Stage("more"+string(rune('0'+i/10))+string(rune('0'+i%10)), bus.StageConfig{})
			if err != nil {
				t.Error(err)
			}
		}
	})
	for range n {
		require.NoError(t, topic.Publish(t.Context(), shared))
	}
	wg.Wait()
	r := finish(t, b)
	require.EqualValues(t, n, r.Stats.Completed)
	require.Zero(t, r.Stats.DeadLettered)
	require.EqualValues(t, n, seen[0].Load())
	require.EqualValues(t, n, seen[1].Load())
}

// counts is a payload that subscribers must not share.
type counts map[string]int

func (c counts) ClonePayload() any { return counts{"given": c["given"]} }

func TestB081_HandlerReplacesItself(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var s *bus.Stage
		var first, second int
		s = bustest.Stage(t, b, "s", bus.StageConfig{NoHandler: bus.NoHandlerHold}, func(context.Context, *bus.Envelope) error {
			first++
			require.NoError(t, s.RemoveHandler())
			return s.Handle(func(context.Context, *bus.Envelope) error { second++; return nil })
		})
		bustest.Start(t, b)
		for range 5 {
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
		}
		synctest.Wait()
		require.Equal(t, 1, first)
		require.Equal(t, 4, second, "the change is in force from the next envelope on")
		synctest.Wait()
		bustest.RequireBalanced(t, b)
	})
}

type customPanic struct{ why string }

// TestB082_PanicsAreNacks: see also TestHooksThatMisbehave for hooks and
// callbacks.
func TestB082_PanicsAreNacks(t *testing.T) {
	cause := errors.New("cause")
	for name, misdeed := range map[string]func(){
		"error":  func() { panic(cause) },
		"string": func() { panic("text") },
		"nil":    func() { panic(nil) },              //nolint:govet // that is the case
		"map":    func() { (*new(counts))["a"] = 1 }, //nolint:govet,staticcheck // that is the case
		"custom": func() { panic(customPanic{"it"}) },
		"deferred": func() {
			defer func() { panic("second") }()
			panic("first")
		},
		"index": func() { _ = make([]int, 1)[len(t.Name())] },
	} {
		t.Run(name, func(t *testing.T) {
			var infos []bus.PanicInfo
			hooks := bus.Hooks{Panic: func(i bus.PanicInfo) { infos = append(infos, i) }}
			bustest.Run(t, bus.Config{Hooks: hooks}, func(t *testing.T, b *bus.Bus) {
				s := bustest.Stage(t, b, "s", bus.StageConfig{Retry: retry.Policy{MaxAttempts: 2}}, func(_ context.Context, e *bus.Envelope) error {
					if e.Payload == nil {
						misdeed()
					}
					return nil
				})
				bustest.Start(t, b)
				r, err := s.Call(t.Context(), &bus.Envelope{})
				require.NoError(t, err)
				require.Equal(t, bus.DeadLettered, r.End)
				require.Equal(t, 2, r.Attempts)
				p, ok := errors.AsType[*bus.PanicError](r.Err)
				require.True(t, ok)
				require.NotNil(t, p.Value)
				require.Contains(t, string(p.Stack), "cases_crash_test.go")
				if name == "error" {
					require.ErrorIs(t, r.Err, cause)
				}
				r, err = s.Call(t.Context(), &bus.Envelope{Payload: 1})
				require.NoError(t, err)
				require.Equal(t, bus.Completed, r.End, "the stage goes on")
				synctest.Wait()
				st := bustest.RequireBalanced(t, b).Stages[0]
				require.EqualValues(t, 2, st.Panics)
				require.EqualValues(t, 2, st.Nacked)
				require.Len(t, infos, 2)
				require.Equal(t, []string{"s", "handler"}, []string{infos[0].Stage, infos[0].Where})
				require.NotZero(t, infos[0].ID)
			})
		})
	}
}

func TestB083_StartAfterShutdownIsOneError(t *testing.T) {
	for range 20 {
		bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
			s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
			require.NoError(t, b.Start())
			require.ErrorIs(t, b.Start(), bus.ErrConflict)
			require.NoError(t, s.TryPublish(&bus.Envelope{}), "the second start has changed nothing")
			bustest.Drain(t, b)
			for range 3 {
				require.ErrorIs(t, b.Start(), bus.ErrClosed)
				require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrClosed)
			}
			synctest.Wait()
			st := bustest.RequireBalanced(t, b)
			require.EqualValues(t, 1, st.Completed)
		})
	}
	b := newBus(t, bus.Config{})
	require.NoError(t, b.Close(), "never started")
	require.ErrorIs(t, b.Start(), bus.ErrClosed)
}

// TestB080_TopicsOwnHopsPark: what a pub/sub stage passes on may have to wait
// for room, which is booked apart from copies that wait.
func TestB080_TopicsOwnHopsPark(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		topic := bustest.Stage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
		_, err := topic.Subscribe("a", bus.StageConfig{}, bus.LagWait, acknowledge)
		require.NoError(t, err)
		gate := bustest.NewGate()
		bustest.Stage(t, b, "next", bus.StageConfig{Capacity: 1}, gate.Handler(nil))
		bustest.Start(t, b)
		for range 6 {
			require.NoError(t, topic.Publish(t.Context(), &bus.Envelope{Slip: bus.Via("next")}))
			synctest.Wait()
		}
		st := bustest.RequireBalanced(t, b)
		require.Positive(t, st.Stages[0].Parked)
		gate.Open()
		synctest.Wait()
		st = bustest.RequireBalanced(t, b)
		for _, x := range st.Stages {
			x.Wait, x.Service = bus.Timing{}, bus.Timing{}
			t.Logf("%+v", x)
		}
		require.EqualValues(t, 6, st.Completed)
		require.Zero(t, st.Pending)
		require.EqualValues(t, 6, st.Stages[0].Hopped)
		require.Zero(t, st.Stages[0].Lagging)
	})
}
