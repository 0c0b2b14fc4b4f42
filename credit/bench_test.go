package credit_test

import (
	"context"
	"testing"
	"time"

	"github.com/sedabus/seda/credit"
)

func BenchmarkLedger(b *testing.B) {
	l, err := credit.NewLedger(credit.Config{Window: 1024})
	if err != nil {
		b.Fatal(err)
	}
	a, err := l.Open(credit.AccountConfig{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("grant spend release", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			l.Grant(a, 1, time.Duration(i))
			l.Spend(a, 1)
			l.Release(1)
		}
	})
	b.Run("want next grant spend release", func(b *testing.B) {
		for range 100 {
			c, _ := l.Open(credit.AccountConfig{})
			l.Want(c, 1)
		}
		b.ReportAllocs()
		for i := range b.N {
			a := l.Next()
			l.Grant(a, 1, time.Duration(i))
			l.Spend(a, 1)
			l.Release(1)
			l.Want(a, 1)
		}
	})
}

func BenchmarkGate(b *testing.B) {
	ctx := context.Background()
	b.Run("use", func(b *testing.B) { // with a credit in hand
		p := producer(b, newGate(b, credit.GateConfig{Config: credit.Config{Window: 1 << 30}, Size: credit.Sizing{Capacity: 1 << 30}}))
		if err := p.Acquire(ctx, b.N); err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		for range b.N {
			_ = p.Use(ctx)
		}
	})
	for name, c := range map[string]credit.GateConfig{"fixed": fixed(1024), "adaptive": {}} {
		g := newGate(b, c)
		p := producer(b, g)
		b.Run(name+"/use done", func(b *testing.B) {
			g.Done(1<<20, time.Millisecond)
			for range b.N {
				_ = p.Use(ctx)
				g.Done(1, time.Microsecond)
			}
		})
		b.Run(name+"/contended", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				p := producer(b, g)
				defer p.Close()
				for pb.Next() {
					_ = p.Use(ctx)
					g.Done(1, time.Microsecond)
				}
			})
		})
	}
}

func BenchmarkSizer(b *testing.B) {
	s := newSizer(b, credit.SizerConfig{})
	for i := range b.N {
		now := time.Duration(i) * time.Microsecond
		s.Ended(credit.Sample{Now: now, N: 1, Service: time.Microsecond, Squares: 1e6, Waiting: 1, Workers: 4})
		s.Window(4, 1000)
	}
}
