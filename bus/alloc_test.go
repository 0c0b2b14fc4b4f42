package bus_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/internal/invariant"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// noAllocs requires that f allocates nothing once it has warmed up. The
// average rounds down, so that what is renewed every 10 ms does not count.
func noAllocs(t *testing.T, f func()) {
	t.Helper()
	if invariant.Enabled {
		t.Skip("the race detector and the assertions allocate")
	}
	for range 500 {
		f()
	}
	require.Zero(t, testing.AllocsPerRun(500, f))
}

// echo returns a bus with a stage that leads over hops further stages, and a
// func that publishes one envelope and waits for its end.
func echo(t *testing.T, c bus.StageConfig, hops int) func() {
	t.Helper()
	return echoOn(t, bustest.New(t, bus.Config{}), c, hops)
}

func echoOn(t *testing.T, b *bus.Bus, c bus.StageConfig, hops int) func() {
	t.Helper()
	done := make(chan struct{}, 1)
	var names []string
	last := func(context.Context, *bus.Envelope) error {
		done <- struct{}{}
		return nil
	}
	h := last
	if hops > 0 {
		h = ack
	}
	s := bustest.Stage(t, b, "s", c, h)
	for i := range hops {
		name := fmt.Sprint("h", i)
		if h = ack; i == hops-1 {
			h = last
		}
		bustest.Stage(t, b, name, c, h)
		names = append(names, name)
	}
	bustest.Start(t, b)
	t.Cleanup(func() { bustest.Drain(t, b) })
	e := &bus.Envelope{Slip: bus.Via(names...), Payload: t, Key: "k"}
	ctx := t.Context()
	return func() {
		if err := s.Publish(ctx, e); err != nil {
			t.Error(err)
			return
		}
		<-done
	}
}

func TestAllocs_enter(t *testing.T) {
	for _, c := range []bus.StageConfig{{}, {Batch: 64}, {Concurrency: 4}, {Classes: []bus.Class{{Name: "a"}}}} {
		t.Run(fmt.Sprint(c.Batch, c.Concurrency, len(c.Classes)), func(t *testing.T) { noAllocs(t, echo(t, c, 0)) })
	}
}

func TestAllocs_unlockAndStart(t *testing.T) { noAllocs(t, echo(t, bus.StageConfig{}, 2)) }

func TestAllocs_begin(t *testing.T) {
	b := bustest.New(t, bus.Config{})
	done := make(chan struct{}, 64)
	s := bustest.Stage(t, b, "s", bus.StageConfig{Batch: 64}, func(context.Context, *bus.Envelope) error {
		done <- struct{}{}
		return nil
	})
	bustest.Start(t, b)
	p := s.Producer()
	ctx := t.Context()
	noAllocs(t, func() {
		batch := p.Begin(64)
		for e := batch.Next(); e != nil; e = batch.Next() {
			e.Payload = t
		}
		if n, err := batch.Publish(ctx); n != 64 || err != nil {
			t.Error(n, err)
		}
		for range 64 {
			<-done
		}
	})
	p.Close()
	bustest.Drain(t, b)
}

func TestAllocs_put(t *testing.T) {
	b := bustest.New(t, bus.Config{})
	done := make(chan struct{}, 1)
	s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(context.Context, *bus.Envelope) error {
		done <- struct{}{}
		return nil
	})
	bustest.Start(t, b)
	p := s.Producer()
	ctx := t.Context()
	e := &bus.Envelope{Payload: t}
	noAllocs(t, func() {
		if err := p.Publish(ctx, e); err != nil {
			t.Error(err)
			return
		}
		<-done
	})
	p.Close()
	bustest.Drain(t, b)
}

func TestAllocs_hop(t *testing.T) {
	for _, hops := range []int{1, 5} {
		t.Run(fmt.Sprint(hops), func(t *testing.T) { noAllocs(t, echo(t, bus.StageConfig{}, hops)) })
	}
}

// The default shedder, at the door and over an itinerary of three stages.
func TestAllocs_ask(t *testing.T) {
	for _, hops := range []int{0, 3} {
		t.Run(fmt.Sprint("admit", hops), func(t *testing.T) {
			b := bustest.New(t, bus.Config{NewShedder: shedder.Default})
			noAllocs(t, echoOn(t, b, bus.StageConfig{}, hops))
		})
	}
	t.Run("shed", func(t *testing.T) {
		b := bustest.New(t, bus.Config{NewShedder: shedder.Default})
		gate := bustest.NewGate()
		var busy atomic.Bool
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, func(ctx context.Context, _ *bus.Envelope) error {
			if busy.Load() {
				return gate.Wait(ctx)
			}
			for began := time.Now(); time.Since(began) < 200*time.Microsecond; { // long enough for a bound below the capacity
			}
			return nil
		})
		bustest.Start(t, b)
		for range 50 {
			_, err := s.Call(t.Context(), &bus.Envelope{})
			require.NoError(t, err)
		}
		busy.Store(true)
		e := &bus.Envelope{}
		for s.TryPublish(e) == nil { // until the bound is reached
		}
		require.ErrorIs(t, s.TryPublish(e), bus.ErrShed)
		noAllocs(t, func() {
			if s.TryPublish(e) == nil {
				t.Error("accepted")
			}
		})
		gate.Open()
		bustest.Drain(t, b)
	})
}

func TestAllocs_refuse(t *testing.T) {
	type setup struct {
		why     reason.Reason
		c       bus.StageConfig
		e       bus.Envelope
		prepare func(b *bus.Bus, s *bus.Stage)
	}
	start := func(b *bus.Bus, _ *bus.Stage) { bustest.Start(t, b) }
	fill := func(b *bus.Bus, s *bus.Stage) {
		start(b, s)
		s.Suspend(bus.Hold{})
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
	}
	expired := bus.Envelope{}
	expired.SetDeadline(time.Now().Add(-time.Hour))
	shed := &bustest.Refuse{}
	shed.Shed()
	for _, tc := range []setup{
		{why: reason.Full, c: bus.StageConfig{Capacity: 1, Full: bus.Reject}, prepare: fill},
		{why: reason.Newest, c: bus.StageConfig{Capacity: 1, Full: bus.DropNewest}, prepare: fill},
		{why: reason.NotStarted, prepare: func(*bus.Bus, *bus.Stage) {}},
		{why: reason.Paused, prepare: func(b *bus.Bus, s *bus.Stage) { start(b, s); b.Pause(bus.Hold{}) }},
		{why: reason.Closed, prepare: func(b *bus.Bus, _ *bus.Stage) { _ = b.Close() }},
		{why: reason.Expired, e: expired, prepare: start},
		{why: reason.NoHandler, c: bus.StageConfig{NoHandler: bus.NoHandlerReject}, prepare: func(b *bus.Bus, s *bus.Stage) {
			start(b, s)
			_ = s.RemoveHandler()
		}},
		{why: reason.Shed, c: bus.StageConfig{Shedder: shed.Shedder()}, prepare: start},
		{
			why: reason.Duplicate, c: bus.StageConfig{DedupWindow: 8}, e: bus.Envelope{Meta: &bus.Meta{Idempotency: "k"}},
			prepare: func(b *bus.Bus, s *bus.Stage) {
				start(b, s)
				require.NoError(t, s.TryPublish(&bus.Envelope{Meta: &bus.Meta{Idempotency: "k"}}))
			},
		},
	} {
		t.Run(tc.why.String(), func(t *testing.T) {
			b := bustest.New(t, bus.Config{})
			s := bustest.Stage(t, b, "s", tc.c, ack)
			tc.prepare(b, s)
			err := s.TryPublish(&tc.e)
			r, ok := errors.AsType[*bus.RejectedError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, tc.why, r.Reason)
			noAllocs(t, func() {
				if s.TryPublish(&tc.e) == nil {
					t.Error("accepted")
				}
			})
			_ = b.Close()
		})
	}
}

func TestAllocs_ReadStats(t *testing.T) {
	b := bustest.New(t, bus.Config{})
	var s *bus.Stage
	for i := range 5 {
		s = bustest.Stage(t, b, fmt.Sprint("s", i), bus.StageConfig{}, ack)
	}
	bustest.Start(t, b)
	var st bus.Stats
	var one bus.StageStats
	noAllocs(t, func() { b.ReadStats(&st); s.ReadStats(&one) })
	bustest.Drain(t, b)
}

// Refusals are shared and show a state that is at most 10 ms old while they
// keep coming, also while nothing else moves.
func TestRefusalsAreRenewed(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 3, Full: bus.Reject}, ack)
		s.Suspend(bus.Hold{})
		bustest.Start(t, b)
		publish(t, s, bus.Slip{}, nil, 1, 2, 3)
		first := s.TryPublish(&bus.Envelope{})
		require.Same(t, first, s.TryPublish(&bus.Envelope{}))
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Capacity = 2 }))
		time.Sleep(10 * time.Millisecond)
		var r *bus.RejectedError
		for range 64 {
			r, _ = errors.AsType[*bus.RejectedError](s.TryPublish(&bus.Envelope{}))
		}
		require.Equal(t, 2, r.Capacity)
		require.Equal(t, 3, r.Depth)
	})
}

// What a burst has needed goes back to the collector.
func TestABurstsMemoryIsGivenBack(t *testing.T) {
	b := bustest.New(t, bus.Config{})
	const n = 200_000
	s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: n}, ack)
	s.Suspend(bus.Hold{})
	bustest.Start(t, b)
	heap := func() uint64 {
		for range 3 { // pools let go at the second collection
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range n {
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
	}
	full := heap()
	require.Greater(t, full-before, uint64(n*100))
	s.Resume("")
	bustest.Drain(t, b)
	require.Less(t, heap(), before+(full-before)/10)
	runtime.KeepAlive(b)
}
