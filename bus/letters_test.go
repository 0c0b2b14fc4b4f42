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
)

// letterBus runs f with a started bus whose stage "s" refuses everything.
func letterBus(t *testing.T, c bus.Config, f func(t *testing.T, b *bus.Bus, s *bus.Stage)) {
	t.Helper()
	bustest.Run(t, c, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, fails)
		bustest.Start(t, b)
		f(t, b, s)
	})
}

// letter makes a dead letter of e.
func letter(t *testing.T, s *bus.Stage, e bus.Envelope) uint64 {
	t.Helper()
	r, err := s.Call(t.Context(), &e)
	require.NoError(t, err)
	require.Equal(t, bus.DeadLettered, r.End)
	return r.ID
}

func idsOf(letters []bus.Letter) (ids []uint64) {
	for i := range letters {
		ids = append(ids, letters[i].ID)
	}
	return ids
}

func TestLetterSaysWhatHappened(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		first := bustest.Stage(t, b, "first", bus.StageConfig{}, acknowledge)
		c := bus.StageConfig{Retry: retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: time.Minute}}
		bustest.Stage(t, b, "second", c, func(_ context.Context, e *bus.Envelope) error {
			e.SetHeader("attempt", fmt.Sprint(e.Attempt()))
			return fmt.Errorf("attempt %d failed", e.Attempt())
		})
		bustest.Start(t, b)
		began := time.Now()
		called := false
		r, err := first.Call(t.Context(), &bus.Envelope{
			Payload: 42, Key: "key", Headers: []bus.Header{{Name: "a", Value: "b"}},
			Meta: &bus.Meta{ID: "text", Sender: "me", Idempotency: "once"}, Slip: bus.Via("second", "third", "fourth"),
			OnDone: func(bus.Result) { called = true },
		})
		require.NoError(t, err)
		synctest.Wait()
		require.True(t, called)
		require.Equal(t, bus.DeadLettered, r.End)
		require.EqualError(t, r.Err, "attempt 3 failed")
		l, ok := b.Letters().Get(r.ID)
		require.True(t, ok)
		e := l.Envelope
		l.Envelope = bus.Envelope{}
		require.WithinDuration(t, began, l.First, 0)
		require.WithinDuration(t, began.Add(2*time.Minute), l.Last, 0)
		l.First, l.Last = time.Time{}, time.Time{}
		require.Equal(t, bus.Letter{
			ID: r.ID, TextID: "text", Stage: "second", Reason: reason.Attempts, Error: "attempt 3 failed",
			Attempts: 3, Slip: []string{"third", "fourth"},
		}, l)
		require.Equal(t, 42, e.Payload)
		require.Equal(t, "key", e.Key)
		require.Equal(t, []bus.Header{{Name: "a", Value: "b"}, {Name: "attempt", Value: "3"}}, e.Headers)
		require.Equal(t, "once", e.Meta.Idempotency)
		require.Nil(t, e.OnDone, "the first publisher gets no second result")
		_, ok = b.Letters().Get(r.ID + 1)
		require.False(t, ok)
		l.Slip[0], e.Headers[0].Value = "changed", "changed"
		l, _ = b.Letters().Get(r.ID)
		require.Equal(t, "third", l.Slip[0], "a copy")
		require.Equal(t, "b", l.Envelope.Headers[0].Value)
	})
}

func TestLetterReasons(t *testing.T) {
	for name, c := range map[string]struct {
		config bus.StageConfig
		h      bus.Handler
		why    reason.Reason
		text   string
		tries  int
	}{
		"attempts": {h: fails, why: reason.Attempts, text: errFails.Error(), tries: 1},
		"asked for": {
			config: bus.StageConfig{Retry: retry.Policy{MaxAttempts: 9}},
			h:      func(context.Context, *bus.Envelope) error { return bus.DeadLetter("poison") },
			why:    reason.Handler, text: "poison", tries: 1,
		},
		"panic":       {h: func(context.Context, *bus.Envelope) error { panic("boom") }, why: reason.Attempts, text: "boom", tries: 1},
		"no handler":  {why: reason.NoHandler, text: "no handler"},
		"wrong type":  {h: bus.Typed(func(context.Context, string, *bus.Envelope) error { return nil }), why: reason.Type, text: "int", tries: 1},
		"retry time":  {config: bus.StageConfig{Retry: retry.Policy{MaxAttempts: 99, Kind: retry.Constant, Base: time.Second, MaxElapsed: 5 * time.Second}}, h: fails, why: reason.RetryTime, text: errFails.Error(), tries: 6},
		"retry after": {config: bus.StageConfig{Retry: retry.Policy{MaxElapsed: time.Minute}}, h: func(context.Context, *bus.Envelope) error { return bus.RetryAfter(time.Minute + 1) }, why: reason.RetryTime, tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				s := bustest.Stage(t, b, "s", c.config, c.h)
				bustest.Start(t, b)
				l, ok := b.Letters().Get(letter(t, s, bus.Envelope{Payload: 1}))
				require.True(t, ok)
				require.Equal(t, c.why, l.Reason)
				require.Contains(t, l.Error, c.text)
				require.Equal(t, c.tries, l.Attempts)
				require.Equal(t, "s", l.Stage)
				require.Empty(t, l.From)
			})
		})
	}
}

func TestLettersAreBoundedByCount(t *testing.T) {
	letterBus(t, bus.Config{DeadLetters: bus.LetterBounds{MaxCount: 3}}, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
		var ids []uint64
		for range 200 {
			ids = append(ids, letter(t, s, bus.Envelope{}))
		}
		require.Equal(t, ids[197:], idsOf(b.Letters().List(bus.LetterFilter{})), "the oldest are evicted first")
		_, ok := b.Letters().Get(ids[0])
		require.False(t, ok)
		st := b.Letters().Stats()
		require.Equal(t, 3, st.Count)
		require.EqualValues(t, 200, st.Added)
		require.EqualValues(t, 197, st.Evicted)
		require.Zero(t, st.Purged)
		require.EqualValues(t, 200, bustest.RequireBalanced(t, b).DeadLettered)
		require.NoError(t, b.Tune(func(c *bus.Config) { c.DeadLetters.MaxCount = 1 }))
		require.Equal(t, ids[199:], idsOf(b.Letters().List(bus.LetterFilter{})), "live")
		require.EqualValues(t, 199, b.Letters().Stats().Evicted)
	})
}

// sized is a payload that says how large it is.
type sized int

func (s sized) Size() int { return int(s) }

func TestLettersAreBoundedByBytes(t *testing.T) {
	for name, payload := range map[string]any{
		"bytes": make([]byte, 10_000), "text": strings.Repeat("x", 10_000), "sized": sized(10_000), "absurd": sized(-1),
	} {
		t.Run(name, func(t *testing.T) {
			letterBus(t, bus.Config{DeadLetters: bus.LetterBounds{MaxBytes: 50_000}}, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
				for range 200 {
					letter(t, s, bus.Envelope{Payload: payload})
				}
				st := b.Letters().Stats()
				require.LessOrEqual(t, st.Bytes, int64(50_000))
				require.EqualValues(t, 200, st.Added)
				require.EqualValues(t, 200-st.Count, st.Evicted)
				if name == "absurd" {
					require.Greater(t, st.Count, 50)
					return
				}
				require.Equal(t, 4, st.Count)
				require.Equal(t, 4, b.Letters().Purge(bus.LetterFilter{}))
				require.Zero(t, b.Letters().Stats().Bytes)
				letter(t, s, bus.Envelope{Payload: sized(60_000)})
				st = b.Letters().Stats()
				require.Zero(t, st.Count, "one that is too large cannot stay")
				require.EqualValues(t, 197, st.Evicted)
			})
		})
	}
}

func TestLettersAreBoundedByAge(t *testing.T) {
	letterBus(t, bus.Config{DeadLetters: bus.LetterBounds{MaxAge: time.Hour}}, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
		old := letter(t, s, bus.Envelope{})
		time.Sleep(40 * time.Minute)
		young := letter(t, s, bus.Envelope{})
		require.Equal(t, 40*time.Minute, b.Letters().Stats().Oldest)
		time.Sleep(20*time.Minute - 1)
		require.Equal(t, []uint64{old, young}, idsOf(b.Letters().List(bus.LetterFilter{})))
		time.Sleep(1)
		synctest.Wait()
		_, ok := b.Letters().Get(old)
		require.False(t, ok)
		require.Equal(t, []uint64{young}, idsOf(b.Letters().List(bus.LetterFilter{})))
		st := b.Letters().Stats()
		require.Equal(t, 20*time.Minute, st.Oldest)
		require.EqualValues(t, 1, st.Evicted)
		bustest.Drain(t, b)
		time.Sleep(40 * time.Minute) // also after the end
		_, ok = b.Letters().Get(young)
		require.False(t, ok)
		require.EqualValues(t, 2, b.Letters().Stats().Evicted)
		require.Zero(t, b.Letters().Stats().Oldest)
	})
}

func TestLettersAreListedByFilter(t *testing.T) {
	letterBus(t, bus.Config{}, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
		other := bustest.Stage(t, b, "other", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			return bus.DeadLetter(fmt.Sprint("payload ", e.Payload))
		})
		var all, others []uint64
		for i := range 10 {
			all = append(all, letter(t, s, bus.Envelope{}))
			others = append(others, letter(t, other, bus.Envelope{Payload: i}))
			all = append(all, others[i])
		}
		list := func(f bus.LetterFilter) []uint64 { return idsOf(b.Letters().List(f)) }
		require.Equal(t, all, list(bus.LetterFilter{}))
		require.Equal(t, others, list(bus.LetterFilter{Stage: "other"}))
		require.Equal(t, others, list(bus.LetterFilter{Reason: reason.Handler}))
		require.Equal(t, others, list(bus.LetterFilter{Text: "payload"}))
		require.Equal(t, others[3:4], list(bus.LetterFilter{Text: "payload 3"}))
		require.Empty(t, list(bus.LetterFilter{Stage: "other", Reason: reason.Attempts}))
		require.Empty(t, list(bus.LetterFilter{Stage: "none"}))
		require.Equal(t, all[:5], list(bus.LetterFilter{Limit: 5}))
		require.Equal(t, others[4:7], list(bus.LetterFilter{After: others[3], Limit: 3, Stage: "other"}))
		require.Equal(t, others[4:7], list(bus.LetterFilter{After: all[8], Limit: 3, Stage: "other"}), "behind one that does not match")
		require.Empty(t, list(bus.LetterFilter{After: all[19]}))
		var pages []uint64
		for after := uint64(0); ; {
			page := list(bus.LetterFilter{After: after, Limit: 3})
			if len(page) == 0 {
				break
			}
			pages = append(pages, page...)
			after = page[len(page)-1]
		}
		require.Equal(t, all, pages)

		require.Equal(t, 2, b.Letters().Purge(bus.LetterFilter{Stage: "other", Limit: 2}))
		require.Equal(t, others[2:], list(bus.LetterFilter{Stage: "other"}))
		require.Equal(t, 8, b.Letters().Purge(bus.LetterFilter{Reason: reason.Handler}))
		require.Equal(t, 10, b.Letters().Purge(bus.LetterFilter{}))
		require.Zero(t, b.Letters().Purge(bus.LetterFilter{}))
		st := b.Letters().Stats()
		require.Zero(t, st.Count)
		require.Zero(t, st.Bytes)
		require.EqualValues(t, 20, st.Purged)
		require.Zero(t, st.Evicted)
	})
}

func TestDeadLetterStage(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var got []bus.Envelope
		var ids []uint64
		bustest.Stage(t, b, "dead", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			got = append(got, e.Clone())
			ids = append(ids, e.ID())
			if _, ok := e.Deadline(); ok {
				return errors.New("the old deadline")
			}
			return nil
		})
		s := bustest.Stage(t, b, "s", bus.StageConfig{DeadLetterTo: "dead", Retry: retry.Policy{MaxAttempts: 2}}, fails)
		bustest.Stage(t, b, "never", bus.StageConfig{}, func(context.Context, *bus.Envelope) error {
			t.Error("a dead letter does not resume its slip")
			return nil
		})
		bustest.Start(t, b)
		var ends []bus.Result
		e := bus.Envelope{
			Payload: 1, Key: "k", Headers: []bus.Header{{Name: "a", Value: "b"}}, Slip: bus.Via("never"),
			OnDone: func(r bus.Result) { ends = append(ends, r) },
		}
		e.SetDeadline(time.Now().Add(time.Hour))
		require.NoError(t, s.TryPublish(&e))
		synctest.Wait()
		require.Len(t, ends, 1)
		require.Equal(t, bus.DeadLettered, ends[0].End)
		require.Equal(t, "s", ends[0].Stage)
		require.Len(t, got, 1)
		require.NotEqual(t, ends[0].ID, ids[0], "a new envelope")
		require.Equal(t, "k", got[0].Key)
		require.Equal(t, []bus.Header{
			{Name: "a", Value: "b"},
			{Name: bus.HeaderLetterStage, Value: "s"},
			{Name: bus.HeaderLetterReason, Value: "attempts"},
			{Name: bus.HeaderLetterError, Value: errFails.Error()},
			{Name: bus.HeaderLetterAttempts, Value: "2"},
		}, got[0].Headers)
		require.Zero(t, got[0].Slip.Len())
		require.Empty(t, b.Letters().List(bus.LetterFilter{}))
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 2, st.Accepted)
		require.EqualValues(t, 1, st.DeadLettered)
		require.EqualValues(t, 1, st.Completed)
		dead := st.Stages[0]
		require.EqualValues(t, 1, dead.Accepted)
		require.EqualValues(t, 1, dead.FromLetters)
	})
}

// What a dead-letter stage cannot take goes to the store.
func TestDeadLetterStageThatCannotTakeIt(t *testing.T) {
	gate := func(*testing.T, *bus.Bus) {}
	for name, c := range map[string]struct {
		config bus.StageConfig
		h      bus.Handler
		make   func(t *testing.T, b *bus.Bus)
		stored int
	}{
		"full":       {bus.StageConfig{Capacity: 2, NoHandler: bus.NoHandlerHold}, nil, gate, 3},
		"no handler": {bus.StageConfig{}, nil, gate, 5},
		"rejects":    {bus.StageConfig{NoHandler: bus.NoHandlerReject}, nil, gate, 5},
		"wrong type": {bus.StageConfig{Accepts: bus.TypeOf[string]()}, acknowledge, gate, 5},
		"fails":      {bus.StageConfig{}, fails, gate, 5},
		"takes":      {bus.StageConfig{}, acknowledge, gate, 0},
		"while paused": {bus.StageConfig{}, acknowledge, func(_ *testing.T, b *bus.Bus) {
			b.Pause(bus.Hold{})
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var to []string
			var mu sync.Mutex
			hooks := bus.Hooks{DeadLetter: func(i bus.LetterInfo) {
				mu.Lock()
				defer mu.Unlock()
				to = append(to, i.Stage+">"+i.To)
			}}
			bustest.Run(t, bus.Config{Hooks: hooks}, func(t *testing.T, b *bus.Bus) {
				dead := bustest.Stage(t, b, "dead", c.config, c.h)
				s := bustest.Stage(t, b, "s", bus.StageConfig{DeadLetterTo: "dead"}, fails)
				bustest.Start(t, b)
				s.Suspend(bus.Hold{})
				for i := range 5 {
					require.NoError(t, s.TryPublish(&bus.Envelope{Payload: i}))
				}
				c.make(t, b)
				s.Resume("")
				synctest.Wait()
				letters := b.Letters().List(bus.LetterFilter{})
				require.Len(t, letters, c.stored)
				if name == "fails" {
					require.Len(t, to, 10)
					require.Equal(t, "dead", letters[0].Stage)
				} else {
					require.Len(t, to, 5)
				}
				bustest.RequireBalanced(t, b)
				if name == "full" {
					require.Equal(t, []string{"s>dead", "s>dead", "s>", "s>", "s>"}, to)
					require.NoError(t, dead.Handle(acknowledge))
				}
				bustest.Drain(t, b)
			})
		})
	}
}

func TestChainOfDeadLetterStages(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var headers [][]bus.Header
		keep := func(_ context.Context, e *bus.Envelope) error {
			headers = append(headers, e.Clone().Headers)
			return errFails
		}
		bustest.Stage(t, b, "last", bus.StageConfig{}, keep)
		bustest.Stage(t, b, "second", bus.StageConfig{DeadLetterTo: "last"}, keep)
		s := bustest.Stage(t, b, "first", bus.StageConfig{DeadLetterTo: "second"}, fails)
		bustest.Start(t, b)
		letter(t, s, bus.Envelope{Payload: "work"})
		synctest.Wait()
		require.Len(t, headers, 2)
		letters := b.Letters().List(bus.LetterFilter{})
		require.Len(t, letters, 1)
		require.Equal(t, "last", letters[0].Stage)
		require.Equal(t, "work", letters[0].Envelope.Payload)
		value, ok := letters[0].Envelope.Header(bus.HeaderLetterStage)
		require.True(t, ok)
		require.Contains(t, []string{"first", "second"}, value)
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 3, st.Accepted)
		require.EqualValues(t, 3, st.DeadLettered)
		_, err := b.Stage("ring", bus.StageConfig{DeadLetterTo: "ring"})
		require.ErrorIs(t, err, bus.ErrInvalid)
		_, err = b.Stage("lost", bus.StageConfig{DeadLetterTo: "unknown"})
		require.ErrorIs(t, err, bus.ErrInvalid)
	})
}

// The headers of a chain say who has given the letter up last.
func TestChainOfDeadLetterStagesNamesTheLastStage(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var from []string
		note := func(_ context.Context, e *bus.Envelope) error {
			v, _ := e.Header(bus.HeaderLetterStage)
			from = append(from, v)
			return errFails
		}
		bustest.Stage(t, b, "last", bus.StageConfig{}, note)
		bustest.Stage(t, b, "second", bus.StageConfig{DeadLetterTo: "last"}, note)
		s := bustest.Stage(t, b, "first", bus.StageConfig{DeadLetterTo: "second"}, fails)
		bustest.Start(t, b)
		letter(t, s, bus.Envelope{})
		synctest.Wait()
		require.Equal(t, []string{"first", "second"}, from)
	})
}
