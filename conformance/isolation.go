package conformance

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing/synctest"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/reason"
)

func isolation() []check {
	var fired atomic.Int64
	hook := func(kind explosion) { fired.Add(1); kind.explode() }
	return []check{
		{name: "HandlerPanics", run: func(d *bed) { handlersExplode(d, panicsText, panicsNil, panicsError) }},
		{name: "HandlerGoexits", run: func(d *bed) { handlersExplode(d, goexits) }},
		{name: "CallbackPanics", run: func(d *bed) { callbacksExplode(d, panicsText) }},
		{name: "CallbackGoexits", run: func(d *bed) { callbacksExplode(d, goexits) }},
		{name: "HooksPanic", run: hooksExplode, cfg: bus.Config{Hooks: bus.Hooks{
			Drop:       func([]bus.DropInfo) { hook(panicsText) },
			DeadLetter: func(bus.LetterInfo) { hook(panicsNil) },
			Panic:      func(bus.PanicInfo) { hook(panicsError) },
			State:      func(bus.StateInfo) { hook(panicsText) },
		}}},
		{name: "LetterHookGoexits", run: letterHookGoexits, cfg: bus.Config{Hooks: bus.Hooks{
			DeadLetter: func(bus.LetterInfo) { hook(goexits) },
		}}},
		{name: "PanicHookGoexits", run: panicHookGoexits, cfg: bus.Config{Hooks: bus.Hooks{
			Panic: func(bus.PanicInfo) { hook(goexits) },
		}}},
		{name: "DropHookGoexits", run: dropHookGoexits, cfg: bus.Config{Hooks: bus.Hooks{
			Drop: func([]bus.DropInfo) { hook(goexits) },
		}}},
	}
}

// explosion is a way not to return.
type explosion int

const (
	panicsText explosion = iota
	panicsNil
	panicsError
	goexits
)

var errThrown = errors.New("thrown on purpose")

func (x explosion) explode() {
	switch x {
	case panicsText:
		panic("on purpose") //nolint:forbidigo // what the bus has to contain
	case panicsNil:
		panic(nil) //nolint:forbidigo,govet // what the bus has to contain
	case panicsError:
		panic(errThrown) //nolint:forbidigo // what the bus has to contain
	case goexits:
		runtime.Goexit()
	}
}

// handlersExplode lets every third call explode, in stages that claim one by
// one and in chunks.
func handlersExplode(d *bed, kinds ...explosion) {
	const each = 30
	explode := func(ctx context.Context, e *bus.Envelope) error {
		if n := number(e); n%3 == 0 {
			kinds[n/3%len(kinds)].explode()
		}
		return d.note(ctx, e)
	}
	single := d.stage("single", bus.StageConfig{Concurrency: 2, Batch: 1}, explode)
	chunks := d.stage("chunks", bus.StageConfig{Batch: 16}, explode)
	d.start()
	d.queued(single, func() { d.mustPublish(single, 0, each) })
	d.queued(chunks, func() { d.mustPublish(chunks, each, 2*each) })
	rest()
	for n := range 2 * each {
		r, ok := d.result(n)
		if n%3 != 0 {
			d.want(ok, "envelope %d was not handled after the call for another one exploded", n)
			equal(d, "the end of an envelope beside one that exploded", r.End, bus.Completed)
			continue
		}
		d.wantEnd(n, bus.DeadLettered, reason.Attempts)
		_, isPanic := errors.AsType[*bus.PanicError](r.Err)
		d.want(isPanic, "the Result's error is %v, want a PanicError", r.Err)
	}
	d.stats()
	// The workers live on.
	d.mustPublish(single, 2*each+1, 2*each+3)
	st := d.stats()
	equal(d, "panics counted", st.Stages[0].Panics+st.Stages[1].Panics, 2*each/3)
	d.mustDrain()
	equal(d, "handled", len(d.seen()), 2*each*2/3+2)
}

func callbacksExplode(d *bed, kind explosion) {
	const all = 20
	s := d.stage("work", bus.StageConfig{}, d.note)
	d.start()
	for n := range all {
		e := d.env(n)
		note := e.OnDone
		e.OnDone = func(r bus.Result) {
			note(r)
			if n%3 == 0 {
				kind.explode()
			}
		}
		if err := d.publish(s, e); err != nil {
			d.Fatal(err)
		}
	}
	synctest.Wait()
	for n := range all {
		_, ok := d.result(n)
		d.want(ok, "the callback of envelope %d was not called after another one exploded", n)
	}
	equal(d, "panics counted", d.stats().Panics, (all+2)/3)
	d.mustDrain()
}

func hooksExplode(d *bed) {
	s := d.stage("work", bus.StageConfig{Capacity: 2, Full: bus.DropOldest}, d.noting(func(_ context.Context, e *bus.Envelope) error {
		switch number(e) % 3 {
		case 0:
			return errWanted // the dead-letter hook
		case 1:
			panicsText.explode() // the panic hook, then the dead-letter hook
		}
		return nil
	}))
	d.start() // the state hook
	d.bus.Pause(bus.Hold{})
	d.bus.Resume("")
	d.queued(s, func() { d.mustPublish(s, 0, 4) }) // the drop hook, twice
	synctest.Wait()
	d.wantEnd(0, bus.Dropped, reason.Evicted)
	d.wantEnd(1, bus.Dropped, reason.Evicted)
	d.wantEnd(2, bus.Completed, reason.None)
	d.wantEnd(3, bus.DeadLettered, reason.Attempts)
	d.mustPublish(s, 4, 5)
	d.wantEnd(4, bus.DeadLettered, reason.Attempts)
	d.mustPublish(s, 5, 6)
	d.wantEnd(5, bus.Completed, reason.None)
	d.want(d.stats().Panics >= 5, "hooks that panicked are not counted: %d", d.stats().Panics)
	d.mustDrain()
}

func dropHookGoexits(d *bed) {
	s := d.stage("work", bus.StageConfig{Capacity: 1, Full: bus.DropOldest}, d.note)
	d.start()
	s.Suspend(bus.Hold{})
	for n := range 5 {
		d.mustPublish(s, n, n+1)
		before := d.stats().Panics
		equal(d, "drop hooks called after one called Goexit", before, uint64(n))
	}
	s.Resume("")
	d.mustDrain()
	sameOrder(d, "handled", d.seen(), []int{4})
}

// letterHookGoexits: the hook runs on the goroutine that handles envelopes.
func letterHookGoexits(d *bed) {
	s := d.stage("work", bus.StageConfig{Batch: 16}, d.noting(func(_ context.Context, e *bus.Envelope) error {
		if number(e)%3 == 0 {
			return errWanted
		}
		return nil
	}))
	d.start()
	d.queued(s, func() { d.mustPublish(s, 0, 12) })
	rest()
	for n := range 12 {
		_, ok := d.result(n)
		d.want(ok, "envelope %d got no Result after a dead-letter hook called Goexit", n)
	}
	d.mustDrain()
	sameOrder(d, "handled", d.seen(), upTo(0, 12))
	equal(d, "letters in the store", d.bus.Letters().Stats().Count, 4)
}

// panicHookGoexits: so does this one, after the handler has panicked.
func panicHookGoexits(d *bed) {
	s := d.stage("work", bus.StageConfig{Batch: 16}, d.noting(func(_ context.Context, e *bus.Envelope) error {
		if number(e)%3 == 0 {
			panicsText.explode()
		}
		return nil
	}))
	d.start()
	d.queued(s, func() { d.mustPublish(s, 0, 12) })
	rest()
	for n := range 12 {
		_, ok := d.result(n)
		d.want(ok, "envelope %d got no Result after a panic hook called Goexit", n)
	}
	d.mustDrain()
	sameOrder(d, "handled", d.seen(), upTo(0, 12))
}
