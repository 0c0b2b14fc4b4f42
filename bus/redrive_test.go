package bus_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
)

// brokenStage is a stage whose handler fails until it is mended.
type brokenStage struct {
	s      *bus.Stage
	mended atomic.Bool
	seen   []bus.Envelope
	at     []time.Time
}

func (m *brokenStage) handle(_ context.Context, e *bus.Envelope) error {
	if !m.mended.Load() {
		return errFails
	}
	m.seen = append(m.seen, e.Clone())
	m.at = append(m.at, time.Now())
	return nil
}

// broken runs f with a started bus of the stages "s", which is broken, and
// "next".
func broken(t *testing.T, c bus.StageConfig, f func(t *testing.T, b *bus.Bus, m *brokenStage)) {
	t.Helper()
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		m := &brokenStage{}
		m.s = bustest.Stage(t, b, "s", c, m.handle)
		bustest.Stage(t, b, "next", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		f(t, b, m)
	})
}

func redrive(t *testing.T, b *bus.Bus, o bus.RedriveOptions) bus.RedriveReport {
	t.Helper()
	rep, err := b.Letters().Redrive(t.Context(), o)
	require.NoError(t, err)
	synctest.Wait()
	return rep
}

func TestRedriveIdentities(t *testing.T) {
	for _, c := range []struct {
		identity bus.RedriveIdentity
		sameID   bool
		key      string
	}{{bus.KeepID, true, "once"}, {bus.NewID, false, "once"}, {bus.AllNew, false, ""}} {
		t.Run(c.identity.String(), func(t *testing.T) {
			broken(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, m *brokenStage) {
				results := 0
				meta := &bus.Meta{ID: "text", Idempotency: "once"}
				r, err := m.s.Call(t.Context(), &bus.Envelope{
					Payload: 1, Key: "k", Headers: []bus.Header{{Name: "a"}}, Meta: meta,
					Slip: bus.Via("next"), OnDone: func(bus.Result) { results++ },
				})
				require.NoError(t, err)
				m.mended.Store(true)
				require.Equal(t, bus.RedriveReport{Redriven: 1}, redrive(t, b, bus.RedriveOptions{Identity: c.identity}))
				require.Len(t, m.seen, 1)
				e := &m.seen[0]
				require.Equal(t, c.sameID, e.ID() == r.ID)
				require.Equal(t, c.key, e.Meta.Idempotency)
				require.Equal(t, "once", meta.Idempotency, "the publisher's own is not written to")
				require.Equal(t, "text", e.TextID())
				require.True(t, e.Redelivered())
				require.Equal(t, 1, e.Attempt())
				require.Equal(t, []any{1, "k", 1}, []any{e.Payload, e.Key, len(e.Headers)})
				require.Equal(t, []string{"next"}, e.Slip.Stages(), "it resumes with the rest of its slip")
				require.Equal(t, 1, results, "no second result")
				st := bustest.RequireBalanced(t, b)
				require.EqualValues(t, 2, st.Accepted)
				require.EqualValues(t, 1, st.Completed)
				require.EqualValues(t, 1, st.Stages[0].FromRedrive)
				require.EqualValues(t, 1, st.Stages[1].Completed)
				require.Zero(t, st.Letters.Count)
				require.Zero(t, st.Letters.Purged)
			})
		})
	}
}

func TestRedriveResumesWhereItFailed(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var visited []string
		ok := false
		for _, name := range []string{"a", "b", "c"} {
			bustest.Stage(t, b, name, bus.StageConfig{}, func(context.Context, *bus.Envelope) error {
				visited = append(visited, name)
				if name == "b" && !ok {
					return errFails
				}
				return nil
			})
		}
		a, _ := b.Lookup("a")
		bustest.Start(t, b)
		letter(t, a, bus.Envelope{Slip: bus.Via("b", "c")})
		ok = true
		redrive(t, b, bus.RedriveOptions{})
		require.Equal(t, []string{"a", "b", "b", "c"}, visited)

		visited = nil // a hop that failed resumes at the next stage
		letter(t, a, bus.Envelope{Slip: bus.Via("new", "c")})
		require.Equal(t, "a", b.Letters().List(bus.LetterFilter{})[0].From)
		rep := redrive(t, b, bus.RedriveOptions{})
		require.Equal(t, 1, rep.Refused)
		require.ErrorIs(t, rep.Err, bus.ErrNoStage)
		bustest.Stage(t, b, "new", bus.StageConfig{}, acknowledge)
		require.Equal(t, 1, redrive(t, b, bus.RedriveOptions{}).Redriven)
		require.Equal(t, []string{"a", "c"}, visited)
	})
}

func TestRedrivenThatFailsAgain(t *testing.T) {
	for _, identity := range []bus.RedriveIdentity{bus.KeepID, bus.NewID} {
		t.Run(identity.String(), func(t *testing.T) {
			broken(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, m *brokenStage) {
				first := letter(t, m.s, bus.Envelope{Slip: bus.Via("next")})
				for i := 1; i <= 3; i++ {
					require.Equal(t, 1, redrive(t, b, bus.RedriveOptions{Identity: identity}).Redriven)
					l := b.Letters().List(bus.LetterFilter{})
					require.Len(t, l, 1)
					require.Equal(t, i, l[0].Redrives)
					require.Equal(t, identity == bus.KeepID, l[0].ID == first)
					require.Equal(t, []string{"next"}, l[0].Slip)
				}
				require.Equal(t, bus.RedriveReport{Skipped: 1}, redrive(t, b, bus.RedriveOptions{MaxRedrives: 3}))
				m.mended.Store(true)
				require.Equal(t, bus.RedriveReport{Redriven: 1}, redrive(t, b, bus.RedriveOptions{MaxRedrives: 4, Delay: time.Second}))
				time.Sleep(time.Second)
				synctest.Wait()
				require.Len(t, m.seen, 1)
				st := bustest.RequireBalanced(t, b)
				require.EqualValues(t, 5, st.Accepted)
				require.EqualValues(t, 4, st.DeadLettered)
				require.EqualValues(t, 4, st.Letters.Added)
			})
		})
	}
}

func TestDelayedRedriveThatFailsAgainKeepsItsCount(t *testing.T) {
	broken(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, m *brokenStage) {
		letter(t, m.s, bus.Envelope{})
		for i := 1; i <= 2; i++ {
			redrive(t, b, bus.RedriveOptions{Delay: time.Minute})
			require.Len(t, m.s.Delayed(), 1)
			require.Empty(t, b.Letters().List(bus.LetterFilter{}))
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, i, b.Letters().List(bus.LetterFilter{})[0].Redrives)
		}
		redrive(t, b, bus.RedriveOptions{Delay: time.Minute})
		require.True(t, m.s.CancelDelayed(m.s.Delayed()[0].ID))
		require.EqualValues(t, 1, bustest.RequireBalanced(t, b).Dropped[reason.Canceled])
	})
}

func TestRedriveRate(t *testing.T) {
	broken(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, m *brokenStage) {
		for range 5 {
			letter(t, m.s, bus.Envelope{})
		}
		m.mended.Store(true)
		began := time.Now()
		rep := redrive(t, b, bus.RedriveOptions{Delay: time.Second, Rate: 2, Filter: bus.LetterFilter{Limit: 4}})
		require.Equal(t, 4, rep.Redriven)
		require.Len(t, b.Letters().List(bus.LetterFilter{}), 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, m.at, 4)
		for i, at := range m.at {
			require.Equal(t, time.Second+time.Duration(i)*time.Second/2, at.Sub(began))
		}
	})
}

// A full stage takes no more redrives: those letters stay in the store as
// they were.
func TestRedriveIntoAFullStage(t *testing.T) {
	broken(t, bus.StageConfig{Capacity: 3, NoHandler: bus.NoHandlerHold}, func(t *testing.T, b *bus.Bus, m *brokenStage) {
		var ids []uint64
		for i := range 6 {
			ids = append(ids, letter(t, m.s, bus.Envelope{Payload: i}))
			time.Sleep(time.Minute)
		}
		before := b.Letters().Stats()
		m.s.Suspend(bus.Hold{})
		rep := redrive(t, b, bus.RedriveOptions{Filter: bus.LetterFilter{Limit: 5}})
		require.Equal(t, 3, rep.Redriven)
		require.Equal(t, 2, rep.Refused)
		require.ErrorIs(t, rep.Err, bus.ErrFull)
		left := b.Letters().List(bus.LetterFilter{})
		require.Equal(t, ids[3:], idsOf(left), "in the same order")
		require.Zero(t, left[0].Redrives)
		st := b.Letters().Stats()
		require.Equal(t, before.Added, st.Added, "not counted again")
		require.Equal(t, 3*time.Minute, st.Oldest, "and not younger")
		require.Equal(t, 3, depthOf(m.s))
		bustest.RequireBalanced(t, b)
		m.mended.Store(true)
		m.s.Resume("")
		synctest.Wait()
		require.Equal(t, 3, redrive(t, b, bus.RedriveOptions{}).Redriven)
		require.Len(t, m.seen, 6)
	})
}

func TestRedriveByFilter(t *testing.T) {
	broken(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, m *brokenStage) {
		other := bustest.Stage(t, b, "other", bus.StageConfig{}, fails)
		letter(t, other, bus.Envelope{})
		id := letter(t, m.s, bus.Envelope{})
		m.mended.Store(true)
		require.Zero(t, redrive(t, b, bus.RedriveOptions{Filter: bus.LetterFilter{After: id}}))
		require.Equal(t, 1, redrive(t, b, bus.RedriveOptions{Filter: bus.LetterFilter{Stage: "s"}}).Redriven)
		require.Len(t, m.seen, 1)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		rep, err := b.Letters().Redrive(over, bus.RedriveOptions{})
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, rep)
		require.Len(t, b.Letters().List(bus.LetterFilter{}), 1)
	})
}

// A deadline that has passed would only drop what somebody wants to be done.
func TestRedriveForgetsTheDeadline(t *testing.T) {
	broken(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, m *brokenStage) {
		e := bus.Envelope{}
		e.SetDeadline(time.Now().Add(time.Second))
		letter(t, m.s, e)
		time.Sleep(time.Hour)
		m.mended.Store(true)
		redrive(t, b, bus.RedriveOptions{})
		require.Len(t, m.seen, 1)
		_, ok := m.seen[0].Deadline()
		require.False(t, ok)
	})
}

// Several redrives at once send each letter once.
func TestConcurrentRedrives(t *testing.T) {
	broken(t, bus.StageConfig{Capacity: 1000}, func(t *testing.T, b *bus.Bus, m *brokenStage) {
		const n = 100
		for i := range n {
			letter(t, m.s, bus.Envelope{Payload: i})
		}
		m.mended.Store(true)
		var redriven atomic.Int64
		for range 4 {
			go func() {
				rep, _ := b.Letters().Redrive(context.Background(), bus.RedriveOptions{})
				redriven.Add(int64(rep.Redriven))
			}()
		}
		synctest.Wait()
		require.EqualValues(t, n, redriven.Load())
		seen := map[string]bool{}
		for i := range m.seen {
			seen[fmt.Sprint(m.seen[i].Payload)] = true
		}
		require.Len(t, m.seen, n)
		require.Len(t, seen, n)
		require.Zero(t, b.Letters().Stats().Count)
		bustest.RequireBalanced(t, b)
	})
}

// A letter of a subscriber goes back to that subscriber alone.
func TestRedriveOfACopy(t *testing.T) {
	broken(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, m *brokenStage) {
		topic := bustest.Stage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
		others := 0
		_, err := topic.Subscribe("other", bus.StageConfig{}, bus.LagWait, func(context.Context, *bus.Envelope) error {
			others++
			return nil
		})
		require.NoError(t, err)
		_, err = topic.Subscribe("broken", bus.StageConfig{}, bus.LagWait, m.handle)
		require.NoError(t, err)
		letter(t, topic, bus.Envelope{Payload: 1})
		m.mended.Store(true)
		require.Equal(t, 1, redrive(t, b, bus.RedriveOptions{}).Redriven)
		require.Len(t, m.seen, 1)
		require.Equal(t, 1, others)
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 2, st.Accepted)
		require.EqualValues(t, 2, st.Copies.Made)
	})
}
