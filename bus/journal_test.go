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

// logbook is a journal that keeps what it is told as text.
type logbook struct {
	mu      sync.Mutex
	entries []string
	batches []int
	byID    map[uint64][]bus.Op
	fail    func(bus.Op) error
}

func (l *logbook) Append(entries []bus.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		if l.fail != nil {
			if err := l.fail(e.Op); err != nil {
				return err
			}
		}
		text := fmt.Sprint(e.Op, " ", e.Stage, " ", e.Envelope.Payload)
		switch e.Op {
		case bus.OpAdvance:
			text += " to " + e.Next
		case bus.OpSettle:
			text += " " + e.End.String()
		case bus.OpDelay:
			text += " " + e.Delay.String()
		default:
		}
		if e.Reason != reason.None {
			text += " " + e.Reason.String()
		}
		l.entries = append(l.entries, text)
		if l.byID == nil {
			l.byID = map[uint64][]bus.Op{}
		}
		l.byID[e.Envelope.ID()] = append(l.byID[e.Envelope.ID()], e.Op)
	}
	l.batches = append(l.batches, len(entries))
	return nil
}

// said returns what was recorded since the last time.
func (l *logbook) said() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.entries
	l.entries = nil
	return s
}

func (l *logbook) failWith(f func(bus.Op) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = f
}

func TestJournalRecordsWhatHappens(t *testing.T) {
	l := &logbook{}
	bustest.Run(t, bus.Config{Journal: l}, func(t *testing.T, b *bus.Bus) {
		c := bus.StageConfig{Capacity: 4, Full: bus.Reject, Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Second}}
		s := bustest.Stage(t, b, "s", c, func(_ context.Context, e *bus.Envelope) error {
			switch e.Payload {
			case "fail":
				return errFails
			case "drop":
				return bus.Discard("")
			case "twice":
				if e.Attempt() == 1 {
					return errFails
				}
			}
			return nil
		})
		bustest.Stage(t, b, "next", bus.StageConfig{}, acknowledge)
		hold := bustest.Stage(t, b, "hold", bus.StageConfig{NoHandler: bus.NoHandlerHold, Capacity: 1, Full: bus.DropOldest}, nil)
		bustest.Stage(t, b, "none", bus.StageConfig{}, nil)
		bustest.Start(t, b)
		for _, c := range []struct {
			stage, payload string
			slip           bus.Slip
			want           []string
		}{
			{"s", "fine", bus.Via("next"), []string{"accept s fine", "advance s fine to next", "settle next fine completed"}},
			{"s", "fail", bus.Slip{}, []string{"accept s fail", "delay s fail 1s", "dead-letter s fail attempts"}},
			{"s", "twice", bus.Slip{}, []string{"accept s twice", "delay s twice 1s", "settle s twice completed"}},
			{"s", "drop", bus.Slip{}, []string{"accept s drop", "settle s drop dropped discarded"}},
			{"s", "lost", bus.Via("nowhere"), []string{"accept s lost", "advance s lost to nowhere", "dead-letter nowhere lost no_stage"}},
			{"none", "none", bus.Slip{}, []string{"accept none none", "dead-letter none none no_handler"}},
			{"hold", "first", bus.Slip{}, []string{"accept hold first"}},
			{"hold", "second", bus.Slip{}, []string{"settle hold first dropped evicted", "accept hold second"}},
		} {
			require.NoError(t, b.Publish(t.Context(), c.stage, &bus.Envelope{Payload: c.payload, Slip: c.slip}))
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, c.want, l.said(), c.payload)
		}
		s.Suspend(bus.Hold{})
		for range 4 {
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
		}
		l.said()
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrFull)
		require.Empty(t, l.said(), "what is refused is not recorded")
		_, err := hold.PublishAfter(t.Context(), time.Hour, &bus.Envelope{Payload: "later"})
		require.NoError(t, err)
		require.Equal(t, []string{"settle hold second dropped evicted", "accept hold later"}, l.said())
		require.ErrorIs(t, b.Close(), bus.ErrNotDrained)
		said := l.said()
		require.Len(t, said, 5)
		for _, text := range said {
			require.True(t, strings.HasSuffix(text, "abandoned shutdown"), text)
		}
	})
}

// Each envelope's records come in the order of its life, and in batches.
func TestJournalKeepsOrderUnderLoad(t *testing.T) {
	l := &logbook{}
	b := bustest.New(t, bus.Config{Journal: l})
	a := bustest.Stage(t, b, "a", bus.StageConfig{Concurrency: 2, Retry: retry.Policy{MaxAttempts: 3}}, func(_ context.Context, e *bus.Envelope) error {
		if n, _ := e.Payload.(int); n%10 == 0 {
			return errFails
		}
		return nil
	})
	bustest.Stage(t, b, "b", bus.StageConfig{}, acknowledge)
	bustest.Start(t, b)
	const n = 2000
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() {
			for i := range n / 4 {
				if err := a.Publish(context.Background(), &bus.Envelope{Payload: i*4 + p, Slip: bus.Via("b")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r := bustest.Drain(t, b)
	require.Zero(t, r.Stats.JournalErrors)
	require.Len(t, l.byID, n)
	for id, ops := range l.byID {
		want := []bus.Op{bus.OpAccept, bus.OpAdvance, bus.OpSettle}
		if len(ops) == 2 {
			want = []bus.Op{bus.OpAccept, bus.OpDeadLetter}
		}
		require.Equal(t, want, ops, "envelope %d", id)
	}
}

func TestJournalRecordsAChunkAtOnce(t *testing.T) {
	l := &logbook{}
	bustest.Run(t, bus.Config{Journal: l}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Batch: 16, NoHandler: bus.NoHandlerHold}, nil)
		bustest.Start(t, b)
		for i := range 64 {
			require.NoError(t, s.TryPublish(&bus.Envelope{Payload: i}))
		}
		l.batches = nil
		require.NoError(t, s.Handle(acknowledge))
		synctest.Wait()
		require.Equal(t, []int{16, 16, 16, 16}, l.batches)
	})
}

func TestJournalErrorRefusesThePublish(t *testing.T) {
	for name, fail := range map[string]func(bus.Op) error{
		"error": func(bus.Op) error { return errFails },
		"panic": func(bus.Op) error { panic("journal") },
	} {
		t.Run(name, func(t *testing.T) {
			l := &logbook{}
			bustest.Run(t, bus.Config{Journal: l}, func(t *testing.T, b *bus.Bus) {
				s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1, DedupWindow: 9, NoHandler: bus.NoHandlerHold}, nil)
				bustest.Start(t, b)
				l.failWith(fail)
				var got ended
				e := keyed("k")
				e.OnDone = got.add
				for range 3 {
					err := s.Publish(t.Context(), e)
					require.ErrorIs(t, err, bus.ErrStore)
					require.ErrorIs(t, err, bus.ErrRejected)
					if name == "error" {
						require.ErrorIs(t, err, errFails)
					}
				}
				st := bustest.RequireBalanced(t, b)
				require.Zero(t, st.Accepted)
				require.EqualValues(t, 3, st.Refused[reason.Store])
				require.Zero(t, st.JournalErrors)
				l.failWith(nil)
				require.NoError(t, s.TryPublish(e), "neither its place nor its key is taken")
				require.NoError(t, s.Handle(acknowledge))
				synctest.Wait()
				require.Len(t, got.results, 1)
			})
		})
	}
}

func TestLaterJournalErrorsAreCounted(t *testing.T) {
	for name, fail := range map[string]error{"error": errFails, "panic": nil} {
		t.Run(name, func(t *testing.T) {
			l := &logbook{fail: func(op bus.Op) error {
				if op == bus.OpAccept {
					return nil
				}
				if fail == nil {
					panic("journal")
				}
				return fail
			}}
			bustest.Run(t, bus.Config{Journal: l}, func(t *testing.T, b *bus.Bus) {
				s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
					if e.Payload == 1 {
						return errFails
					}
					return nil
				})
				bustest.Start(t, b)
				var got ended
				for i := range 4 {
					require.NoError(t, s.TryPublish(&bus.Envelope{Payload: i, OnDone: got.add}))
					synctest.Wait()
				}
				r := bustest.Drain(t, b)
				require.EqualValues(t, 4, r.Stats.JournalErrors)
				require.EqualValues(t, 3, r.Stats.Completed)
				require.Len(t, got.results, 4, "the work itself goes on")
			})
		})
	}
}

// While the journal is written a publish that waits for it holds its place.
func TestJournalThatTakesLong(t *testing.T) {
	l := &logbook{}
	bustest.Run(t, bus.Config{Journal: l}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1, NoHandler: bus.NoHandlerHold, Full: bus.Reject}, nil)
		bustest.Start(t, b)
		writing := make(chan struct{})
		l.failWith(func(bus.Op) error { <-writing; return nil })
		first := make(chan error, 1)
		go func() { first <- s.Publish(context.Background(), &bus.Envelope{Payload: 1}) }()
		synctest.Wait()
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrFull)
		closed := make(chan error, 1)
		go func() { closed <- b.Close() }()
		synctest.Wait()
		close(writing)
		require.ErrorIs(t, <-first, bus.ErrClosed, "the bus was closed meanwhile")
		require.ErrorIs(t, <-closed, bus.ErrNotDrained)
		require.Equal(t, []string{"accept s 1", "refuse s 1"}, l.said())
		st := bustest.RequireBalanced(t, b)
		require.Zero(t, st.Accepted)
	})
}

func TestJournalHasWhatADeadLetterStageAndARedriveTakeIn(t *testing.T) {
	l := &logbook{}
	bustest.Run(t, bus.Config{Journal: l}, func(t *testing.T, b *bus.Bus) {
		bustest.Stage(t, b, "dead", bus.StageConfig{}, acknowledge)
		s := bustest.Stage(t, b, "s", bus.StageConfig{DeadLetterTo: "dead"}, fails)
		mended := errFails
		other := bustest.Stage(t, b, "other", bus.StageConfig{}, func(context.Context, *bus.Envelope) error { return mended })
		bustest.Start(t, b)
		letter(t, s, bus.Envelope{Payload: 1})
		synctest.Wait()
		require.ElementsMatch(t, []string{"accept s 1", "dead-letter s 1 attempts", "accept dead 1", "settle dead 1 completed"}, l.said())
		letter(t, other, bus.Envelope{Payload: 2})
		mended = nil
		l.said()
		redrive(t, b, bus.RedriveOptions{Identity: bus.NewID})
		require.Equal(t, []string{"accept other 2", "settle other 2 completed"}, l.said())
		letterAgain := errors.New("again")
		mended = letterAgain
		letter(t, other, bus.Envelope{Payload: 3})
		mended = nil
		l.said()
		redrive(t, b, bus.RedriveOptions{Delay: time.Second})
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"accept other 3", "settle other 3 completed"}, l.said())
		mended = letterAgain
		letter(t, other, bus.Envelope{Payload: 4})
		l.failWith(func(bus.Op) error { return errFails })
		rep := redrive(t, b, bus.RedriveOptions{})
		require.Equal(t, 1, rep.Refused)
		require.ErrorIs(t, rep.Err, bus.ErrStore)
		require.Len(t, b.Letters().List(bus.LetterFilter{}), 1)
		l.failWith(nil)
	})
}
