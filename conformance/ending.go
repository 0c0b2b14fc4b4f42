package conformance

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
)

func shutdownAccounting() []check {
	return []check{
		{name: "Drained", run: shutdownDrains},
		{name: "TimedOut", run: func(d *bed) { shutdownCuts(d, time.Second) }},
		{name: "Closed", run: func(d *bed) { shutdownCuts(d, 0) }},
		{name: "LateSettlement", run: lateSettlement},
		{name: "RetryBeyondDeadline", run: retryBeyondDeadline},
	}
}

func shutdownDrains(d *bed) {
	first := d.stage("first", bus.StageConfig{Concurrency: 2, Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Second}},
		d.noting(func(_ context.Context, e *bus.Envelope) error {
			switch number(e) % 5 {
			case 0:
				return errWanted
			case 1:
				return bus.Discard("on purpose")
			}
			return nil
		}))
	d.stage("second", bus.StageConfig{Capacity: 2}, func(ctx context.Context, _ *bus.Envelope) error {
		return pause(ctx, time.Second)
	})
	d.start()
	d.mustPublish(first, 0, 30, "second")
	r, err := d.bus.Shutdown(context.Background())
	if err != nil {
		d.Fatalf("a shutdown without a deadline did not drain: %v", err)
	}
	d.want(r.Drained, "the report says that it did not drain")
	st := &r.Stats
	d.balanced(st)
	equal(d, "completed + dead-lettered + dropped of 30", st.Completed+st.DeadLettered+st.Dropped[reason.Discarded], 30)
	equal(d, "completed", st.Completed, 18)
	equal(d, "dead-lettered", st.DeadLettered, 6)
	equal(d, "abandoned", st.Abandoned, 0)
}

// pause waits in virtual time.
func pause(ctx context.Context, t time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, t)
	defer cancel()
	<-ctx.Done()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil
	}
	return ctx.Err()
}

func shutdownCuts(d *bed, grace time.Duration) {
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{Concurrency: 2}, gate.Handler(d.note))
	later := d.stage("later", bus.StageConfig{}, d.noting(func(context.Context, *bus.Envelope) error { return bus.RetryAfter(2 * patience) }))
	d.start()
	d.mustPublish(s, 0, 8)
	d.mustPublish(later, 8, 9)
	synctest.Wait()
	if _, err := s.PublishAfter(d.ctx, 2*patience, d.env(9)); err != nil {
		d.Fatal(err)
	}
	d.noteAccepted(9)
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	r, err := d.bus.Shutdown(ctx)
	d.want(errors.Is(err, bus.ErrNotDrained), "a shutdown that ran out of time: got %v, want not drained", err)
	d.want(!r.Drained, "the report of a shutdown that ran out of time says drained")
	equal(d, "pending after the shutdown", r.Stats.Pending, 0)
	equal(d, "abandoned", r.Stats.Abandoned, 10)
	equal(d, "abandoned envelopes named by the report", len(r.Abandoned), 10)
	equal(d, "handlers named as stuck", len(r.Stuck), 2)
	d.balanced(&r.Stats)
	for n := range 10 {
		d.wantEnd(n, bus.Abandoned, reason.Shutdown)
	}
	equal(d, "dead letters by a shutdown", r.Stats.DeadLettered, 0)
}

// lateSettlement: what a handler says after its envelope was abandoned is
// counted and has no effect.
func lateSettlement(d *bed) {
	release := make(chan struct{})
	open := sync.OnceFunc(func() { close(release) })
	d.onEnd(open)
	s := d.stage("work", bus.StageConfig{Concurrency: 2}, func(_ context.Context, e *bus.Envelope) error {
		<-release // it does not listen
		if number(e) == 1 {
			return errWanted
		}
		return nil
	})
	d.stage("next", bus.StageConfig{}, d.note)
	d.start()
	d.mustPublish(s, 0, 2, "next")
	synctest.Wait()
	d.want(d.bus.Close() != nil, "a close that abandons says nothing")
	open()
	synctest.Wait()
	for n := range 2 {
		d.wantEnd(n, bus.Abandoned, reason.Shutdown)
	}
	var st bus.StageStats
	s.ReadStats(&st)
	equal(d, "settlements counted late", st.Late, 2)
	equal(d, "envelopes that went on after they were abandoned", len(d.seen()), 0)
	equal(d, "letters in the store", d.bus.Letters().Stats().Count, 0)
}

// retryBeyondDeadline: a shutdown does not wait for what is due too late.
func retryBeyondDeadline(d *bed) {
	s := d.stage("work", bus.StageConfig{}, func(context.Context, *bus.Envelope) error { return bus.RetryAfter(time.Hour) })
	d.start()
	d.mustPublish(s, 0, 1)
	synctest.Wait()
	before := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := d.bus.Shutdown(ctx)
	d.want(errors.Is(err, bus.ErrNotDrained), "got %v, want not drained", err)
	equal(d, "a shutdown waited for a retry that is due after its deadline", time.Since(before), 0)
	d.wantEnd(0, bus.Abandoned, reason.Shutdown)
}

func lifecycle() []check {
	return []check{
		{name: "NothingLeft", real: nothingLeft},
		{name: "EndsOnce", run: endsOnce},
		{name: "NeverStarted", run: neverStarted},
		{name: "FromInside", run: shutdownFromInside},
	}
}

// nothingLeft makes and ends buses in every way that there is and counts
// goroutines.
func nothingLeft(t *testing.T, d *bed) {
	t.Helper()
	oneLife(t, d, 0) // what the first use of anything starts
	before := runtime.NumGoroutine()
	for i := range long(20, 200) {
		oneLife(t, d, i)
	}
	// Goroutines on their way out need the processor, nothing else.
	for range 100_000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
	}
	t.Fatalf("goroutines left by buses that have ended: %d, at the start %d", runtime.NumGoroutine(), before)
}

func oneLife(t *testing.T, d *bed, i int) {
	t.Helper()
	b := d.kit.New(t, bus.Config{Hooks: bus.Hooks{Drop: func([]bus.DropInfo) {}}})
	handled := make(chan struct{}, 64)
	s := bustest.Stage(t, b, "work", bus.StageConfig{Concurrency: 4}, func(_ context.Context, e *bus.Envelope) error {
		handled <- struct{}{}
		if number(e) == 0 && e.Attempt() == 1 {
			return bus.RetryAfter(time.Hour)
		}
		return nil
	})
	if i%4 != 3 {
		bustest.Start(t, b)
		for n := range 32 {
			if err := s.Publish(d.ctx, &bus.Envelope{Payload: n, OnDone: func(bus.Result) {}}); err != nil {
				t.Fatal(err)
			}
		}
		for range 32 {
			<-handled
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	switch i % 4 {
	case 0:
		_ = b.Close()
	case 1:
		cancel()
		_, _ = b.Shutdown(ctx)
	case 2:
		bounded, done := context.WithTimeout(ctx, time.Minute) // the retry is due later
		_, _ = b.Shutdown(bounded)
		done()
	case 3:
		_ = b.Close()
	}
	cancel()
	var st bus.Stats
	b.ReadStats(&st)
	if st.Pending != 0 {
		t.Fatalf("pending after the end: %s", st.Account())
	}
}

func endsOnce(d *bed) {
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{}, gate.Handler(d.note))
	d.start()
	d.want(errors.Is(d.bus.Start(), bus.ErrConflict), "a second Start is not refused")
	d.mustPublish(s, 0, 3)
	const callers = 4
	reports := make(chan bus.Report, callers)
	for range callers {
		go func() {
			r, err := d.bus.Shutdown(context.Background())
			if err != nil {
				d.Errorf("a shutdown at the same time as another: %v", err)
			}
			reports <- r
		}()
	}
	synctest.Wait()
	equal(d, "shutdowns that returned before the bus was drained", len(reports), 0)
	gate.Open()
	synctest.Wait()
	equal(d, "shutdowns that returned the report", len(reports), callers)
	for range callers {
		r := <-reports
		equal(d, "completed, by each report", r.Stats.Completed, 3)
	}
	d.want(d.bus.Close() == nil, "a close after the drain says that something was abandoned")
	d.want(errors.Is(d.bus.Start(), bus.ErrClosed), "a closed bus can be started")
	d.want(errors.Is(s.TryPublish(d.env(3)), bus.ErrClosed), "a closed bus takes a publish")
	_, err := d.bus.Stage("other", bus.StageConfig{})
	d.want(errors.Is(err, bus.ErrClosed), "a closed bus takes a stage: %v", err)
}

func neverStarted(d *bed) {
	s := d.stage("work", bus.StageConfig{}, d.note)
	d.want(errors.Is(s.TryPublish(d.env(0)), bus.ErrNotStarted), "a bus that was not started takes a publish")
	d.mustDrain()
	d.want(errors.Is(s.TryPublish(d.env(0)), bus.ErrClosed), "a bus that was closed before it was started takes a publish")
	equal(d, "refused{not_started}", d.stageStats(s).Refused[reason.NotStarted], 1)
}

// shutdownFromInside: a handler may end the bus that it runs on.
func shutdownFromInside(d *bed) {
	s := d.stage("work", bus.StageConfig{}, d.noting(func(ctx context.Context, e *bus.Envelope) error {
		if number(e) == 1 {
			bounded, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := d.bus.Shutdown(bounded)
			return err
		}
		return nil
	}))
	d.start()
	d.queued(s, func() { d.mustPublish(s, 0, 3) })
	time.Sleep(time.Minute)
	d.wantEnd(0, bus.Completed, reason.None)
	d.wantEnd(1, bus.Abandoned, reason.Shutdown)
	d.wantEnd(2, bus.Abandoned, reason.Shutdown)
}

func closeWakes() []check {
	return []check{
		{name: "Close", run: func(d *bed) { wakes(d, bus.ErrClosed, func() { _ = d.bus.Close() }) }},
		{name: "Shutdown", run: func(d *bed) {
			wakes(d, bus.ErrClosed, func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				d.onEnd(cancel)
				go func() { _, _ = d.bus.Shutdown(ctx) }()
			})
		}},
		{name: "Pause", run: func(d *bed) { wakes(d, bus.ErrPaused, func() { d.bus.Pause(bus.Hold{}) }) }},
		{name: "Receivers", run: closeWakesReceivers},
	}
}

// wakes blocks publishers and callers without any deadline, ends their wait
// and wants all of them back with the error.
func wakes(d *bed, want error, end func()) {
	gate := d.gate()
	s := d.stage("work", bus.StageConfig{Capacity: 1}, gate.Handler(d.note))
	d.start()
	n := d.fill(s)
	const blocked = 5
	errs := make(chan error, 2*blocked)
	for i := range blocked {
		go func() { errs <- d.publish(s, d.env(n+i)) }()
		go func() {
			_, err := s.Call(d.ctx, &bus.Envelope{Payload: 1000 + i})
			errs <- err
		}()
	}
	synctest.Wait()
	equal(d, "waiting publishers", d.stageStats(s).Waiters, 2*blocked)
	end()
	synctest.Wait()
	equal(d, "publishers that came back when their wait was ended", len(errs), 2*blocked)
	for range 2 * blocked {
		err := <-errs
		d.want(errors.Is(err, want) && errors.Is(err, bus.ErrRejected), "a publisher that was woken: got %v, want %v", err, want)
	}
	equal(d, "waiting publishers after that", d.stageStats(s).Waiters, 0)
	gate.Open()
}

func closeWakesReceivers(d *bed) {
	s := d.stage("pull", bus.StageConfig{Pull: true}, nil)
	d.start()
	errs := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := s.Receive(d.ctx)
			errs <- err
		}()
	}
	synctest.Wait()
	_ = d.bus.Close()
	synctest.Wait()
	equal(d, "receivers that came back when the bus was closed", len(errs), 3)
	for range 3 {
		err := <-errs
		d.want(errors.Is(err, bus.ErrClosed), "a receiver that was woken: got %v", err)
	}
}
