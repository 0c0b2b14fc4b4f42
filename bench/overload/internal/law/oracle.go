package law

import (
	"slices"
	"time"

	"github.com/sedabus/seda/bench/overload/internal/sim"
)

// oracle knows the service time of every job, every stall and every change to
// come. It lets a job in exactly when it will be done within the budget (or by
// its deadline) and, where a limit is set, will wait no longer than that. It
// does not choose by size: a job that can be done in time is never refused for
// a better one to come. No worker is idle while such work is there.
//
// With classes or senders it admits, in addition, each only up to the part of
// the capacity that is its due: classes from the top, after the least shares of
// the lower ones; senders max-min fair.
//
// For itineraries it assumes that jobs keep their order from stage to stage.
type oracle struct {
	sim.Base

	limit time.Duration // of the wait, over all stages; 0 is none
	free  [][]time.Duration
	trial []reserved
	dues  *dues
}

// reserved is a worker's time set aside for a job.
type reserved struct {
	worker int
	until  time.Duration
}

func newOracle(spec *sim.Spec, limit time.Duration) *oracle {
	o := &oracle{limit: limit}
	for _, st := range spec.Itinerary() {
		o.free = append(o.free, make([]time.Duration, st.Workers))
	}
	o.trial = make([]reserved, len(o.free))
	o.dues = newDues(spec)
	return o
}

// Admit plans the job's way and lets it in if it comes out right.
func (o *oracle) Admit(w *sim.World, j *sim.Job) sim.Action {
	t, wait := w.Now, time.Duration(0)
	for i, free := range o.free {
		first := 0
		for k := range free {
			if free[k] < free[first] {
				first = k
			}
		}
		start := max(t, free[first])
		wait += start - t
		t = w.Spec.EndOf(start, w.Spec.ServiceOf(w.Seed, j.ID, i, 0, start))
		o.trial[i] = reserved{first, t}
	}
	due := w.Now + w.Spec.Budget()
	if j.Deadline > 0 {
		due = j.Deadline
	}
	if t > due || o.limit > 0 && wait > o.limit || !o.dues.take(w, j) {
		return sim.Refuse
	}
	for i, r := range o.trial {
		o.free[i][r.worker] = r.until
	}
	return sim.Admit
}

// Retry says no: the oracle knows that the outage is not over, and puts no
// load on what is to recover.
func (o *oracle) Retry(*sim.World, *sim.Job) bool { return false }

// dues are what each class or sender may have of the capacity.
type dues struct {
	rate []float64 // jobs a second
	have []float64 // jobs
	at   []time.Duration
	of   func(*sim.Job) int
}

// newDues returns nil where all are alike.
func newDues(spec *sim.Spec) *dues {
	rate := spec.Rate()
	d := &dues{}
	switch {
	case len(spec.Classes) > 1:
		load := spec.LoadAt(spec.From)
		d.of = func(j *sim.Job) int { return int(j.Class) }
		d.rate = classDues(spec.Classes, load*rate, rate)
	case len(spec.Senders) > 1:
		load := spec.LoadAt(spec.From)
		demands := make([]float64, len(spec.Senders))
		for i, p := range spec.Senders {
			demands[i] = p * load * rate
		}
		d.of = func(j *sim.Job) int { return int(j.Sender) }
		d.rate = MaxMin(demands, rate)
	default:
		return nil
	}
	d.have = make([]float64, len(d.rate))
	d.at = make([]time.Duration, len(d.rate))
	for i := range d.have {
		d.have[i] = dueBurst
	}
	return d
}

// dueBurst is how many jobs one may be ahead of its due.
const dueBurst = 20

func (d *dues) take(w *sim.World, j *sim.Job) bool {
	if d == nil {
		return true
	}
	i := d.of(j)
	d.have[i] = min(dueBurst, d.have[i]+d.rate[i]*(w.Now-d.at[i]).Seconds())
	d.at[i] = w.Now
	if d.have[i] < 1 {
		return false
	}
	d.have[i]--
	return true
}

// classDues shares the rate: every class its least share, the rest from the
// top.
func classDues(classes []sim.Class, offered, rate float64) []float64 {
	out := make([]float64, len(classes))
	left := rate
	for i, c := range classes {
		out[i] = min(c.Part*offered, c.Share*rate)
		left -= out[i]
	}
	for i, c := range classes {
		more := max(0, min(left, c.Part*offered-out[i]))
		out[i] += more
		left -= more
	}
	out[0] = max(out[0], min(classes[0].Part*offered, rate)) * 1.1 // the top class is not held back
	return out
}

// MaxMin shares a rate over demands: nobody gets more than it asks for, and
// what is left is shared evenly.
func MaxMin(demands []float64, rate float64) []float64 {
	order := make([]int, len(demands))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if demands[a] < demands[b] {
			return -1
		}
		return 1
	})
	out := make([]float64, len(demands))
	for k, i := range order {
		out[i] = min(demands[i], rate/float64(len(order)-k))
		rate -= out[i]
	}
	return out
}
