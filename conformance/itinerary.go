package conformance

import (
	"context"
	"errors"
	"testing/synctest"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
)

func itinerary() []check {
	return []check{
		{name: "Pause", run: itineraryUnderPause},
		{name: "Shutdown", run: itineraryUnderShutdown},
		{name: "ParkedUnderShutdown", run: parkedUnderShutdown},
	}
}

// threeStages makes a gated stage a and stages b and c behind it.
func (d *bed) threeStages(c bus.StageConfig) (a *bus.Stage, open func()) {
	gate := d.gate()
	a = d.stage("a", c, gate.Handler(nil))
	d.stage("b", c, func(context.Context, *bus.Envelope) error { return nil })
	d.stage("c", c, d.note)
	return a, gate.Open
}

func itineraryUnderPause(d *bed) {
	a, open := d.threeStages(bus.StageConfig{})
	d.start()
	d.mustPublish(a, 0, 5, "b", "c")
	synctest.Wait()
	d.bus.Pause(bus.Hold{})
	d.want(errors.Is(a.TryPublish(d.env(9)), bus.ErrPaused), "a paused bus takes a publish")
	open()
	synctest.Wait()
	sameOrder(d, "itineraries that ended while paused", d.seen(), upTo(0, 5))
	for n := range 5 {
		d.wantEnd(n, bus.Completed, reason.None)
	}
	d.want(d.bus.Resume(""), "there was no hold to lift")
	d.mustPublish(a, 5, 6, "b", "c")
	d.mustDrain()
	sameOrder(d, "handled", d.seen(), upTo(0, 6))
}

func itineraryUnderShutdown(d *bed) {
	gate := d.gate()
	a := d.stage("a", bus.StageConfig{}, gate.Handler(nil))
	c := d.stage("c", bus.StageConfig{}, d.note)
	d.stage("b", bus.StageConfig{Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Second}},
		func(ctx context.Context, e *bus.Envelope) error {
			if e.Attempt() == 1 {
				return errWanted // a retry is due during the shutdown
			}
			inside := d.env(100 + number(e))
			if err := c.Publish(ctx, inside); err != nil {
				d.Errorf("a publish from inside during a shutdown: %v", err)
				return nil
			}
			d.noteAccepted(number(inside))
			return nil
		})
	d.start()
	d.mustPublish(a, 0, 5, "b", "c")
	synctest.Wait()
	var err error
	ended := make(chan struct{})
	go func() {
		_, err = d.bus.Shutdown(context.Background())
		close(ended)
	}()
	synctest.Wait()
	d.want(errors.Is(a.TryPublish(d.env(9)), bus.ErrClosed), "a bus that shuts down takes a publish from outside")
	gate.Open()
	time.Sleep(time.Hour)
	synctest.Wait()
	select {
	case <-ended:
	default:
		d.Fatalf("the shutdown has not ended: %s", d.stats().Account())
	}
	d.want(err == nil, "the shutdown did not drain: %v", err)
	sameOrder(d, "itineraries and publishes from inside that ended during the shutdown",
		sorted(d.seen()), append(upTo(0, 5), upTo(100, 105)...))
}

// parkedUnderShutdown: hops that wait for room go on too.
func parkedUnderShutdown(d *bed) {
	gate := d.gate()
	a := d.stage("a", bus.StageConfig{Concurrency: 2}, func(context.Context, *bus.Envelope) error { return nil })
	d.stage("b", bus.StageConfig{Capacity: 1, HopTimeout: time.Hour}, gate.Handler(d.note))
	d.start()
	d.mustPublish(a, 0, 10, "b")
	synctest.Wait()
	d.want(d.stageStats(a).Depth > 0, "nothing waits for room in the next stage")
	go func() {
		time.Sleep(time.Minute)
		gate.Open()
	}()
	d.mustDrain()
	sameOrder(d, "handled", sorted(d.seen()), upTo(0, 10))
}

func deadLetterSlip() []check {
	return []check{
		{name: "InAStage", run: letterStaysInStage},
		{name: "InTheStore", run: letterResumesByRedrive},
	}
}

func letterStaysInStage(d *bed) {
	d.stage("next", bus.StageConfig{}, d.note)
	letters := 0
	d.stage("dead", bus.StageConfig{}, func(context.Context, *bus.Envelope) error {
		letters++
		return nil // acknowledged: an old slip would go on from here
	})
	s := d.stage("work", bus.StageConfig{DeadLetterTo: "dead"}, func(_ context.Context, e *bus.Envelope) error {
		if number(e) == 1 {
			return bus.DeadLetter("on purpose")
		}
		return errWanted
	})
	d.start()
	d.mustPublish(s, 0, 2, "next", "next")
	d.mustDrain()
	equal(d, "letters handled in the dead-letter stage", letters, 2)
	equal(d, "dead letters that went on with their old slip", len(d.seen()), 0)
	d.wantEnd(0, bus.DeadLettered, reason.Attempts)
	d.wantEnd(1, bus.DeadLettered, reason.Handler)
}

func letterResumesByRedrive(d *bed) {
	d.stage("next", bus.StageConfig{}, d.note)
	broken := true
	s := d.stage("work", bus.StageConfig{}, func(context.Context, *bus.Envelope) error {
		if broken {
			return errWanted
		}
		return nil
	})
	d.start()
	d.mustPublish(s, 0, 3, "next")
	time.Sleep(time.Hour)
	synctest.Wait()
	equal(d, "dead letters that went on by themselves", len(d.seen()), 0)
	broken = false
	rep, err := d.bus.Letters().Redrive(d.ctx, bus.RedriveOptions{})
	d.want(err == nil && rep.Redriven == 3, "redrive: %+v, %v", rep, err)
	synctest.Wait()
	sameOrder(d, "redriven letters at the rest of their slip", d.seen(), upTo(0, 3))
	equal(d, "letters left", d.bus.Letters().Stats().Count, 0)
	equal(d, "accepted{origin=redrive}", d.stageStats(s).FromRedrive, 3)
	d.mustDrain() // and no first publisher has got a second Result
}

func wedgedConsumer() []check {
	return []check{
		{name: "OneByOne", run: func(d *bed) { wedged(d, bus.StageConfig{Concurrency: 3, Batch: 1}) }},
		{name: "InChunks", run: func(d *bed) { wedged(d, bus.StageConfig{Concurrency: 3, Batch: 16}) }},
		{name: "ByKey", run: func(d *bed) { wedged(d, bus.StageConfig{Concurrency: 3, Batch: 16, Order: bus.ByKey}) }},
		{name: "Alone", run: func(d *bed) { wedgedAlone(d, bus.StageConfig{Concurrency: 3}) }},
		{name: "AloneInChunks", run: func(d *bed) { wedgedAlone(d, bus.StageConfig{Concurrency: 3, Batch: 16}) }},
		{name: "AloneByKey", run: func(d *bed) { wedgedAlone(d, bus.StageConfig{Concurrency: 3, Batch: 16, Order: bus.ByKey}) }},
		{name: "RoomBehindIt", run: roomBehindWedged},
	}
}

func wedged(d *bed, c bus.StageConfig) {
	const all = 40
	gate := d.gate()
	c.Blocking = true
	s := d.stage("work", c, d.noting(func(ctx context.Context, e *bus.Envelope) error {
		if number(e) == 0 {
			return gate.Wait(ctx)
		}
		return nil
	}))
	d.start()
	d.queued(s, func() {
		for n := range all {
			e := d.env(n)
			e.Key = keyOf(n)
			if err := d.publish(s, e); err != nil {
				d.Fatal(err)
			}
		}
	})
	time.Sleep(time.Minute)
	synctest.Wait()
	sameOrder(d, "handled, with nothing left behind the wedged handler", sorted(d.seen()), upTo(0, all))
	st := d.stageStats(s)
	equal(d, "in flight", st.InFlight, 1)
	equal(d, "completed beside the wedged handler", st.Completed, all-1)
	gate.Open()
	d.mustDrain()
}

// wedgedAlone: the wedged envelope was the only one when it started, in a stage
// that was fast so far, and the others come later.
func wedgedAlone(d *bed, c bus.StageConfig) {
	const all = 80
	gate := d.gate()
	c.Blocking = true
	s := d.stage("work", c, d.noting(func(ctx context.Context, e *bus.Envelope) error {
		if number(e) == 40 {
			return gate.Wait(ctx)
		}
		return nil
	}))
	d.start()
	for n := range all {
		e := d.env(n)
		e.Key = keyOf(n)
		if err := d.publish(s, e); err != nil {
			d.Fatal(err)
		}
		synctest.Wait()
	}
	rest()
	sameOrder(d, "handled, with nothing left behind the wedged handler", sorted(d.seen()), upTo(0, all))
	gate.Open()
	d.mustDrain()
}

// roomBehindWedged: publishers get the places that came free before the
// handler was held up.
func roomBehindWedged(d *bed) {
	const capacity, blocked = 8, 9
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{Capacity: capacity, Batch: 1}, d.noting(func(ctx context.Context, e *bus.Envelope) error {
		if n := number(e); n == 0 || n == 3 {
			return gate.Wait(ctx)
		}
		return nil
	}))
	d.start()
	first := d.fill(s)
	for n := first; n < first+blocked; n++ {
		go func() { _ = d.publish(s, d.env(n)) }()
	}
	rest()
	gate.Pass(1)
	rest()
	sameOrder(d, "handled before the wedged one", d.seen(), upTo(0, 4))
	equal(d, "places left free although publishers wait", capacity-d.stageStats(s).Depth, 0)
	gate.Open()
	rest()
	d.mustDrain()
}

func ownStage() []check {
	return []check{
		{name: "Block", run: ownStageBlocks},
		{name: "Reject", run: ownStageRejects},
		{name: "Room", run: ownStageWithRoom},
	}
}

func ownStageBlocks(d *bed) {
	const hopTimeout = 7 * time.Second
	var s *bus.Stage
	gate := d.gate()
	waited := make(chan time.Duration, 1)
	s = d.stage("work", bus.StageConfig{Capacity: 2, HopTimeout: hopTimeout}, gate.Handler(d.noting(func(ctx context.Context, e *bus.Envelope) error {
		if number(e) != 0 {
			return nil
		}
		before := time.Now()
		if err := d.publishInside(ctx, s, 100); !errors.Is(err, bus.ErrFull) {
			d.Errorf("a publish from inside into its own full stage: got %v, want full", err)
		}
		waited <- time.Since(before)
		return nil
	})))
	d.start()
	n := d.fill(s)
	gate.Open()
	time.Sleep(time.Minute)
	synctest.Wait()
	equal(d, "publishes from inside that have ended a minute after their hop timeout", len(waited), 1)
	equal(d, "how long a publish from inside waited", <-waited, hopTimeout)
	d.mustDrain()
	sameOrder(d, "handled", d.seen(), upTo(0, n))
}

func ownStageRejects(d *bed) {
	var s *bus.Stage
	gate := d.gate()
	s = d.stage("work", bus.StageConfig{Capacity: 2, Full: bus.Reject}, gate.Handler(d.noting(func(ctx context.Context, e *bus.Envelope) error {
		if number(e) == 0 {
			if err := s.Publish(ctx, d.env(100)); !errors.Is(err, bus.ErrFull) {
				d.Errorf("a publish from inside into its own full stage: got %v, want full", err)
			}
		}
		return nil
	})))
	d.start()
	n := d.fill(s)
	gate.Open()
	d.mustDrain()
	sameOrder(d, "handled", d.seen(), upTo(0, n))
}

// ownStageWithRoom: a handler that publishes a follow-up into its own stage.
func ownStageWithRoom(d *bed) {
	var s *bus.Stage
	s = d.stage("work", bus.StageConfig{Capacity: 1}, d.noting(func(ctx context.Context, e *bus.Envelope) error {
		if n := number(e); n < 50 {
			if err := d.publishInside(ctx, s, n+1); err != nil {
				return err
			}
		}
		return nil
	}))
	d.start()
	d.mustPublish(s, 0, 1)
	synctest.Wait()
	d.mustDrain()
	sameOrder(d, "a chain of publishes from inside", d.seen(), upTo(0, 51))
}

func (d *bed) publishInside(ctx context.Context, s *bus.Stage, n int) error {
	err := s.Publish(ctx, d.env(n))
	if err == nil {
		d.noteAccepted(n)
	}
	return err
}
