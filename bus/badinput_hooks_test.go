package bus_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// misdeeds are what user code may do instead of returning.
var misdeeds = map[string]func(){
	"panic":  func() { panic("misbehaved") },
	"goexit": runtime.Goexit,
}

// TestHooksThatMisbehave lets every hook panic, or end its goroutine, each time.
func TestHooksThatMisbehave(t *testing.T) {
	for name, misdeed := range misdeeds {
		t.Run(name, func(t *testing.T) {
			var drops, letters, panics, states atomic.Int64
			hooks := bus.Hooks{
				Drop:       func(ds []bus.DropInfo) { drops.Add(int64(len(ds))); misdeed() },
				DeadLetter: func(bus.LetterInfo) { letters.Add(1); misdeed() },
				Panic:      func(bus.PanicInfo) { panics.Add(1); misdeed() },
				State:      func(bus.StateInfo) { states.Add(1); misdeed() },
			}
			bustest.Run(t, bus.Config{Hooks: hooks}, func(t *testing.T, b *bus.Bus) {
				s := bustest.Stage(t, b, "s", bus.StageConfig{Concurrency: 2}, func(_ context.Context, e *bus.Envelope) error {
					switch e.Payload {
					case "drop":
						return bus.Discard("asked for")
					case "letter":
						return errors.New("no")
					case "misbehave":
						misdeed()
					}
					return nil
				})
				bustest.Start(t, b)
				var ends [4]atomic.Int64
				done := func(r bus.Result) { ends[r.End].Add(1); misdeed() }
				for range 5 {
					for _, what := range []string{"drop", "letter", "misbehave", "fine"} {
						require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Payload: what, OnDone: done}))
					}
				}
				s.Suspend(bus.Hold{})
				require.True(t, s.Resume(""))
				require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Capacity = 9 }))
				synctest.Wait()
				st := bustest.RequireBalanced(t, b)
				require.EqualValues(t, 20, ends[bus.Completed].Load()+ends[bus.Dropped].Load()+ends[bus.DeadLettered].Load())
				require.EqualValues(t, 5, ends[bus.Completed].Load())
				require.EqualValues(t, 5, ends[bus.Dropped].Load())
				require.EqualValues(t, 10, ends[bus.DeadLettered].Load())
				require.EqualValues(t, 5, drops.Load())
				require.EqualValues(t, 10, letters.Load())
				require.EqualValues(t, 4, states.Load())
				require.Zero(t, st.Pending)
				require.Zero(t, st.Stages[0].Executors, "nobody is left at work")
				require.EqualValues(t, 5, st.Stages[0].Panics)
				require.GreaterOrEqual(t, panics.Load(), int64(20+10+4+5))
				require.Len(t, b.Letters().List(bus.LetterFilter{}), 10)
				bustest.Drain(t, b)
			})
		})
	}
}

// TestStateHookMayCallTheBus: no lock is held during a hook, also not that of
// Tune.
func TestStateHookMayCallTheBus(t *testing.T) {
	var stage atomic.Pointer[bus.Stage]
	var tuned atomic.Int64
	hooks := bus.Hooks{State: func(info bus.StateInfo) {
		if s := stage.Load(); s != nil && info.State == "tuned" && tuned.Add(1) == 1 {
			_ = s.Tune(func(c *bus.StageConfig) { c.Concurrency++ })
		}
	}}
	bustest.Run(t, bus.Config{Hooks: hooks}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
		stage.Store(s)
		bustest.Start(t, b)
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Concurrency = 3 }))
		require.Equal(t, 4, s.Config().Concurrency)
		require.NoError(t, b.Tune(func(c *bus.Config) { c.MaxHandlers = 2 }))
		require.EqualValues(t, 3, tuned.Load())
	})
}

// hostileError is an error whose methods misbehave.
type hostileError struct{ text, unwrap, is bool }

func (e *hostileError) Error() string {
	if e == nil || e.text { // a nil pointer in an error is the usual way to get here
		panic("Error")
	}
	return "hostile"
}

func (e *hostileError) Unwrap() error {
	if e == nil || e.unwrap {
		panic("Unwrap")
	}
	return nil
}

func (e *hostileError) As(any) bool {
	if e == nil || e.is {
		panic("As")
	}
	return false
}

// TestErrorsThatMisbehave: methods of a handler's error are user code; a panic
// in one may neither end the stage nor count for more than a nack.
func TestErrorsThatMisbehave(t *testing.T) {
	for name, hostile := range map[string]*hostileError{
		"text": {text: true}, "unwrap": {unwrap: true}, "as": {is: true}, "nil": nil, "all": {true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				refuse := func(context.Context, *bus.Envelope) error { return hostile }
				thrown := func(context.Context, *bus.Envelope) error { panic(hostile) }
				s := bustest.Stage(t, b, "s", bus.StageConfig{}, refuse)
				p := bustest.Stage(t, b, "p", bus.StageConfig{}, thrown)
				pull := bustest.Stage(t, b, "pull", bus.StageConfig{Pull: true}, nil)
				bustest.Start(t, b)
				for _, st := range []*bus.Stage{s, p, pull} {
					for range 3 {
						require.NoError(t, st.Publish(t.Context(), &bus.Envelope{}))
					}
				}
				for range 3 {
					l, err := pull.Receive(t.Context())
					require.NoError(t, err)
					require.NoError(t, l.Nack(hostile))
				}
				synctest.Wait()
				st := bustest.RequireBalanced(t, b)
				for _, stage := range st.Stages {
					require.EqualValues(t, 3, stage.DeadLettered, stage.Name)
					require.EqualValues(t, 3, stage.Nacked, stage.Name)
					require.EqualValues(t, 3, stage.Delivered, stage.Name)
				}
				require.Len(t, b.Letters().List(bus.LetterFilter{Reason: reason.Attempts}), 9)
			})
		})
	}
}

// badPolicy answers with what is no reason, or not at all.
type badPolicy struct {
	shedder.Passive

	answer func() shedder.Verdict
}

func (p *badPolicy) Admit(*shedder.Request) shedder.Verdict { return p.answer() }

func TestPoliciesThatMisbehave(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		p := &badPolicy{answer: func() shedder.Verdict { return shedder.Verdict{Action: shedder.Refuse, Reason: 250} }}
		s := bustest.Stage(t, b, "s", bus.StageConfig{Shedder: shell(t, p)}, acknowledge)
		bustest.Start(t, b)
		requireRefused(t, s.TryPublish(&bus.Envelope{}), "s", reason.Shed, bus.ErrShed)
		p.answer = func() shedder.Verdict { panic("no answer") }
		require.NoError(t, s.TryPublish(&bus.Envelope{}), "a panic admits")
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		requireRefusals(t, st.Refused, map[reason.Reason]uint64{reason.Shed: 1})
		require.EqualValues(t, 1, s.ShedderState().Panics)
	})
}

// hostileLog is a log handler that panics.
type hostileLog struct{ slog.Handler }

func (hostileLog) Handle(context.Context, slog.Record) error { panic("log") }

func TestLoggersThatMisbehave(t *testing.T) {
	log := slog.New(hostileLog{slog.NewTextHandler(&logBuffer{}, nil)})
	bustest.Run(t, bus.Config{Logger: log}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(context.Context, *bus.Envelope) error { panic("handler") })
		bustest.Start(t, b)
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		synctest.Wait()
		require.EqualValues(t, 1, bustest.RequireBalanced(t, b).DeadLettered)
		bustest.Drain(t, b)
	})
}

func TestHoldsOfAnyLength(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		b.Pause(bus.Hold{By: "late", For: -time.Second})
		s.Suspend(bus.Hold{By: "late", For: -1})
		b.Pause(bus.Hold{By: "short", For: 1})
		s.Suspend(bus.Hold{By: "long", For: 1<<63 - 1})
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Empty(t, b.Holds())
		require.Len(t, s.Holds(), 1)
		require.False(t, s.Resume("nobody"))
		require.False(t, b.Resume(""))
		require.True(t, s.Resume("long"))
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
	})
}
