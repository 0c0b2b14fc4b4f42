package shedder_test

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sedabus/seda/shedder"
)

// sim is a deterministic simulation of one stage under open-loop load: one
// goroutine, a queue for each class, and a policy at the door.
type sim struct {
	workers int
	mean    time.Duration                        // service time at full speed
	load    func(at time.Duration) float64       // times the capacity
	service func(*rand.Rand) float64             // in means; nil is exponential
	slow    func(at time.Duration) float64       // factor on service times; nil is 1
	stall   func(at time.Duration) time.Duration // how long a start at that time is held up; nil is 0
	burst   func(at time.Duration) int           // extra arrivals with the one at that time; nil is none
	due     func(*rand.Rand) time.Duration       // deadline after arrival, 0 is none; nil is none
	classes []float64                            // parts of the arrivals, highest class first
	senders []float64                            // parts of the arrivals
	until   time.Duration
	from    time.Duration // of what is counted
	seed    uint64
	lots    int // ends are told of in lots of up to so many; 0 is one by one

	policy shedder.Policy
}

type simJob struct {
	at, due       time.Duration
	class, sender int
	took          time.Duration
	end           time.Duration
}

// simResult counts what arrived from sim.from on.
type simResult struct {
	asked, shed, pushed, late, done int
	waits                           []time.Duration
	work                            time.Duration // service in [from, until)
	lastShed                        time.Duration
	inversions                      int
	askedBy, admittedBy             []int // by sender
	askedOf, doneOf                 []int // by class
	most                            int   // that waited
}

type ends []*simJob

func (e *ends) Len() int           { return len(*e) }
func (e *ends) Less(i, j int) bool { return (*e)[i].end < (*e)[j].end }
func (e *ends) Swap(i, j int)      { (*e)[i], (*e)[j] = (*e)[j], (*e)[i] }
func (e *ends) Push(x any)         { *e = append(*e, x.(*simJob)) }
func (e *ends) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// run simulates; units of a stage that was never refused are all done.
func (s *sim) run() *simResult {
	rng := rand.New(rand.NewPCG(s.seed, 1))
	work := rand.New(rand.NewPCG(s.seed, 2))
	res := &simResult{
		askedBy: make([]int, len(s.senders)), admittedBy: make([]int, len(s.senders)),
		askedOf: make([]int, len(s.classes)), doneOf: make([]int, len(s.classes)),
	}
	queues := make([][]*simJob, max(len(s.classes), 1))
	var busy ends
	waiting := 0
	loadOf := func(class int) shedder.Load {
		l := shedder.Load{Waiting: waiting, Busy: len(busy), Concurrency: s.workers}
		for i, q := range queues {
			if i <= class {
				l.Ahead += len(q)
			} else {
				l.Evictable += len(q)
			}
		}
		return l
	}
	start := func(now time.Duration) {
		for len(busy) < s.workers && waiting > 0 {
			var j *simJob
			for i := range queues {
				if len(queues[i]) > 0 {
					j, queues[i] = queues[i][0], queues[i][1:]
					break
				}
			}
			waiting--
			if j.at >= s.from {
				res.waits = append(res.waits, now-j.at)
			}
			j.end = now + j.took
			if s.slow != nil {
				j.end = now + time.Duration(float64(j.took)*s.slow(now))
			}
			if s.stall != nil {
				j.end += s.stall(now)
			}
			j.took = j.end - now
			heap.Push(&busy, j)
		}
	}
	arrive := func(now time.Duration) {
		j := &simJob{at: now, class: pick(rng, s.classes), sender: pick(rng, s.senders)}
		u := work.ExpFloat64()
		if s.service != nil {
			u = s.service(work)
		}
		j.took = max(time.Duration(u*float64(s.mean)), 1)
		r := &shedder.Request{Now: now, Class: j.class, Classes: max(len(s.classes), 1), Load: loadOf(j.class)}
		if s.due != nil {
			if d := s.due(rng); d > 0 {
				j.due = now + d
				r.Deadline = j.due
			}
		}
		if len(s.senders) > 0 {
			r.Sender = string(rune('a' + j.sender))
		}
		v := s.policy.Admit(r)
		counts := now >= s.from
		if counts {
			res.asked++
			count(res.askedBy, j.sender)
			count(res.askedOf, j.class)
		}
		switch v.Action {
		case shedder.Refuse:
			if counts {
				res.shed++
				res.lastShed = now
				if r.Evictable > 0 {
					res.inversions++
				}
			}
			return
		case shedder.PushOut:
			for i := len(queues) - 1; i > j.class; i-- {
				if n := len(queues[i]); n > 0 {
					queues[i] = queues[i][:n-1]
					waiting--
					res.pushed++
					break
				}
			}
		case shedder.Admit:
		}
		if counts {
			count(res.admittedBy, j.sender)
		}
		queues[j.class] = append(queues[j.class], j)
		waiting++
		start(now)
		res.most = max(res.most, waiting)
	}
	next := time.Duration(0)
	advance := func() { // to when one more is due by the load, which may change
		need := rng.ExpFloat64() * float64(s.mean) / float64(s.workers)
		for pace := s.unit() / 10; ; next += pace {
			due := max(s.load(next), 1e-9) * float64(pace)
			if need <= due {
				next += max(time.Duration(need/due*float64(pace)), 1)
				return
			}
			need -= due
		}
	}
	var lot *shedder.Done
	room := 0
	tell := func(d *shedder.Done) {
		if s.lots == 0 {
			s.policy.Done(d)
			return
		}
		if lot == nil {
			lot, room = &shedder.Done{}, 1+work.IntN(s.lots)
		}
		addTo(lot, d)
		if lot.N >= room || d.Waiting == 0 {
			s.policy.Done(lot)
			lot = nil
		}
	}
	advance()
	for {
		if len(busy) > 0 && busy[0].end <= next {
			j := heap.Pop(&busy).(*simJob)
			if j.end >= s.until {
				return res
			}
			if j.end >= s.from {
				res.work += j.took
			}
			if j.at >= s.from {
				res.done++
				count(res.doneOf, j.class)
				if j.due != 0 && j.end > j.due {
					res.late++
				}
			}
			tell(done(j.end, j.took, loadOf(0)))
			start(j.end)
			continue
		}
		if next >= s.until {
			return res
		}
		n := 1
		if s.burst != nil {
			n += s.burst(next)
		}
		for range n {
			arrive(next)
		}
		advance()
	}
}

// addTo adds d to a lot whose spread is not known, as in a claim of the bus.
func addTo(lot, d *shedder.Done) {
	lot.Now, lot.Load = d.Now, d.Load
	lot.N += d.N
	lot.Service += d.Service
	lot.Squares = float64(lot.Service) * float64(lot.Service) / float64(lot.N)
	lot.Shortest = lot.Service / time.Duration(lot.N)
	lot.Longest = lot.Shortest
}

func count(of []int, i int) {
	if i < len(of) {
		of[i]++
	}
}

func pick(rng *rand.Rand, parts []float64) int {
	u := rng.Float64()
	for i, p := range parts {
		if u -= p; u < 0 {
			return i
		}
	}
	return max(len(parts)-1, 0)
}

// used is the part of the workers' time that was put to use.
func (r *simResult) used(s *sim) float64 {
	return float64(r.work) / float64(s.until-s.from) / float64(s.workers)
}

func (r *simResult) p99() time.Duration { return r.wait(99) }

// wait is a percentile of the waits.
func (r *simResult) wait(percent int) time.Duration {
	if len(r.waits) == 0 {
		return 0
	}
	slices.Sort(r.waits)
	return r.waits[len(r.waits)*percent/100]
}

// unit is ten service times and at least 10 ms.
func (s *sim) unit() time.Duration { return max(10*ms, 10*s.mean) }

func constant(load float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return load }
}

// step is a load of low outside of the given time and of high in it.
func step(low, high float64, from, until time.Duration) func(time.Duration) float64 {
	return func(at time.Duration) float64 {
		if from <= at && at < until {
			return high
		}
		return low
	}
}

// scales are the sizes of stages that the law has to be good at.
func scales() []sim {
	return []sim{
		{workers: 16, mean: 5 * ms},
		{workers: 64, mean: ms / 2},
		{workers: 1, mean: ms},
		{workers: 4, mean: 100 * ms},
		{workers: 2, mean: ms},
		{workers: 2, mean: 20 * time.Microsecond},
	}
}
