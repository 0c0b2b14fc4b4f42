package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// judge is a policy made of a func.
type judge struct {
	shedder.Passive

	admit func(*shedder.Request) shedder.Verdict
	bound int
}

func (j *judge) Admit(r *shedder.Request) shedder.Verdict { return j.admit(r) }
func (j *judge) Bound() int                               { return j.bound }

// waitsAtMost admits while fewer than n wait, and pushes out.
func waitsAtMost(n int) *judge {
	return &judge{bound: n, admit: func(r *shedder.Request) shedder.Verdict {
		v := shedder.Verdict{Limit: float64(n), Value: float64(r.Waiting + r.Inbound), Service: time.Second}
		v.Wait = time.Duration(r.Waiting+r.Inbound) * time.Second
		switch {
		case r.Waiting+r.Inbound < n:
		case r.Evictable > 0:
			v.Action = shedder.PushOut
		default:
			v.Action, v.Rule, v.Reason = shedder.Refuse, shedder.RuleBound, reason.Shed
		}
		return v
	}}
}

func TestPushOutTakesTheNewestOfTheLowestClass(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var v visits
		var ends endLog
		gate := bustest.NewGate()
		classes := []bus.Class{{Name: "high", Strict: true}, {Name: "mid", Strict: true}, {Name: "low", Strict: true}}
		s := bustest.Stage(t, b, "s", bus.StageConfig{Classes: classes, Shedder: shell(t, waitsAtMost(4))}, gate.Handler(v.noting("")))
		bustest.Start(t, b)
		put := func(class string, n int) error {
			return s.TryPublish(&bus.Envelope{Payload: n, OnDone: ends.done, Meta: &bus.Meta{Class: class}})
		}
		require.NoError(t, put("low", 0)) // goes into the handler
		synctest.Wait()
		for i, class := range []string{"low", "low", "mid", "low"} {
			require.NoError(t, put(class, 1+i))
		}
		requireRefused(t, put("low", 5), "s", reason.Shed, bus.ErrShed)
		require.NoError(t, put("mid", 6))  // for low 4
		require.NoError(t, put("high", 7)) // for low 2
		require.NoError(t, put("mid", 8))  // for low 1
		requireRefused(t, put("mid", 9), "s", reason.Shed, bus.ErrShed)
		require.NoError(t, put("high", 10)) // for mid 8
		gate.Open()
		synctest.Wait()
		require.Equal(t, []string{"0", "7", "10", "3", "6"}, v.all())
		require.Equal(t, 4, ends.count(bus.Dropped))
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 4, st.Dropped[reason.PushedOut])
		require.EqualValues(t, 2, st.Refused[reason.Shed])
		require.EqualValues(t, 9, st.Accepted)
	})
}

// What came from another stage, or was started before, is never pushed out.
func TestPushOutSparesWorkUnderWay(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		classes := []bus.Class{{Name: "high"}, {Name: "low"}}
		entry := bustest.Stage(t, b, "entry", bus.StageConfig{}, acknowledge)
		s := bustest.Stage(t, b, "s", bus.StageConfig{Classes: classes, Shedder: shell(t, waitsAtMost(3))}, gate.Handler(nil))
		bustest.Start(t, b)
		low := &bus.Meta{Class: "low"}
		for range 4 {
			require.NoError(t, entry.TryPublish(&bus.Envelope{Slip: bus.Via("s"), Meta: low}))
			synctest.Wait()
		}
		err := s.TryPublish(&bus.Envelope{Meta: &bus.Meta{Class: "high"}})
		requireRefused(t, err, "s", reason.Shed, bus.ErrShed)
		gate.Open()
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 4, st.Completed)
		require.Zero(t, st.Dropped[reason.PushedOut])
	})
}

// The worst stage of the slip decides at the first, and says which it was.
func TestALaterStageShedsAtTheFirst(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		first, last := &asked{}, waitsAtMost(2)
		a := bustest.Stage(t, b, "a", bus.StageConfig{Shedder: shell(t, first)}, acknowledge)
		bustest.Stage(t, b, "b", bus.StageConfig{}, acknowledge)
		bustest.Stage(t, b, "c", bus.StageConfig{Shedder: shell(t, last)}, gate.Handler(nil))
		bustest.Start(t, b)
		slip := bus.Via("b", "c")
		for range 3 {
			require.NoError(t, a.TryPublish(&bus.Envelope{Slip: slip}))
			synctest.Wait()
		}
		for range 5 {
			err := a.TryPublish(&bus.Envelope{Slip: slip})
			requireRefused(t, err, "a", reason.Shed, bus.ErrShed)
			r, _ := errors.AsType[*bus.RejectedError](err)
			require.Equal(t, "c", r.At)
			require.Equal(t, shedder.RuleBound, r.Rule)
			require.Contains(t, err.Error(), `rule "bound" of stage "c"`)
		}
		require.Equal(t, 5, first.undone, "the first stage's admission came to nothing")
		require.NoError(t, a.TryPublish(&bus.Envelope{}), "who does not go there is let in")
		require.NoError(t, a.TryPublish(&bus.Envelope{Slip: bus.Via("b", "unknown")}))
		gate.Open()
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 5, st.Stages[0].Refused[reason.Shed], "counted where it was published")
		require.Zero(t, st.Stages[2].Refused[reason.Shed])
		require.EqualValues(t, 4, st.Completed)
	})
}

// Work that was admitted and is still under way to a stage counts there.
func TestWorkUnderWayIsInbound(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		last := &asked{}
		entry := waitsAtMost(1000)
		a := bustest.Stage(t, b, "a", bus.StageConfig{Concurrency: 100, Shedder: shell(t, entry)}, pause(time.Second))
		bustest.Stage(t, b, "c", bus.StageConfig{Shedder: shell(t, last)}, acknowledge)
		bustest.Start(t, b)
		for i := range 5 {
			require.NoError(t, a.TryPublish(&bus.Envelope{Slip: bus.Via("c")}))
			synctest.Wait()
			require.Equal(t, i, last.asks[i].Inbound)
			require.Equal(t, time.Second, last.asks[i].Transit)
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, a.TryPublish(&bus.Envelope{Slip: bus.Via("c")}))
		time.Sleep(2 * time.Second)
		require.NoError(t, a.TryPublish(&bus.Envelope{Slip: bus.Via("c")}))
		require.Zero(t, last.asks[6].Inbound, "they have arrived")
		time.Sleep(2 * time.Second)
	})
}

// pause returns a handler that takes d.
func pause(d time.Duration) bus.Handler {
	return func(context.Context, *bus.Envelope) error {
		time.Sleep(d)
		return nil
	}
}

// A topic asks the subscribers that it would wait for.
func TestATopicAsksItsSubscribers(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		topic := bustest.Stage(t, b, "t", bus.StageConfig{Delivery: bus.PubSub}, nil)
		_, err := topic.Subscribe("drops", bus.StageConfig{Shedder: shell(t, waitsAtMost(1))}, bus.LagDrop, gate.Handler(nil))
		require.NoError(t, err)
		_, err = topic.Subscribe("waits", bus.StageConfig{Shedder: shell(t, waitsAtMost(3))}, bus.LagWait, gate.Handler(nil))
		require.NoError(t, err)
		bustest.Start(t, b)
		for range 4 {
			require.NoError(t, topic.TryPublish(&bus.Envelope{}))
			synctest.Wait()
		}
		err = topic.TryPublish(&bus.Envelope{})
		requireRefused(t, err, "t", reason.Shed, bus.ErrShed)
		r, _ := errors.AsType[*bus.RejectedError](err)
		require.Equal(t, "t.waits", r.At)
		gate.Open()
		synctest.Wait()
		bustest.RequireBalanced(t, b)
	})
}

// Hops stop at the shedder's bound: they wait parked, and none is lost.
func TestHopsStopAtTheBound(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		next := waitsAtMost(1 << 20)
		next.bound = 5
		a := bustest.Stage(t, b, "a", bus.StageConfig{Concurrency: 3}, acknowledge)
		c := bustest.Stage(t, b, "c", bus.StageConfig{Shedder: shell(t, next)}, gate.Handler(nil))
		bustest.Start(t, b)
		require.NoError(t, c.TryPublish(&bus.Envelope{}))
		synctest.Wait()
		gate.Pass(1) // the bound is known from the first end on
		synctest.Wait()
		for range 40 {
			require.NoError(t, a.TryPublish(&bus.Envelope{Slip: bus.Via("c")}))
		}
		synctest.Wait()
		st := readStage(c)
		require.Equal(t, 1, st.InFlight)
		require.LessOrEqual(t, st.Depth, 6, "the bound, and the place above it")
		require.GreaterOrEqual(t, st.Depth, 5)
		up := readStage(a)
		require.Positive(t, up.Parked)
		require.Equal(t, 40, up.Depth+st.Depth+st.InFlight)
		for range 40 {
			gate.Pass(1)
			synctest.Wait()
			require.LessOrEqual(t, readStage(c).Depth, 6)
		}
		gate.Open()
		synctest.Wait()
		require.EqualValues(t, 41, bustest.RequireBalanced(t, b).Completed)
	})
}

// A ring of stages that stand at their bounds moves on.
func TestARingMovesAtItsBounds(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				var names []string
				for i := range n {
					names = append(names, fmt.Sprintf("r%d", i))
				}
				var turns []string
				for range 20 {
					turns = append(turns, names...)
				}
				slip := bus.Via(turns...)
				var stages []*bus.Stage
				for _, name := range names {
					p := waitsAtMost(1 << 20)
					p.bound = 2
					stages = append(stages, bustest.Stage(t, b, name, bus.StageConfig{Capacity: 8, Shedder: shell(t, p)}, pause(time.Millisecond)))
				}
				bustest.Start(t, b)
				var wg sync.WaitGroup
				for i := range 6 * n {
					wg.Go(func() {
						if err := stages[i%n].Publish(t.Context(), &bus.Envelope{Slip: slip}); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				time.Sleep(4 * time.Second) // less than the hop timeout
				synctest.Wait()
				st := bustest.RequireBalanced(t, b)
				require.EqualValues(t, 6*n, st.Completed)
			})
		})
	}
}

func TestDoomedWorkIsNotHandled(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var v visits
		var ends endLog
		s := bustest.Stage(t, b, "s", bus.StageConfig{Shedder: shell(t, waitsAtMost(1<<20))}, func(_ context.Context, e *bus.Envelope) error {
			time.Sleep(time.Second)
			return v.noting("")(t.Context(), e)
		})
		bustest.Start(t, b)
		publish(t, s, bus.Slip{}, nil, 1)
		time.Sleep(2 * time.Second)
		publish(t, s, bus.Slip{}, nil, 2)                                          // until 1 s
		require.NoError(t, s.TryPublish(due(1500*time.Millisecond, 3, ends.done))) // half a second is not enough
		require.NoError(t, s.TryPublish(due(2500*time.Millisecond, 4, ends.done)))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"1", "2", "4"}, v.all())
		require.Equal(t, reason.Doomed, ends.all()[0].Reason)
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 1, st.Dropped[reason.Doomed])
		require.Zero(t, st.Dropped[reason.Expired], "counted apart")
	})
}

func TestShedInsideLettersHopsAndRetries(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		refuse, gate := &bustest.Refuse{}, bustest.NewGate()
		a := bustest.Stage(t, b, "a", bus.StageConfig{}, gate.Handler(nil))
		c := bustest.Stage(t, b, "c", bus.StageConfig{
			Shedder: refuse.Shedder(), ShedInside: true, Retry: retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: time.Second},
		}, func(context.Context, *bus.Envelope) error { return errFails })
		bustest.Start(t, b)
		require.NoError(t, c.TryPublish(&bus.Envelope{}))
		synctest.Wait()
		refuse.Shed()
		time.Sleep(time.Second)
		synctest.Wait()
		letters := b.Letters().List(bus.LetterFilter{Reason: reason.Shed})
		require.Len(t, letters, 1)
		require.Equal(t, 2, letters[0].Attempts)
		refuse.With(shedder.Verdict{})
		require.NoError(t, a.TryPublish(&bus.Envelope{Slip: bus.Via("c")}))
		synctest.Wait()
		refuse.Shed()
		gate.Open()
		synctest.Wait()
		letters = b.Letters().List(bus.LetterFilter{Reason: reason.Shed})
		require.Len(t, letters, 2)
		require.Equal(t, "c", letters[1].Stage)
		require.Equal(t, "a", letters[1].From)
		bustest.RequireBalanced(t, b)
	})
}

func TestShedderSettings(t *testing.T) {
	sh := shell(t, waitsAtMost(1))
	b := newBus(t, bus.Config{})
	s, err := b.Stage("s", bus.StageConfig{Shedder: sh})
	require.NoError(t, err)
	require.Same(t, sh, s.Shedder())
	_, err = b.Stage("other", bus.StageConfig{Shedder: sh})
	require.ErrorIs(t, err, bus.ErrConflict)
	require.ErrorIs(t, err, shedder.ErrAttached)
	again, err := b.Stage("s", bus.StageConfig{Shedder: sh})
	require.NoError(t, err)
	require.Same(t, s, again)
	_, err = b.Stage("alone", bus.StageConfig{ShedInside: true})
	require.ErrorIs(t, err, bus.ErrInvalid)
	require.True(t, strings.Contains(err.Error(), "ShedInside"), err)
	finish(t, b)
}

func TestNewShedderServesEveryStage(t *testing.T) {
	made := map[string]*shedder.Shedder{}
	var own *shedder.Shedder
	c := bus.Config{NewShedder: func(stage string) *shedder.Shedder {
		switch stage {
		case "none":
			return nil
		case "panics":
			panic("no shedder")
		}
		made[stage], _ = shedder.New(shedder.Config{Policy: waitsAtMost(1)})
		return made[stage]
	}}
	bustest.Run(t, c, func(t *testing.T, b *bus.Bus) {
		own = shell(t, waitsAtMost(1))
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, gate.Handler(nil))
		require.Same(t, made["s"], s.Shedder())
		require.Same(t, own, bustest.Stage(t, b, "own", bus.StageConfig{Shedder: own}, nil).Shedder())
		require.Nil(t, bustest.Stage(t, b, "none", bus.StageConfig{}, nil).Shedder())
		require.Nil(t, bustest.Stage(t, b, "panics", bus.StageConfig{}, nil).Shedder())
		require.Nil(t, bustest.Stage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil).Shedder())
		require.Equal(t, shedder.State{}, bustest.Stage(t, b, "none", bus.StageConfig{}, nil).ShedderState())
		bustest.Start(t, b)
		_, err := b.Stage("s", bus.StageConfig{})
		require.NoError(t, err, "the same settings")

		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		synctest.Wait()
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrShed)
		b.SetShedding(false)
		require.NoError(t, s.TryPublish(&bus.Envelope{}), "the kill switch")
		late := bustest.Stage(t, b, "late", bus.StageConfig{}, gate.Handler(nil))
		for range 3 {
			require.NoError(t, late.TryPublish(&bus.Envelope{}))
		}
		b.SetShedding(true)
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrShed)
		gate.Open()
		synctest.Wait()
		bustest.RequireBalanced(t, b)
	})
}
