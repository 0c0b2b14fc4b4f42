package bench_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sedabus/seda/bench/internal/form"
	"github.com/sedabus/seda/bus"
)

func BenchmarkBus(b *testing.B) { benchmark(b, form.Systems()) }

func BenchmarkBusExact(b *testing.B) { benchmark(b, form.ExactSystems()) }

// newStage returns a stage on a started bus that is drained after the benchmark.
func newStage(b *testing.B, c bus.StageConfig, h bus.Handler) *bus.Stage {
	b.Helper()
	bs, err := bus.New(bus.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if _, err := bs.Shutdown(context.Background()); err != nil {
			b.Error(err)
		}
	})
	st, err := bs.Stage("s", c)
	if err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(st.Handle(h), bs.Start()); err != nil {
		b.Fatal(err)
	}
	return st
}

// BenchmarkRefusal is what a publish costs that a full stage refuses.
func BenchmarkRefusal(b *testing.B) {
	newFull := func(b *testing.B) *bus.Stage {
		b.Helper()
		started, release := make(chan struct{}, 1), make(chan struct{})
		st := newStage(b, bus.StageConfig{Capacity: 1, Full: bus.Reject}, func(context.Context, *bus.Envelope) error {
			select {
			case started <- struct{}{}:
			default:
			}
			<-release
			return nil
		})
		b.Cleanup(func() { close(release) }) // before the stage is drained
		e := bus.Envelope{Payload: st}
		if err := st.TryPublish(&e); err != nil {
			b.Fatal(err)
		}
		<-started
		for st.TryPublish(&e) == nil { // the handler holds one, the queue the rest
		}
		return st
	}
	b.Run("TryPublish", func(b *testing.B) {
		st := newFull(b)
		e := bus.Envelope{Payload: st}
		b.ReportAllocs()
		for b.Loop() {
			if err := st.TryPublish(&e); err == nil {
				b.Fatal("accepted by a full stage")
			}
		}
	})
	b.Run("Publish", func(b *testing.B) {
		st := newFull(b)
		e := bus.Envelope{Payload: st}
		ctx := context.Background()
		b.ReportAllocs()
		for b.Loop() {
			if err := st.Publish(ctx, &e); !errors.Is(err, bus.ErrFull) {
				b.Fatal(err)
			}
		}
	})
	b.Run("Handle", func(b *testing.B) {
		p := newFull(b).Producer()
		defer p.Close()
		e := bus.Envelope{Payload: p}
		b.ReportAllocs()
		for b.Loop() {
			if err := p.TryPublish(&e); err == nil {
				b.Fatal("accepted by a full stage")
			}
		}
	})
}

// BenchmarkRoundTrip is publish, handle and complete of one message after the
// other: the way of a message through an idle bus, with its allocations.
func BenchmarkRoundTrip(b *testing.B) {
	ctx := context.Background()
	noop := func(context.Context, *bus.Envelope) error { return nil }
	b.Run("callback", func(b *testing.B) {
		st := newStage(b, bus.StageConfig{}, noop)
		done := make(chan struct{}, 1)
		e := bus.Envelope{Payload: st, OnDone: func(bus.Result) { done <- struct{}{} }}
		b.ReportAllocs()
		for b.Loop() {
			if err := st.Publish(ctx, &e); err != nil {
				b.Fatal(err)
			}
			<-done
		}
	})
	b.Run("handled", func(b *testing.B) {
		done := make(chan struct{}, 1)
		st := newStage(b, bus.StageConfig{}, func(context.Context, *bus.Envelope) error {
			done <- struct{}{}
			return nil
		})
		e := bus.Envelope{Payload: st}
		b.ReportAllocs()
		for b.Loop() {
			if err := st.Publish(ctx, &e); err != nil {
				b.Fatal(err)
			}
			<-done
		}
	})
	b.Run("call", func(b *testing.B) {
		st := newStage(b, bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			e.Reply(e.Payload)
			return nil
		})
		e := bus.Envelope{Payload: st}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := st.Call(ctx, &e); err != nil {
				b.Fatal(err)
			}
		}
	})
}
