package bus

import (
	"time"

	"github.com/sedabus/seda/shedder"
)

// feedLocked keeps, for the shedder, what the claim that ends has done: how
// long it took is known of all its calls together. It also earns the stage its
// retries.
func (ex *executor) feedLocked(now int64) {
	m := &ex.stage.mu
	n := int(ex.tally.delivered)
	took := time.Duration(max(0, now-ex.start))
	each := took / time.Duration(n)
	ex.fed = shedder.Done{
		Now: time.Duration(now), N: n, Failed: min(int(ex.tally.failed), n), Service: took,
		Squares: float64(took) * float64(each), Shortest: each, Longest: each, Wait: time.Duration(ex.least),
	}
	m.again = min(m.again+float64(n)*m.cfg.Retry.Budget, retriesAtMost)
}

// leaseDoneLocked is feedLocked for a pull consumer's delivery.
func (s *Stage) leaseDoneLocked(l *Lease, now int64, err error) *shedder.Done {
	took := time.Duration(max(0, now-l.start))
	d := &shedder.Done{
		Now: time.Duration(now), N: 1, Service: took, Squares: float64(took) * float64(took),
		Shortest: took, Longest: took, Wait: time.Duration(max(0, l.start-l.env.entered)), Load: s.loadLocked(),
	}
	if err != nil {
		d.Failed = 1
	}
	s.mu.again = min(s.mu.again+s.mu.cfg.Retry.Budget, retriesAtMost)
	return d
}

// retriesAtMost bounds the retries that are saved up.
const retriesAtMost = 16

// mayRetryLocked says whether one more retry is within the budget. While the
// shedder refuses nothing, because it is off or only observes, and as long as
// the stage is not overloaded every one is: it has shed nothing of late, and no
// more waits than two rounds of its handlers. Once it was, the budget holds until
// it is full again: retries that stop when they have caused an overload, and
// come back when it is over, would keep the stage at its limit.
func (s *Stage) mayRetryLocked(now int64) bool {
	m := &s.mu
	if s.shed == nil || !s.shed.Sheds() {
		return true
	}
	l := s.loadLocked()
	over := l.Waiting > 2*l.Concurrency || s.shed.Overloaded(time.Duration(now))
	if !over && (!m.sparing || m.again >= retriesAtMost) {
		m.sparing = false
		return true
	}
	m.sparing = true
	if m.again < 1 {
		return false
	}
	m.again--
	return true
}

// tellShedderLocked hands it over. The lock is released meanwhile; the executor
// is between two claims.
func (ex *executor) tellShedderLocked() {
	s := ex.stage
	ex.fed.Load = s.loadLocked()
	s.mu.Unlock()
	defer func() { ex.fed.N = 0 }() // also if the policy calls runtime.Goexit
	s.shed.Done(&ex.fed)
	s.mu.Lock()
}

// hopRoom is how many places are left for hops: they stop at the shedder's
// bound where one is on, else at the capacity. What waits in a stage that is
// suspended or has no handler says nothing about overload.
func (s *Stage) hopRoom() int64 { return s.free.Load() - s.slack.Load() }

// boundHopsLocked takes the shedder's bound over for hops, unless nothing starts
// because somebody wants it so. What is delayed or
// parked here is not in the queue that the bound is for.
func (s *Stage) boundHopsLocked() {
	m := &s.mu
	var slack int64
	if bound := s.shed.Bound(); bound > 0 && s.runnableLocked() {
		capacity := m.cfg.Capacity
		if s.whole != nil { // the siblings' work is within the bound, too
			capacity = s.capacityNow()
			bound = s.boundOfPart(bound)
		}
		slack = int64(max(0, capacity-bound-m.delayed-max(0, m.parked)))
		if m.desk != nil {
			slack = max(0, slack-int64(m.executed)) // these hold their places, and do not wait
		}
	}
	slack = max(slack, s.beyond.Load())
	old := s.slack.Load() // others only read it, and often
	if slack == old {
		return
	}
	s.slack.Store(slack)
	if slack < old {
		s.feedArrivalsLocked()
		s.tellRoomLocked()
	}
}
