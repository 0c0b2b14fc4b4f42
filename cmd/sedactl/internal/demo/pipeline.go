package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/shedder"
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
	tally *tally        // of the phase and pipeline that it belongs to
}

// pipeline is the bus under load.
type pipeline struct {
	sheds    bool
	bus      *bus.Bus
	stages   []*bus.Stage
	slip     bus.Slip      // from parse on
	deadline time.Duration // of each arrival, from its time on; 0 is none
	napper   napper
}

// newPipeline returns a pipeline that runs. The one that sheds has the default
// shedder in each stage; there is no other difference.
func newPipeline(c *Config, sheds bool) (*pipeline, error) {
	cfg := bus.Config{Name: "demo"}
	if sheds {
		cfg.NewShedder = shedder.Default
	}
	b, err := bus.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("make the bus: %w", err)
	}
	p := &pipeline{sheds: sheds, bus: b, slip: bus.Via(stageWork, stageStore)}
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
	err := p.napper.nap(ctx, j.work)
	if errors.Is(err, context.DeadlineExceeded) {
		return bus.Discard("its deadline passed while it was handled")
	}
	return err
}

// publish offers a job to the pipeline and never waits.
func (p *pipeline) publish(j *job) {
	e := &bus.Envelope{Payload: j, Slip: p.slip, OnDone: func(r bus.Result) { j.tally.done(r, j.due) }}
	if p.deadline > 0 {
		e.SetDeadline(j.due.Add(p.deadline))
	}
	j.tally.published(p.stages[0].TryPublish(e))
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

// depth returns how many wait in all stages.
func (p *pipeline) depth(s *bus.Stats) int {
	p.bus.ReadStats(s)
	n := 0
	for i := range s.Stages {
		n += s.Stages[i].Depth
	}
	return n
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
