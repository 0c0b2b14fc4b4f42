package shedder

import (
	"math"
	"math/bits"
	"time"

	"github.com/sedabus/seda/internal/drain"
	"github.com/sedabus/seda/reason"
)

// Adaptive is the default admission law. It needs no number to be set: it
// measures how long work takes and how fast the stage gets it done, and bounds
// what may wait by that. Since the queue at the door is known, the wait of the
// next unit is predicted, not learnt from waits that are over: there is no
// interval in which a flash crowd is let in, no baseline that drifts, and no
// state that lasts longer than the overload.
//
//   - In standing overload as much may wait as is worked off in the target,
//     [AdaptiveConfig.TargetFactor] mean service times, and at least
//     [AdaptiveConfig.FloorJobs].
//   - A burst may wait in a much longer queue. Refusals spend this burst budget
//     while more is asked for than can be done, by more than chance explains;
//     idle workers give it back.
//   - Work that is predicted to miss its deadline is refused.
//   - Low classes are refused first, and may be pushed out.
//   - While work is refused, senders get equal shares of what is done, and none
//     more than it asks for.
//
// A stage with a free worker and nothing waiting never refuses but for a
// deadline, nor does one of which too little has ended to know it. One that is
// held refuses nothing at all: its queue knows its own capacity.
//
// Failed work counts like any other: it took a worker for as long as it did.
//
// An Adaptive is a [Policy]: not safe for concurrent use.
type Adaptive struct {
	cfg AdaptiveConfig
	k   constants

	now     time.Duration // of the latest call; follows a clock that jumps
	workers float64       // Load.Concurrency as last seen, at least 1
	load    Load

	service drain.Service
	leaving drain.Departures
	demand  demand
	habit   habit
	spareAt time.Duration // when a request found an idle worker last
	supply  float64       // drain, as the demand is compared with it
	drain   float64       // units a nanosecond; 0 until warm
	mean    float64       // service time in ns, or Guards.Baseline
	warm    bool
	ended   time.Duration // when work ended last
	frozen  bool          // mean is Guards.Baseline
	guarded bool          // a guard rail changed something

	// what follows from them
	each      float64 // ns a unit, 1/drain
	span      float64 // ns of an epoch
	whole     float64 // units in an epoch
	perSpan   float64 // 1/span
	perWhole  float64 // 1/whole
	deviation float64 // of the service time, in ns
	service0  time.Duration

	low, high float64 // bound on what waits: standing, and in a burst
	firm      float64 // bound in a burst that is overload for sure
	atOnce    float64 // least bound in a burst that comes while a worker has just been idle
	grace     float64 // ns that this is
	excused   float64 // by how much that burst led what can be done
	trueLow   float64 // low without the guard rails
	cap       float64 // Guards.MaxTarget in units; +Inf is none
	burst     float64 // X: the part of high-low that is left, 0 to 1

	ends    time.Duration // end of the interval under way
	least   int           // shortest queue seen in it
	refused bool          // something was refused in it
	shedAt  time.Duration
	shed    bool

	epoch   uint32
	began   time.Duration // of the epoch
	classes [classSlots]class
	fair    fair
}

// NewAdaptive returns an Adaptive, or an error that names every field of c
// that is out of its bounds.
func NewAdaptive(c AdaptiveConfig) (*Adaptive, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	a := &Adaptive{cfg: c.withDefaults(), k: sweptConstants(), burst: 1, workers: 1, cap: math.Inf(1), span: float64(time.Second), perSpan: 1e-9}
	a.fair.size = a.cfg.Senders
	return a, nil
}

// Tune replaces the configuration. What was measured is kept. After an error
// nothing has changed.
func (a *Adaptive) Tune(c AdaptiveConfig) error {
	if err := c.validate(); err != nil {
		return err
	}
	a.cfg = c.withDefaults()
	a.fair.resize(a.cfg.Senders)
	a.derive()
	return nil
}

// Config returns the configuration in force, with its defaults filled in.
func (a *Adaptive) Config() AdaptiveConfig { return a.cfg }

// Admit decides about one unit of work. Wait and Service of the verdict are
// filled in for every action; RetryAfter is the predicted wait rounded up to a
// power of two nanoseconds, so that few values exist and errors that carry it
// can be shared.
//
// hot: 0 allocs
func (a *Adaptive) Admit(r *Request) (v Verdict) {
	if !a.plain(r, &v) {
		a.admit(r, &v)
	}
	return v
}

// admit decides about any request, into a verdict that is zero.
func (a *Adaptive) admit(r *Request, v *Verdict) {
	l := a.advance(r.Now, &r.Load)
	if a.guarded || r.Guards.measured() {
		a.guard(r.Guards)
	}
	if l.Held {
		a.demand.last = max(a.demand.last, a.now)
		v.Service = a.service0
		return
	}
	c := a.ask(r, l)
	if !a.warm {
		a.cold(r, v)
	} else {
		a.judge(r, l, c, v)
	}
	if c != nil && v.Action != Refuse {
		c.tokens = max(c.tokens-1, -mostDebt)
	}
}

// judge decides about work of class c, which is nil without classes.
func (a *Adaptive) judge(r *Request, l *Load, c *class, v *Verdict) {
	queue, ahead := float64(l.Waiting), float64(l.Ahead)
	idle := l.Waiting == 0 && l.Busy < l.Concurrency
	if r.Later {
		queue, ahead, idle = a.later(r, l)
	}
	v.Service = a.service0
	wait := 0.0
	if !idle {
		wait = (ahead + 1) * a.each
		v.Wait = toDuration(wait)
	}
	if r.Deadline != 0 && a.late(r, l, v, wait, ahead) {
		return
	}
	if !idle {
		a.decide(r, l, c, v, queue, ahead)
	}
}

// decide applies the fairness, the classes and the bound to work that has to
// wait.
func (a *Adaptive) decide(r *Request, l *Load, c *class, v *Verdict, queue, ahead float64) {
	bound := a.bound()
	if queue >= a.low {
		bound = a.room(queue, bound)
	}
	bound = min(bound, a.cap)
	room, own, served := bound, bound, false
	if c != nil {
		own, served = a.classBound(c, bound)
	}
	a.fair.latest = nil
	if r.Sender != "" && a.shed {
		var ok bool
		if room, ok = a.share(r, v, bound, queue, served); !ok {
			return
		}
	}
	if c == nil {
		own = room
	} else {
		own = max(own, room-bound)
		if ahead >= own || a.closed(c) {
			a.classFull(r, l, c, v, own, ahead)
			return
		}
	}
	switch {
	case queue < room:
	case l.Evictable > 0 && !r.Later:
		v.pushOut(bound, queue)
	case queue < own:
	default:
		a.turnAway(v, a.rule(queue), bound, queue)
	}
}

// share applies the fairness, completes v if it refuses, and returns how many
// may wait for the sender; served says that all of its class fits.
func (a *Adaptive) share(r *Request, v *Verdict, bound, queue float64, served bool) (room float64, ok bool) {
	if served { // no sender is held back then
		a.fair.pass()
		return bound, true
	}
	ok, modest := a.fair.admit(a, r.Sender, queue)
	switch {
	case !ok:
		a.refuse(v, RuleFair, a.fair.level*1e9, a.fair.asked*1e9)
	case modest: // what is over falls on those who ask for more than the others
		return min(bound*modestRoom, a.cap), true
	}
	return bound, ok
}

// modestRoom is by how much the bound is higher for senders that ask for less
// than their share.
const modestRoom = 1.5

// classFull decides about work of a class for which there is no room.
func (a *Adaptive) classFull(r *Request, l *Load, c *class, v *Verdict, own, ahead float64) {
	if c.tokens >= 1 {
		c.held++
		return
	}
	c.shed, c.shedAt = true, a.now
	if !r.Later && ahead < a.high && float64(l.Evictable) > a.heldBelow(c) {
		v.pushOut(own, ahead)
		return
	}
	a.turnAway(v, a.rule(ahead), own, ahead)
}

func (v *Verdict) pushOut(limit, value float64) {
	v.Action, v.Rule = PushOut, RuleBound
	v.Limit, v.Value = limit, value
}

// turnAway refuses what the fairness has let pass.
func (a *Adaptive) turnAway(v *Verdict, rule Rule, limit, value float64) {
	a.fair.undoLatest()
	a.refuse(v, rule, limit, value)
}

// rule says which rule a full bound stands for.
func (a *Adaptive) rule(queue float64) Rule {
	if !a.guarded {
		return RuleBound
	}
	switch {
	case a.bound() > a.cap && queue < a.bound():
		return RuleTarget
	case a.frozen && queue < a.trueLow+a.burst*(a.high-a.low):
		return RuleBaseline
	}
	return RuleBound
}

// refuse completes v to a refusal and spends burst budget.
func (a *Adaptive) refuse(v *Verdict, rule Rule, limit, value float64) {
	a.refused, a.shed, a.shedAt = true, true, a.now
	if a.burst > 0 && rule != RuleFair {
		over := clampTo(a.demand.beyond()-a.k.spendAt, 0, 1)
		a.burst = max(a.burst-over*a.cfg.Spend/max(a.high-a.low, 1), 0)
	}
	v.Action, v.Rule, v.Reason = Refuse, rule, reason.Shed
	v.Limit, v.Value = limit, value
	v.RetryAfter = quantise(v.Wait)
}

// late says whether the work would miss its deadline, and completes v if so.
func (a *Adaptive) late(r *Request, l *Load, v *Verdict, wait, ahead float64) bool {
	start := float64(max(r.Now, 0)) + float64(max(r.Transit, 0))
	spread := 1.0
	if wait > 0 {
		spread += (ahead + 1) / (a.workers * a.workers)
	}
	margin := a.cfg.Deviations * (1 + 2*min(ahead/a.low, 1)) / 3
	done := start + wait + a.mean + margin*a.deviation*math.Sqrt(spread)
	if done <= float64(r.Deadline) {
		return false
	}
	if a.probe(l) && start <= float64(r.Deadline) {
		return false
	}
	a.refused = true
	v.Action, v.Rule, v.Reason = Refuse, RuleDeadline, reason.ShedDeadline
	v.Limit, v.Value = float64(r.Deadline), done
	v.RetryAfter = quantise(v.Wait)
	return true
}

// probe says that nothing is left to learn from: without it, one long outage
// could make every deadline look hopeless for ever.
func (a *Adaptive) probe(l *Load) bool {
	return l.Busy == 0 && l.Waiting == 0 && l.Inbound == 0 &&
		float64(a.now-a.ended) > probeAfter*a.mean
}

const probeAfter = 16 // mean service times without a completion

// cold decides while too little is known: only work that is late already is
// refused.
func (a *Adaptive) cold(r *Request, v *Verdict) {
	start := max(r.Now, 0) + min(max(r.Transit, 0), math.MaxInt64/2)
	v.Service = a.service0
	if r.Deadline == 0 || start <= r.Deadline || start < 0 {
		return
	}
	v.Action, v.Rule, v.Reason = Refuse, RuleDeadline, reason.ShedDeadline
	v.Limit, v.Value = float64(r.Deadline), float64(start)
}

// later predicts the queue that work will meet which arrives in r.Transit: what
// waits and what is under way to here, less what is worked off until then.
func (a *Adaptive) later(r *Request, l *Load) (queue, ahead float64, idle bool) {
	gone := a.drain * float64(max(r.Transit, 0))
	under := float64(l.Inbound)
	queue = max(float64(l.Waiting)+under-gone, 0)
	ahead = max(float64(l.Ahead)+under-gone, 0)
	return queue, ahead, queue == 0
}

// Undo takes an admission back.
func (a *Adaptive) Undo(r *Request) {
	if r.Sender != "" {
		a.fair.undo(r.Sender)
	}
}

// Done tells of work that ended.
//
// hot: 0 allocs
func (a *Adaptive) Done(d *Done) {
	if d.N <= 0 {
		return
	}
	l := a.advance(d.Now, &d.Load)
	a.ended = a.now
	most := math.Inf(1)
	if a.drain > 0 {
		most = a.k.outlier * (float64(d.N) + a.workers) / a.drain
	}
	a.service.Add(d.N, float64(d.Service), d.Squares, a.window())
	a.leaving.Add(a.now, d.N, l.Waiting, a.satWindow(), most)
	if a.guarded || d.Guards.measured() {
		a.guard(d.Guards)
	}
	a.derive()
}

// Bound returns how many may wait; 0 while it is not known.
func (a *Adaptive) Bound() int {
	if !a.warm {
		return 0
	}
	return int(clampTo(math.Ceil(min(a.bound(), a.cap)), 1, 1<<30))
}

// Inspect fills in what the policy knows.
func (a *Adaptive) Inspect(_ time.Duration, st *State) {
	st.Policy = "adaptive"
	st.Warm = a.warm
	st.Service = a.service0
	st.ServiceDev = toDuration(a.deviation)
	if a.service.Slow > 0 {
		st.ServiceRatio = a.service.Mean() / a.service.Slow
	}
	st.DrainRate = a.drain * 1e9
	if a.drain > 0 {
		st.Target = toDuration(min(a.low, a.cap) / a.drain)
	}
	st.Bound = a.Bound()
	st.Burst = a.burst
	st.Load = a.load
}

// quantise rounds d up to a power of two.
func quantise(d time.Duration) time.Duration {
	if d <= 1 {
		return max(d, 0)
	}
	return 1 << min(bits.Len64(uint64(d-1)), 62)
}
