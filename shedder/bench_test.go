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

func benchDecide(b *testing.B, c shedder.Config, load shedder.Load) {
	b.Helper()
	s := newShedder(b, c)
	r := &shedder.Request{Load: load}
	b.ReportAllocs()
	for b.Loop() {
		r.Now += time.Microsecond
		s.Decide(r)
	}
}

func BenchmarkDecideShellAdmit(b *testing.B) {
	benchDecide(b, shedder.Config{Policy: &still{}}, shedder.Load{Concurrency: 1})
}

func BenchmarkDecideShellShed(b *testing.B) {
	benchDecide(b, shedder.Config{Policy: &still{v: refuse(nil)}}, shedder.Load{Concurrency: 1})
}

func BenchmarkDecideShellParallel(b *testing.B) {
	s := newShedder(b, shedder.Config{Policy: &still{}})
	b.RunParallel(func(pb *testing.PB) {
		r := &shedder.Request{}
		for pb.Next() {
			r.Now += time.Microsecond
			s.Decide(r)
		}
	})
}

func BenchmarkAllowPassShell(b *testing.B) {
	s := newShedder(b, shedder.Config{Policy: &still{}, Concurrency: 4})
	b.ReportAllocs()
	for b.Loop() {
		p, _ := s.Allow()
		p.Pass()
	}
}

func BenchmarkAllowShedShell(b *testing.B) {
	s := newShedder(b, shedder.Config{Policy: &still{v: refuse(nil)}, Concurrency: 4})
	b.ReportAllocs()
	for b.Loop() {
		_, _ = s.Allow()
	}
}

func BenchmarkTwoClockReads(b *testing.B) {
	c := clock.New()
	for b.Loop() {
		c.Now()
		c.Now()
	}
}
