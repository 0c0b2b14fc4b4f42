package shape

import (
	"time"

	"github.com/sedabus/seda/bench/overload/internal/sim"
)

// Shape is a scenario.
type Shape struct {
	Name, Title string
	// Make builds it for a scale.
	Make func(sim.Scale) *sim.Spec
	// Only is the one scale that it is run at, whatever is asked for; nil is all.
	Only *sim.Scale
}

// Scales returns the six sizes of stages: many workers that wait for something
// else, fast and slow ones, one worker, and two on two processors.
func Scales() []sim.Scale {
	return []sim.Scale{
		{Name: "16x5ms", Workers: 16, Service: 5 * time.Millisecond},
		{Name: "64x0.5ms", Workers: 64, Service: 500 * time.Microsecond},
		{Name: "1x1ms", Workers: 1, Service: time.Millisecond},
		{Name: "4x100ms", Workers: 4, Service: 100 * time.Millisecond},
		{Name: "2x1ms", Workers: 2, Service: time.Millisecond},
		{Name: "2x20us", Workers: 2, Service: 20 * time.Microsecond},
	}
}

// All returns the scenarios, in the order of the table.
func All() []Shape {
	return []Shape{
		{Name: "below", Title: "0.9 of capacity, Poisson", Make: below(1)},
		{Name: "batch", Title: "0.9 of capacity, arrivals in batches of 32", Make: below(32)},
		{Name: "step", Title: "0.5 to 2 times capacity", Make: step},
		{Name: "flash", Title: "flash crowd: 0.5 to 10 times, and back", Make: flash},
		{Name: "after", Title: "after the flash crowd", Make: after},
		{Name: "spike", Title: "0.7 to 1.4 times capacity", Make: spike},
		{Name: "codel", Title: "1000 a second into 500 a second, 10 s", Make: codel, Only: &codelScale},
		{Name: "ramp", Title: "0.5 to 3 times in a straight line", Make: ramp},
		{Name: "sawtooth", Title: "0.5 and 1.8 times in turns", Make: sawtooth},
		{Name: "triple", Title: "service time triples at 0.8", Make: triple},
		{Name: "stall", Title: "all workers stall now and then, at 0.6", Make: stall},
		{Name: "bimodal", Title: "service 2 or 32 ms, 1.5 times capacity", Make: bimodal},
		{Name: "outage", Title: "retry storm after an outage at 0.8", Make: outage},
		{Name: "trickle", Title: "a few a second and a burst of 20 now and then", Make: trickle},
		{Name: "cold", Title: "cold start at 2 times capacity", Make: cold},
		{Name: "idle", Title: "10 minutes idle, then 2 times capacity", Make: idle},
		{Name: "classes", Title: "four classes at 3 times capacity", Make: classes},
		{Name: "mixed", Title: "four classes at 3 times capacity, each from ten senders", Make: mixed},
		{Name: "senders", Title: "ten senders with demands 1 to 100, 2 times", Make: senders},
		{Name: "deadlines", Title: "half of the jobs have tight deadlines, 2 times", Make: deadlines},
		{Name: "tandem", Title: "bottleneck last of three stages, 2 times", Make: tandem},
	}
}

// Over returns the scales, of those given, that the scenario is run at.
func (s *Shape) Over(scales []sim.Scale) []sim.Scale {
	if s.Only != nil {
		return []sim.Scale{*s.Only}
	}
	return scales
}

// spec starts a scenario from stretches of load given in units; the last one is
// what is looked at.
func spec(sc sim.Scale, pieces ...stretch) *sim.Spec {
	s := &sim.Spec{Scale: sc}
	at := time.Duration(0)
	for _, p := range pieces {
		s.From = at
		at += time.Duration(p.units) * sc.Unit()
		s.Load = append(s.Load, sim.Piece{Until: at, From: p.from, To: p.to})
	}
	s.To = at
	return s
}

// stretch is so many units of a load that goes in a straight line.
type stretch struct {
	units    int
	from, to float64
}

func flat(units int, load float64) stretch { return stretch{units, load, load} }

// belowJobs is how many jobs arrive below capacity, so that a share of 1e-4 can
// be told from 0.
const belowJobs = 330_000

func below(batch int) func(sim.Scale) *sim.Spec {
	return func(sc sim.Scale) *sim.Spec {
		long := time.Duration(belowJobs / (.9 * sc.Rate()) * 1e9)
		return &sim.Spec{
			Scale: sc, Load: []sim.Piece{sim.Flat(long, .9)}, Batch: batch,
			Span: sim.Span{To: long},
		}
	}
}

func step(sc sim.Scale) *sim.Spec { return spec(sc, flat(100, .5), flat(300, 2)) }

func flash(sc sim.Scale) *sim.Spec {
	s := spec(sc, flat(100, .5), flat(60, 10))
	s.Load = append(s.Load, sim.Flat(s.To+80*sc.Unit(), .5))
	return s
}

// after looks at what comes when the crowd has been gone for a unit.
func after(sc sim.Scale) *sim.Spec {
	s := flash(sc)
	s.Span = sim.Span{From: s.To + sc.Unit(), To: s.To + 80*sc.Unit()}
	return s
}

func spike(sc sim.Scale) *sim.Spec { return spec(sc, flat(100, .7), flat(200, 1.4)) }

var codelScale = sim.Scale{Name: "1x2ms", Workers: 1, Service: 2 * time.Millisecond}

// codel is the simulation that the Go package joshbohde/codel publishes.
func codel(sc sim.Scale) *sim.Spec {
	return &sim.Spec{
		Scale: sc, Load: []sim.Piece{sim.Flat(10*time.Second, 2)}, Dist: sim.Constant,
		Span: sim.Span{To: 10 * time.Second},
	}
}

func ramp(sc sim.Scale) *sim.Spec {
	return spec(sc, flat(50, .5), stretch{600, .5, 3})
}

func sawtooth(sc sim.Scale) *sim.Spec {
	pieces := make([]stretch, 0, 30)
	for range 15 {
		pieces = append(pieces, flat(20, .5), flat(20, 1.8))
	}
	s := spec(sc, pieces...)
	s.From = s.Load[1].Until
	return s
}

func triple(sc sim.Scale) *sim.Spec {
	s := spec(sc, flat(100, .8), flat(200, .8))
	slow := s.Span
	s.Slow = func(t time.Duration) float64 {
		if slow.Contains(t) {
			return 3
		}
		return 1
	}
	s.Load = append(s.Load, sim.Flat(s.To+100*sc.Unit(), .8))
	return s
}

func stall(sc sim.Scale) *sim.Spec {
	s := spec(sc, flat(600, .6))
	for at := 100 * sc.Unit(); at < s.To; at += 100 * sc.Unit() {
		s.Stalls = append(s.Stalls, sim.Span{From: at, To: at + 4*sc.Unit()})
	}
	return s
}

func bimodal(sc sim.Scale) *sim.Spec {
	s := spec(sc, flat(100, .5), flat(300, 1.5))
	s.Dist = sim.Bimodal
	return s
}

func outage(sc sim.Scale) *sim.Spec {
	s := spec(sc, flat(100, .8), flat(40, .8), flat(160, .8))
	s.Outages = []sim.Span{{From: s.Load[0].Until, To: s.Load[1].Until}}
	s.Attempts = 3
	return s
}

// trickle has 3 arrivals a second and 20 at once every 10 s.
func trickle(sc sim.Scale) *sim.Spec {
	const (
		long  = 300
		burst = 10
	)
	s := &sim.Spec{Scale: sc, Span: sim.Span{To: long * time.Second}, Times: []time.Duration{}}
	for i := range long * 3 {
		at := time.Duration(i) * time.Second / 3
		s.Times = append(s.Times, at)
		if i > 0 && i%(3*burst) == 0 {
			for range 20 {
				s.Times = append(s.Times, at)
			}
		}
	}
	return s
}

// cold looks at what comes from the first completions on.
func cold(sc sim.Scale) *sim.Spec {
	s := spec(sc, flat(60, 2))
	s.From = 2 * sc.Service
	return s
}

func idle(sc sim.Scale) *sim.Spec {
	s := spec(sc, flat(50, .5), flat(1, 0), flat(60, 2))
	const pause = 10 * time.Minute
	s.Load[1].Until += pause
	s.Load[2].Until += pause
	s.Span = sim.Span{From: s.From + pause, To: s.To + pause}
	return s
}

func classes(sc sim.Scale) *sim.Spec {
	s := spec(sc, flat(100, .5), flat(300, 3))
	s.Classes = []sim.Class{
		{Part: .5 / 3, Share: .05}, {Part: .3 / 3, Share: .05}, {Part: .7 / 3, Share: .05}, {Part: 1.5 / 3, Share: .05},
	}
	return s
}

func mixed(sc sim.Scale) *sim.Spec {
	s := classes(sc)
	for range 10 {
		s.Senders = append(s.Senders, .1)
	}
	return s
}

func senders(sc sim.Scale) *sim.Spec {
	s := spec(sc, flat(100, .5), flat(300, 2))
	demand := 1.
	for range 10 {
		s.Senders = append(s.Senders, demand)
		demand *= 1.6681005372 // the ninth root of 100
	}
	sum := 0.
	for _, d := range s.Senders {
		sum += d
	}
	for i := range s.Senders {
		s.Senders[i] /= sum
	}
	return s
}

func deadlines(sc sim.Scale) *sim.Spec {
	s := spec(sc, flat(100, .5), flat(300, 2))
	s.Dist = sim.Shifted
	s.Tight, s.TightIn, s.LooseIn = .5, 4*sc.Service, sc.Budget() // a mean service and three of slack
	return s
}

func tandem(sc sim.Scale) *sim.Spec {
	s := spec(sc, flat(100, .5), flat(300, 2))
	s.Stages = []sim.Stage{
		{Workers: sc.Workers, Service: sc.Service / 4},
		{Workers: sc.Workers, Service: sc.Service / 4},
		{Workers: sc.Workers, Service: sc.Service},
	}
	return s
}

// Level is a steady load, for the plot of goodput against offered load.
func Level(load float64) Shape {
	return Shape{Name: "level", Title: "steady load", Make: func(sc sim.Scale) *sim.Spec {
		return spec(sc, flat(100, .5), flat(200, load))
	}}
}
