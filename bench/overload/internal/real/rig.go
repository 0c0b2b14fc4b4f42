package real

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sedabus/seda/bench/overload/internal/law"
	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/shedder"
)

// budget is how long a job may take from its intended arrival to its end.
const budget = 100 * time.Millisecond

// capacity of the stage: well above any bound of a shedder's.
const capacity = 1 << 14

// stage is what work is done by.
type stage struct {
	workers int
	service time.Duration
	work    func() // one service
}

// door is a law at the door of the stage: none, that of the bus, or a library.
type door struct {
	name string
	ours bool
	ask  func() law.Asker
	most int // how many may wait; 0 is far above what any law lets in
}

// doors returns ours and the libraries as they come.
func doors() []door {
	out := []door{{name: law.BusName, ours: true}}
	for _, l := range law.Libraries() {
		if !l.Open {
			out = append(out, door{name: l.Name, ask: l.New})
		}
	}
	return out
}

// job is a unit of work; times are since the rig was made.
type job struct {
	at, asked, started, end time.Duration
	admitted, done          bool
	settle                  func(bool)
}

// phase is a stretch of constant load, with the concurrency in force; 0 leaves
// it as it is.
type phase struct {
	long    time.Duration
	rate    float64 // arrivals a second
	workers int
}

// rig is a run.
type rig struct {
	stage stage
	door  door
	ask   law.Asker
	b     *bus.Bus
	s     *bus.Stage
	began time.Time
	jobs  []job

	running atomic.Int64
	over    atomic.Bool // the time is up: what is left need not be done
	ended   atomic.Int64
	// the watch over changes of the concurrency
	goal    atomic.Int64    // the concurrency to be reached
	first   atomic.Int64    // when so many ran for the first time
	last    atomic.Int64    // when more than so many ran for the last time
	effects []time.Duration // of each phase: from Tune until it was so; 0 without, -1 for never
	lost    int             // accepted and not ended
	state   shedder.State   // of the bus's own shedder at the end
	faults  error           // of the account
}

func open(st stage, d door, c bus.StageConfig) (*rig, error) {
	r := &rig{stage: st, door: d}
	var bc bus.Config
	if d.ours {
		bc.NewShedder = shedder.Default
	}
	if d.ask != nil {
		r.ask = d.ask()
	}
	b, err := bus.New(bc)
	if err != nil {
		return nil, err
	}
	c.Concurrency = st.workers
	if r.s, err = b.Stage("work", c); err != nil {
		return nil, err
	}
	if err := r.s.Handle(r.handle); err != nil {
		return nil, err
	}
	r.b = b
	r.began = time.Now()
	return r, b.Start()
}

func (r *rig) now() time.Duration { return time.Since(r.began) }

func (r *rig) handle(_ context.Context, e *bus.Envelope) error {
	if r.over.Load() {
		return nil
	}
	now := r.now()
	if j, ok := e.Payload.(*job); ok {
		j.started = now
	}
	if n := r.running.Add(1); n == r.goal.Load() {
		r.first.CompareAndSwap(0, int64(now))
	}
	r.stage.work()
	if n := r.running.Add(-1); n >= r.goal.Load() {
		r.last.Store(int64(r.now()))
	}
	return nil
}

// arrivals makes the times of arrival of phases, Poisson within each.
func arrivals(phases []phase, seed uint64) []job {
	rng := rand.New(rand.NewPCG(seed, 7))
	var out []job
	from := time.Duration(0)
	for _, p := range phases {
		for at := from; ; {
			at += time.Duration(rng.ExpFloat64() / p.rate * 1e9)
			if at >= from+p.long {
				break
			}
			out = append(out, job{at: at})
		}
		from += p.long
	}
	return out
}

// publish follows the schedule; when it is late, it makes up for it at once.
func (r *rig) publish() {
	for i := range r.jobs {
		j := &r.jobs[i]
		if d := j.at - r.now(); d > 0 {
			time.Sleep(d)
		}
		j.asked = r.now()
		if r.ask != nil {
			var ok bool
			if j.settle, ok = r.ask(); !ok {
				continue
			}
		}
		e := bus.Envelope{Payload: j, OnDone: func(res bus.Result) {
			j.end, j.done = r.now(), res.End == bus.Completed && !r.over.Load()
			r.ended.Add(1)
			if j.settle != nil {
				j.settle(j.done)
			}
		}}
		j.admitted = r.s.TryPublish(&e) == nil
		if !j.admitted && j.settle != nil {
			j.settle(false)
		}
	}
}

// run plays phases.
func (r *rig) run(phases []phase, seed uint64) error {
	r.jobs = arrivals(phases, seed)
	published := make(chan struct{})
	go func() { // ends with the schedule
		r.publish()
		close(published)
	}()
	from, had := time.Duration(0), r.stage.workers
	var err error
	for _, p := range phases {
		began := r.now()
		if p.workers > 0 && err == nil {
			r.goal.Store(int64(p.workers))
			r.first.Store(0)
			err = r.s.Tune(func(c *bus.StageConfig) { c.Concurrency = p.workers })
		}
		from += p.long
		time.Sleep(from - r.now())
		r.effects = append(r.effects, r.effect(p.workers, had, began))
		if p.workers > 0 {
			had = p.workers
		}
	}
	<-published
	r.state = r.s.ShedderState()
	return errors.Join(err, r.close())
}

// effect is how long it took until as many ran as there should.
func (r *rig) effect(workers, had int, began time.Duration) time.Duration {
	switch {
	case workers == 0 || workers == had:
		return 0
	case workers < had:
		return time.Duration(r.last.Load()) - began
	case r.first.Load() == 0:
		return -1
	default:
		return time.Duration(r.first.Load()) - began
	}
}

// close ends the run and looks at the account.
func (r *rig) close() error {
	r.over.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := r.b.Shutdown(ctx)
	var st bus.Stats
	r.b.ReadStats(&st)
	r.faults = st.Check()
	accepted := 0
	for i := range r.jobs {
		if r.jobs[i].admitted {
			accepted++
		}
	}
	r.lost = accepted - int(r.ended.Load())
	return err
}

// figures of a stretch of a run.
type figures struct {
	offered, shed int
	good          float64       // completions in time, a second
	done          float64       // completions, a second
	p50, p99      time.Duration // of waits, from the intended arrival on
	late          time.Duration // p99 of how late the publisher was itself
}

// figures looks at a stretch: completions by their end, the rest by arrival.
func (r *rig) figures(from, to time.Duration) figures {
	var f figures
	var waits, lates []time.Duration
	secs := (to - from).Seconds()
	for i := range r.jobs {
		j := &r.jobs[i]
		if j.done && j.end >= from && j.end < to {
			f.done += 1 / secs
			if j.end-j.at <= budget {
				f.good += 1 / secs
			}
		}
		if j.at < from || j.at >= to {
			continue
		}
		f.offered++
		lates = append(lates, j.asked-j.at)
		switch {
		case !j.admitted:
			f.shed++
		case j.done:
			waits = append(waits, j.started-j.at)
		default: // it still waited at the end
			waits = append(waits, to-j.at)
		}
	}
	slices.Sort(waits)
	slices.Sort(lates)
	f.late = quantile(lates, .99)
	f.p50, f.p99 = quantile(waits, .5), quantile(waits, .99)
	return f
}

func quantile(xs []time.Duration, q float64) time.Duration {
	if len(xs) == 0 {
		return 0
	}
	return xs[int(math.Ceil(q*float64(len(xs))))-1]
}

// calibration is what the stage can do at most.
type calibration struct {
	what string
	best float64 // completions a second
	cv   float64 // standard deviation of the repeats, as a part of their mean
}

// steadyCV is the variation above which a calibration is not steady.
const steadyCV = .03

func (c *calibration) steady() bool { return c.cv < steadyCV }

// calibrate measures with a publisher that is held back by the full stage.
func calibrate(what string, st stage, long time.Duration) (calibration, error) {
	const repeats = 3
	rates := make([]float64, 0, repeats)
	for range repeats {
		r, err := open(st, door{}, bus.StageConfig{Capacity: 256})
		if err != nil {
			return calibration{}, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), long)
		for ctx.Err() == nil {
			_ = r.s.Publish(ctx, &bus.Envelope{OnDone: func(bus.Result) { r.ended.Add(1) }}) // the context ends it
		}
		cancel()
		rates = append(rates, float64(r.ended.Load())/r.now().Seconds())
		if err := r.close(); err != nil {
			return calibration{}, err
		}
	}
	mean, dev := 0., 0.
	for _, x := range rates {
		mean += x / repeats
	}
	for _, x := range rates {
		dev += (x - mean) * (x - mean)
	}
	return calibration{what: what, best: slices.Max(rates), cv: math.Sqrt(dev/(repeats-1)) / mean}, nil
}

// sleeping is a service that waits for something else.
func sleeping(d time.Duration) func() { return func() { time.Sleep(d) } }

// spinning is a service that computes for d on a processor of its own: always
// the same work, so that it takes longer when the processor is shared.
func spinning(d time.Duration) func() {
	const probe = 20_000
	least := time.Duration(math.MaxInt64)
	for range 200 {
		began := time.Now()
		spin(probe)
		least = min(least, time.Since(began))
	}
	n := int(float64(probe) * float64(d) / float64(least))
	return func() { spin(n) }
}

var sink atomic.Uint64

func spin(n int) {
	x := uint64(n)
	for range n {
		x = x*6364136223846793005 + 1442695040888963407
	}
	sink.Store(x)
}

// hog keeps processors busy until the returned function is called.
func hog(n int) (stop func()) {
	var over atomic.Bool
	for range n {
		go func() { // ends when over is set
			for !over.Load() {
				spin(10_000)
			}
		}()
	}
	return func() { over.Store(true) }
}

// processors gives the publisher a place on a processor beside the workers,
// since arrivals come from outside in life.
func processors() (back func()) {
	before := runtime.GOMAXPROCS(runtime.NumCPU() + 1)
	return func() { runtime.GOMAXPROCS(before) }
}
