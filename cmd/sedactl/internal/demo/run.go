package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/cmd/sedactl/internal/arrivals"
)

// calibration is the name of the phase that measures the capacity.
const calibration = "calibrate"

// loads are the phases: so many capacities, for that part of the phase length.
var loads = []struct{ factor, part float64 }{{0.5, 1}, {1, 1}, {2, 1}, {4, 0.5}}

// View is how a run is watched.
type View struct {
	Every time.Duration // between two frames, above 0
	// Show gets each frame, one call at a time, and must not keep it. It is
	// called a last time when all is over.
	Show func(f *Frame)
}

// run is one run of the demo.
type run struct {
	cfg    *Config
	pipes  []*pipeline // that get the same arrivals at the same time
	budget time.Duration
	start  time.Time
	replay *Replay
	phases []*phase

	mu struct {
		sync.Mutex
		measured float64
		note     string
	}
}

// phase is one part of a run.
type phase struct {
	name     string
	factor   float64           // of the measured capacity; 0 for the calibration and a trace
	schedule arrivals.Schedule // nil: made of the factor
	length   time.Duration
	tallies  []*tally // one for each pipeline

	// Guarded by run.mu.
	rate  float64
	begun time.Time
	state string
	lag   time.Duration
}

// Run runs the demo as cfg says and returns what came of it. When stop is
// closed (nil never is) it ends early: no more arrives, and what is under way is drained. When
// ctx ends it is cut: what is under way is abandoned. Neither is an error. A
// run whose account does not balance is none either, see [Account].
func Run(ctx context.Context, cfg Config, stop <-chan struct{}, view View) (*Summary, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	r, err := newRun(&cfg)
	if err != nil {
		return nil, err
	}

	load, stopLoad := context.WithCancel(ctx)
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	var owned sync.WaitGroup // ends before Run does
	owned.Go(func() {
		select {
		case <-stop:
			r.setNote("stopping: what is under way is drained; interrupt again to cut")
			stopLoad()
		case <-load.Done():
		}
	})
	watched := make(chan struct{})
	go func() { // ends with stopWatching
		defer close(watched)
		r.watch(watching, view)
	}()

	runErr := r.runPhases(ctx, load)
	end := endOf(ctx, load)
	stopLoad()
	owned.Wait()
	if err := r.shutdown(ctx); err != nil && runErr == nil {
		runErr = err
	}
	r.setNote("") // all is said and done
	stopWatching()
	<-watched
	if runErr != nil {
		return nil, runErr
	}
	return r.summary(end), nil
}

// newRun plans a run and starts its pipelines.
func newRun(cfg *Config) (*run, error) {
	r := &run{cfg: cfg, start: time.Now()}
	r.plan()
	for _, sheds := range cfg.Shed.sides() {
		p, err := newPipeline(cfg, sheds)
		if err != nil {
			return nil, err
		}
		if cfg.Deadlines {
			p.deadline = r.budget
		}
		r.pipes = append(r.pipes, p)
	}
	for _, p := range r.phases {
		p.state = stateWaits
		for range r.pipes {
			p.tallies = append(p.tallies, newTally(r.budget))
		}
	}
	return r, nil
}

// plan sets the phases up.
func (r *run) plan() {
	c := r.cfg
	if c.Trace != nil {
		r.planTrace()
		return
	}
	r.budget = r.times(c.Service)
	r.phases = append(r.phases, &phase{name: calibration, length: c.calibrationTime()})
	for _, l := range loads {
		r.phases = append(r.phases, &phase{
			name: fmt.Sprintf("%gx", l.factor), factor: l.factor,
			length: time.Duration(l.part * float64(c.Duration)),
		})
	}
}

// times returns the budget for a mean service time.
func (r *run) times(service time.Duration) time.Duration {
	// Neither bound of the product is near what a Duration holds: a minute times
	// a million is two years; a trace's mean is bounded here.
	const most = float64(10 * 365 * 24 * time.Hour)
	return time.Duration(min(r.cfg.Budget*float64(service), most))
}

func (r *run) planTrace() {
	c := r.cfg
	per := arrivals.PerToken(c.Trace, c.Speed, c.Load, c.Concurrency)
	tokens := c.Trace.Generated()
	if per == 0 && tokens > 0 { // no length, so no rate: the mean service time then
		per = max(c.Service*time.Duration(len(c.Trace.Rows))/time.Duration(tokens), 1)
	}
	span := time.Duration(float64(c.Trace.Span()) / c.Speed)
	p := &phase{
		name: "trace", length: span,
		schedule: arrivals.Recorded(c.Trace.Rows, c.Speed, per),
	}
	if span > 0 {
		p.rate = float64(len(c.Trace.Rows)) / span.Seconds()
	}
	if c.Duration > 0 && c.Duration < span {
		p.length = c.Duration
		p.schedule = arrivals.Until(p.schedule, c.Duration)
	}
	r.budget = r.times(time.Duration(float64(per) * float64(tokens) / float64(len(c.Trace.Rows))))
	r.phases = append(r.phases, p)
	r.replay = &Replay{
		File: c.File, Rows: len(c.Trace.Rows), Skipped: c.Trace.Skipped,
		Speed: c.Speed, Load: c.Load, PerTokenMS: float64(per) / float64(time.Millisecond), SpanMS: ms(span),
	}
}

// runPhases runs the phases until load ends.
func (r *run) runPhases(ctx, load context.Context) error {
	for i, p := range r.phases {
		if over(load) {
			break
		}
		r.begin(i)
		if p.name == calibration {
			if err := r.calibrate(load, p); err != nil {
				return err
			}
		} else {
			r.runLoad(load, i)
		}
		for _, t := range p.tallies { // all of a phase ends before the next begins
			select {
			case <-t.ended:
			case <-ctx.Done():
			}
		}
		r.finish(i, !over(load))
	}
	return nil
}

// calibrate measures the capacity: the mean of the pipelines', which run at the
// same time, as they will under load.
func (r *run) calibrate(load context.Context, p *phase) error {
	found, errs := make([]float64, len(r.pipes)), make([]error, len(r.pipes))
	var each sync.WaitGroup
	for i, pipe := range r.pipes {
		each.Go(func() { found[i], errs[i] = calibrate(load, r.cfg, pipe, p.tallies[i]) })
	}
	each.Wait()
	mean := 0.0
	for _, v := range found {
		mean += v / float64(len(found))
	}
	r.measured(perSecond(mean))
	return errors.Join(errs...)
}

// runLoad sends the arrivals of phase i to all pipelines. They run at the same
// time: their handlers wait instead of computing, so that none takes processor
// time from another, and what disturbs the machine disturbs all alike.
func (r *run) runLoad(load context.Context, i int) {
	p := r.phases[i]
	schedule := p.schedule
	if schedule == nil {
		// Each phase has arrivals of its own.
		schedule = arrivals.Poisson(p.rate, p.length, r.cfg.Service, r.cfg.Seed+uint64(i))
	}
	sent := arrivals.Send(load, schedule, p.begun, func(a arrivals.Arrival, due time.Time) {
		for k, pipe := range r.pipes {
			pipe.publish(&job{due: due, work: a.Work, tally: p.tallies[k]})
		}
	})
	var stats bus.Stats
	for k, pipe := range r.pipes {
		p.tallies[k].seal(pipe.depth(&stats))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.lag, p.state = sent.MaxLag, stateDrain
}

func (r *run) begin(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.phases[i]
	p.state, p.begun = stateRuns, time.Now()
}

func (r *run) finish(i int, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phases[i].state = stateDone
	if !whole {
		r.phases[i].state = stateStop
	}
}

// measured sets the capacity, and with it the rates of the phases.
func (r *run) measured(capacity float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.measured = capacity
	for _, p := range r.phases {
		p.rate = p.factor * capacity // none for the calibration itself
	}
}

func (r *run) setNote(note string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.note = note
}

// over reports whether ctx has ended, which is no error here.
func over(ctx context.Context) bool { return ctx.Err() != nil }

// endOf says how the run ended; ctx and load are asked before shutdown.
func endOf(ctx, load context.Context) End {
	switch {
	case over(ctx):
		return EndCut
	case over(load):
		return EndDrained
	default:
		return EndComplete
	}
}

// shutdown drains the bus, or cuts it when ctx is over.
func (r *run) shutdown(ctx context.Context) error {
	// What a cut abandons is no failure: it was asked for, and stands in the account.
	var errs []error
	for _, p := range r.pipes {
		if _, err := p.bus.Shutdown(ctx); err != nil && !over(ctx) {
			errs = append(errs, fmt.Errorf("shut the bus down: %w", err))
		}
	}
	if len(errs) == 0 {
		r.awaitEnds()
	}
	return errors.Join(errs...)
}

// lastCallbacks bounds the wait for the completion callbacks of a bus that has
// ended.
const lastCallbacks = 2 * time.Second

// awaitEnds waits until every phase has been told of its ends: after a cut
// those of abandoned envelopes may still be under way.
func (r *run) awaitEnds() {
	timer := time.NewTimer(lastCallbacks)
	defer timer.Stop()
	for _, p := range r.phases {
		if p.begun.IsZero() {
			continue
		}
		for _, t := range p.tallies {
			select {
			case <-t.ended:
			case <-timer.C:
				return
			}
		}
	}
}

// read adds up what all phases of pipeline i have counted.
func (r *run) read(i int, sum *reading) {
	*sum = reading{refused: Counts{}, dropped: Counts{}}
	for _, p := range r.phases {
		p.tallies[i].addTo(sum)
	}
}

// summary is called when the bus is shut down.
func (r *run) summary(end End) *Summary {
	s := &Summary{
		Settings: r.settings(),
		End:      end,
		Trace:    r.replay,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Capacity = r.mu.measured
	for i := range r.pipes {
		s.Sides = append(s.Sides, r.resultLocked(i))
	}
	return s
}

// resultLocked is what came of pipeline i.
func (r *run) resultLocked(i int) Result {
	pipe := r.pipes[i]
	var sum reading
	r.read(i, &sum)
	var stats bus.Stats
	out := Result{Shedding: pipe.sheds, Phases: []Outcome{}, Account: pipe.account(&stats, sum.accepted)}
	if stats.Check() != nil { // of each stage too; exact, as nothing moves any more
		out.Account.Balanced = false
	}
	for _, p := range r.phases {
		if p.name == calibration || p.begun.IsZero() {
			continue
		}
		length := p.length
		if p.state != stateDone {
			length = 0
		}
		o := p.tallies[i].outcome(p.begun, length, r.mu.measured)
		o.Name, o.Rate, o.MaxLagMS, o.Whole = p.name, perSecond(p.rate), ms(p.lag), p.state == stateDone
		out.Phases = append(out.Phases, o)
	}
	return out
}

func (r *run) settings() Settings {
	return Settings{
		Policy:      r.cfg.Policy.String(),
		Capacity:    r.cfg.Capacity,
		Concurrency: r.cfg.Concurrency,
		ServiceMS:   ms(r.cfg.Service),
		Seed:        r.cfg.Seed,
		Budget:      r.cfg.Budget,
		BudgetMS:    ms(r.budget),
		Deadlines:   r.cfg.Deadlines,
	}
}
