package form

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bus"
)

// PolicySystems returns the two policies under which producers wait, each with
// both ways to publish: block-publish, block-handle, credit-publish and
// credit-handle, whose window adapts, and credit-max-publish and
// credit-max-handle, whose window is the capacity.
func PolicySystems() []load.System {
	var all []load.System
	for _, full := range []struct {
		name string
		kind kind
	}{
		{"block", kind{full: bus.Block}},
		{"credit", kind{full: bus.Credit}},
		{"credit-max", kind{full: bus.Credit, most: true}},
	} {
		plain, handles := full.kind, full.kind
		plain.api, handles.api = publish, handle
		all = append(all,
			load.System{Name: full.name + "-publish", Open: plain.open},
			load.System{Name: full.name + "-handle", Open: handles.open})
	}
	return all
}

// Read reads what happened in the stage that the producers publish to. It is a
// load.Observer.
func (in *instance) Read(elapsed time.Duration) load.Inside {
	var st bus.StageStats
	in.entry.ReadStats(&st)
	var c bus.CreditState
	in.entry.ReadCredit(&c)
	return load.Inside{
		WaitP50: st.Wait.Quantile(0.5).Seconds(), WaitP99: st.Wait.Quantile(0.99).Seconds(), WaitMean: st.Wait.Mean().Seconds(),
		Depth: st.Wait.Sum().Seconds() / elapsed.Seconds(), MaxDepth: float64(st.MaxDepth), Service: st.Service.Mean().Seconds(),
		Window: float64(c.Window), Target: c.Target.Seconds(), Blocked: c.Blocked.Seconds(),
	}
}

// Entered is how many messages the producers' stage has taken in.
func (in *instance) Entered() uint64 {
	var st bus.StageStats
	in.entry.ReadStats(&st)
	return st.Entered
}

const (
	costRound = 4096 // publishes in one go
	costWarm  = 4    // goes before the clock counts
)

// MeasurePublish measures what one publish costs its caller while there is room,
// in one of the PolicySystems and for about d: the handler is held up meanwhile.
// A handle has acquired its credits before; other publishes take them from the
// stage one by one.
func MeasurePublish(ctx context.Context, sys string, d time.Duration) (load.Sample, error) {
	k, ok := map[string]kind{
		"block-publish":      {full: bus.Block},
		"block-handle":       {full: bus.Block, api: handle},
		"credit-max-publish": {full: bus.Credit},
		"credit-max-handle":  {full: bus.Credit, api: handle},
	}[sys]
	if !ok {
		return load.Sample{}, load.ErrUnsupported
	}
	b, err := bus.New(bus.Config{})
	if err != nil {
		return load.Sample{}, err
	}
	defer b.Shutdown(ctx) //nolint:errcheck // nothing is left to lose
	c := bus.StageConfig{Capacity: 2 * costRound, Full: k.full}
	c.Credit.Window = 2 * costRound
	st, err := b.Stage("s", c)
	if err != nil {
		return load.Sample{}, err
	}
	var gate sync.Mutex
	h := func(context.Context, *bus.Envelope) error {
		gate.Lock()
		gate.Unlock() //nolint:staticcheck // to get through is all
		return nil
	}
	if err := errors.Join(st.Handle(h), b.Start()); err != nil {
		return load.Sample{}, err
	}
	p := st.Producer()
	defer p.Close()
	s := load.Sample{Workload: "cost", System: sys}
	for round := 0; s.Seconds < d.Seconds(); round++ {
		took, allocs, err := costOnce(ctx, k, st, p, &gate)
		if err != nil {
			return load.Sample{}, err
		}
		if round >= costWarm {
			s.Messages += costRound
			s.Seconds += took.Seconds()
			s.Allocs += allocs
		}
	}
	s.Allocs /= float64(s.Messages)
	return s, nil
}

// costOnce publishes one round and waits until it was handled.
func costOnce(ctx context.Context, k kind, st *bus.Stage, p *bus.Producer, gate *sync.Mutex) (took time.Duration, allocs float64, err error) {
	e := bus.Envelope{Payload: st}
	var before, after runtime.MemStats
	gate.Lock()
	if k.full == bus.Credit && k.api == handle {
		err = p.Acquire(ctx, costRound)
	}
	runtime.ReadMemStats(&before)
	start := time.Now()
	if k.api == handle {
		for i := 0; i < costRound && err == nil; i++ {
			err = p.Publish(ctx, &e)
		}
	} else {
		for i := 0; i < costRound && err == nil; i++ {
			err = st.Publish(ctx, &e)
		}
	}
	took = time.Since(start)
	runtime.ReadMemStats(&after)
	gate.Unlock()
	if err != nil {
		return 0, 0, fmt.Errorf("form: %w", err)
	}
	var stats bus.StageStats
	for st.ReadStats(&stats); stats.Depth+stats.InFlight > 0; st.ReadStats(&stats) {
		time.Sleep(100 * time.Microsecond)
	}
	return took, float64(after.Mallocs - before.Mallocs), nil
}
