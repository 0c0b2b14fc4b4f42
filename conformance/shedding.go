package conformance

import (
	"context"
	"errors"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
	"github.com/sedabus/seda/shedder"
)

func shedderRecovers() []check {
	return []check{
		{name: "AfterOverload", run: shedsThenRecovers},
		{name: "AfterSilence", run: recoversInSilence},
		{name: "WhenAllIsDropped", run: recoversFromDrops},
		{name: "WhenNothingWasInTime", run: recoversFromDeadlines},
		{name: "WorkUnderWayFinishes", run: shedsNoHop},
		{name: "PushedOut", run: pushesOut},
		{name: "KillSwitch", run: killsShedding},
	}
}

// service is how long a handler of these cases takes, and servers how many of
// them run at once.
const (
	service = 10 * time.Millisecond
	servers = 4
)

// shedding returns a stage of servers handlers with the default shedder.
func (d *bed) shedding(h bus.Handler) *bus.Stage {
	d.Helper()
	return d.stage("work", bus.StageConfig{Concurrency: servers, Shedder: shedder.Default("work")}, h)
}

func serve(ctx context.Context, _ *bus.Envelope) error { return takeTime(ctx, service) }

// takeTime takes d, or less if the bus cuts its work off.
func takeTime(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// offer publishes envelopes a to b-1 at load times what the servers get done,
// and returns how many were shed.
func (d *bed) offer(s *bus.Stage, a, b int, load float64) (shed int) {
	d.Helper()
	gap := time.Duration(float64(service) / servers / load)
	for n := a; n < b; n++ {
		switch err := d.try(s, d.env(n)); {
		case errors.Is(err, bus.ErrShed):
			shed++
		case err != nil:
			d.Fatalf("publish %d: %v", n, err)
		}
		time.Sleep(gap)
	}
	return shed
}

// overload sheds, or the case proves nothing.
func (d *bed) overload(s *bus.Stage, n int) {
	d.Helper()
	shed := d.offer(s, 0, n, 3)
	d.want(shed > n/3, "shed of %d envelopes at three times the capacity: got %d", n, shed)
	equal(d, "refused{shed}", d.stageStats(s).Refused[reason.Shed], uint64(shed))
	equal(d, "accepted", d.acceptedCount(), n-shed)
}

func shedsThenRecovers(d *bed) {
	s := d.shedding(serve)
	d.start()
	d.overload(s, 1200)
	time.Sleep(time.Second)
	equal(d, "shed below capacity after an overload", d.offer(s, 1200, 1500, 0.5), 0)
	d.mustDrain()
}

func recoversInSilence(d *bed) {
	s := d.shedding(serve)
	d.start()
	d.overload(s, 1200)
	time.Sleep(time.Minute)
	for n := 1200; n < 1230; n++ { // at once, into an idle stage
		if err := d.try(s, d.env(n)); err != nil {
			d.Fatalf("a small burst after a minute of silence: %v", err)
		}
	}
	d.mustDrain()
}

func recoversFromDrops(d *bed) {
	var ends atomic.Bool
	s := d.shedding(func(ctx context.Context, e *bus.Envelope) error {
		_ = serve(ctx, e)
		if ends.Load() {
			return nil
		}
		return bus.Discard("nobody wants it")
	})
	d.start()
	d.overload(s, 1200)
	time.Sleep(time.Second)
	st := d.stageStats(s)
	equal(d, "dropped{discarded}", st.Dropped[reason.Discarded], st.Accepted)
	ends.Store(true)
	equal(d, "shed below capacity after all was dropped", d.offer(s, 1200, 1500, 0.5), 0)
	d.mustDrain()
}

// A service time that was learnt in an outage must not make every deadline
// look hopeless for ever.
func recoversFromDeadlines(d *bed) {
	var healthy atomic.Bool
	s := d.shedding(func(ctx context.Context, e *bus.Envelope) error {
		if !healthy.Load() {
			_ = takeTime(ctx, 10*time.Second)
		}
		return serve(ctx, e)
	})
	d.start()
	d.mustPublish(s, 0, 100)
	time.Sleep(255 * time.Second) // until a little after the last of them
	healthy.Store(true)
	refused := 0
	for n := 100; n < 200; n++ {
		switch err := d.try(s, d.due(n, time.Second)); {
		case errors.Is(err, bus.ErrShed):
			refused++
		case err != nil:
			d.Fatal(err)
		}
		time.Sleep(10 * time.Second)
	}
	d.want(refused < 50, "refused for their deadlines although the handlers were quick again: %d of 100", refused)
	d.mustDrain()
}

func shedsNoHop(d *bed) {
	refuse := &bustest.Refuse{}
	first := d.stage("first", bus.StageConfig{}, serve)
	next := d.stage("next", bus.StageConfig{
		Shedder: refuse.Shedder(), Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Second},
	}, func(_ context.Context, e *bus.Envelope) error {
		if e.Attempt() == 1 {
			return errors.New("once more")
		}
		return nil
	})
	d.start()
	d.mustPublish(first, 0, 10, "next")
	refuse.Shed()
	time.Sleep(time.Minute)
	err := d.try(next, d.env(10))
	d.want(errors.Is(err, bus.ErrShed), "a new itinerary: got %v, want shed", err)
	err = d.try(first, d.env(11, "next"))
	d.want(errors.Is(err, bus.ErrShed), "a new itinerary that leads there: got %v, want shed", err)
	d.mustDrain()
	equal(d, "completed of what was under way", d.stageStats(next).Completed, 10)
}

func pushesOut(d *bed) {
	gate := d.gate()
	classes := []bus.Class{{Name: "high"}, {Name: "low"}}
	s := d.stage("work", bus.StageConfig{Classes: classes, Shedder: limited(d, 8)}, d.noting(gate.Handler(nil)))
	d.start()
	class := func(n int, name string) *bus.Envelope {
		e := d.env(n)
		e.Meta = &bus.Meta{Class: name}
		return e
	}
	for n := range 9 {
		if err := d.try(s, class(n, "low")); err != nil {
			d.Fatal(err)
		}
		synctest.Wait() // the first is in the handler
	}
	err := d.try(s, class(9, "low"))
	d.want(errors.Is(err, bus.ErrShed), "above the bound: got %v, want shed", err)
	for n := 10; n < 14; n++ {
		if err := d.try(s, class(n, "high")); err != nil {
			d.Fatalf("a higher class: %v", err)
		}
	}
	gate.Open()
	d.mustDrain()
	sameOrder(d, "handled: got", d.seen(), []int{0, 10, 11, 12, 13, 1, 2, 3, 4})
	equal(d, "dropped{pushed_out}", d.stageStats(s).Dropped[reason.PushedOut], 4)
	d.wantEnd(8, bus.Dropped, reason.PushedOut)
}

// limited returns a shedder that lets n wait, and pushes lower classes out.
func limited(d *bed, n int) *shedder.Shedder {
	d.Helper()
	s, err := shedder.New(shedder.Config{Policy: atMost(n)})
	if err != nil {
		d.Fatal(err)
	}
	return s
}

// atMost is a policy that admits while fewer wait.
type atMost int

// Admit implements shedder.Policy, as do the others.
func (n atMost) Admit(r *shedder.Request) shedder.Verdict {
	switch {
	case r.Waiting < int(n):
		return shedder.Verdict{}
	case r.Evictable > 0:
		return shedder.Verdict{Action: shedder.PushOut}
	default:
		return shedder.Verdict{Action: shedder.Refuse, Rule: shedder.RuleBound}
	}
}

// Undo has nothing to take back.
func (atMost) Undo(*shedder.Request) {}

// Done has nothing to learn.
func (atMost) Done(*shedder.Done) {}

// Bound is n.
func (n atMost) Bound() int { return int(n) }

// Inspect knows nothing.
func (atMost) Inspect(time.Duration, *shedder.State) {}

func killsShedding(d *bed) {
	refuse := &bustest.Refuse{}
	refuse.Shed()
	s := d.stage("work", bus.StageConfig{Shedder: refuse.Shedder()}, d.note)
	d.start()
	d.want(errors.Is(d.try(s, d.env(0)), bus.ErrShed), "it does not shed")
	d.bus.SetShedding(false)
	err := d.try(s, d.env(1))
	d.want(err == nil, "publish with all shedding stopped: %v", err)
	d.bus.SetShedding(true)
	d.want(errors.Is(d.try(s, d.env(2)), bus.ErrShed), "it does not shed again")
	d.mustDrain()
}
