package bus_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
)

// dropLog keeps what a drop hook was told.
type dropLog struct {
	mu      sync.Mutex
	infos   []bus.DropInfo
	batches int
}

func (l *dropLog) hook(ds []bus.DropInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.infos = append(l.infos, ds...)
	l.batches++
}

func TestDropHookIsToldEveryDrop(t *testing.T) {
	var l dropLog
	bustest.Run(t, bus.Config{Hooks: bus.Hooks{Drop: l.hook}}, func(t *testing.T, b *bus.Bus) {
		oldest := bustest.Stage(t, b, "oldest", bus.StageConfig{Capacity: 1, Full: bus.DropOldest, NoHandler: bus.NoHandlerHold}, nil)
		hold := bustest.Stage(t, b, "hold", bus.StageConfig{NoHandler: bus.NoHandlerHold}, nil)
		discard := bustest.Stage(t, b, "discard", bus.StageConfig{}, func(context.Context, *bus.Envelope) error { return bus.Discard("") })
		topic := bustest.Stage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
		gate := bustest.NewGate()
		_, err := topic.Subscribe("sub", bus.StageConfig{Capacity: 1}, bus.LagDrop, gate.Handler(nil))
		require.NoError(t, err)
		bustest.Start(t, b)
		require.NoError(t, oldest.TryPublish(&bus.Envelope{Payload: "evicted", Key: "k", Headers: []bus.Header{{Name: "a"}}}))
		require.NoError(t, oldest.TryPublish(&bus.Envelope{}))
		require.NoError(t, discard.TryPublish(&bus.Envelope{Payload: "discarded"}))
		e := bus.Envelope{Payload: "expired"}
		e.SetDeadline(time.Now().Add(time.Second))
		require.NoError(t, hold.TryPublish(&e))
		id, err := hold.PublishAfter(t.Context(), time.Hour, &bus.Envelope{Payload: "canceled"})
		require.NoError(t, err)
		require.True(t, hold.CancelDelayed(id))
		for range 3 {
			require.NoError(t, topic.TryPublish(&bus.Envelope{Payload: "lag"}))
			synctest.Wait()
		}
		time.Sleep(time.Second)
		require.NoError(t, hold.Handle(acknowledge))
		synctest.Wait()
		want := map[any]string{
			"evicted": "oldest evicted", "discarded": "discard discarded", "expired": "hold expired",
			"canceled": "hold canceled", "lag": "topic.sub lag",
		}
		require.Len(t, l.infos, len(want))
		for _, d := range l.infos {
			require.Equal(t, want[d.Envelope.Payload], d.Stage+" "+d.Reason.String())
			require.NotZero(t, d.Envelope.ID())
			if d.Reason == reason.Evicted {
				require.Equal(t, "k", d.Envelope.Key)
				require.Len(t, d.Envelope.Headers, 1)
			}
		}
		bustest.RequireBalanced(t, b)
		gate.Open()
		require.NoError(t, oldest.Handle(acknowledge))
	})
}

func TestDropHookGetsBatchesOffThePublisher(t *testing.T) {
	var l dropLog
	release := make(chan struct{})
	hook := func(ds []bus.DropInfo) {
		<-release
		l.hook(ds)
	}
	synctest.Test(t, func(t *testing.T) {
		release = make(chan struct{})
		b := bustest.New(t, bus.Config{Hooks: bus.Hooks{Drop: hook}})
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1, Full: bus.DropOldest, NoHandler: bus.NoHandlerHold}, nil)
		bustest.Start(t, b)
		for i := range 101 {
			require.NoError(t, s.TryPublish(&bus.Envelope{Payload: i}), "the hook holds up nobody")
			if i < 2 {
				synctest.Wait()
			}
		}
		close(release)
		synctest.Wait()
		require.Len(t, l.infos, 100)
		require.Equal(t, 2, l.batches, "what has come meanwhile comes together")
		for i := range l.infos {
			require.Equal(t, i, l.infos[i].Envelope.Payload, "in order")
		}
		require.NoError(t, s.Handle(acknowledge))
		bustest.Drain(t, b)
	})
}

// A hook may call back into the bus, whatever that does.
func TestHooksMayCallTheBus(t *testing.T) {
	var stage atomic.Pointer[bus.Stage]
	var lost atomic.Pointer[bus.Bus]
	var unbalanced, calls atomic.Int64
	look := func(still bool) { // still: nothing but the hook is moving
		b, s := lost.Load(), stage.Load()
		if b == nil {
			return
		}
		calls.Add(1)
		var st bus.Stats
		b.ReadStats(&st)
		if still && st.Check() != nil {
			unbalanced.Add(1)
		}
		s.InFlight()
		s.Delayed()
		b.Letters().List(bus.LetterFilter{})
	}
	hooks := bus.Hooks{
		Drop: func(ds []bus.DropInfo) {
			look(false)
			for range ds { // again, in another stage
				_ = lost.Load().Publish(context.Background(), "fine", &bus.Envelope{})
			}
		},
		DeadLetter: func(i bus.LetterInfo) {
			look(true)
			_ = stage.Load().TryPublish(&bus.Envelope{Payload: "after a letter"})
		},
		Panic: func(bus.PanicInfo) {
			look(true)
			stage.Load().Suspend(bus.Hold{By: "panic hook", For: time.Second})
		},
		State: func(bus.StateInfo) { look(false) },
	}
	bustest.Run(t, bus.Config{Hooks: hooks}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			switch e.Payload {
			case "letter":
				return errFails
			case "drop":
				return bus.Discard("")
			case "panic":
				panic("handler")
			}
			return nil
		})
		bustest.Stage(t, b, "fine", bus.StageConfig{}, acknowledge)
		stage.Store(s)
		lost.Store(b)
		bustest.Start(t, b)
		for _, p := range []string{"letter", "drop", "panic"} {
			require.NoError(t, s.TryPublish(&bus.Envelope{Payload: p}))
			time.Sleep(time.Minute)
		}
		s.Suspend(bus.Hold{})
		s.Resume("")
		r := bustest.Drain(t, b)
		require.EqualValues(t, 6, r.Stats.Accepted)
		require.EqualValues(t, 2, r.Stats.DeadLettered)
		require.EqualValues(t, 3, r.Stats.Completed)
		require.Greater(t, calls.Load(), int64(8))
		require.Zero(t, unbalanced.Load(), "no hook runs in the middle of an update")
	})
}

func TestDeadLetterHook(t *testing.T) {
	var mu sync.Mutex
	var infos []bus.LetterInfo
	told := map[uint64]bool{}
	hook := func(i bus.LetterInfo) {
		mu.Lock()
		defer mu.Unlock()
		infos = append(infos, i)
	}
	bustest.Run(t, bus.Config{Hooks: bus.Hooks{DeadLetter: hook}}, func(t *testing.T, b *bus.Bus) {
		cause := errors.New("its cause")
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(context.Context, *bus.Envelope) error { return cause })
		hop := bustest.Stage(t, b, "hop", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		done := func(r bus.Result) {
			mu.Lock()
			defer mu.Unlock()
			for _, i := range infos {
				told[r.ID] = told[r.ID] || i.ID == r.ID
			}
		}
		require.NoError(t, s.TryPublish(&bus.Envelope{Meta: &bus.Meta{ID: "text"}, OnDone: done}))
		synctest.Wait()
		require.NoError(t, hop.TryPublish(&bus.Envelope{Slip: bus.Via("nowhere"), OnDone: done}))
		synctest.Wait()
		require.Len(t, infos, 2)
		require.Len(t, told, 2)
		for id, before := range told {
			require.True(t, before, "envelope %d: the hook comes before the result", id)
		}
		first := infos[0]
		require.NotZero(t, first.ID)
		first.ID = 0
		require.Equal(t, bus.LetterInfo{Stage: "s", Reason: reason.Attempts, TextID: "text", Err: cause}, first)
		require.Equal(t, "nowhere", infos[1].Stage)
		require.Equal(t, reason.NoStage, infos[1].Reason)
		require.ErrorIs(t, infos[1].Err, bus.ErrNoStage)
	})
}

func TestPanicHook(t *testing.T) {
	var mu sync.Mutex
	var infos []bus.PanicInfo
	hook := func(i bus.PanicInfo) {
		mu.Lock()
		defer mu.Unlock()
		infos = append(infos, i)
	}
	bustest.Run(t, bus.Config{Hooks: bus.Hooks{Panic: hook}}, func(t *testing.T, b *bus.Bus) {
		cause := errors.New("an error as the value")
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error { panic(e.Payload) })
		bustest.Start(t, b)
		var got ended
		require.NoError(t, s.TryPublish(&bus.Envelope{Payload: cause, OnDone: got.add}))
		synctest.Wait()
		require.Len(t, infos, 1)
		require.Equal(t, "handler", infos[0].Where)
		require.Equal(t, "s", infos[0].Stage)
		require.Equal(t, got.results[0].ID, infos[0].ID)
		require.Equal(t, cause, infos[0].Err.Value)
		require.Contains(t, string(infos[0].Err.Stack), "hooks_test.go", "the stack of the panic is kept")
		require.ErrorIs(t, got.results[0].Err, cause)
		p, ok := errors.AsType[*bus.PanicError](got.results[0].Err)
		require.True(t, ok)
		require.NotEmpty(t, p.Stack)
		require.EqualValues(t, 1, bustest.RequireBalanced(t, b).Stages[0].Panics)
	})
}

func TestStateHookIsToldEveryChange(t *testing.T) {
	var mu sync.Mutex
	var states []string
	hook := func(i bus.StateInfo) {
		mu.Lock()
		defer mu.Unlock()
		states = append(states, i.Stage+":"+i.State+":"+i.By)
	}
	bustest.Run(t, bus.Config{Hooks: bus.Hooks{State: hook}}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, want, states)
			states = nil
		}
		bustest.Start(t, b)
		expect(":started:")
		b.Pause(bus.Hold{})
		b.Pause(bus.Hold{By: "second"})
		b.Resume("")
		require.False(t, b.Resume("third"))
		b.Resume("second")
		expect(":paused:operator", ":resumed:second")
		s.Suspend(bus.Hold{By: "ops", For: time.Second})
		time.Sleep(time.Second)
		expect("s:suspended:ops", "s:resumed:ops")
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Capacity = 5 }))
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Capacity = 5 }), "no change, no call")
		require.Error(t, s.Tune(func(c *bus.StageConfig) { c.Capacity = -5 }))
		expect("s:tuned:")
		bustest.Drain(t, b)
		bustest.Drain(t, b)
		expect(":draining:", ":closed:")
	})
}

// A shutdown waits for the drop hook as for callbacks.
func TestShutdownWaitsForTheDropHook(t *testing.T) {
	var l dropLog
	hook := func(ds []bus.DropInfo) {
		time.Sleep(time.Second)
		l.hook(ds)
	}
	bustest.Run(t, bus.Config{Hooks: bus.Hooks{Drop: hook}}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(context.Context, *bus.Envelope) error { return bus.Discard("") })
		bustest.Start(t, b)
		for range 10 {
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
			synctest.Wait()
		}
		bustest.Drain(t, b)
		require.Len(t, l.infos, 10)
	})
}
