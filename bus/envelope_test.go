package bus_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
)

func TestHeadersAreCopiedOnWrite(t *testing.T) {
	shared := make([]bus.Header, 1, 10)
	shared[0] = bus.Header{Name: "a", Value: "1"}
	e, other := bus.Envelope{Headers: shared}, bus.Envelope{Headers: shared}
	e.SetHeader("a", "2")
	e.SetHeader("b", "3")
	other.SetHeader("c", "4")
	require.Equal(t, []bus.Header{{Name: "a", Value: "2"}, {Name: "b", Value: "3"}}, e.Headers)
	require.Equal(t, []bus.Header{{Name: "a", Value: "1"}, {Name: "c", Value: "4"}}, other.Headers)
	require.Equal(t, []bus.Header{{Name: "a", Value: "1"}, {}}, shared[:2])
	v, ok := e.Header("b")
	require.True(t, ok)
	require.Equal(t, "3", v)
	_, ok = e.Header("none")
	require.False(t, ok)
	e.Headers = []bus.Header{{Name: "x", Value: "first"}, {Name: "x", Value: "second"}}
	v, _ = e.Header("x")
	require.Equal(t, "first", v)
	e.SetHeader("x", "changed")
	require.Equal(t, []bus.Header{{Name: "x", Value: "changed"}, {Name: "x", Value: "second"}}, e.Headers)
}

func TestCloneStaysValid(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var kept []bus.Envelope
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			kept = append(kept, e.Clone())
			e.SetHeader("later", "not in the clone")
			e.Payload, e.Headers[0].Value = "changed", "changed"
			return nil
		})
		bustest.Start(t, b)
		var got ended
		for i := range 200 {
			e := bus.Envelope{
				Payload: i, Key: "k", Headers: []bus.Header{{Name: "a", Value: "b"}}, Meta: &bus.Meta{ID: "text"},
				Slip: bus.Via("s"), OnDone: got.add,
			}
			e.SetDeadline(time.Now().Add(time.Hour))
			require.NoError(t, s.Publish(t.Context(), &e))
		}
		bustest.Drain(t, b)
		require.Len(t, kept, 400)
		for i := range kept {
			e := &kept[i]
			require.NotZero(t, e.ID())
			require.Equal(t, 1, e.Attempt())
			require.Equal(t, "text", e.TextID())
			require.Nil(t, e.OnDone)
			require.Equal(t, "k", e.Key)
			if e.Slip.Len() == 1 {
				require.Equal(t, []bus.Header{{Name: "a", Value: "b"}}, e.Headers)
				require.NotEqual(t, "changed", e.Payload)
			} else {
				require.Equal(t, "changed", e.Payload)
			}
			at, ok := e.Deadline()
			require.True(t, ok)
			require.WithinDuration(t, time.Now().Add(time.Hour), at, time.Millisecond)
		}
		require.Len(t, got.results, 200)
	})
}

// A clone is a new envelope when it is published, with a number of its own.
func TestPublishedCloneIsNew(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var ids []uint64
		var redelivered bool
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(ctx context.Context, e *bus.Envelope) error {
			ids = append(ids, e.ID())
			redelivered = redelivered || e.Redelivered()
			if len(ids) < 3 {
				c := e.Clone()
				st, _ := b.Lookup("s")
				return st.Publish(ctx, &c)
			}
			return nil
		})
		bustest.Start(t, b)
		var got ended
		require.NoError(t, s.TryPublish(&bus.Envelope{OnDone: got.add}))
		r := bustest.Drain(t, b)
		require.Len(t, ids, 3)
		require.NotEqual(t, ids[0], ids[1])
		require.NotEqual(t, ids[1], ids[2])
		require.False(t, redelivered)
		require.Len(t, got.results, 1)
		require.EqualValues(t, 3, r.Stats.Completed)
	})
}

func TestSlips(t *testing.T) {
	names := []string{"a", "b"}
	s := bus.Via(names...)
	names[0] = "changed"
	require.Equal(t, []string{"a", "b"}, s.Stages())
	require.Equal(t, "a > b", s.String())
	require.Equal(t, 2, s.Len())
	s.Stages()[0] = "changed"
	require.Equal(t, "a > b", s.String())
	for _, empty := range []bus.Slip{{}, bus.Via()} {
		require.Zero(t, empty.Len())
		require.Nil(t, empty.Stages())
		require.Empty(t, empty.String())
	}
	e := bus.Envelope{Slip: s}
	e.Push("x", "y")
	e.Push()
	e.Push("z")
	require.Equal(t, "z > x > y > a > b", e.Slip.String())
	require.Equal(t, "a > b", s.String(), "a slip may be shared")
}

func TestDeadlineEdges(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		set  time.Time
		want time.Time
		ok   bool
	}{
		"none":            {time.Time{}, time.Time{}, false},
		"soon":            {now.Add(time.Second), now.Add(time.Second), true},
		"at the epoch":    {time.Unix(0, 0), time.Unix(0, 1), true},
		"before it":       {time.Unix(-1e9, 0), time.Unix(0, 1), true},
		"long before it":  {time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 1), true},
		"too far to tell": {time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{}, false},
	} {
		e := bus.Envelope{}
		e.SetDeadline(now.Add(time.Hour))
		e.SetDeadline(c.set)
		at, ok := e.Deadline()
		require.Equal(t, c.ok, ok, name)
		require.WithinDuration(t, c.want, at, 0, name)
	}
}

func TestRekeyCountsFromTheNextHop(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		keys := map[string][]string{}
		meta := &bus.Meta{Sender: "me"}
		for _, name := range []string{"a", "b", "c"} {
			bustest.Stage(t, b, name, bus.StageConfig{Order: bus.ByKey}, func(_ context.Context, e *bus.Envelope) error {
				keys[name] = append(keys[name], e.Key)
				if name == "a" {
					e.Rekey("new")
					keys[name] = append(keys[name], e.Key)
				}
				require.Equal(t, "me", e.Meta.Sender)
				return nil
			})
		}
		bustest.Start(t, b)
		a, _ := b.Lookup("a")
		_, err := a.Call(t.Context(), &bus.Envelope{Key: "old", Meta: meta, Slip: bus.Via("b", "c")})
		require.NoError(t, err)
		require.Equal(t, map[string][]string{"a": {"old", "old"}, "b": {"new"}, "c": {"new"}}, keys)
		require.Equal(t, &bus.Meta{Sender: "me"}, meta, "what was given is not written to")
	})
}

func TestValuesOfThePublisher(t *testing.T) {
	type ctxKey struct{}
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(ctx context.Context, e *bus.Envelope) error {
			e.Reply(ctx.Value(ctxKey{}))
			return nil
		})
		bustest.Start(t, b)
		ctx := context.WithValue(t.Context(), ctxKey{}, "mine")
		r, err := s.Call(ctx, &bus.Envelope{Meta: &bus.Meta{Values: ctx.Value}})
		require.NoError(t, err)
		require.Equal(t, "mine", r.Reply)
		r, err = s.Call(ctx, &bus.Envelope{})
		require.NoError(t, err)
		require.Nil(t, r.Reply, "only if asked")
	})
}
