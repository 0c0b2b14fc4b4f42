package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/cmd/sedactl/internal/arrivals"
)

// warmUp is the part of the calibration that is not measured.
const warmUp = 0.2

// errNothingDone says that the calibration found no capacity.
var errNothingDone = errors.New("nothing was completed; give it a longer --duration or a shorter --service")

// calibrationTime is how long to measure: half a phase and at most 3 s, but at
// least a dozen rounds of all servers.
func (c *Config) calibrationTime() time.Duration {
	return max(min(c.Duration/2, 3*time.Second), 12*c.Service)
}

// calibrate measures the pipeline's capacity in completions per second. It is a
// closed loop: a fixed number of jobs is under way, enough to keep every server
// busy, and each that ends lets the next one in. It returns 0 when ctx ends
// first. While it runs, the stages have room for the loop whatever the settings.
func calibrate(ctx context.Context, c *Config, p *pipeline, t *tally) (capacity float64, err error) {
	loop := 2*c.Concurrency + 2
	if err := p.tune(max(c.Capacity, loop), bus.Reject); err != nil {
		return 0, err
	}
	length := c.calibrationTime()
	begin := time.NewTimer(time.Duration(warmUp * float64(length)))
	defer begin.Stop()
	end := time.NewTimer(length)
	defer end.Stop()

	free := make(chan struct{}, loop)
	for range loop {
		free <- struct{}{}
	}
	var before uint64
	since := time.Now() // counts if both timers fire before either is looked at
	for work := range arrivals.Works(c.Service, c.Seed) {
		for stay := true; stay; {
			select {
			case <-ctx.Done():
				t.seal()
				return 0, nil
			case <-begin.C:
				before, since = t.completed(), time.Now()
			case <-end.C:
				capacity = float64(t.completed()-before) / time.Since(since).Seconds()
				return capacity, settle(ctx, c, p, t, capacity)
			case <-free:
				stay = false
			}
		}
		p.publishLoop(&job{due: time.Now(), work: work, tally: t}, free)
	}
	return 0, nil
}

// publishLoop offers a job of the closed loop; its end, or its refusal, frees
// the place.
func (p *pipeline) publishLoop(j *job, free chan<- struct{}) {
	err := p.stages[0].TryPublish(&bus.Envelope{Payload: j, Slip: p.slip, OnDone: func(r bus.Result) {
		j.tally.done(r)
		free <- struct{}{}
	}})
	j.tally.published(err)
	if err != nil {
		free <- struct{}{}
	}
}

// settle ends the calibration: it lets what is under way end and gives the
// stages the settings asked for.
func settle(ctx context.Context, c *Config, p *pipeline, t *tally, capacity float64) error {
	t.seal()
	select {
	case <-t.ended:
	case <-ctx.Done():
		return nil
	}
	if !(capacity > 0) {
		return fmt.Errorf("calibration: %w", errNothingDone)
	}
	return p.tune(c.Capacity, c.Policy)
}
