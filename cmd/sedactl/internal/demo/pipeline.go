package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/sedabus/seda/bus"
)

// The stages, in the order of the way through them.
const (
	stageParse = "parse"
	stageWork  = "work" // the bottleneck
	stageStore = "store"
)

// job is the payload.
type job struct {
	due   time.Time     // when it was meant to arrive
	work  time.Duration // service time in the bottleneck
	tally *tally        // of the phase that it belongs to
}

// pipeline is the bus under load.
type pipeline struct {
	bus    *bus.Bus
	stages []*bus.Stage
	slip   bus.Slip // from parse on
	napper napper
}

// newPipeline returns a pipeline that runs.
func newPipeline(c *Config) (*pipeline, error) {
	b, err := bus.New(bus.Config{Name: "demo"})
	if err != nil {
		return nil, fmt.Errorf("make the bus: %w", err)
	}
	p := &pipeline{bus: b, slip: bus.Via(stageWork, stageStore)}
	for _, s := range []struct {
		name    string
		handler bus.Handler
	}{
		{stageParse, pass},
		{stageWork, p.work},
		{stageStore, pass},
	} {
		st, err := b.Stage(s.name, bus.StageConfig{
			Capacity: c.Capacity, Concurrency: c.Concurrency, Full: c.Policy,
			ExactTiming: true, // the waits are on show
		})
		if err != nil {
			return nil, fmt.Errorf("make the stage: %w", err)
		}
		if err := st.Handle(s.handler); err != nil {
			return nil, fmt.Errorf("give stage %s its handler: %w", s.name, err)
		}
		p.stages = append(p.stages, st)
	}
	if err := b.Start(); err != nil {
		return nil, fmt.Errorf("start the bus: %w", err)
	}
	return p, nil
}

// pass is the handler of the stages whose work is too short to matter.
func pass(context.Context, *bus.Envelope) error { return nil }

// work is the bottleneck's handler.
func (p *pipeline) work(ctx context.Context, e *bus.Envelope) error {
	j, ok := e.Payload.(*job)
	if !ok {
		return bus.DeadLetter("not a job")
	}
	j.tally.started(time.Since(j.due))
	return p.napper.nap(ctx, j.work)
}

// publish offers a job to the pipeline and never waits.
func (p *pipeline) publish(j *job) {
	err := p.stages[0].TryPublish(&bus.Envelope{Payload: j, Slip: p.slip, OnDone: j.tally.done})
	j.tally.published(err)
}

// tune sets capacity and full policy of all stages while they run.
func (p *pipeline) tune(capacity int, full bus.FullPolicy) error {
	for _, s := range p.stages {
		err := s.Tune(func(c *bus.StageConfig) { c.Capacity, c.Full = capacity, full })
		if err != nil {
			return fmt.Errorf("tune stage %s: %w", s.Name(), err)
		}
	}
	return nil
}

// account returns the bus's account, beside what the demo published itself.
func (p *pipeline) account(s *bus.Stats, published uint64) Account {
	p.bus.ReadStats(s)
	a := Account{
		Accepted:     s.Accepted,
		Completed:    s.Completed,
		DeadLettered: s.DeadLettered,
		Dropped:      countsOf(&s.Dropped),
		Abandoned:    s.Abandoned,
		Pending:      s.Pending,
		Refused:      countsOf(&s.Refused),
		Published:    published,
	}
	a.Balanced = a.balances()
	return a
}
