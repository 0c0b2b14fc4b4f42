package law

import (
	"time"

	"github.com/sedabus/seda/bench/overload/internal/sim"
	"github.com/sedabus/seda/shedder"
)

// policies runs a shedder.Policy for each stage as the bus does: the first
// stage's arrivals are asked of the policies of all stages, hops of none.
type policies struct {
	sim.Base

	at       []policyAt
	requests []shedder.Request
	tokens   float64 // of the retry budget
	unit     time.Duration
}

// policyAt is a policy with what the shell keeps for it.
type policyAt struct {
	shedder.Policy

	// shortest service time of this window and the one before
	shortest, before time.Duration
	until            time.Duration
}

// senderNames are the names of senders by number.
var senderNames = []string{"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"}

// FromPolicy makes a law of policies, one for each stage.
func FromPolicy(spec *sim.Spec, stages int, fresh func() shedder.Policy) sim.Control {
	p := &policies{unit: spec.Unit(), requests: make([]shedder.Request, stages), tokens: retryBurst}
	for range stages {
		p.at = append(p.at, policyAt{Policy: fresh(), shortest: 1 << 62, before: 1 << 62})
	}
	return p
}

func loadOf(w *sim.World, q *sim.Queue, class int) shedder.Load {
	return shedder.Load{
		Waiting: q.Waiting, Ahead: q.Ahead(class), Evictable: q.Evictable(class), Inbound: q.Inbound,
		Busy: q.Busy, Concurrency: q.Workers, Capacity: w.Spec.Bound,
	}
}

// Admit asks the policies along the itinerary.
func (p *policies) Admit(w *sim.World, j *sim.Job) sim.Action {
	p.tokens = min(retryBurst, p.tokens+retryShare)
	transit := time.Duration(0)
	action := sim.Admit
	for i := range p.at {
		r := &p.requests[i]
		*r = shedder.Request{
			Now: w.Now, Deadline: j.Deadline, Transit: transit, Later: i > 0,
			Class: int(j.Class), Classes: max(1, len(w.Spec.Classes)), Load: loadOf(w, &w.At[i], int(j.Class)),
		}
		if transit == 0 {
			r.Inbound = 0 // nothing comes before who comes at once
		}
		if r.Classes > 1 {
			r.Share = w.Spec.Classes[j.Class].Share
		}
		if len(w.Spec.Senders) > 1 {
			r.Sender = senderNames[j.Sender]
		}
		v := p.at[i].Admit(r)
		if v.Action == shedder.Refuse {
			for k := range i {
				p.at[k].Undo(&p.requests[k])
			}
			return sim.Refuse
		}
		if v.Action == shedder.PushOut && i == 0 {
			action = sim.PushOut
		}
		transit += v.Wait + v.Service
	}
	return action
}

// Start throws doomed work away, judged by the shortest service time of late.
func (p *policies) Start(w *sim.World, j *sim.Job, stage int) bool {
	a := &p.at[stage]
	if j.Deadline == 0 {
		return true
	}
	least := min(a.shortest, a.before)
	return least > 1<<61 || w.Now+least <= j.Deadline
}

// Done tells the policy of the stage.
func (p *policies) Done(w *sim.World, j *sim.Job, stage int, took time.Duration, ok bool) {
	a := &p.at[stage]
	if w.Now >= a.until {
		a.before, a.shortest, a.until = a.shortest, took, w.Now+p.unit
	}
	a.shortest = min(a.shortest, took)
	d := shedder.Done{
		Now: w.Now, N: 1, Service: took, Squares: float64(took) * float64(took),
		Shortest: took, Longest: took, Wait: j.Started - j.Entered, Load: loadOf(w, &w.At[stage], 0),
	}
	if !ok {
		d.Failed = 1
	}
	a.Done(&d)
}

// Bound is the bound for hops.
func (p *policies) Bound(stage int) int { return p.at[stage].Bound() }

// The retry budget of a stage: a tenth of a retry for each first attempt, used
// while the stage is overloaded.
const (
	retryShare = .1
	retryBurst = 10
)

// Retry says whether the budget has a retry left.
func (p *policies) Retry(*sim.World, *sim.Job) bool {
	if p.tokens < 1 {
		return false
	}
	p.tokens--
	return true
}
