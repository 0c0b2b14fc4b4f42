package bus_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/shedder"
)

// BenchmarkPublish is a publish that is let in and handled, and one that is
// refused, without and with the default shedder.
func BenchmarkPublish(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchPublish(b, bus.Config{}) })
	b.Run("shedder", func(b *testing.B) { benchPublish(b, bus.Config{NewShedder: shedder.Default}) })
	b.Run("full", func(b *testing.B) { benchRefused(b, bus.Config{}) })
	b.Run("shed", func(b *testing.B) { benchRefused(b, bus.Config{NewShedder: shedder.Default}) })
}

func benchPublish(b *testing.B, c bus.Config) {
	b.Helper()
	s, end := benchStage(b, c, func(context.Context, *bus.Envelope) error { return nil })
	e := &bus.Envelope{}
	b.ReportAllocs()
	shed := 0
	for b.Loop() {
		if s.Publish(b.Context(), e) != nil {
			shed++
		}
	}
	b.ReportMetric(float64(shed)/float64(b.N), "refused/op")
	end()
}

func benchRefused(b *testing.B, c bus.Config) {
	b.Helper()
	open := make(chan struct{})
	var held atomic.Bool
	s, end := benchStage(b, c, func(context.Context, *bus.Envelope) error {
		if held.Load() {
			<-open
		}
		for began := time.Now(); time.Since(began) < 200*time.Microsecond; { // long enough for a bound below the capacity
		}
		return nil
	})
	e := &bus.Envelope{}
	for range 100 {
		if _, err := s.Call(b.Context(), e); err != nil {
			b.Fatal(err)
		}
	}
	held.Store(true)
	for s.TryPublish(e) == nil {
	}
	b.ReportAllocs()
	accepted := 0
	for b.Loop() {
		if s.TryPublish(e) == nil {
			accepted++
		}
	}
	b.ReportMetric(float64(accepted)/float64(b.N), "accepted/op")
	close(open)
	end()
}

func benchStage(b *testing.B, c bus.Config, h bus.Handler) (s *bus.Stage, end func()) {
	b.Helper()
	bs, err := bus.New(c)
	if err != nil {
		b.Fatal(err)
	}
	if s, err = bs.Stage("s", bus.StageConfig{Capacity: 4096}); err != nil {
		b.Fatal(err)
	}
	if err := s.Handle(h); err != nil {
		b.Fatal(err)
	}
	if err := bs.Start(); err != nil {
		b.Fatal(err)
	}
	return s, func() {
		if _, err := bs.Shutdown(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
