package conformance

import (
	"context"
	"errors"
	"testing/synctest"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/reason"
)

func backPressure() []check {
	return []check{
		{name: "Block", run: blockHoldsPublishers},
		{name: "BlockInOrder", run: blockServesInOrder},
		{name: "BlockGivesUp", run: blockGivesUp},
		{name: "Reject", run: rejectRefuses},
		{name: "DropNewest", run: dropNewestTells},
		{name: "DropOldest", run: dropOldestEvicts},
	}
}

// fill publishes one envelope that a gated handler takes, and as many as fit
// behind it; it returns the next number.
func (d *bed) fill(s *bus.Stage) int {
	d.Helper()
	d.mustPublish(s, 0, 1)
	synctest.Wait() // the handler has it
	n := 1 + s.Config().Capacity
	d.mustPublish(s, 1, n)
	return n
}

func blockHoldsPublishers(d *bed) {
	const all = 20
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{Capacity: 4}, gate.Handler(d.note))
	d.start()
	go func() {
		for n := range all {
			if err := d.publish(s, d.env(n)); err != nil {
				d.Errorf("a publish to a full Block stage was refused: %v", err)
				return
			}
		}
	}()
	for done := range all {
		st := d.stageStats(s)
		equal(d, "envelopes accepted by a full Block stage", d.acceptedCount(), min(all, done+1+4))
		d.want(st.Depth <= 4, "depth %d exceeds the capacity 4", st.Depth)
		equal(d, "waiting publishers", st.Waiters, min(1, all-d.acceptedCount()))
		gate.Pass(1)
	}
	d.mustDrain()
	sameOrder(d, "handled", d.seen(), upTo(0, all))
}

func blockServesInOrder(d *bed) {
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{Capacity: 2}, gate.Handler(d.note))
	d.start()
	first := d.fill(s)
	const waiting = 6
	for i := range waiting {
		go func() {
			if err := d.publish(s, d.env(first+i)); err != nil {
				d.Errorf("a publish to a full Block stage was refused: %v", err)
			}
		}()
		synctest.Wait() // in line before the next one comes
	}
	gate.Pass(1)
	equal(d, "waiting publishers after one place came free", d.stageStats(s).Waiters, waiting-1)
	d.want(d.try(s, d.env(99)) != nil, "a newcomer took a place although publishers wait")
	gate.Open()
	rest()
	d.mustDrain()
	sameOrder(d, "order of publishers that waited", d.seen(), upTo(0, first+waiting))
}

func blockGivesUp(d *bed) {
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{Capacity: 2}, gate.Handler(d.note))
	d.start()
	n := d.fill(s)

	ctx, cancel := context.WithTimeout(d.ctx, time.Second)
	defer cancel()
	err := s.Publish(ctx, d.env(n))
	d.want(errors.Is(err, bus.ErrFull) && errors.Is(err, context.DeadlineExceeded),
		"a publish that gave up at its deadline: got %v, want full and deadline exceeded", err)

	ctx, cancel = context.WithCancel(d.ctx)
	refused := make(chan error, 1)
	go func() { refused <- s.Publish(ctx, d.env(n+1)) }()
	synctest.Wait()
	cancel()
	err = <-refused
	d.want(errors.Is(err, bus.ErrFull) && errors.Is(err, context.Canceled),
		"a publish that gave up when cancelled: got %v, want full and cancelled", err)

	gate.Pass(1)
	synctest.Wait()
	err = s.Publish(ctx, d.env(n+2))
	d.want(errors.Is(err, context.Canceled) && !errors.Is(err, bus.ErrFull),
		"a publish with a context that is over: got %v, want cancelled although there is room", err)
	st := d.stageStats(s)
	equal(d, "refused{full}", st.Refused[reason.Full], 2)
	equal(d, "refused{canceled}", st.Refused[reason.Canceled], 1)
	d.want(d.try(s, d.env(n+3)) == nil, "a publish that gave up has kept a place")
	gate.Open()
	d.mustDrain()
	for _, got := range d.seen() {
		d.want(got < n || got == n+3, "envelope %d was handled although its publish gave up", got)
	}
	equal(d, "handled", len(d.seen()), n+1)
}

func rejectRefuses(d *bed) {
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{Capacity: 3, Full: bus.Reject}, gate.Handler(d.note))
	d.start()
	n := d.fill(s)
	const refusals = 7
	for i := range refusals {
		err := d.publish(s, d.env(n+i))
		d.want(errors.Is(err, bus.ErrFull) && errors.Is(err, bus.ErrRejected), "publish to a full Reject stage: got %v, want full", err)
		st := d.stageStats(s)
		equal(d, "refused{full} after each refusal", st.Refused[reason.Full], uint64(i+1))
		equal(d, "depth", st.Depth, 3)
	}
	gate.Open()
	d.mustDrain()
	sameOrder(d, "handled", d.seen(), upTo(0, n))
}

func dropNewestTells(d *bed) {
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{Capacity: 3, Full: bus.DropNewest}, gate.Handler(d.note))
	d.start()
	n := d.fill(s)
	const refusals = 7
	for i := range refusals {
		err := s.Publish(d.ctx, d.env(n+i))
		d.want(errors.Is(err, bus.ErrDropped) && errors.Is(err, bus.ErrRejected),
			"publish to a full DropNewest stage: got %v, want dropped", err)
	}
	st := d.stageStats(s)
	equal(d, "refused{newest}", st.Refused[reason.Newest], refusals)
	equal(d, "refused{full}", st.Refused[reason.Full], 0)
	equal(d, "depth", st.Depth, 3)
	gate.Open()
	d.mustDrain()
	sameOrder(d, "handled", d.seen(), upTo(0, n))
}

func dropOldestEvicts(d *bed) {
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{Capacity: 3, Full: bus.DropOldest}, gate.Handler(d.note))
	d.start()
	n := d.fill(s)
	const more = 7
	for i := range more {
		err := d.publish(s, d.env(n+i))
		d.want(err == nil, "publish to a full DropOldest stage: got %v, want accepted", err)
		st := d.stageStats(s)
		d.want(st.Depth <= 3, "depth %d exceeds the capacity 3", st.Depth)
		equal(d, "dropped{evicted}", st.Dropped[reason.Evicted], uint64(i+1))
		d.wantEnd(1+i, bus.Dropped, reason.Evicted) // the oldest but the one in the handler
	}
	gate.Open()
	d.mustDrain()
	sameOrder(d, "handled", d.seen(), append([]int{0}, upTo(n+more-3, n+more)...))
}
