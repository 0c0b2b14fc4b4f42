package law_test

import (
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/go-kratos/aegis/ratelimit"
	"github.com/go-kratos/aegis/ratelimit/bbr"
	"github.com/zeromicro/go-zero/core/load"

	"github.com/sedabus/seda/bench/overload/internal/law"
	"github.com/sedabus/seda/shedder"
)

// warm returns an adaptive law that knows its stage: 16 workers, 5 ms.
func warm(b *testing.B) *shedder.Adaptive {
	b.Helper()
	a, err := shedder.NewAdaptive(shedder.AdaptiveConfig{})
	if err != nil {
		b.Fatal(err)
	}
	const service = 5 * time.Millisecond
	for i := range 1000 {
		a.Done(&shedder.Done{
			Now: time.Duration(i) * service / 16, N: 1, Service: service, Squares: float64(service) * float64(service),
			Shortest: service, Longest: service, Load: shedder.Load{Waiting: 10, Busy: 16, Concurrency: 16},
		})
	}
	return a
}

// BenchmarkDecide is a decision with the time given.
func BenchmarkDecide(b *testing.B) {
	for name, waiting := range map[string]int{"admit": 5, "shed": 100_000} {
		b.Run(name, func(b *testing.B) {
			a := warm(b)
			r := shedder.Request{Now: time.Second, Load: shedder.Load{Waiting: waiting, Ahead: waiting, Busy: 16, Concurrency: 16}}
			b.ReportAllocs()
			for b.Loop() {
				r.Now++
				if a.Admit(&r).Action == shedder.PushOut {
					b.Fatal("nothing to push out")
				}
			}
		})
	}
}

// BenchmarkAllow is the whole of a promise, with the clock reads of each.
func BenchmarkAllow(b *testing.B) {
	law.Silence()
	s, err := shedder.New(shedder.Config{Concurrency: 16})
	if err != nil {
		b.Fatal(err)
	}
	gz := load.NewAdaptiveShedder()
	ag := bbr.NewLimiter()
	fs := adaptivelimiter.NewWithDefaults[any]()
	for name, f := range map[string]func(){
		"seda": func() {
			if p, err := s.Allow(); err == nil {
				p.Pass()
			}
		},
		"go-zero": func() {
			if p, err := gz.Allow(); err == nil {
				p.Pass()
			}
		},
		"aegis": func() {
			if done, err := ag.Allow(); err == nil {
				done(ratelimit.DoneInfo{})
			}
		},
		"failsafe": func() {
			if p, ok := fs.TryAcquirePermit(); ok {
				p.Record()
			}
		},
		"clock twice": func() { _, _ = time.Now(), time.Now() },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}
