// Package onbus runs scenarios on the bus itself, in simulated time: stages of
// the bus with their shedders, handlers that sleep for as long as the service
// takes, and a publisher that follows the schedule.
package onbus

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sedabus/seda/bench/overload/internal/sim"
	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
	"github.com/sedabus/seda/shedder"
)

// capacity is of each stage: well above any bound of a shedder's.
const capacity = 1 << 14

// run is a run in progress.
type run struct {
	spec  *sim.Spec
	seed  uint64
	began time.Time
	jobs  []sim.Job
	tries []uint8 // of each job, at the stage where it is
	most  atomic.Int64
	again atomic.Int64
}

// Run runs a scenario. It has to be called in a bubble.
func Run(spec *sim.Spec, seed uint64) *sim.Result {
	r := &run{spec: spec, seed: seed, began: time.Now(), jobs: spec.Jobs(seed)}
	r.tries = make([]uint8, len(r.jobs))
	out := &sim.Result{Spec: spec, Seed: seed, Jobs: r.jobs, Inversions: -1}
	b, first, err := r.open()
	if err != nil {
		return out // with every job pending: all gates are missed
	}
	r.publish(first)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	_, _ = b.Shutdown(ctx) // whatever is left stays pending
	out.MaxWaiting, out.Retries = int(r.most.Load()), int(r.again.Load())
	return out
}

// name is that of a stage, a sender or a class.
func name(i int) string { return strconv.Itoa(i) }

// open makes the bus.
func (r *run) open() (*bus.Bus, *bus.Stage, error) {
	b, err := bus.New(bus.Config{NewShedder: shedder.Default})
	if err != nil {
		return nil, nil, err
	}
	var first *bus.Stage
	for i, st := range r.spec.Itinerary() {
		c := bus.StageConfig{
			Concurrency: st.Workers, Capacity: capacity,
			Retry: retry.Policy{
				MaxAttempts: max(1, r.spec.Attempts), Kind: retry.Exponential, Base: 2 * sim.RetryBase(st.Service), Jitter: retry.Full,
			},
		}
		if i == 0 {
			for k, cl := range r.spec.Classes {
				c.Classes = append(c.Classes, bus.Class{Name: name(k), MinShare: int(math.Round(100 * cl.Share))})
			}
		}
		s, err := b.Stage(name(i), c)
		if err != nil {
			return nil, nil, err
		}
		if err := s.Handle(func(_ context.Context, e *bus.Envelope) error { return r.handle(e, i) }); err != nil {
			return nil, nil, err
		}
		if i == 0 {
			first = s
		}
	}
	return b, first, b.Start()
}

func (r *run) now() time.Duration { return time.Since(r.began) }

var errDown = errors.New("what is behind the stage is down")

// handle is one attempt at a stage.
func (r *run) handle(e *bus.Envelope, stage int) error {
	j, ok := e.Payload.(*sim.Job)
	if !ok {
		return errDown
	}
	now := r.now()
	j.Wait += now - j.Entered
	j.Started, j.Stage = now, uint8(stage)
	if j.Deadline > 0 && now+r.spec.Shortest(stage) > j.Deadline {
		j.Wasted = true
	}
	took := r.spec.ServiceOf(r.seed, j.ID, stage, int(r.tries[j.ID]), now)
	j.Attempts++
	if r.tries[j.ID]++; r.tries[j.ID] > 1 {
		r.again.Add(1)
	}
	time.Sleep(r.spec.EndOf(now, took) - now)
	end := r.now()
	j.Work += end - now
	j.Last = end - now
	j.Entered = end
	if r.spec.Fails(end) {
		return errDown
	}
	r.tries[j.ID] = 0
	return nil
}

// publish follows the schedule.
func (r *run) publish(first *bus.Stage) {
	var rest []string
	for i := 1; i < len(r.spec.Itinerary()); i++ {
		rest = append(rest, name(i))
	}
	slip := bus.Via(rest...)
	for i := range r.jobs {
		j := &r.jobs[i]
		if d := j.At - r.now(); d > 0 {
			time.Sleep(d)
		}
		e := bus.Envelope{Payload: j, Slip: slip, OnDone: func(res bus.Result) { r.done(j, &res) }}
		if j.Deadline > 0 {
			e.SetDeadline(r.began.Add(j.Deadline))
		}
		if c, s := r.class(j), r.sender(j); c != "" || s != "" {
			e.Meta = &bus.Meta{Class: c, Sender: s}
		}
		if err := first.TryPublish(&e); err != nil {
			j.Fate, j.End = sim.Shed, r.now()
		}
	}
}

func (r *run) class(j *sim.Job) string {
	if len(r.spec.Classes) < 2 {
		return ""
	}
	return name(int(j.Class))
}

func (r *run) sender(j *sim.Job) string {
	if len(r.spec.Senders) < 2 {
		return ""
	}
	return name(int(j.Sender))
}

// done notes the end of an envelope.
func (r *run) done(j *sim.Job, res *bus.Result) {
	j.End = r.now()
	switch {
	case res.End == bus.Completed:
		j.Fate = sim.Completed
	case res.End == bus.DeadLettered:
		j.Fate = sim.Failed
	case res.Reason == reason.PushedOut:
		j.Fate = sim.PushedOut
	default:
		j.Fate = sim.Dropped
	}
}
