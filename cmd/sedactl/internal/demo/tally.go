package demo

import (
	"errors"
	"sync"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/internal/stat"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// tally counts what became of the publishes of one phase in one pipeline. It is
// safe for concurrent use.
type tally struct {
	budget time.Duration // what is done within it is in time
	ended  chan struct{} // closed when it is sealed and nothing is under way

	mu struct {
		sync.Mutex
		accepted, completed, inTime, lettered, abandoned uint64

		refused, dropped [reason.Count]uint64
		shed             map[shedBy]uint64 // of refused
		wait             stat.Histogram    // from due to the start in the bottleneck
		last, lastInTime time.Time         // of the last end, and of the last in time
		sealed           time.Time         // when it was; zero: more may come
		depth            int               // that was left then
	}
}

// shedBy is who shed, and why.
type shedBy struct {
	stage string
	rule  shedder.Rule
}

func (s shedBy) String() string { return s.stage + " " + string(s.rule) }

func newTally(budget time.Duration) *tally {
	t := &tally{budget: budget, ended: make(chan struct{})}
	t.mu.shed = map[shedBy]uint64{}
	return t
}

// published counts the verdict of a publish.
func (t *tally) published(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.mu.accepted++
		return
	}
	why := reason.Invalid
	if rejected, ok := errors.AsType[*bus.RejectedError](err); ok {
		why = rejected.Reason
		if isShed(why) {
			t.mu.shed[shedBy{rejected.At, rejected.Rule}]++
		}
	}
	t.mu.refused[why]++
}

// isShed says whether a shedder refused.
func isShed(why reason.Reason) bool {
	return why == reason.Shed || why == reason.ShedDeadline || why == reason.Rate
}

// isShedName is isShed by name.
func isShedName(name string) bool {
	why, ok := reason.Parse(name)
	return ok && isShed(why)
}

// started counts how long a job waited.
func (t *tally) started(wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.wait.Add(int64(wait), 1)
}

// done counts the end of an accepted publish that was meant to arrive at due.
func (t *tally) done(r bus.Result, due time.Time) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch r.End {
	case bus.Completed:
		t.mu.completed++
		if now.Sub(due) <= t.budget {
			t.mu.inTime++
			t.mu.lastInTime = now
		}
	case bus.DeadLettered:
		t.mu.lettered++
	case bus.Dropped:
		t.mu.dropped[r.Reason]++
	case bus.Abandoned:
		t.mu.abandoned++
	}
	t.mu.last = now
	t.closeLocked()
}

// seal says that no more is published, and what waits at that time.
func (t *tally) seal(depth int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.sealed.IsZero() {
		t.mu.sealed, t.mu.depth = time.Now(), depth
	}
	t.closeLocked()
}

func (t *tally) closeLocked() {
	// The end of a publish may be counted before its acceptance, but once sealed
	// both counts are final or grow to be equal.
	if t.mu.sealed.IsZero() || t.endsLocked() != t.mu.accepted {
		return
	}
	select {
	case <-t.ended:
	default:
		close(t.ended)
	}
}

func (t *tally) endsLocked() uint64 {
	return t.mu.completed + t.mu.lettered + t.mu.abandoned + total(&t.mu.dropped)
}

func total(byReason *[reason.Count]uint64) (n uint64) {
	for _, v := range byReason {
		n += v
	}
	return n
}

// completed returns how many were completed so far.
func (t *tally) completed() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.completed
}

// reading is what tallies hold, added up.
type reading struct {
	accepted, offered, inTime uint64

	wait             stat.Histogram
	refused, dropped Counts
}

// addTo adds what was counted so far.
func (t *tally) addTo(r *reading) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.accepted += t.mu.accepted
	r.offered += t.mu.accepted + total(&t.mu.refused)
	r.inTime += t.mu.inTime
	r.wait.Merge(&t.mu.wait)
	for why, n := range t.mu.refused {
		if n > 0 && !isShed(reason.Reason(why)) {
			r.refused[reason.Reason(why).String()] += n
		}
	}
	for by, n := range t.mu.shed {
		r.refused[by.String()] += n
	}
	for why, n := range t.mu.dropped {
		if n > 0 {
			r.dropped[reason.Reason(why).String()] += n
		}
	}
}

// outcome tells of a phase of which all has ended: it began at start, and its
// arrivals lasted for length if it was not stopped. capacity, per second, bounds
// what is possible; 0 is not known.
func (t *tally) outcome(start time.Time, length time.Duration, capacity float64) Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := Outcome{
		Accepted:     t.mu.accepted,
		Refused:      countsOf(&t.mu.refused),
		Shed:         Counts{},
		Completed:    t.mu.completed,
		InTime:       t.mu.inTime,
		Late:         t.mu.completed - t.mu.inTime,
		Dropped:      countsOf(&t.mu.dropped),
		DeadLettered: t.mu.lettered,
		Abandoned:    t.mu.abandoned,
		WaitP50MS:    ms(t.mu.wait.Quantile(0.5)),
		WaitP99MS:    ms(t.mu.wait.Quantile(0.99)),
		Depth:        t.mu.depth,
		BacklogMS:    max(0, ms(t.mu.last.Sub(t.mu.sealed))),
	}
	for by, n := range t.mu.shed {
		o.Shed[by.String()] = n
	}
	o.Offered = o.Accepted + o.Refused.Total()
	length = max(length, t.mu.sealed.Sub(start), t.mu.lastInTime.Sub(start))
	if length > 0 {
		o.ElapsedMS = ms(length)
		o.Goodput = perSecond(float64(o.InTime) / length.Seconds())
	}
	possible := float64(o.Offered)
	if most := capacity * length.Seconds(); most > 0 {
		possible = min(possible, most)
	}
	if possible > 0 {
		o.OfPossible = perSecond(float64(o.InTime) / possible)
	}
	return o
}
