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

var errWanted = errors.New("refused on purpose")

func retryAndDeadLetter() []check {
	return []check{
		{name: "LastAttemptSucceeds", run: lastAttemptSucceeds},
		{name: "NeverSucceeds", run: neverSucceeds},
		{name: "ToTheStore", run: letterToTheStore},
		{name: "NoHandler", run: noHandlerLetters},
	}
}

func lastAttemptSucceeds(d *bed) {
	s := d.stage("work", bus.StageConfig{Retry: retry.Policy{MaxAttempts: 4}}, d.noting(func(_ context.Context, e *bus.Envelope) error {
		if e.Attempt() < 4 {
			return errWanted
		}
		return nil
	}))
	d.start()
	d.mustPublish(s, 0, 3)
	d.mustDrain()
	for n := range 3 {
		r, _ := d.result(n)
		d.want(r.End == bus.Completed, "envelope %d was given up before its last allowed attempt: %v after %d", n, r.End, r.Attempts)
		equal(d, "attempts", r.Attempts, 4)
	}
	equal(d, "handler calls for three envelopes of four attempts", len(d.seen()), 12)
	st := d.stageStats(s)
	equal(d, "nacked", st.Nacked, 9)
	equal(d, "retried", st.Retried, 9)
}

func neverSucceeds(d *bed) {
	dead := d.stage("dead", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
		if why, _ := e.Header(bus.HeaderLetterReason); why != reason.Attempts.String() {
			d.Errorf("the dead letter's reason is %q", why)
		}
		if at, _ := e.Header(bus.HeaderLetterStage); at != "work" {
			d.Errorf("the dead letter's stage is %q", at)
		}
		return nil
	})
	s := d.stage("work", bus.StageConfig{
		Retry: retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: time.Second}, DeadLetterTo: "dead",
	}, d.noting(func(context.Context, *bus.Envelope) error { return errWanted }))
	d.start()
	d.mustPublish(s, 0, 5)
	time.Sleep(time.Hour) // nothing comes back later either
	d.mustDrain()
	equal(d, "handler calls for five envelopes of three attempts", len(d.seen()), 15)
	for n := range 5 {
		d.wantEnd(n, bus.DeadLettered, reason.Attempts)
		r, _ := d.result(n)
		d.want(errors.Is(r.Err, errWanted), "the Result's error is %v", r.Err)
	}
	st := d.stageStats(dead)
	equal(d, "dead letters in the dead-letter stage", st.Completed, 5)
	equal(d, "accepted{origin=letter}", st.FromLetters, 5)
	equal(d, "dead-lettered", d.stageStats(s).DeadLettered, 5)
}

func letterToTheStore(d *bed) {
	s := d.stage("work", bus.StageConfig{Retry: retry.Policy{MaxAttempts: 2}}, d.noting(func(context.Context, *bus.Envelope) error { return errWanted }))
	d.stage("next", bus.StageConfig{}, d.note)
	d.start()
	d.mustPublish(s, 0, 1, "next")
	d.wantEnd(0, bus.DeadLettered, reason.Attempts)
	letters := d.bus.Letters().List(bus.LetterFilter{})
	equal(d, "letters in the store", len(letters), 1)
	l := letters[0]
	equal(d, "the letter's stage", l.Stage, "work")
	equal(d, "the letter's attempts", l.Attempts, 2)
	equal(d, "the letter's reason", l.Reason, reason.Attempts)
	equal(d, "the letter's error", l.Error, errWanted.Error())
	sameOrder(d, "the letter's remaining slip", l.Slip, []string{"next"})
	d.mustDrain()
	equal(d, "handler calls", len(d.seen()), 2)
}

func noHandlerLetters(d *bed) {
	s := d.stage("work", bus.StageConfig{}, nil)
	d.start()
	d.mustPublish(s, 0, 3)
	synctest.Wait()
	for n := range 3 {
		_, ok := d.result(n)
		d.want(ok, "envelope %d of a stage without handler was not dead-lettered at once", n)
		d.wantEnd(n, bus.DeadLettered, reason.NoHandler)
	}
	// The policy holds for what is queued when the handler goes as well.
	gate := d.gate()
	if err := s.Handle(gate.Handler(d.note)); err != nil {
		d.Fatal(err)
	}
	d.mustPublish(s, 3, 4)
	synctest.Wait()
	d.mustPublish(s, 4, 7)
	if err := s.RemoveHandler(); err != nil {
		d.Fatal(err)
	}
	for n := 4; n < 7; n++ {
		d.wantEnd(n, bus.DeadLettered, reason.NoHandler)
	}
	gate.Open()
	d.mustDrain()
	sameOrder(d, "handled", d.seen(), []int{3})
	equal(d, "letters in the store", d.bus.Letters().Stats().Count, 6)
}

func retryOrder() []check {
	return []check{
		{name: "ImmediateFirst", run: func(d *bed) { immediateFirst(d, bus.StageConfig{}) }},
		{name: "ImmediateFirstInChunks", run: func(d *bed) { immediateFirst(d, bus.StageConfig{Batch: 16}) }},
		{name: "DelayedLetsPass", run: delayedLetsPass},
		{name: "ByKeyHoldsFollowers", run: func(d *bed) { byKeyHolds(d, 0) }},
		{name: "ByKeyHoldsFollowersInChunks", run: func(d *bed) { byKeyHolds(d, 16) }},
		{name: "InOrderHoldsAll", run: inOrderHolds},
		{name: "RequeuedFirst", run: requeuedFirst},
	}
}

// failOnce returns a handler that fails envelope n's first attempt with err.
func (d *bed) failOnce(n int, err error) bus.Handler {
	return d.noting(func(_ context.Context, e *bus.Envelope) error {
		if number(e) == n && e.Attempt() == 1 {
			return err
		}
		return nil
	})
}

// queued lets publish run while the stage is suspended, so that all of it waits
// when the first one starts.
func (d *bed) queued(s *bus.Stage, publish func()) {
	d.Helper()
	s.Suspend(bus.Hold{})
	publish()
	s.Resume("")
}

func immediateFirst(d *bed, c bus.StageConfig) {
	c.Retry.MaxAttempts = 3
	s := d.stage("work", c, d.failOnce(2, errWanted))
	d.start()
	d.queued(s, func() { d.mustPublish(s, 0, 6) })
	d.mustDrain()
	sameOrder(d, "order with an immediate retry of 2", d.seen(), []int{0, 1, 2, 2, 3, 4, 5})
}

func delayedLetsPass(d *bed) {
	s := d.stage("work", bus.StageConfig{}, d.failOnce(2, bus.RetryAfter(time.Second)))
	d.start()
	d.queued(s, func() { d.mustPublish(s, 0, 6) })
	synctest.Wait()
	sameOrder(d, "order before the retry of 2 is due", d.seen(), []int{0, 1, 2, 3, 4, 5})
	time.Sleep(2 * time.Second)
	synctest.Wait()
	sameOrder(d, "order with a delayed retry of 2", d.seen(), []int{0, 1, 2, 3, 4, 5, 2})
}

func byKeyHolds(d *bed, batch int) {
	s := d.stage("work", bus.StageConfig{Order: bus.ByKey, Concurrency: 2, Batch: batch}, d.failOnce(2, bus.RetryAfter(time.Second)))
	d.start()
	d.queued(s, func() {
		for n := range 8 {
			e := d.env(n)
			e.Key = keyOf(n % 2)
			if err := d.publish(s, e); err != nil {
				d.Fatal(err)
			}
		}
	})
	time.Sleep(100 * time.Millisecond) // the retry is not due
	synctest.Wait()
	even, odd := split(d.seen())
	sameOrder(d, "a follower overtook the retry of its key", even, []int{0, 2})
	sameOrder(d, "the other key waits for a retry that is not its own", odd, []int{1, 3, 5, 7})
	time.Sleep(2 * time.Second)
	synctest.Wait()
	even, _ = split(d.seen())
	sameOrder(d, "order of the key with a retry of 2", even, []int{0, 2, 2, 4, 6})
}

func split(all []int) (even, odd []int) {
	for _, n := range all {
		if n%2 == 0 {
			even = append(even, n)
		} else {
			odd = append(odd, n)
		}
	}
	return even, odd
}

func inOrderHolds(d *bed) {
	s := d.stage("work", bus.StageConfig{Order: bus.InOrder, Concurrency: 4}, d.failOnce(2, bus.RetryAfter(time.Second)))
	d.start()
	d.queued(s, func() { d.mustPublish(s, 0, 6) })
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	sameOrder(d, "a follower overtook the retry in an ordered stage", d.seen(), []int{0, 1, 2})
	time.Sleep(2 * time.Second)
	synctest.Wait()
	sameOrder(d, "order with a retry of 2", d.seen(), []int{0, 1, 2, 2, 3, 4, 5})
}

// requeuedFirst: a retry that cannot start at once, because the stage was
// suspended, still comes before the rest.
func requeuedFirst(d *bed) {
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{Retry: retry.Policy{MaxAttempts: 2}}, gate.Handler(d.failOnce(0, errWanted)))
	d.start()
	d.mustPublish(s, 0, 1)
	synctest.Wait()
	d.mustPublish(s, 1, 4)
	s.Suspend(bus.Hold{})
	gate.Open()
	synctest.Wait()
	sameOrder(d, "handled in a suspended stage", d.seen(), []int{0})
	s.Resume("")
	d.mustDrain()
	sameOrder(d, "order with a requeued retry of 0", d.seen(), []int{0, 0, 1, 2, 3})
}

func retryNotEvicted() []check {
	return []check{
		{name: "Requeued", run: requeuedNotEvicted},
		{name: "Delayed", run: delayedNotEvicted},
		{name: "ByKey", run: keyedNotEvicted},
	}
}

func requeuedNotEvicted(d *bed) {
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{Capacity: 3, Full: bus.DropOldest, Retry: retry.Policy{MaxAttempts: 2}},
		gate.Handler(d.failOnce(0, errWanted)))
	d.start()
	d.mustPublish(s, 0, 1)
	synctest.Wait()
	s.Suspend(bus.Hold{})
	gate.Open()
	synctest.Wait() // the retry waits in the suspended stage
	d.mustPublish(s, 1, 20)
	d.stats()
	if r, ok := d.result(0); ok {
		d.Fatalf("a retry was evicted: it ended %v (%v)", r.End, r.Reason)
	}
	s.Resume("")
	d.mustDrain()
	d.wantEnd(0, bus.Completed, reason.None)
	sameOrder(d, "handled", d.seen(), []int{0, 0, 18, 19})
}

func delayedNotEvicted(d *bed) {
	s := d.stage("work", bus.StageConfig{Capacity: 3, Full: bus.DropOldest}, d.noting(func(_ context.Context, e *bus.Envelope) error {
		if e.Attempt() == 1 && number(e) < 3 {
			return bus.RetryAfter(time.Minute)
		}
		return nil
	}))
	d.start()
	d.mustPublish(s, 0, 3)
	synctest.Wait()
	// Three retries fill the stage and none is evictable: as Reject.
	err := d.publish(s, d.env(3))
	d.want(errors.Is(err, bus.ErrFull), "publish to a DropOldest stage full of retries: got %v, want full", err)
	equal(d, "delayed", d.stageStats(s).Delayed, 3)
	time.Sleep(2 * time.Minute)
	d.mustDrain()
	for n := range 3 {
		d.wantEnd(n, bus.Completed, reason.None)
	}
}

// keyedNotEvicted: what waits behind a retry may go, the retry may not.
func keyedNotEvicted(d *bed) {
	s := d.stage("work", bus.StageConfig{Capacity: 3, Full: bus.DropOldest, Order: bus.InOrder}, d.failOnce(0, bus.RetryAfter(time.Minute)))
	d.start()
	d.mustPublish(s, 0, 1)
	synctest.Wait()
	d.mustPublish(s, 1, 10)
	synctest.Wait()
	time.Sleep(2 * time.Minute)
	d.mustDrain()
	d.wantEnd(0, bus.Completed, reason.None)
	sameOrder(d, "handled", d.seen(), []int{0, 0, 8, 9})
}
