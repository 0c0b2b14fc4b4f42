package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/reason"
)

func busWideLimit() []check {
	return []check{
		{name: "MoreStagesThanPermits", run: moreStagesThanPermits, cfg: bus.Config{MaxHandlers: 2}},
		{name: "OneWorker", run: oneWorker, cfg: bus.Config{MaxHandlers: 1}},
		{name: "EveryStageKeepsAShare", run: everyStageKeepsAShare, cfg: bus.Config{MaxHandlers: 3}},
		{name: "BusyStagesTakeTurns", run: busyStagesTakeTurns, cfg: bus.Config{MaxHandlers: 1}},
	}
}

// moreStagesThanPermits: the producers have finished before anything runs, so
// no publish can repair a lost wake-up.
func moreStagesThanPermits(d *bed) {
	const stages, each = 6, 50
	for i := range stages {
		s := d.stage(fmt.Sprintf("s%d", i), bus.StageConfig{Concurrency: 4}, d.note)
		s.Suspend(bus.Hold{})
	}
	d.start()
	for i, s := range d.bus.Stages() {
		d.mustPublish(s, i*each, (i+1)*each)
	}
	for _, s := range d.bus.Stages() {
		s.Resume("")
	}
	synctest.Wait()
	equal(d, "handled with two permits for six stages, and nobody publishes any more", len(d.seen()), stages*each)
	d.mustDrain()
}

func oneWorker(d *bed) {
	c := bus.StageConfig{Capacity: 1, Concurrency: 2, HopTimeout: time.Hour}
	if d.kit.Shards > 0 {
		// Two handlers of c, each on a shard of its own, may have their turn
		// before side has: the second publish from inside then waits for room that
		// only the hop timeout makes.
		c.Concurrency = 1
	}
	a := d.stage("a", c, returns(nil))
	d.stage("b", c, retriesOnce())
	last := d.stage("c", c, nil)
	side := d.stage("side", c, d.note)
	if err := last.Handle(d.noting(func(ctx context.Context, e *bus.Envelope) error {
		if number(e)%4 == 0 {
			return d.publishInside(ctx, side, 100+number(e))
		}
		return nil
	})); err != nil {
		d.Fatal(err)
	}
	d.start()
	go func() {
		for n := range 20 {
			if err := d.publish(a, d.env(n, "b", "c")); err != nil {
				d.Errorf("publish %d: %v", n, err)
				return
			}
		}
	}()
	time.Sleep(time.Hour)
	synctest.Wait()
	equal(d, "handled by the only worker of the bus", len(d.seen()), 25)
	d.mustDrain()
}

// retriesOnce is a handler that asks once for a retry a second later.
func retriesOnce() bus.Handler {
	return func(_ context.Context, e *bus.Envelope) error {
		if e.Attempt() == 1 && number(e)%2 == 0 {
			return bus.RetryAfter(time.Second)
		}
		return nil
	}
}

func everyStageKeepsAShare(d *bed) {
	gate := d.gate()
	hog := d.stage("hog", bus.StageConfig{Concurrency: 8, Blocking: true}, gate.Handler(d.note))
	b := d.stage("b", bus.StageConfig{Concurrency: 8}, d.note)
	c := d.stage("c", bus.StageConfig{Concurrency: 8}, d.note)
	d.start()
	d.mustPublish(hog, 0, 10)
	synctest.Wait()
	d.mustPublish(b, 10, 20)
	d.mustPublish(c, 20, 30)
	synctest.Wait()
	sameOrder(d, "stages starved by a busy one: handled", sorted(d.seen()), upTo(10, 30))
	d.want(gate.Waiting() >= 1, "the busy stage has no permit")
	gate.Open()
	d.mustDrain()
}

// busyStagesTakeTurns: with one permit, a stage that never runs dry lets the
// others have their turn.
func busyStagesTakeTurns(d *bed) {
	var endless *bus.Stage
	var waiting atomic.Bool // the other stage has lined up
	n := 0                  // handlers since then
	endless = d.stage("endless", bus.StageConfig{}, func(ctx context.Context, _ *bus.Envelope) error {
		if waiting.Load() {
			n++
		}
		if n > 10_000 {
			return nil
		}
		return endless.Publish(ctx, &bus.Envelope{})
	})
	other := d.stage("other", bus.StageConfig{}, func(ctx context.Context, e *bus.Envelope) error {
		if n > 5_000 {
			d.Errorf("a stage was starved: envelope %d waited for %d handlers of another one", number(e), n)
		}
		return d.note(ctx, e)
	})
	d.start()
	endless.Suspend(bus.Hold{})
	other.Suspend(bus.Hold{})
	if err := endless.Publish(d.ctx, &bus.Envelope{}); err != nil {
		d.Fatal(err)
	}
	d.mustPublish(other, 0, 20)
	endless.Resume("")
	other.Resume("")
	waiting.Store(true)
	synctest.Wait()
	equal(d, "handled beside a stage that never runs dry", len(d.seen()), 20)
	d.mustDrain()
}

func pubSub() []check {
	return []check{
		{name: "OwnCopies", run: ownCopies},
		{name: "OwnRetries", run: ownRetries},
		{name: "CompletesLast", run: completesLast},
		{name: "WedgedSubscriber", run: wedgedSubscriber},
		{name: "NoSubscriber", run: noSubscriber},
		{name: "HeldUntilSubscribed", run: heldUntilSubscribed},
	}
}

// parcel is a payload that must not be shared.
type parcel struct {
	n      int
	opened bool
}

// ClonePayload makes each subscriber's own parcel.
func (p *parcel) ClonePayload() any {
	c := *p
	return &c
}

func (d *bed) subscribe(s *bus.Stage, name string, c bus.StageConfig, h bus.Handler) *bus.Stage {
	d.Helper()
	sub, err := s.Subscribe(name, d.serial(c), bus.LagWait, h)
	if err != nil {
		d.Fatal(err)
	}
	return sub
}

func ownCopies(d *bed) {
	topic := d.stage("topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
	gate := d.gate() // the second one looks when the first one is done
	d.subscribe(topic, "first", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
		e.Headers[0].Value = "written over"
		if p, ok := e.Payload.(*parcel); ok {
			p.opened = true
		}
		return nil
	})
	var header string
	var opened bool
	d.subscribe(topic, "second", bus.StageConfig{}, gate.Handler(func(_ context.Context, e *bus.Envelope) error {
		header = e.Headers[0].Value
		if p, ok := e.Payload.(*parcel); ok {
			opened = p.opened
		}
		return nil
	}))
	d.start()
	mine := &bus.Envelope{Headers: []bus.Header{{Name: "h", Value: "as published"}}, Payload: &parcel{n: 1}}
	if err := topic.Publish(d.ctx, mine); err != nil {
		d.Fatal(err)
	}
	synctest.Wait()
	gate.Open()
	d.mustDrain()
	equal(d, "a header that another subscriber wrote over", header, "as published")
	equal(d, "a payload that another subscriber has changed", opened, false)
	equal(d, "the publisher's own header", mine.Headers[0].Value, "as published")
}

func ownRetries(d *bed) {
	topic := d.stage("topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
	good, bad := 0, 0
	c := bus.StageConfig{}
	c.Retry.MaxAttempts = 3
	first := d.subscribe(topic, "good", c, func(context.Context, *bus.Envelope) error { good++; return nil })
	second := d.subscribe(topic, "bad", c, func(context.Context, *bus.Envelope) error { bad++; return errWanted })
	d.start()
	d.mustPublish(topic, 0, 5)
	synctest.Wait()
	equal(d, "calls of the subscriber that acknowledged at once", good, 5)
	equal(d, "calls of the subscriber that failed", bad, 15)
	for n := range 5 {
		d.wantEnd(n, bus.DeadLettered, reason.Attempts)
		r, _ := d.result(n)
		failed := slices.DeleteFunc(slices.Clone(r.Copies), func(c bus.Result) bool { return c.End == bus.Completed })
		equal(d, "copies that failed, by the Result", len(failed), 1)
		equal(d, "the subscriber that failed", failed[0].Stage, second.Name())
	}
	equal(d, "copies acknowledged", d.stageStats(first).Copies.Completed, 5)
	equal(d, "copies dead-lettered", d.stageStats(second).Copies.DeadLettered, 5)
	equal(d, "envelopes dead-lettered by the bus's account", d.stats().DeadLettered, 5)
	d.mustDrain()
}

func completesLast(d *bed) {
	topic := d.stage("topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
	d.stage("after", bus.StageConfig{}, d.note)
	gate := d.gate()
	d.subscribe(topic, "quick", bus.StageConfig{}, returns(nil))
	d.subscribe(topic, "slow", bus.StageConfig{}, gate.Handler(nil))
	d.start()
	d.mustPublish(topic, 0, 1, "after")
	synctest.Wait()
	_, early := d.result(0)
	d.want(!early && len(d.seen()) == 0, "a publish went on before its last copy had ended")
	equal(d, "pending", d.stats().Pending, 1)
	gate.Open()
	d.wantEnd(0, bus.Completed, reason.None)
	sameOrder(d, "travelled on after all copies had ended well", d.seen(), []int{0})
	d.mustDrain()
}

func wedgedSubscriber(d *bed) {
	topic := d.stage("topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
	gate := d.gate()
	d.subscribe(topic, "wedged", bus.StageConfig{Capacity: 4, Blocking: true}, gate.Handler(nil))
	d.subscribe(topic, "other", bus.StageConfig{}, d.note)
	d.start()
	d.mustPublish(topic, 0, 40)
	synctest.Wait()
	sameOrder(d, "copies handled beside a wedged subscriber", d.seen(), upTo(0, 40))
	gate.Open()
	d.mustDrain()
	for n := range 40 {
		d.wantEnd(n, bus.Completed, reason.None)
	}
}

func noSubscriber(d *bed) {
	letters := d.stage("letters", bus.StageConfig{Delivery: bus.PubSub}, nil)
	rejects := d.stage("rejects", bus.StageConfig{Delivery: bus.PubSub, NoHandler: bus.NoHandlerReject}, nil)
	d.start()
	d.mustPublish(letters, 0, 1)
	d.wantEnd(0, bus.DeadLettered, reason.NoHandler)
	err := d.publish(rejects, d.env(1))
	d.want(errors.Is(err, bus.ErrNoHandler), "publish to a topic without subscriber that rejects: got %v", err)
	d.mustDrain()
}

func heldUntilSubscribed(d *bed) {
	topic := d.stage("topic", bus.StageConfig{Delivery: bus.PubSub, NoHandler: bus.NoHandlerHold}, nil)
	d.start()
	d.mustPublish(topic, 0, 3)
	equal(d, "held", d.stageStats(topic).Depth, 3)
	d.subscribe(topic, "first", bus.StageConfig{}, d.note)
	rest()
	sameOrder(d, "handled by the first subscriber", d.seen(), upTo(0, 3))
	d.mustDrain()
}

func deadlines() []check {
	return []check{
		{name: "AtAdmission", run: expiredAtAdmission},
		{name: "InQueue", run: func(d *bed) { expiresInQueue(d, bus.StageConfig{}) }},
		{name: "InChunk", run: func(d *bed) { expiresInQueue(d, bus.StageConfig{Batch: 16}) }},
		{name: "BeforeRetry", run: expiresBeforeRetry},
		{name: "WhileWaitingForRoom", run: expiresWhileWaiting},
		{name: "AfterHop", run: expiresAfterHop},
		{name: "BeforeDue", run: expiresBeforeDue},
	}
}

// due returns envelope n with a deadline in t from now.
func (d *bed) due(n int, t time.Duration, via ...string) *bus.Envelope {
	e := d.env(n, via...)
	e.SetDeadline(time.Now().Add(t))
	return e
}

func expiredAtAdmission(d *bed) {
	s := d.stage("work", bus.StageConfig{}, d.note)
	d.start()
	err := d.publish(s, d.due(0, -time.Second))
	d.want(errors.Is(err, bus.ErrExpired), "publish after the deadline: got %v, want expired", err)
	equal(d, "refused{expired}", d.stageStats(s).Refused[reason.Expired], 1)
	d.mustDrain()
	equal(d, "handled after the deadline", len(d.seen()), 0)
}

func expiresInQueue(d *bed, c bus.StageConfig) {
	gate := d.gate()
	s := d.stage("work", c, d.noting(func(ctx context.Context, e *bus.Envelope) error {
		if number(e) == 0 {
			return gate.Wait(ctx)
		}
		return nil
	}))
	d.start()
	d.queued(s, func() {
		for n, e := range []*bus.Envelope{d.env(0), d.due(1, time.Second), d.env(2), d.due(3, time.Hour)} {
			if err := d.publish(s, e); err != nil {
				d.Fatalf("publish %d: %v", n, err)
			}
		}
	})
	time.Sleep(time.Minute)
	gate.Open()
	d.mustDrain()
	sameOrder(d, "an envelope was handled after its deadline: handled", d.seen(), []int{0, 2, 3})
	d.wantEnd(1, bus.Dropped, reason.Expired)
	equal(d, "dropped{expired}", d.stageStats(s).Dropped[reason.Expired], 1)
}

func expiresBeforeRetry(d *bed) {
	s := d.stage("work", bus.StageConfig{}, d.noting(func(_ context.Context, e *bus.Envelope) error {
		if e.Attempt() == 1 {
			return bus.RetryAfter(time.Minute)
		}
		return nil
	}))
	d.start()
	for n, t := range []time.Duration{time.Second, time.Hour} {
		if err := d.publish(s, d.due(n, t)); err != nil {
			d.Fatal(err)
		}
	}
	time.Sleep(2 * time.Minute)
	d.wantEnd(0, bus.Dropped, reason.Expired)
	d.wantEnd(1, bus.Completed, reason.None)
	d.mustDrain()
	sameOrder(d, "a retry was handled after the deadline: handled", d.seen(), []int{0, 1, 1})
}

func expiresWhileWaiting(d *bed) {
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{Capacity: 1}, gate.Handler(d.note))
	d.start()
	n := d.fill(s)
	err := d.publish(s, d.due(n, time.Second))
	d.want(errors.Is(err, bus.ErrExpired), "a publisher whose deadline passed while it waited for room: got %v, want expired", err)
	gate.Open()
	d.mustDrain()
	sameOrder(d, "handled", d.seen(), upTo(0, n))
}

func expiresAfterHop(d *bed) {
	gate := d.gate()
	a := d.stage("a", bus.StageConfig{}, gate.Handler(nil))
	d.stage("b", bus.StageConfig{}, d.note)
	d.start()
	if err := d.publish(a, d.due(0, time.Hour, "b")); err != nil {
		d.Fatal(err)
	}
	synctest.Wait()
	b, _ := d.bus.Lookup("b")
	b.Suspend(bus.Hold{})
	gate.Open()
	synctest.Wait()
	time.Sleep(2 * time.Hour)
	b.Resume("")
	d.wantEnd(0, bus.Dropped, reason.Expired)
	d.mustDrain()
	equal(d, "handled after the deadline", len(d.seen()), 0)
}

func expiresBeforeDue(d *bed) {
	s := d.stage("work", bus.StageConfig{}, d.note)
	d.start()
	if _, err := s.PublishAfter(d.ctx, time.Hour, d.due(0, time.Minute)); err != nil {
		d.Fatal(err)
	}
	d.noteAccepted(0)
	time.Sleep(2 * time.Hour)
	d.wantEnd(0, bus.Dropped, reason.Expired)
	d.mustDrain()
	equal(d, "handled after the deadline", len(d.seen()), 0)
}
