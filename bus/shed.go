package bus

import (
	"sync"
	"sync/atomic"
	"time"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// askedStages bounds how many stages of an itinerary are asked.
const askedStages = 16

// door is what a stage with a shedder keeps for its questions.
type door struct {
	asking atomic.Int32 // publishes at the door
	coming forecast
}

// asking is one publish at the door: what the shedders of the stages that it
// is to visit were asked, in visiting order.
type asking struct {
	now     time.Duration
	transit time.Duration // until it arrives at the stage that is asked next
	later   bool          // it does not arrive now: a delayed publish, or not the first stage
	at      *Stage        // whose shedder is being asked: at its door, but not in asked yet
	asked   []question
	n       int
	pushOut int             // take the place of the newest below this class; -1 is no
	instead shedder.Verdict // with pushOut: the refusal if that fails
}

type question struct {
	stage *Stage
	req   shedder.Request
	aside bool // it is not at the door any more
}

func newAskings() *sync.Pool {
	return &sync.Pool{New: func() any { return &asking{asked: make([]question, askedStages)} }}
}

// ask asks the shedders of the stages that e is to visit whether it is let in:
// the worst answer counts, and each hears how long the stages before it take,
// so that a bottleneck at the third stage sheds at the first. A nil asking
// admits without any account. The caller ends it with settle.
//
// hot: 0 allocs
func (s *Stage) ask(e *Envelope, par *parent) (*asking, error) {
	if s.shed == nil && e.Slip.route == nil && s.mu.topic == nil {
		return nil, nil //nolint:nilnil // nobody to ask is the common case
	}
	a, _ := s.bus.askings.Get().(*asking)
	a.begin(s)
	if par != nil && par.later != nil {
		a.transit, a.later = max(0, time.Duration(par.later.when)-a.now), true
	}
	answered := false
	defer func() {
		if !answered { // a policy has called runtime.Goexit
			a.settle(s.bus, false)
		}
	}()
	slip := e.Slip
	for st := s; st != nil; a.later = true {
		if v, at := a.visit(st, e, slip.Len() > 0); at != nil {
			answered = true
			err := s.refuseShed(&v, at)
			a.settle(s.bus, false)
			return nil, err
		}
		if slip.Len() == 0 {
			break
		}
		st, slip = st.partAsked(slip.resolve(s.bus), e), slip.rest()
	}
	answered = true
	return a, nil
}

func (a *asking) begin(s *Stage) {
	a.now = time.Duration(s.stamp())
	if s.idle.Load() {
		a.now = time.Duration(s.bus.clock.Tick()) // no executor has looked at it of late
	}
	a.transit, a.later, a.n, a.pushOut = 0, false, 0, -1
}

// visit asks st, or the subscribers that it waits for, and adds the time that
// the work spends there. at is the stage that refuses, or nil.
func (a *asking) visit(st *Stage, e *Envelope, goesOn bool) (v shedder.Verdict, at *Stage) {
	if t := st.mu.topic; t != nil {
		begin, longest := a.transit, a.transit
		for _, sub := range *t.subs.Load() {
			if sub.lag != LagWait {
				continue // it holds nobody up
			}
			a.transit, a.later = begin, true
			if v, at = a.visit(sub.to.partOf(e), e, true); at != nil {
				return v, at
			}
			longest = max(longest, a.transit)
		}
		a.transit = longest
		return v, nil
	}
	if st.shed == nil || a.n == len(a.asked) {
		if goesOn {
			a.pass(st.guessTime())
		}
		return v, nil
	}
	own := int32(0) // an itinerary that comes back is not in its own way
	for i := range a.asked[:a.n] {
		if a.asked[i].stage.door == st.door {
			own++
		}
	}
	q := &a.asked[a.n]
	st.describeLoad(a, e, own, &q.req)
	a.at = st
	v = st.shed.Decide(&q.req)
	a.at = nil
	if v.Action == shedder.Refuse || (faults.On(faults.ShedSticks) && st.refused[reason.Shed].Load()+st.refused[reason.ShedDeadline].Load() > 0) {
		st.door.asking.Add(-1)
		return v, st
	}
	if v.Action == shedder.PushOut {
		a.pushOut, a.instead = q.req.Class, v
	}
	q.stage = st
	a.n++
	a.pass(v.Wait)
	a.pass(v.Service)
	return v, nil
}

// pass adds a time on the way, whatever a policy makes of it.
func (a *asking) pass(d time.Duration) {
	a.transit = min(a.transit+min(max(0, d), maxDuration), maxDuration)
}

// stepAside leaves the doors of the later stages: the publish waits for room in
// the first one, nobody knows for how long.
func (a *asking) stepAside() {
	if a == nil {
		return
	}
	for i := range a.asked[:a.n] {
		if q := &a.asked[i]; q.req.Later && !q.aside {
			q.aside = true
			q.stage.door.asking.Add(-1)
		}
	}
}

// settle ends the asking: admitted or not.
func (a *asking) settle(b *Bus, admitted bool) {
	if a == nil {
		return
	}
	if a.at != nil {
		a.at.door.asking.Add(-1)
		a.at = nil
	}
	for i := range a.asked[:a.n] {
		q := &a.asked[i]
		switch {
		case !admitted:
			q.stage.shed.Undo(&q.req)
		case q.aside:
			q.stage.door.coming.add(time.Duration(b.clock.Tick()), q.req.Transit)
		case q.req.Later:
			q.stage.door.coming.add(q.req.Now, q.req.Transit)
		}
		if !q.aside {
			q.stage.door.asking.Add(-1)
		}
		*q = question{}
	}
	b.askings.Put(a)
}

// describeLoad fills in what s's shedder is asked. e is at the door own times
// already.
func (s *Stage) describeLoad(a *asking, e *Envelope, own int32, r *shedder.Request) {
	m := &s.mu
	s.mu.Lock()
	*r = shedder.Request{Now: a.now, Transit: a.transit, Later: a.later, Key: e.Key, Load: s.loadLocked()}
	if m.classes != nil {
		m.classes.describe(r, e, s.shed)
	}
	s.mu.Unlock()
	if a.transit > 0 {
		r.Inbound = s.door.coming.count(a.now, a.transit)
	}
	others := int(s.door.asking.Add(1) - 1 - own) // at the door together: each counts for the next
	r.Waiting += others
	r.Ahead += others
	if e.deadline != 0 {
		r.Deadline = time.Duration(e.deadline - s.bus.epoch)
	}
	if e.Meta != nil {
		r.Sender = e.Meta.Sender
	}
}

// loadLocked is what the stage has in hand.
func (s *Stage) loadLocked() shedder.Load {
	m := &s.mu
	l := shedder.Load{
		Waiting: s.startableLocked(), Busy: m.executed, Concurrency: s.bus.handlersAtMost(m.cfg.Concurrency),
		Capacity: m.cfg.Capacity, Held: !s.runnableLocked(),
	}
	if s.whole != nil {
		s.addSiblings(&l)
	}
	if m.pull != nil {
		// How many consume at once is not known: as many as ever did.
		l.Busy, l.Concurrency = len(m.pull.out), max(1, m.pull.most)
	}
	l.Ahead = l.Waiting
	return l
}

// handlersAtMost is how many of n handlers the bus lets run at once.
func (b *Bus) handlersAtMost(n int) int {
	if limit := b.maxHandlers(); limit > 0 {
		return min(n, limit)
	}
	return n
}

// startableLocked is how many envelopes wait for nothing but an executor.
func (s *Stage) startableLocked() int {
	n := s.queuedLocked() + s.mu.due.Len() + s.heldLocked()
	if s.mu.keyed != nil {
		n -= s.mu.keyed.aside
	}
	if s.mu.claimed == 0 {
		return n
	}
	for _, ex := range s.mu.execs {
		if ex.working && !ex.single {
			w := ex.claim.Load()
			n += claimLim(w) - claimCur(w)
		}
	}
	return n
}

// describe adds what the classes know of e's place.
func (l *lanes) describe(r *shedder.Request, e *Envelope, sh *shedder.Shedder) {
	c := l.classOf(e)
	r.Class, r.Classes, r.Share = c, len(l.classes), float64(l.classes[c].MinShare)/wholeOne
	lower, exempt := 0, 0
	for i := c + 1; i < len(l.q); i++ {
		n := l.q[i].Len()
		lower += n
		if n > 0 && sh.Exempts(i) {
			exempt += n
		}
	}
	r.Ahead = r.Waiting - lower
	if !r.Later {
		r.Evictable = lower - exempt
	}
}

// guessTime is how long a stage without shedder takes: a mean service, and the
// queue's.
func (s *Stage) guessTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	each := s.mu.svc.Mean()
	turns := 1 + float64(s.startableLocked())/float64(s.bus.handlersAtMost(s.mu.cfg.Concurrency))
	return time.Duration(min(float64(each)*turns, float64(maxDuration)))
}

// shedInside asks the stage's own shedder about work under way and returns why
// it refuses, or None.
func (s *Stage) shedInside(e *Envelope) reason.Reason {
	if s.shed == nil {
		return reason.None
	}
	a, _ := s.bus.askings.Get().(*asking)
	a.begin(s)
	v, at := a.visit(s, e, false)
	admitted := at == nil && (a.pushOut < 0 || s.pushOut(a.pushOut))
	a.settle(s.bus, admitted)
	if admitted {
		return reason.None
	}
	return shedReason(&v)
}

// wouldRetry says whether a failure of e that asks for kind leads to a retry, as
// far as the number of attempts goes: else its shedder is not asked.
func (s *Stage) wouldRetry(e *Envelope, kind outcomeKind) bool {
	if kind != outNack {
		return kind == outRetry
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(e.failures)+1 < s.mu.cfg.Retry.MaxAttempts
}

// pushOut ends the newest envelope of the lowest class below class that has
// only come to wait here: first stage, first attempt, not started. It reports
// whether there was one; its place is free then.
func (s *Stage) pushOut(class int) bool {
	var victim Envelope
	s.mu.Lock()
	ok := s.mu.classes.removeNewest(&s.mu.pool, class, s.shed, &victim)
	if ok {
		s.endLocked(&victim, Dropped, reason.PushedOut)
		s.releaseAsideLocked(1)
	}
	s.unlockAndStart()
	if ok {
		s.dropped(&victim, reason.PushedOut)
	}
	return ok
}

// doomed says whether e, which starts at now, cannot meet its deadline any
// more.
func (s *Stage) doomed(e *Envelope, now int64) bool {
	return s.shed.Doomed(time.Duration(now), time.Duration(e.deadline-s.bus.epoch))
}

// refuseShed counts and returns a refusal of the shedder of at, a stage on the
// itinerary.
func (s *Stage) refuseShed(v *shedder.Verdict, at *Stage) error {
	why := shedReason(v)
	s.refused[why].Add(1)
	// One shared error for each stage that refuses: those of two stages that
	// share a cell take turns.
	snap := &s.shedSnaps[at.index%len(s.shedSnaps)]
	now := s.bus.clock.Coarse()
	e := snap.err.Load()
	if e != nil && e.Reason == why && e.Rule == v.Rule && e.At == at.name && now-snap.at.Load() < snapshotAge {
		return e
	}
	e = s.describe(why)
	e.At, e.Rule, e.Limit, e.Value, e.RetryAfter = at.name, v.Rule, v.Limit, v.Value, v.RetryAfter
	snap.at.Store(now)
	snap.err.Store(e)
	return e
}

// shedReason is why v refuses; a policy may leave that open.
func shedReason(v *shedder.Verdict) reason.Reason {
	if v.Reason == reason.None || int(v.Reason) >= reason.Count {
		return reason.Shed
	}
	return v.Reason
}

// Shedder returns the stage's shedder, or nil.
func (s *Stage) Shedder() *shedder.Shedder { return s.shed }

// ShedderState returns what the stage's shedder knows and why it refuses; the
// zero State without one.
func (s *Stage) ShedderState() shedder.State {
	if s.shed == nil {
		return shedder.State{}
	}
	return s.shed.State(time.Duration(s.bus.clock.Now()))
}

// SetShedding stops all shedding of the bus in one call, or lets it go on. It
// concerns the stages that are there and those that come; the shedders go on
// learning.
func (b *Bus) SetShedding(on bool) {
	b.mu.Lock()
	b.mu.shedOff = !on
	stages := b.stagesNow()
	for _, s := range stages {
		if s.shed != nil && !faults.On(faults.KillIgnored) {
			s.shed.Kill(!on)
		}
	}
	b.mu.Unlock()
	for _, s := range stages {
		if s.shed != nil { // hops may wait at a bound that is no more
			s.mu.Lock()
			s.unlockAndStart()
		}
	}
	state := "shedding on"
	if !on {
		state = "shedding off"
	}
	b.fireState(StateInfo{State: state})
}
