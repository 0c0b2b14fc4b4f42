package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// slices is in how many parts the measurement is cut. The median of their rates
// counts, so that a moment in which the machine stands still does not. It is 1
// where a part would be too short to tell anything.
func (c *Config) slices() int {
	const most, rounds = 5, 20
	if c.measuringTime() < most*rounds*c.Service {
		return 1
	}
	return most
}

// measuringTime is calibrationTime without the warm-up.
func (c *Config) measuringTime() time.Duration {
	return time.Duration((1 - warmUp) * float64(c.calibrationTime()))
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// calibrate measures the pipeline's capacity in completions per second. It is a
// closed loop: a fixed number of jobs is under way, enough to keep every server
// busy, and each that ends lets the next one in. It returns 0 when ctx ends
// first. While it runs, the stages have room for the loop whatever the settings,
// and nothing is shed; the shedders learn the service times.
func calibrate(ctx context.Context, c *Config, p *pipeline, t *tally) (capacity float64, err error) {
	loop := 2*c.Concurrency + 2
	p.bus.SetShedding(false)
	if err := p.tune(max(c.Capacity, loop), bus.Reject); err != nil {
		return 0, err
	}
	length := c.measuringTime()
	mark := time.NewTimer(c.calibrationTime() - length)
	defer mark.Stop()

	free := make(chan struct{}, loop)
	for range loop {
		free <- struct{}{}
	}
	var before uint64
	var since time.Time // the latest mark
	var rates []float64
	for work := range arrivals.Works(c.Service, c.Seed) {
		for stay := true; stay; {
			select {
			case <-ctx.Done():
				t.seal(0)
				return 0, nil
			case <-mark.C:
				done, now := t.completed(), time.Now()
				if !since.IsZero() {
					rates = append(rates, float64(done-before)/now.Sub(since).Seconds())
				}
				if len(rates) == c.slices() {
					capacity = median(rates)
					return capacity, settle(ctx, c, p, t, capacity)
				}
				before, since = done, now
				mark.Reset(length / time.Duration(c.slices()))
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
		j.tally.done(r, j.due)
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
	t.seal(0)
	select {
	case <-t.ended:
	case <-ctx.Done():
		return nil
	}
	if !(capacity > 0) {
		return fmt.Errorf("calibration: %w", errNothingDone)
	}
	p.bus.SetShedding(true)
	return p.tune(c.Capacity, c.Policy)
}
