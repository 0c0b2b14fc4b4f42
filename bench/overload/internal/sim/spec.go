package sim

import (
	"math"
	"time"
)

// Scale is the size of a stage.
type Scale struct {
	Name    string
	Workers int
	Service time.Duration // mean
}

// Unit is the yardstick for times: ten service times, at least 10 ms.
func (s Scale) Unit() time.Duration { return max(10*time.Millisecond, 10*s.Service) }

// Budget is the time from arrival to end within which a job is worth something:
// two units.
func (s Scale) Budget() time.Duration { return 2 * s.Unit() }

// Target is the wait that a controlled queue is allowed: two service times, at
// least 2 ms.
func (s Scale) Target() time.Duration { return max(2*time.Millisecond, 2*s.Service) }

// Rate is the capacity in jobs a second.
func (s Scale) Rate() float64 { return float64(s.Workers) / s.Service.Seconds() }

// Piece is a stretch of a schedule in which the load goes from From to To in a
// straight line; both are multiples of the capacity.
type Piece struct {
	Until    time.Duration
	From, To float64
}

// Flat is a piece of constant load.
func Flat(until time.Duration, load float64) Piece { return Piece{until, load, load} }

// Span is a half-open stretch of time.
type Span struct{ From, To time.Duration }

// Contains says whether t lies in s.
func (s Span) Contains(t time.Duration) bool { return s.From <= t && t < s.To }

// Len is how long s is.
func (s Span) Len() time.Duration { return s.To - s.From }

// Class is a priority class.
type Class struct {
	Part  float64 // of the arrivals
	Share float64 // least part of the starts
}

// Stage is one stage of an itinerary.
type Stage struct {
	Workers int
	Service time.Duration // mean
}

// Spec says what happens in a run, whatever the law.
type Spec struct {
	Scale

	// Stages is the itinerary; nil is the one stage of Scale.
	Stages []Stage
	// Load is the schedule, and Batch how many arrive at a time; 0 is one.
	Load  []Piece
	Batch int
	// Times, if not nil, gives the arrival times in place of Load, and Sizes the
	// service times in units of the mean in place of Dist.
	Times []time.Duration
	Sizes []float64
	// Dist gives the service time, in units of the mean, for a number that is
	// evenly spread over (0, 1); nil is Exponential.
	Dist func(u float64) float64
	// Slow is a factor on the service times of what starts at t; nil is 1.
	Slow func(t time.Duration) float64
	// Stalls are when all workers stand still. They are in order.
	Stalls []Span
	// Outages are when attempts fail. Attempts is how many there are; 0 is one.
	Outages  []Span
	Attempts int
	// Classes, highest first; nil is one class.
	Classes []Class
	// Senders are the parts of the arrivals that each sender has; nil is one.
	Senders []float64
	// Tight is the part of the jobs with a deadline TightIn after arrival, and
	// the others get one LooseIn after arrival; laws see these. 0 is none.
	Tight            float64
	TightIn, LooseIn time.Duration
	// Bound is the capacity that laws are told of; 0 is none.
	Bound int
	// Span is the stretch that is looked at.
	Span
}

// Exponential is the distribution of service times with a variation of 1.
func Exponential(u float64) float64 { return -math.Log(u) }

// Constant is the distribution without variation.
func Constant(float64) float64 { return 1 }

// Shifted is half constant, half exponential.
func Shifted(u float64) float64 { return .5 - .5*math.Log(u) }

// Bimodal is 90 % of one sixteenth of the rest; with a mean of 5 ms these are
// 2 ms and 32 ms.
func Bimodal(u float64) float64 {
	if u < .1 {
		return 6.4
	}
	return .4
}

// Itinerary returns the stages that jobs go through.
func (s *Spec) Itinerary() []Stage {
	if s.Stages != nil {
		return s.Stages
	}
	return []Stage{{s.Workers, s.Service}}
}

// Bottleneck is the capacity of the narrowest stage, in jobs a second.
func (s *Spec) Bottleneck() float64 {
	out := math.Inf(1)
	for _, st := range s.Itinerary() {
		out = min(out, float64(st.Workers)/st.Service.Seconds())
	}
	return out
}

// ServiceOf returns how long attempt a of job id takes at a stage if it starts
// at t and no stall comes.
func (s *Spec) ServiceOf(seed uint64, id, stage, a int, t time.Duration) time.Duration {
	var size float64
	if s.Sizes != nil {
		size = s.Sizes[id]
	} else {
		dist := s.Dist
		if dist == nil {
			dist = Exponential
		}
		size = dist(unit(seed, streamService+uint64(stage)<<8+uint64(a), id))
	}
	if s.Slow != nil {
		size *= s.Slow(t)
	}
	return max(1, time.Duration(size*float64(s.Itinerary()[stage].Service)))
}

// EndOf returns when work that starts at t and takes d ends, with the stalls.
func (s *Spec) EndOf(t, d time.Duration) time.Duration {
	end := t + d
	for _, x := range s.Stalls {
		if x.From >= end {
			break
		}
		if x.To > t {
			end += x.To - max(x.From, t)
		}
	}
	return end
}

// Expected is how many jobs arrive, about.
func (s *Spec) Expected() float64 {
	if s.Times != nil {
		return float64(len(s.Times))
	}
	jobs, from := 0., time.Duration(0)
	for _, p := range s.Load {
		jobs += (p.From + p.To) / 2 * (p.Until - from).Seconds() * s.Bottleneck()
		from = p.Until
	}
	return jobs
}

// LoadAt is the scheduled load at t, as a multiple of the capacity.
func (s *Spec) LoadAt(t time.Duration) float64 {
	from := time.Duration(0)
	for _, p := range s.Load {
		if t < p.Until {
			return p.From + (p.To-p.From)*float64(t-from)/float64(p.Until-from)
		}
		from = p.Until
	}
	return 0
}
