package law

import (
	"math"
	"time"

	"github.com/sedabus/seda/bench/overload/internal/sim"
)

// limiter gives a new limit of what is in flight for a window of samples.
type limiter interface {
	update(limit float64, w *rttWindow) float64
}

// rttWindow is what happened in a window: response times include waits.
type rttWindow struct {
	n           int
	sum         time.Duration
	least       time.Duration
	mostFlight  int
	lastFlight  int
	slowest     time.Duration
	windowStart time.Duration
}

// Of Netflix's concurrency-limits: windows of a second with ten samples at
// least, and response times below 100 µs are not counted.
const (
	netflixWindow  = time.Second
	netflixSamples = 10
	netflixLeast   = 100 * time.Microsecond
	netflixMost    = 1000
)

// limit bounds what is in flight by one of Netflix's laws.
type limit struct {
	flight

	law  limiter
	max  float64
	seen rttWindow
}

func newLimit(l limiter, start float64) *limit { return &limit{law: l, max: start} }

// Admit holds the number in flight against the limit.
func (l *limit) Admit(*sim.World, *sim.Job) sim.Action { return l.enter(float64(l.n) < l.max) }

// Gone samples.
func (l *limit) Gone(w *sim.World, j *sim.Job) {
	s := &l.seen
	rtt := w.Now - j.At
	if rtt >= netflixLeast {
		if s.n == 0 || rtt < s.least {
			s.least = rtt
		}
		s.n++
		s.sum += rtt
		s.slowest = max(s.slowest, rtt)
	}
	s.mostFlight = max(s.mostFlight, l.n)
	if w.Now-s.windowStart >= netflixWindow && s.n >= netflixSamples {
		s.lastFlight = l.n
		l.max = min(netflixMost, max(1, l.law.update(l.max, s)))
		*s = rttWindow{windowStart: w.Now}
	}
	l.flight.Gone(w, j)
}

// vegas is Netflix's VegasLimit.
type vegas struct {
	noLoad time.Duration
	probe  float64
}

func (v *vegas) update(limit float64, w *rttWindow) float64 {
	v.probe++
	if v.noLoad == 0 || w.least < v.noLoad || v.probe > 30*limit {
		v.noLoad, v.probe = w.least, 0
		return limit
	}
	if float64(w.mostFlight)*2 < limit {
		return limit
	}
	log := max(1, math.Log10(limit))
	queue := math.Ceil(limit * (1 - float64(v.noLoad)/float64(w.least)))
	switch {
	case queue <= log:
		return limit + 6*log
	case queue < 3*log:
		return limit + log
	case queue > 6*log:
		return limit - log
	}
	return limit
}

// gradient2 is Netflix's Gradient2Limit.
type gradient2 struct{ long float64 }

func (g *gradient2) update(limit float64, w *rttWindow) float64 {
	short := float64(w.sum) / float64(w.n)
	if g.long == 0 {
		g.long = short
	}
	g.long += (short - g.long) * 2 / (600 + 1)
	if g.long/short > 2 {
		g.long *= .95
	}
	if float64(w.mostFlight) < limit/2 {
		return limit
	}
	gradient := max(.5, min(1, 1.5*g.long/short))
	return min(200, max(20, .8*limit+.2*(gradient*limit+4)))
}

// aimd is Netflix's AIMDLimit with its timeout of 5 s.
type aimd struct{}

func (aimd) update(limit float64, w *rttWindow) float64 {
	if w.slowest > 5*time.Second {
		return limit * .9
	}
	if float64(w.mostFlight)*2 >= limit {
		return limit + 1
	}
	return limit
}

// Defaults of Envoy's adaptive concurrency filter.
const (
	envoyWindow  = 100 * time.Millisecond
	envoyProbe   = 60 * time.Second
	envoySamples = 50
	envoyLeast   = 3.
	envoyBuffer  = .25
)

// envoy is Envoy's gradient controller. The least response time is measured by
// letting no more than three in, once a minute.
type envoy struct {
	flight

	max     float64
	minRTT  time.Duration
	samples []time.Duration
	probing bool
	until   time.Duration // next probe, or end of the window
	probeAt time.Duration
}

func newEnvoy() *envoy { return &envoy{max: envoyLeast, probing: true} }

// Admit holds the number in flight against the limit.
func (e *envoy) Admit(w *sim.World, _ *sim.Job) sim.Action {
	if !e.probing && w.Now >= e.probeAt {
		e.probing, e.samples = true, e.samples[:0]
	}
	most := e.max
	if e.probing {
		most = envoyLeast
	}
	return e.enter(float64(e.n) < most)
}

// Gone samples the median.
func (e *envoy) Gone(w *sim.World, j *sim.Job) {
	e.flight.Gone(w, j)
	e.samples = append(e.samples, w.Now-j.At)
	switch {
	case e.probing && len(e.samples) >= envoySamples:
		e.minRTT = max(1, median(e.samples))
		e.probing, e.probeAt = false, w.Now+envoyProbe
	case !e.probing && w.Now >= e.until && len(e.samples) > 0:
		g := max(.5, min(2, float64(e.minRTT)*(1+envoyBuffer)/float64(max(1, median(e.samples)))))
		e.max = min(1000, max(envoyLeast, g*e.max+math.Sqrt(g*e.max)))
	default:
		return
	}
	e.until, e.samples = w.Now+envoyWindow, e.samples[:0]
}

// sentinel is the check of sentinel-golang's system rules with its trigger
// (processor use or load) always pulled: what is in flight must not exceed
// the largest number completed in a half second times two, times the least
// response time in whole milliseconds.
type sentinel struct {
	flight

	bucket    time.Duration
	now, last int
	least     time.Duration
	lastLeast time.Duration
}

const sentinelBucket = 500 * time.Millisecond

// Admit checks.
func (s *sentinel) Admit(w *sim.World, _ *sim.Job) sim.Action {
	s.roll(w.Now)
	least := s.least
	if s.lastLeast > 0 && (least == 0 || s.lastLeast < least) {
		least = s.lastLeast
	}
	ms := math.Ceil(float64(max(least, 1)) / 1e6)
	most := float64(max(s.now, s.last)) * 2 * ms / 1000
	return s.enter(s.n <= 1 || float64(s.n) <= most)
}

// Gone counts.
func (s *sentinel) Gone(w *sim.World, j *sim.Job) {
	s.roll(w.Now)
	s.flight.Gone(w, j)
	s.now++
	if rtt := w.Now - j.At; s.least == 0 || rtt < s.least {
		s.least = rtt
	}
}

func (s *sentinel) roll(now time.Duration) {
	if now < s.bucket {
		return
	}
	if now < s.bucket+sentinelBucket {
		s.last, s.lastLeast = s.now, s.least
	} else {
		s.last, s.lastLeast = 0, 0
	}
	s.now, s.least = 0, 0
	s.bucket = now - now%sentinelBucket + sentinelBucket
}
