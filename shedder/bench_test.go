package shedder_test

import (
	"testing"
	"time"

	"github.com/sedabus/seda/internal/clock"
	"github.com/sedabus/seda/shedder"
)

// still is a policy with a constant answer, to measure the shell alone.
type still struct {
	shedder.Passive

	v shedder.Verdict
}

func (p *still) Admit(*shedder.Request) shedder.Verdict { return p.v }

// measure runs f in bursts and reports, beside the mean, the cost in the
// quickest burst: on a machine with neighbours that is the code's own.
func measure(b *testing.B, f func()) {
	b.Helper()
	const burst = 500
	least := time.Duration(1 << 62)
	c := clock.New()
	b.ReportAllocs()
	for b.Loop() {
		begin := c.Now()
		for range burst {
			f()
		}
		least = min(least, time.Duration(c.Now()-begin))
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/burst, "ns/op")
	b.ReportMetric(float64(least)/burst, "least-ns/op")
}

func measureDecide(b *testing.B, c shedder.Config, load shedder.Load) {
	b.Helper()
	s := newShedder(b, c)
	warm(s)
	r := &shedder.Request{Now: time.Second, Load: load}
	measure(b, func() {
		r.Now += time.Microsecond
		s.Decide(r)
	})
}

// warm tells of enough completions that nothing is refused for want of them, or
// let in.
func warm(s *shedder.Shedder) {
	for i := range 200 {
		s.Done(&shedder.Done{
			Now: time.Duration(i) * time.Millisecond, N: 1, Service: time.Millisecond, Squares: 1e12,
			Shortest: time.Millisecond, Longest: time.Millisecond, Load: shedder.Load{Busy: 4, Concurrency: 4},
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	idle := shedder.Load{Busy: 2, Concurrency: 4}
	some := shedder.Load{Waiting: 2, Ahead: 2, Busy: 4, Concurrency: 4}
	full := shedder.Load{Waiting: 5000, Ahead: 5000, Busy: 4, Concurrency: 4}
	fixed, err := shedder.NewFixed(100)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("shell/admit", func(b *testing.B) { measureDecide(b, shedder.Config{Policy: &still{}}, idle) })
	b.Run("shell/shed", func(b *testing.B) { measureDecide(b, shedder.Config{Policy: &still{v: refuse(nil)}}, full) })
	b.Run("off", func(b *testing.B) { measureDecide(b, shedder.Config{Mode: shedder.Off}, full) })
	b.Run("fixed/admit", func(b *testing.B) { measureDecide(b, shedder.Config{Policy: fixed}, some) })
	b.Run("fixed/shed", func(b *testing.B) { measureDecide(b, shedder.Config{Policy: fixed}, full) })
	b.Run("adaptive/admit", func(b *testing.B) { measureDecide(b, shedder.Config{}, some) })
	b.Run("adaptive/shed", func(b *testing.B) { measureDecide(b, shedder.Config{}, full) })
}

func BenchmarkDecideParallel(b *testing.B) {
	s := newShedder(b, shedder.Config{Policy: &still{}})
	b.RunParallel(func(pb *testing.PB) {
		r := &shedder.Request{}
		for pb.Next() {
			r.Now += time.Microsecond
			s.Decide(r)
		}
	})
}

func BenchmarkAllow(b *testing.B) {
	pair := func(c shedder.Config) func(b *testing.B) {
		return func(b *testing.B) {
			b.Helper()
			s := newShedder(b, c)
			measure(b, func() {
				p, _ := s.Allow()
				p.Pass()
			})
		}
	}
	b.Run("shell/pass", pair(shedder.Config{Policy: &still{}, Concurrency: 4}))
	b.Run("adaptive/pass", pair(shedder.Config{Concurrency: 4}))
	b.Run("shell/shed", pair(shedder.Config{Policy: &still{v: refuse(nil)}, Concurrency: 4}))
	b.Run("two clock readings", func(b *testing.B) {
		c := clock.New()
		measure(b, func() {
			c.Now()
			c.Now()
		})
	})
}
