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
// With classes, all wait in one queue, and the lower a class is, the shorter the
// wait has to be for one of it to be let in; its least share always is. With
// senders, one that has had its max-min fair part is let in only while waits are
// short.
//
// For itineraries it assumes that jobs keep their order from stage to stage, and
// leaves a tenth of the budget for those that do not.
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

// orderMargin is the part of the budget that is left for jobs that overtake.
const orderMargin = 10

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
	if len(o.free) > 1 {
		due -= w.Spec.Budget() / orderMargin
	}
	if j.Deadline > 0 {
		due = j.Deadline
	}
	if t > due || o.limit > 0 && wait > o.limit || !o.dues.take(w, j, wait) {
		return sim.Refuse
	}
	for i, r := range o.trial {
		o.free[i][r.worker] = r.until
	}
	return sim.Admit
}

// Alike says that classes wait in one queue.
func (*oracle) Alike() {}

// Retry says no: the oracle knows that the outage is not over, and puts no
// load on what is to recover.
func (*oracle) Retry(*sim.World, *sim.Job) bool { return false }

// dues say what each class or sender is let in for, whatever the wait, and how
// long the wait may be for more.
type dues struct {
	rate []float64       // jobs a second that are its due
	wait []time.Duration // for what is beyond it
	have []float64       // jobs
	at   []time.Duration
	of   func(*sim.Job) int
}

// newDues returns nil where all are alike.
func newDues(spec *sim.Spec) *dues {
	rate := spec.Rate()
	d := &dues{}
	switch {
	case len(spec.Classes) > 1:
		d.of = func(j *sim.Job) int { return int(j.Class) }
		n := len(spec.Classes)
		for i, c := range spec.Classes {
			d.rate = append(d.rate, c.Share*rate)
			d.wait = append(d.wait, spec.Budget()*time.Duration(n-i)/time.Duration(n))
		}
	case len(spec.Senders) > 1:
		d.of = func(j *sim.Job) int { return int(j.Sender) }
		demands := make([]float64, len(spec.Senders))
		for i, p := range spec.Senders {
			demands[i] = p * spec.LoadAt(spec.From) * rate
			d.wait = append(d.wait, spec.Budget()/8)
		}
		d.rate = MaxMin(demands, rate)
	default:
		return nil
	}
	d.have = make([]float64, len(d.rate))
	d.at = make([]time.Duration, len(d.rate))
	return d
}

// dueBurst is how many jobs one may be behind its due and still get them.
const dueBurst = 20

func (d *dues) take(w *sim.World, j *sim.Job, wait time.Duration) bool {
	if d == nil {
		return true
	}
	i := d.of(j)
	d.have[i] = min(dueBurst, d.have[i]+d.rate[i]*(w.Now-d.at[i]).Seconds())
	d.at[i] = w.Now
	if d.have[i] >= 1 {
		d.have[i]--
		return true
	}
	return wait <= d.wait[i]
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
