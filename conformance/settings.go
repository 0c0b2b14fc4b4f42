package conformance

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing/synctest"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
)

func config() []check {
	return []check{
		{name: "StageBounds", run: stageBounds},
		{name: "BusBounds", run: busBounds},
		{name: "AllAtOnce", run: faultsAtOnce},
		{name: "Conflict", run: conflictingRegistration},
		{name: "BadArguments", run: badArguments},
	}
}

func stageBounds(d *bed) {
	for field, c := range map[string]bus.StageConfig{
		"Capacity":       {Capacity: -1},
		"Concurrency":    {Concurrency: -1},
		"Batch":          {Batch: 65},
		"EgressCap":      {EgressCap: -1},
		"MaxWaiters":     {MaxWaiters: -1},
		"DedupWindow":    {DedupWindow: -1},
		"MaxOutstanding": {MaxOutstanding: 1}, // without Pull
		"Lease":          {Lease: -1, Pull: true},
		"HopTimeout":     {HopTimeout: -1},
		"HandlerTimeout": {HandlerTimeout: math.MaxInt64},
		"Delivery":       {Delivery: 99},
		"Full":           {Full: 99},
		"Order":          {Order: 99},
		"NoHandler":      {NoHandler: 99},
		"MaxAttempts":    {Retry: retry.Policy{MaxAttempts: -1}},
		"Classes":        {Classes: []bus.Class{{Name: "a", MinShare: 60}, {Name: "b", MinShare: 60}}},
		"DeadLetterTo":   {DeadLetterTo: "nowhere"},
	} {
		_, err := d.bus.Stage("work", c)
		d.want(err != nil, "a stage with a bad %s was registered", field)
		d.want(errors.Is(err, bus.ErrInvalid) && strings.Contains(err.Error(), field) && strings.Contains(err.Error(), "work"),
			"a bad %s: the error must name it and the stage: %v", field, err)
	}
	for _, name := range []string{"", "a/b", "..", "a b", "\x00", strings.Repeat("x", 1000)} {
		_, err := d.bus.Stage(name, bus.StageConfig{})
		d.want(errors.Is(err, bus.ErrInvalid), "a stage named %q was registered", name)
	}
	_, err := d.bus.Stage("itself", bus.StageConfig{DeadLetterTo: "itself"})
	d.want(errors.Is(err, bus.ErrInvalid), "a stage that is its own dead-letter stage was registered")
	equal(d, "stages after nothing but bad settings", len(d.bus.Stages()), 0)
}

func busBounds(d *bed) {
	for field, c := range map[string]bus.Config{
		"Name":                 {Name: "a/b"},
		"MaxHandlers":          {MaxHandlers: -1},
		"DeadLetters.MaxCount": {DeadLetters: bus.LetterBounds{MaxCount: -1}},
		"DeadLetters.MaxBytes": {DeadLetters: bus.LetterBounds{MaxBytes: -1}},
		"DeadLetters.MaxAge":   {DeadLetters: bus.LetterBounds{MaxAge: -1}},
		"Grace":                {Grace: -1},
	} {
		_, err := bus.New(c)
		d.want(errors.Is(err, bus.ErrInvalid) && strings.Contains(err.Error(), field), "a bus with a bad %s: got %v", field, err)
	}
}

func faultsAtOnce(d *bed) {
	_, err := d.bus.Stage("work", bus.StageConfig{Capacity: -1, Concurrency: -2, HopTimeout: -3, Retry: retry.Policy{MaxAttempts: -4}})
	d.want(err != nil, "a stage with four bad settings was registered")
	for _, part := range []string{"Capacity", "-1", "Concurrency", "-2", "HopTimeout", "MaxAttempts", "-4"} {
		d.want(strings.Contains(err.Error(), part), "all faults at once: %q is missing in: %v", part, err)
	}
	s := d.stage("live", bus.StageConfig{}, d.note)
	before := s.Config()
	err = s.Tune(func(c *bus.StageConfig) { c.Capacity, c.Concurrency = 7, -1 })
	d.want(errors.Is(err, bus.ErrInvalid), "a bad live change: got %v", err)
	equal(d, "capacity after a live change that was refused", s.Config().Capacity, before.Capacity)
}

func conflictingRegistration(d *bed) {
	a := d.stage("work", bus.StageConfig{Capacity: 7}, nil)
	again, err := d.bus.Stage("work", d.serial(bus.StageConfig{Capacity: 7}))
	d.want(err == nil && again == a, "the same registration again: got %v", err)
	_, err = d.bus.Stage("work", d.serial(bus.StageConfig{Capacity: 8}))
	d.want(errors.Is(err, bus.ErrConflict) && strings.Contains(err.Error(), "Capacity"), "another registration of the same name: got %v", err)
	equal(d, "capacity after that", a.Config().Capacity, 7)
}

func badArguments(d *bed) {
	s := d.stage("work", bus.StageConfig{}, d.note)
	d.want(errors.Is(s.Handle(nil), bus.ErrInvalid), "a nil handler was taken")
	d.start()
	var none context.Context
	for what, err := range map[string]error{
		"a nil envelope":    s.Publish(d.ctx, nil),
		"a nil context":     s.Publish(none, d.env(0)),
		"nothing to try":    s.TryPublish(nil),
		"a nil Tune":        s.Tune(nil),
		"a nil middleware":  s.Handle(d.note, nil),
		"a call of nothing": func() error { _, err := s.Call(d.ctx, nil); return err }(),
	} {
		d.want(errors.Is(err, bus.ErrInvalid), "%s: got %v, want invalid", what, err)
	}
	err := d.bus.Publish(d.ctx, "nowhere", d.env(0))
	d.want(errors.Is(err, bus.ErrNoStage), "publish to an unknown stage: got %v", err)
	equal(d, "refused{no_stage}", d.stats().Refused[reason.NoStage], 1)
	d.mustDrain()
}

func zeroConfig() []check {
	return []check{{name: "Works", run: zeroWorks}, {name: "Defaults", run: zeroDefaults}}
}

func zeroWorks(d *bed) {
	s := d.stage("work", bus.StageConfig{}, d.note)
	d.start()
	for n := range 100 {
		ctx, cancel := context.WithTimeout(d.ctx, time.Minute)
		if err := s.Publish(ctx, d.env(n)); err != nil {
			d.Fatalf("publish to a stage of the zero configuration: %v", err)
		}
		cancel()
		d.noteAccepted(n)
	}
	d.mustDrain()
	sameOrder(d, "handled", d.seen(), upTo(0, 100))
}

func zeroDefaults(d *bed) {
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{}, gate.Handler(d.noting(func(context.Context, *bus.Envelope) error { return errWanted })))
	d.start()
	c := s.Config()
	equal(d, "default capacity", c.Capacity, 1024)
	equal(d, "default concurrency", c.Concurrency, 1)
	equal(d, "default full policy", c.Full, bus.Block)
	equal(d, "default order", c.Order, bus.Unordered)
	equal(d, "default delivery", c.Delivery, bus.PointToPoint)
	equal(d, "default no-handler policy", c.NoHandler, bus.NoHandlerDeadLetter)
	equal(d, "default attempts", c.Retry.MaxAttempts, 1)
	equal(d, "default hop timeout", c.HopTimeout, 5*time.Second)
	// What the figures say is what happens.
	n := d.fill(s)
	equal(d, "envelopes in a stage of the zero configuration", n, 1025)
	d.want(errors.Is(d.try(s, d.env(n)), bus.ErrFull), "a full stage of the zero configuration takes more")
	gate.Pass(1)
	synctest.Wait()
	d.wantEnd(0, bus.DeadLettered, reason.Attempts)
	gate.Open()
	d.mustDrain()
}

func resize() []check {
	return []check{
		{name: "Concurrency", run: resizeConcurrency},
		{name: "Capacity", run: resizeCapacity},
		{name: "FullPolicy", run: changePolicy},
		{name: "MaxHandlers", run: resizeMaxHandlers, cfg: bus.Config{MaxHandlers: 6}},
	}
}

// tuned is s.Tune that must work.
func (d *bed) tuned(s *bus.Stage, change func(*bus.StageConfig)) {
	d.Helper()
	if err := s.Tune(change); err != nil {
		d.Fatal(err)
	}
	rest()
}

func resizeConcurrency(d *bed) {
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{Concurrency: 8}, gate.Handler(d.note))
	d.start()
	d.mustPublish(s, 0, 40)
	synctest.Wait()
	equal(d, "handlers at once", gate.Waiting(), 8)
	d.tuned(s, func(c *bus.StageConfig) { c.Concurrency = 2 })
	equal(d, "handlers that a lower concurrency left alone", gate.Waiting(), 8)
	for range 20 {
		gate.Pass(1)
		rest()
		d.want(gate.Waiting() <= max(2, 8-gate.Passed()), "more handlers than the new concurrency of 2: %d after %d ended", gate.Waiting(), gate.Passed())
	}
	equal(d, "handlers at the new concurrency", gate.Waiting(), 2)
	d.stats()
	d.tuned(s, func(c *bus.StageConfig) { c.Concurrency = 5 })
	equal(d, "handlers at once after raising the concurrency", gate.Waiting(), 5)
	gate.Open()
	d.mustDrain()
	sameOrder(d, "handled once each", sorted(d.seen()), upTo(0, 40))
}

func resizeCapacity(d *bed) {
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{Capacity: 20, Full: bus.Reject}, gate.Handler(d.note))
	d.start()
	n := d.fill(s)
	d.tuned(s, func(c *bus.StageConfig) { c.Capacity = 4 })
	equal(d, "depth after shrinking the capacity", d.stageStats(s).Depth, 20)
	for depth := 20; depth >= 4; depth-- {
		d.want(errors.Is(d.try(s, d.env(1000)), bus.ErrFull), "a publish above the new capacity was accepted at depth %d", depth)
		gate.Pass(1)
		synctest.Wait()
	}
	d.want(d.try(s, d.env(n)) == nil, "a publish below the new capacity was refused")
	d.want(errors.Is(d.try(s, d.env(1000)), bus.ErrFull), "a publish above the new capacity was accepted")
	d.tuned(s, func(c *bus.StageConfig) { c.Capacity = 6 })
	d.mustPublish(s, n+1, n+3)
	d.want(errors.Is(d.try(s, d.env(1000)), bus.ErrFull), "a publish above the raised capacity was accepted")
	gate.Open()
	d.mustDrain()
	sameOrder(d, "handled", d.seen(), upTo(0, n+3))
}

// changePolicy answers those who wait under the old policy; raising the
// capacity lets them in.
func changePolicy(d *bed) {
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{Capacity: 2}, gate.Handler(d.note))
	d.start()
	n := d.fill(s)
	errs := make(chan error, 8)
	for i := range 4 {
		go func() { errs <- d.publish(s, d.env(n+i)) }()
		synctest.Wait()
	}
	d.tuned(s, func(c *bus.StageConfig) { c.Capacity = 4 })
	equal(d, "publishers let in by a higher capacity", len(errs), 2)
	for range 2 {
		err := <-errs
		d.want(err == nil, "a publisher let in by a higher capacity got %v", err)
	}
	d.tuned(s, func(c *bus.StageConfig) { c.Full = bus.Reject })
	equal(d, "publishers answered by a change of the full policy", len(errs), 2)
	for range 2 {
		err := <-errs
		d.want(errors.Is(err, bus.ErrFull), "a publisher that waited under the old policy: got %v, want full", err)
	}
	gate.Open()
	d.mustDrain()
	equal(d, "handled", len(d.seen()), n+2)
}

func resizeMaxHandlers(d *bed) {
	gate := d.gate()
	a := d.stage("a", bus.StageConfig{Concurrency: 8, Blocking: true}, gate.Handler(d.note))
	b := d.stage("b", bus.StageConfig{Concurrency: 8, Blocking: true}, gate.Handler(d.note))
	d.start()
	d.mustPublish(a, 0, 20)
	d.mustPublish(b, 20, 40)
	synctest.Wait()
	equal(d, "handlers at once over the bus", gate.Waiting(), 6)
	tune := func(n int) {
		if err := d.bus.Tune(func(c *bus.Config) { c.MaxHandlers = n }); err != nil {
			d.Fatal(err)
		}
		rest()
	}
	tune(2)
	equal(d, "handlers that a lower bus-wide limit left alone", gate.Waiting(), 6)
	for range 12 {
		gate.Pass(1)
		rest()
	}
	equal(d, "handlers at the new bus-wide limit", gate.Waiting(), 2)
	tune(4)
	equal(d, "handlers after raising the bus-wide limit", gate.Waiting(), 4)
	tune(0)
	equal(d, "handlers without a bus-wide limit", gate.Waiting(), 16)
	gate.Open()
	d.mustDrain()
	sameOrder(d, "handled once each", sorted(d.seen()), upTo(0, 40))
}
