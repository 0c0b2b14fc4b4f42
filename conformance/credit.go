package conformance

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/retry"
)

func creditLeak() []check {
	return []check{
		{name: "Cancelled", run: creditCancelled},
		{name: "PanicsAndRetries", run: creditPanics},
		{name: "Closed", run: creditClosed},
		{name: "Collected", real: creditCollected},
		{name: "Lapsed", run: creditLapsed},
		{name: "SuspendedAndPaused", run: creditHandedBack},
		{name: "WindowChanges", run: creditWindowChanges},
		{name: "WindowOfNone", run: creditNone},
		{name: "PolicyChanges", run: creditPolicyChanges},
		{name: "NeverRefused", run: creditNeverRefused},
		{name: "NobodyForgotten", run: creditWakes},
		{name: "WholeWindow", run: creditWholeWindow},
		{name: "Weights", run: creditWeights},
	}
}

// window is the window of these cases.
const window = 10

// granting returns a stage that grants credits for so long.
func (d *bed) granting(lease time.Duration, h bus.Handler) *bus.Stage {
	d.Helper()
	return d.stage("work", bus.StageConfig{
		Full: bus.Credit, Credit: bus.CreditConfig{Window: window, Lease: lease},
		Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Second},
	}, h)
}

// books returns what the stage's books of credits say, which must add up.
func books(t testing.TB, s *bus.Stage) bus.CreditState {
	t.Helper()
	var c bus.CreditState
	s.ReadCredit(&c)
	if c.Granted != c.Spent+c.Returned+c.Expired+uint64(c.InHand) {
		t.Fatalf("the books of credits do not balance: %+v", c)
	}
	for i := range c.Producers {
		if p := &c.Producers[i]; p.Granted != p.Spent+p.Returned+p.Expired+uint64(p.InHand) {
			t.Fatalf("the books of a producer's credits do not balance: %+v", c)
		}
	}
	return c
}

// free checks how many credits are free when everything has come to rest.
func (d *bed) free(s *bus.Stage, when string, want int) {
	d.Helper()
	rest()
	equal(d, "free credits "+when, books(d, s).Free, want)
}

// acquireAll acquires the whole window, which must work.
func (d *bed) acquireAll(p *bus.Producer) {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.ctx, patience)
	defer cancel()
	if err := p.Acquire(ctx, window); err != nil {
		d.Fatalf("acquire %d credits: %v", window, err)
	}
}

// by publishes envelopes a to b-1 with p.
func (d *bed) by(p *bus.Producer, a, b int) {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.ctx, patience)
	defer cancel()
	for n := a; n < b; n++ {
		if err := p.Publish(ctx, d.env(n)); err != nil {
			d.Fatalf("publish %d: %v", n, err)
		}
		d.noteAccepted(n)
	}
}

func creditCancelled(d *bed) {
	s := d.granting(time.Hour, d.note)
	d.start()
	hoarder := s.Producer()
	d.acquireAll(hoarder)
	ctx, cancel := context.WithCancel(d.ctx)
	errs := make(chan error, 8)
	for n := range 4 {
		p := s.Producer()
		go func() { errs <- p.Acquire(ctx, 1+n) }()
		go func() { errs <- p.Publish(ctx, d.env(n)) }()
	}
	rest()
	equal(d, "waiting", books(d, s).Waiting, 8)
	cancel()
	rest()
	equal(d, "ended by the context", len(errs), 8)
	for range 8 {
		err := <-errs
		d.want(errors.Is(err, bus.ErrNoCredit) && errors.Is(err, context.Canceled), "a wait for credits that was cancelled: got %v", err)
	}
	hoarder.Return(window)
	d.free(s, "after all waits were cancelled", window)
	equal(d, "granted to those who were cancelled", books(d, s).Granted, window)
}

func creditPanics(d *bed) {
	s := d.granting(time.Hour, func(_ context.Context, e *bus.Envelope) error {
		switch number(e) % 6 {
		case 0:
			panic("as asked") //nolint:forbidigo // the case needs one
		case 1:
			runtime.Goexit()
		case 2:
			return bus.DeadLetter("as asked")
		case 3:
			return bus.Discard("as asked")
		case 4:
			return errors.New("as asked")
		}
		return nil
	})
	d.start()
	p := s.Producer()
	d.by(p, 0, 60)
	p.Close()
	pass(time.Minute)
	d.free(s, "after handlers have failed in every way", window)
	equal(d, "spent", books(d, s).Spent, 60)
}

func creditClosed(d *bed) {
	s := d.granting(time.Hour, d.note)
	d.start()
	p := s.Producer()
	d.acquireAll(p)
	d.by(p, 0, 3)
	p.Close()
	p.Close()
	d.free(s, "after the producer was closed", window)
	d.mustPublish(s, 3, 3+2*window)
}

func creditCollected(t *testing.T, d *bed) {
	b := d.kit.New(t, bus.Config{})
	defer func() { _ = b.Close() }()
	s, err := b.Stage("work", bus.StageConfig{Full: bus.Credit, Credit: bus.CreditConfig{Window: window, Lease: time.Hour}})
	if err == nil {
		err = s.Handle(func(context.Context, *bus.Envelope) error { return nil })
	}
	if err == nil {
		err = b.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	forgotten := func() error { return s.Producer().Acquire(d.ctx, window) }
	if err := forgotten(); err != nil {
		t.Fatal(err)
	}
	for range 2000 { // until the collector has run its cleanups
		runtime.GC()
		if books(t, s).Free == window {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("credits of a producer that was collected: %+v", books(t, s))
}

func creditLapsed(d *bed) {
	s := d.granting(time.Second, d.note)
	d.start()
	p := s.Producer()
	defer p.Close()
	d.acquireAll(p)
	ctx, cancel := context.WithTimeout(d.ctx, 2*time.Second)
	defer cancel()
	began := time.Now()
	err := s.Publish(ctx, d.env(0))
	d.want(err == nil, "a publish after a hoarder's lease: %v", err)
	d.noteAccepted(0)
	d.want(time.Since(began) <= time.Second, "a hoarder has cost more than one lease: %v", time.Since(began))
	d.free(s, "after the lease", window)
	equal(d, "expired", books(d, s).Expired, window)
}

func creditHandedBack(d *bed) {
	s := d.granting(time.Hour, d.note)
	d.start()
	p := s.Producer()
	defer p.Close()
	d.acquireAll(p)
	s.Suspend(bus.Hold{})
	equal(d, "credits in hand of a suspended stage", books(d, s).InHand, 0)
	equal(d, "credits of its producer", p.Credits(), 0)
	d.want(errors.Is(p.TryAcquire(1), bus.ErrNoCredit), "a suspended stage has granted a credit")
	s.Resume("")
	d.acquireAll(p)
	d.bus.Pause(bus.Hold{})
	equal(d, "credits in hand of a paused bus", books(d, s).InHand, 0)
	d.want(errors.Is(p.TryAcquire(1), bus.ErrPaused), "a paused bus has granted a credit")
	d.bus.Resume("")
	d.acquireAll(p)
	d.by(p, 0, window)
	d.free(s, "after the holds", window)
}

func creditWindowChanges(d *bed) {
	s := d.granting(time.Hour, d.noting(func(ctx context.Context, _ *bus.Envelope) error { return takeTime(ctx, time.Millisecond) }))
	d.start()
	done := make(chan struct{}, 8)
	const each, all = 400, 4
	for i := range all {
		go func() {
			p := s.Producer()
			defer p.Close()
			for n := i * each; n < (i+1)*each; n++ {
				if err := p.Publish(d.ctx, d.env(n)); err != nil {
					d.Errorf("publish %d: %v", n, err)
					break
				}
				d.noteAccepted(n)
			}
			done <- struct{}{}
		}()
	}
	sizes := []int{10, 12, 14, 9, 20}
	for i := range 4 * len(sizes) {
		size := sizes[i%len(sizes)]
		before := books(d, s)
		d.tuned(s, func(c *bus.StageConfig) { c.Credit.Window = size })
		pass(50 * time.Millisecond)
		c := books(d, s)
		equal(d, "window after it was set", c.Window, size)
		out, was := c.InHand+c.Used, before.InHand+before.Used
		d.want(out <= max(size, was), "%d credits are out of a window of %d", out, size)
	}
	for range all {
		<-done
	}
	d.tuned(s, func(c *bus.StageConfig) { c.Credit.Window = window })
	d.free(s, "after the window has changed often", window)
	equal(d, "handled", len(d.seen()), all*each)
	d.tuned(s, func(c *bus.StageConfig) { c.Credit.Window = 5000 })
	c := books(d, s)
	equal(d, "window above the capacity", c.Window, s.Config().Capacity)
	d.want(c.Note != "", "a window that ends at the capacity has no note")
}

func creditNone(d *bed) {
	gate := d.gate()
	s := d.granting(time.Hour, d.noting(gate.Handler(nil)))
	d.start()
	d.mustPublish(s, 0, window)
	set := func(size int) {
		d.tuned(s, func(c *bus.StageConfig) { c.Credit.Window = size })
		equal(d, "window read back", s.Config().Credit.Window, size)
	}
	set(3)
	for out := window; out > 3; out-- {
		rest()
		d.want(errors.Is(d.try(s, d.env(99)), bus.ErrNoCredit), "granted with %d out of a window of 3", out)
		gate.Pass(1)
	}
	rest()
	d.want(errors.Is(d.try(s, d.env(99)), bus.ErrNoCredit), "granted with 3 out of a window of 3")
	set(bus.CreditNone)
	gate.Open()
	rest()
	equal(d, "window in force", books(d, s).Window, 0)
	equal(d, "handled of what was in", len(d.seen()), window)
	waits := make(chan error, 1)
	go func() { waits <- d.publish(s, d.env(window)) }()
	pass(time.Minute)
	equal(d, "admitted with a window of none", d.acceptedCount(), window)
	equal(d, "waiting", books(d, s).Waiting, 1)
	set(5)
	d.want(<-waits == nil, "a publish that has waited for a window was refused")
	d.mustPublish(s, window+1, 3*window)
	d.free(s, "with a window of 5", 5)
}

func creditPolicyChanges(d *bed) {
	s := d.granting(time.Hour, d.note)
	d.start()
	p, q := s.Producer(), s.Producer()
	for i := range 5 {
		d.acquireAll(p)
		d.by(p, 10*i, 10*i+4)
		waits := make(chan error, 1)
		go func() { waits <- q.Acquire(d.ctx, window) }()
		rest()
		d.tuned(s, func(c *bus.StageConfig) { c.Full = bus.Block })
		d.want(errors.Is(<-waits, bus.ErrNoCredit), "an Acquire outlived the end of credits")
		d.by(p, 10*i+4, 10*i+8)
		d.tuned(s, func(c *bus.StageConfig) { c.Full = bus.Credit })
	}
	p.Close()
	q.Close()
	d.free(s, "after the policy has changed often", window)
	equal(d, "depth", d.stageStats(s).Depth, 0)
}

// creditNeverRefused: who asks before it reads its source never has anything
// that it cannot get rid of, and does not poll.
func creditNeverRefused(d *bed) {
	s := d.granting(time.Second, d.noting(func(ctx context.Context, _ *bus.Envelope) error { return takeTime(ctx, time.Millisecond) }))
	d.start()
	done := make(chan struct{}, 8)
	const each, all = 200, 5
	for i := range all {
		go func() {
			defer func() { done <- struct{}{} }()
			p := s.Producer()
			defer p.Close()
			for n := i * each; n < (i+1)*each; n++ {
				var err error
				if n%2 == 0 {
					err = p.Publish(d.ctx, d.env(n))
				} else if err = p.Acquire(d.ctx, 1); err == nil {
					err = p.TryPublish(d.env(n))
				}
				if err != nil {
					d.Errorf("a producer was refused: %v", err)
					return
				}
				d.noteAccepted(n)
			}
		}()
	}
	for range all {
		<-done
	}
	d.free(s, "at the end", window)
	for _, n := range d.stageStats(s).Refused {
		equal(d, "refused", n, 0)
	}
}

func creditWakes(d *bed) {
	gate := d.gate()
	s := d.granting(time.Hour, gate.Handler(d.note))
	d.start()
	d.mustPublish(s, 0, window)
	const waiting = 3 * window
	for n := range waiting {
		p := s.Producer()
		go func() {
			if err := p.Publish(d.ctx, d.env(window+n)); err != nil {
				d.Errorf("a publish that waits for a credit: %v", err)
			}
			d.noteAccepted(window + n)
			p.Close()
		}()
	}
	rest()
	equal(d, "waiting", books(d, s).Waiting, waiting)
	for n := range waiting {
		gate.Pass(1)
		rest()
		if got := d.acceptedCount(); got != window+n+1 {
			d.want(false, "admitted after %d credits came back: got %d, want %d", n+1, got-window, n+1)
		}
	}
	gate.Open()
	d.free(s, "when nobody waits any more", window)
}

// creditWholeWindow: of two that want the whole window none holds a part of it
// while it waits for the rest.
func creditWholeWindow(d *bed) {
	s := d.granting(24*time.Hour, d.noting(func(ctx context.Context, _ *bus.Envelope) error { return takeTime(ctx, time.Millisecond) }))
	d.start()
	ctx, cancel := context.WithTimeout(d.ctx, time.Minute)
	defer cancel()
	done := make(chan struct{}, 8)
	for i := range 2 {
		go func() {
			defer func() { done <- struct{}{} }()
			p := s.Producer()
			defer p.Close()
			for lap := range 50 {
				if err := p.Acquire(ctx, window); err != nil {
					d.Errorf("two that want the whole window keep each other waiting: %v", err)
					return
				}
				for n := range window {
					n += (2*lap + i) * window
					if err := p.TryPublish(d.env(n)); err != nil {
						d.Errorf("publish %d: %v", n, err)
						return
					}
					d.noteAccepted(n)
				}
			}
		}()
	}
	for range 2 {
		<-done
	}
	d.free(s, "at the end", window)
	equal(d, "handled", len(d.seen()), 2*50*window)
}

func creditWeights(d *bed) {
	s := d.granting(time.Second, func(ctx context.Context, _ *bus.Envelope) error { return takeTime(ctx, time.Millisecond) })
	d.start()
	ctx, cancel := context.WithTimeout(d.ctx, 4*time.Second)
	defer cancel()
	got := make([]int, 2)
	done := make(chan struct{}, 8)
	for i := range got {
		p, err := s.NewProducer(bus.ProducerConfig{Weight: 3 - 2*i})
		d.want(err == nil, "a producer with a weight: %v", err)
		go func() {
			for p.Publish(ctx, &bus.Envelope{}) == nil {
				got[i]++
			}
			p.Close()
			done <- struct{}{}
		}()
	}
	<-done
	<-done
	ratio := float64(got[0]) / float64(max(1, got[1]))
	d.want(ratio > 2.8 && ratio < 3.2, "published at three times the weight: %.2f times as much", ratio)
	d.want(got[0]+got[1] > 3900, "published by two producers together: got %d of 4000", got[0]+got[1])
}
