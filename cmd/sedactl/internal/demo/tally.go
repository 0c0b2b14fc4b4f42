package demo

import (
	"errors"
	"sync"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/internal/stat"
	"github.com/sedabus/seda/reason"
)

// tally counts what became of the publishes of one phase. It is safe for
// concurrent use.
type tally struct {
	ended chan struct{} // closed when it is sealed and nothing is under way

	mu struct {
		sync.Mutex
		accepted, completed, lettered, abandoned uint64
		refused, dropped                         [reason.Count]uint64
		wait                                     stat.Histogram // from due to the start in the bottleneck
		last                                     time.Time      // of the last end
		sealed                                   bool
	}
}

func newTally() *tally { return &tally{ended: make(chan struct{})} }

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
	}
	t.mu.refused[why]++
}

// started counts how long a job waited.
func (t *tally) started(wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.wait.Add(int64(wait), 1)
}

// done counts the end of an accepted publish; it is its completion callback.
func (t *tally) done(r bus.Result) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch r.End {
	case bus.Completed:
		t.mu.completed++
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

// seal says that no more is published.
func (t *tally) seal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.sealed = true
	t.closeLocked()
}

func (t *tally) closeLocked() {
	// The end of a publish may be counted before its acceptance, but once sealed
	// both counts are final or grow to be equal.
	if !t.mu.sealed || t.endsLocked() != t.mu.accepted {
		return
	}
	select {
	case <-t.ended:
	default:
		close(t.ended)
	}
}

func (t *tally) endsLocked() uint64 {
	n := t.mu.completed + t.mu.lettered + t.mu.abandoned
	for _, d := range t.mu.dropped {
		n += d
	}
	return n
}

// completed returns how many were completed so far.
func (t *tally) completed() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.completed
}

// accepted returns how many were accepted so far.
func (t *tally) accepted() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.accepted
}

// outcome tells of a phase that began at start.
func (t *tally) outcome(name string, rate float64, start time.Time, lag time.Duration, whole bool) Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := Outcome{
		Name: name, Rate: perSecond(rate), Whole: whole,
		Accepted:     t.mu.accepted,
		Refused:      countsOf(&t.mu.refused),
		Completed:    t.mu.completed,
		Dropped:      countsOf(&t.mu.dropped),
		DeadLettered: t.mu.lettered,
		Abandoned:    t.mu.abandoned,
		WaitP50MS:    ms(t.mu.wait.Quantile(0.5)),
		WaitP99MS:    ms(t.mu.wait.Quantile(0.99)),
		MaxLagMS:     ms(lag),
	}
	o.Offered = o.Accepted + o.Refused.Total()
	if elapsed := t.mu.last.Sub(start); elapsed > 0 {
		o.ElapsedMS = ms(elapsed)
		o.Goodput = perSecond(float64(o.Completed) / elapsed.Seconds())
	}
	return o
}
