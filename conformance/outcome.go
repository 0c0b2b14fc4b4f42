package conformance

import (
	"context"
	"slices"
	"testing/synctest"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
)

func oneOutcome() []check {
	out := []check{{name: "AllAtOnce", run: everyEnd}, {name: "Call", run: everyEndOfCalls}}
	for _, e := range ends() {
		out = append(out, check{name: e.name, run: func(d *bed) { oneEnd(d, e) }})
	}
	return out
}

// ending is one way for an envelope to end: setup registers a stage of that
// name and returns it, with the slip to publish with.
type ending struct {
	name  string
	end   bus.End
	why   reason.Reason
	setup func(d *bed, name string) (*bus.Stage, []string)
	after func(d *bed, s *bus.Stage, id func() uint64) // once the envelope was published
	form  func(e *bus.Envelope)
}

func simple(c bus.StageConfig, h bus.Handler) func(*bed, string) (*bus.Stage, []string) {
	return func(d *bed, name string) (*bus.Stage, []string) { return d.stage(name, c, h), nil }
}

// returns is a handler that returns err.
func returns(err error) bus.Handler {
	return func(context.Context, *bus.Envelope) error { return err }
}

// waits is a handler that waits for the end of its context.
func waits(ctx context.Context, _ *bus.Envelope) error {
	<-ctx.Done()
	return ctx.Err()
}

func ends() []ending {
	never := func(*bed, *bus.Stage, func() uint64) {}
	return []ending{
		{name: "Acknowledged", end: bus.Completed, setup: simple(bus.StageConfig{}, returns(nil)), after: never},
		{name: "AcknowledgedAfterHops", end: bus.Completed, after: never, setup: func(d *bed, name string) (*bus.Stage, []string) {
			d.stage(name+"-2", bus.StageConfig{}, returns(nil))
			return d.stage(name, bus.StageConfig{}, returns(nil)), []string{name + "-2", name + "-2"}
		}},
		{
			name: "OutOfAttempts", end: bus.DeadLettered, why: reason.Attempts, after: never,
			setup: simple(bus.StageConfig{Retry: retry.Policy{MaxAttempts: 3}}, returns(errWanted)),
		},
		{
			name: "OutOfRetryTime", end: bus.DeadLettered, why: reason.RetryTime, after: never,
			setup: simple(bus.StageConfig{Retry: retry.Policy{MaxAttempts: 99, Kind: retry.Constant, Base: time.Second, MaxElapsed: time.Minute}}, returns(errWanted)),
		},
		{name: "DeadLetteredByHandler", end: bus.DeadLettered, why: reason.Handler, setup: simple(bus.StageConfig{}, returns(bus.DeadLetter("so"))), after: never},
		{name: "Discarded", end: bus.Dropped, why: reason.Discarded, setup: simple(bus.StageConfig{}, returns(bus.Discard("so"))), after: never},
		{name: "NoHandler", end: bus.DeadLettered, why: reason.NoHandler, setup: simple(bus.StageConfig{}, nil), after: never},
		{name: "Expired", end: bus.Dropped, why: reason.Expired, setup: suspended, form: func(e *bus.Envelope) {
			e.SetDeadline(time.Now().Add(time.Second))
		}, after: func(_ *bed, s *bus.Stage, _ func() uint64) {
			time.Sleep(time.Minute)
			s.Resume("")
		}},
		{name: "Evicted", end: bus.Dropped, why: reason.Evicted, setup: func(d *bed, name string) (*bus.Stage, []string) {
			s := d.stage(name, bus.StageConfig{Full: bus.DropOldest, Capacity: 1}, returns(nil))
			s.Suspend(bus.Hold{})
			return s, nil
		}, after: func(d *bed, s *bus.Stage, _ func() uint64) {
			if err := s.TryPublish(&bus.Envelope{}); err != nil {
				d.Errorf("publish to a full DropOldest stage: %v", err)
			}
			s.Resume("")
		}},
		{name: "CancelledInHandler", end: bus.Dropped, why: reason.Canceled, setup: simple(bus.StageConfig{Blocking: true}, waits), after: func(d *bed, s *bus.Stage, id func() uint64) {
			if !s.Cancel(id()) {
				d.Errorf("the envelope to cancel is not in flight")
			}
		}},
		{name: "HopTimeout", end: bus.DeadLettered, why: reason.HopTimeout, after: never, setup: func(d *bed, name string) (*bus.Stage, []string) {
			to := d.stage(name+"-2", bus.StageConfig{Capacity: 1}, returns(nil))
			to.Suspend(bus.Hold{})
			return d.stage(name, bus.StageConfig{}, returns(nil)), []string{name + "-2"}
		}},
		{name: "HopToUnknownStage", end: bus.DeadLettered, why: reason.NoStage, after: never, setup: func(d *bed, name string) (*bus.Stage, []string) {
			return d.stage(name, bus.StageConfig{}, returns(nil)), []string{"nowhere"}
		}},
		{name: "HopOfWrongType", end: bus.DeadLettered, why: reason.Type, after: never, setup: func(d *bed, name string) (*bus.Stage, []string) {
			d.stage(name+"-2", bus.StageConfig{Accepts: bus.TypeOf[string]()}, returns(nil))
			return d.stage(name, bus.StageConfig{}, returns(nil)), []string{name + "-2"}
		}},
		{name: "AllCopiesAcknowledged", end: bus.Completed, after: never, setup: topicOf(returns(nil), returns(nil))},
		{name: "CopyDeadLettered", end: bus.DeadLettered, why: reason.Attempts, after: never, setup: topicOf(returns(nil), returns(errWanted))},
		{name: "CopyDropped", end: bus.Dropped, why: reason.Discarded, after: never, setup: topicOf(returns(nil), returns(bus.Discard("so")))},
		{name: "AbandonedInHandler", end: bus.Abandoned, why: reason.Shutdown, setup: simple(bus.StageConfig{Blocking: true}, waits), after: never},
		{name: "AbandonedInQueue", end: bus.Abandoned, why: reason.Shutdown, setup: suspended, after: never},
		{name: "AbandonedBeforeRetry", end: bus.Abandoned, why: reason.Shutdown, setup: simple(bus.StageConfig{}, returns(bus.RetryAfter(2*patience))), after: never},
	}
}

func suspended(d *bed, name string) (*bus.Stage, []string) {
	s := d.stage(name, bus.StageConfig{}, returns(nil))
	s.Suspend(bus.Hold{})
	return s, nil
}

func topicOf(handlers ...bus.Handler) func(*bed, string) (*bus.Stage, []string) {
	return func(d *bed, name string) (*bus.Stage, []string) {
		s := d.stage(name, bus.StageConfig{Delivery: bus.PubSub}, nil)
		for i, h := range handlers {
			if _, err := s.Subscribe(keyOf(i), d.serial(bus.StageConfig{}), bus.LagWait, h); err != nil {
				d.Fatal(err)
			}
		}
		return s, nil
	}
}

// launch publishes envelope n on the way to its end.
func (e *ending) launch(d *bed, n int) {
	d.Helper()
	s, via := e.setup(d, keyOf(n))
	if e.why == reason.HopTimeout { // fill the stage behind it
		for range 2 { // the place, and the one above capacity
			if err := s.Publish(d.ctx, &bus.Envelope{Slip: bus.Via(via...)}); err != nil {
				d.Fatal(err)
			}
		}
		synctest.Wait()
	}
	env := d.env(n, via...)
	if e.form != nil {
		e.form(env)
	}
	if err := d.publish(s, env); err != nil {
		d.Fatalf("%s: publish: %v", e.name, err)
	}
	synctest.Wait()
	e.after(d, s, func() uint64 {
		in := s.InFlight()
		if len(in) == 0 {
			return 0
		}
		return in[0].ID
	})
	synctest.Wait()
}

func oneEnd(d *bed, e ending) {
	d.start()
	e.launch(d, 0)
	settleAll(d)
	d.wantEnd(0, e.end, e.why)
}

// everyEnd has all kinds of ends on one bus.
func everyEnd(d *bed) {
	d.start()
	all := ends()
	for n := range all {
		all[n].launch(d, n)
	}
	settleAll(d)
	for n := range all {
		d.wantEnd(n, all[n].end, all[n].why)
	}
}

// settleAll lets what is due come, and then closes the bus on the rest.
func settleAll(d *bed) {
	time.Sleep(2 * time.Minute)
	d.stats()
	_ = d.bus.Close()
	synctest.Wait()
	equal(d, "callbacks left at the end", d.stats().CallbacksPending, 0)
}

// everyEndOfCalls is the same for those who wait for the Result.
func everyEndOfCalls(d *bed) {
	d.start()
	all := ends()
	got := make([]chan bus.Result, len(all))
	for n := range all {
		e := &all[n]
		if e.form != nil || e.why == reason.HopTimeout {
			continue // they need an envelope of their own making
		}
		got[n] = make(chan bus.Result, 2)
		s, via := e.setup(d, keyOf(n))
		go func() {
			env := &bus.Envelope{Payload: n}
			if len(via) > 0 {
				env.Slip = bus.Via(via...)
			}
			r, err := s.Call(d.ctx, env)
			if err != nil {
				d.Errorf("%s: call: %v", e.name, err)
			}
			got[n] <- r
		}()
		synctest.Wait()
		e.after(d, s, func() uint64 { return slices.Clone(s.InFlight())[0].ID })
		synctest.Wait()
	}
	settleAll(d)
	for n := range all {
		if got[n] == nil {
			continue
		}
		equal(d, "Results of the call that ends "+all[n].name, len(got[n]), 1)
		r := <-got[n]
		equal(d, "the end of the call that ends "+all[n].name, r.End, all[n].end)
		equal(d, "the reason of the call that ends "+all[n].name, r.Reason, all[n].why)
	}
}
