package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/cmd/sedactl/internal/arrivals"
)

// calibration is the name of the phase that measures the capacity.
const calibration = "calibrate"

// factors are the loads of the phases, in capacities.
var factors = []float64{0.5, 1, 2}

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
	pipe   *pipeline
	start  time.Time
	replay *Replay
	phases []*phase

	mu struct {
		sync.Mutex
		current  int // index in phases; len(phases) when all are over
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
	tally    *tally

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
	pipe, err := newPipeline(&cfg)
	if err != nil {
		return nil, err
	}
	r := &run{cfg: &cfg, pipe: pipe, start: time.Now()}
	r.plan()

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
	stopWatching()
	<-watched
	if runErr != nil {
		return nil, runErr
	}
	return r.summary(end), nil
}

// plan sets the phases up.
func (r *run) plan() {
	c := r.cfg
	if c.Trace != nil {
		r.planTrace()
		return
	}
	r.phases = append(r.phases, &phase{
		name: calibration, length: c.calibrationTime(), tally: newTally(), state: stateWaits,
	})
	for _, f := range factors {
		r.phases = append(r.phases, &phase{
			name: fmt.Sprintf("%gx", f), factor: f,
			length: c.Duration, tally: newTally(), state: stateWaits,
		})
	}
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
		name: "trace", length: span, tally: newTally(), state: stateWaits,
		schedule: arrivals.Recorded(c.Trace.Rows, c.Speed, per),
	}
	if span > 0 {
		p.rate = float64(len(c.Trace.Rows)) / span.Seconds()
	}
	if c.Duration > 0 && c.Duration < span {
		p.length = c.Duration
		p.schedule = arrivals.Until(p.schedule, c.Duration)
	}
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
			capacity, err := calibrate(load, r.cfg, r.pipe, p.tally)
			if err != nil {
				return err
			}
			r.measured(perSecond(capacity))
		} else {
			r.runLoad(load, i)
		}
		select { // all of a phase ends before the next begins
		case <-p.tally.ended:
		case <-ctx.Done():
		}
		r.finish(i, !over(load))
	}
	return nil
}

// runLoad sends the arrivals of phase i.
func (r *run) runLoad(load context.Context, i int) {
	p := r.phases[i]
	schedule := p.schedule
	if schedule == nil {
		// Each phase has arrivals of its own.
		schedule = arrivals.Poisson(p.rate, p.length, r.cfg.Service, r.cfg.Seed+uint64(i))
	}
	sent := arrivals.Send(load, schedule, p.begun, func(a arrivals.Arrival, due time.Time) {
		r.pipe.publish(&job{due: due, work: a.Work, tally: p.tally})
	})
	p.tally.seal()
	r.mu.Lock()
	defer r.mu.Unlock()
	p.lag = sent.MaxLag
}

func (r *run) begin(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.current = i
	p := r.phases[i]
	p.state, p.begun = stateRuns, time.Now()
}

func (r *run) finish(i int, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.current = i + 1
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
	if _, err := r.pipe.bus.Shutdown(ctx); err != nil && !over(ctx) {
		return fmt.Errorf("shut the bus down: %w", err)
	}
	r.awaitEnds()
	return nil
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
		select {
		case <-p.tally.ended:
		case <-timer.C:
			return
		}
	}
}

// published returns how many publishes of all phases were accepted.
func (r *run) published() uint64 {
	var n uint64
	for _, p := range r.phases {
		n += p.tally.accepted()
	}
	return n
}

// summary is called when the bus is shut down.
func (r *run) summary(end End) *Summary {
	s := &Summary{
		Settings: r.settings(),
		End:      end,
		Trace:    r.replay,
		Phases:   []Outcome{},
	}
	var stats bus.Stats
	s.Account = r.pipe.account(&stats, r.published())
	if stats.Check() != nil { // of each stage too; exact, as nothing moves any more
		s.Account.Balanced = false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Capacity = r.mu.measured
	for _, p := range r.phases {
		if p.name != calibration && !p.begun.IsZero() {
			s.Phases = append(s.Phases, p.tally.outcome(p.name, p.rate, p.begun, p.lag, p.state == stateDone))
		}
	}
	return s
}

func (r *run) settings() Settings {
	return Settings{
		Policy:      r.cfg.Policy.String(),
		Capacity:    r.cfg.Capacity,
		Concurrency: r.cfg.Concurrency,
		ServiceMS:   ms(r.cfg.Service),
		Seed:        r.cfg.Seed,
	}
}
