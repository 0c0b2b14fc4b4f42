package shedder_test

import (
	"testing"
	"time"

	"github.com/sedabus/seda/shedder"
)

func BenchmarkAdaptive(b *testing.B) {
	for _, c := range []struct {
		name    string
		waiting int
		classes int
		sender  string
		due     time.Duration
	}{
		{name: "admit idle"},
		{name: "admit waiting", waiting: 8},
		{name: "admit deadline", waiting: 8, due: time.Hour},
		{name: "admit class", waiting: 8, classes: 4},
		{name: "refuse", waiting: 1 << 20},
		{name: "refuse sender", waiting: 1 << 20, sender: "somebody"},
		{name: "refuse class", waiting: 1 << 20, classes: 4},
	} {
		b.Run(c.name, func(b *testing.B) {
			a, now := warmed(b, 16, 5*ms, 100)
			r := ask(now, 16, c.waiting)
			r.Sender, r.Classes, r.Class = c.sender, c.classes, c.classes/2
			b.ReportAllocs()
			for b.Loop() {
				r.Now += time.Microsecond
				r.Deadline = r.Now + c.due
				if c.due == 0 {
					r.Deadline = 0
				}
				a.Admit(r)
			}
		})
	}
	b.Run("done", func(b *testing.B) {
		a, now := warmed(b, 16, 5*ms, 100)
		d := done(now, 5*ms, shedder.Load{Waiting: 8, Busy: 15, Concurrency: 16})
		b.ReportAllocs()
		for b.Loop() {
			d.Now += time.Microsecond
			a.Done(d)
		}
	})
}
