package law

import (
	"slices"
	"time"

	"github.com/sedabus/seda/bench/overload/internal/sim"
)

// median of xs, which it sorts.
func median(xs []time.Duration) time.Duration {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

// breakwater is the admission side of Breakwater (Cho et al., OSDI 2020): a
// pool of credits that shrinks with the excess of the queueing delay and grows
// by a little otherwise, and an immediate drop at twice the target. The target
// is 40 % of the budget and the round trip one service time, as its authors
// choose them.
type breakwater struct {
	flight

	credits, floor float64
	target, rtt    time.Duration
	until          time.Duration
	worst          time.Duration
}

// breakwaterClients stands for the number of clients that credits are for.
const breakwaterClients = 100

func newBreakwater(s *sim.Spec) *breakwater {
	c := float64(s.Workers)
	return &breakwater{credits: c, floor: c, target: s.Budget() * 4 / 10, rtt: s.Service}
}

// Admit spends a credit.
func (b *breakwater) Admit(w *sim.World, _ *sim.Job) sim.Action {
	delay := time.Duration(0)
	if id := w.At[0].Oldest(0); id >= 0 {
		delay = w.Now - w.Jobs[id].Entered
	}
	b.worst = max(b.worst, delay)
	if w.Now >= b.until {
		if over := float64(b.worst-b.target) / float64(b.target); over >= 0 {
			b.credits = max(b.floor, b.credits*max(.5, 1-.02*over))
		} else {
			b.credits += .001 * breakwaterClients
		}
		b.until, b.worst = w.Now+b.rtt, 0
	}
	return b.enter(delay < 2*b.target && float64(b.n) < b.credits)
}

// Constants of DAGOR (Zhou et al., SoCC 2018).
const (
	dagorWindow    = time.Second
	dagorJobs      = 2000
	dagorThreshold = 20 * time.Millisecond
	dagorDown      = .05
	dagorUp        = .01
)

// dagor admits the part of the users whose priority is below a level that
// follows the mean wait of each window.
type dagor struct {
	sim.Base

	level float64
	sum   time.Duration
	n     int
	until time.Duration
}

// Blind says that nothing looks at deadlines.
func (*dagor) Blind() {}

// Admit compares the job's priority, which is spread evenly, with the level.
func (d *dagor) Admit(_ *sim.World, j *sim.Job) sim.Action {
	const golden = .6180339887498949
	if x := float64(j.ID) * golden; x-float64(int(x)) < d.level {
		return sim.Admit
	}
	return sim.Refuse
}

// Start samples the wait.
func (d *dagor) Start(w *sim.World, j *sim.Job, _ int) bool {
	d.sum += w.Now - j.Entered
	d.n++
	if w.Now < d.until && d.n < dagorJobs {
		return true
	}
	if d.sum/time.Duration(d.n) > dagorThreshold {
		d.level *= 1 - dagorDown
	} else {
		d.level = min(1, d.level*(1+dagorUp))
	}
	d.sum, d.n, d.until = 0, 0, w.Now+dagorWindow
	return true
}

// seda is the response time controller of the SEDA snapshot of 2002: a token
// bucket whose rate halves when the smoothed p90 of 100 responses is above 1.2
// times the target and grows by half a job a second below 0.9 of it. The target
// is the budget.
type seda struct {
	sim.Base

	target   time.Duration
	rate     float64
	tokens   float64
	at       time.Duration
	samples  []time.Duration
	smoothed float64
	until    time.Duration
}

func newSeda(s *sim.Spec) *seda { return &seda{target: s.Budget(), rate: 10} }

// Blind says that nothing looks at deadlines.
func (*seda) Blind() {}

// Admit takes a token.
func (s *seda) Admit(w *sim.World, _ *sim.Job) sim.Action {
	s.tokens = min(max(10, s.rate/10), s.tokens+s.rate*(w.Now-s.at).Seconds())
	s.at = w.Now
	if s.tokens < 1 {
		return sim.Refuse
	}
	s.tokens--
	return sim.Admit
}

// Gone samples.
func (s *seda) Gone(w *sim.World, j *sim.Job) {
	s.samples = append(s.samples, w.Now-j.At)
	if len(s.samples) < 100 && w.Now < s.until {
		return
	}
	slices.Sort(s.samples)
	p90 := float64(s.samples[len(s.samples)*9/10])
	s.smoothed = .7*s.smoothed + .3*p90
	switch target := float64(s.target); {
	case s.smoothed < .9*target:
		s.rate = min(5000, s.rate+.5)
	case s.smoothed > 1.2*target:
		s.rate = max(.05, s.rate/2)
	}
	s.samples, s.until = s.samples[:0], w.Now+time.Second
}

// Constants of Cinnamon's rejector, as published.
const (
	cinnamonWindow = 500 * time.Millisecond
	cinnamonKp     = .1
	cinnamonKi     = 1.4
)

// cinnamon is the rejector of Uber's load shedder: a PI controller sheds a part
// of the arrivals such that what comes in is what goes out. Its limit of what
// is in service is the number of workers.
type cinnamon struct {
	sim.Base

	ratio, integral float64
	in, out         float64
	until           time.Duration
}

// Blind says that nothing looks at deadlines.
func (*cinnamon) Blind() {}

// Admit sheds the part, spread evenly.
func (c *cinnamon) Admit(w *sim.World, j *sim.Job) sim.Action {
	if w.Now >= c.until && (c.out > 0 || c.in == 0) {
		free := float64(w.At[0].Workers - w.At[0].Busy)
		e := (c.in - c.out - free) / max(1, c.out)
		c.integral = max(0, min(1/cinnamonKi, c.integral+e*cinnamonWindow.Seconds()))
		c.ratio = max(0, min(.99, cinnamonKp*e+cinnamonKi*c.integral))
		c.in, c.out, c.until = 0, 0, w.Now+cinnamonWindow
	}
	const golden = .6180339887498949
	if x := float64(j.ID) * golden; x-float64(int(x)) < c.ratio {
		return sim.Refuse
	}
	c.in++
	return sim.Admit
}

// Gone counts.
func (c *cinnamon) Gone(*sim.World, *sim.Job) { c.out++ }
