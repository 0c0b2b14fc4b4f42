package bus

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/sedabus/seda/internal/clock"
	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/reason"
)

// Start lets publishes in and handlers run. It is an error to start a bus
// twice or after it was shut down.
func (b *Bus) Start() error {
	b.mu.Lock()
	if !b.phase.CompareAndSwap(stateNew, stateRunning) {
		b.mu.Unlock()
		if b.state() == stateRunning {
			return fmt.Errorf("%w: bus %q was started before", ErrConflict, b.cfg.Name)
		}
		return fmt.Errorf("bus %q: %w", b.cfg.Name, ErrClosed)
	}
	b.setGates(gateNotStarted, false)
	b.mu.Unlock()
	for _, s := range b.stagesNow() {
		s.mu.Lock()
		s.wakeAllReceiversLocked()
		s.unlockAndStart()
	}
	b.fireState(StateInfo{State: "started"})
	return nil
}

// Run starts the bus, waits until ctx ends, and shuts it down within
// Config.Grace. It returns nil if everything was drained.
func (b *Bus) Run(ctx context.Context) error {
	if ctx == nil {
		return fault("run", "ctx", "nil", "must not be nil")
	}
	if err := b.Start(); err != nil {
		return err
	}
	<-ctx.Done()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.cfg.Grace)
	defer cancel()
	_, err := b.Shutdown(grace)
	return err
}

// Report is what a shutdown has come to.
type Report struct {
	// Drained says that nothing had to be abandoned and no callback was left.
	Drained bool
	// Stats is the account at the end; Pending is zero.
	Stats Stats
	// Abandoned names the envelopes that were given up, at most 1000 of them.
	Abandoned []AbandonedInfo
	// Stuck names the handler calls and deliveries that were under way when the
	// bus cut its work off. Their contexts are cancelled at that moment, and
	// nobody waits for them: one may return right after. Their envelopes are
	// abandoned.
	Stuck []StuckInfo
	// Callbacks is the number of completion callbacks that had not begun.
	Callbacks int
	// Took is how long the shutdown waited.
	Took time.Duration
}

// AbandonedInfo is an envelope that was given up.
type AbandonedInfo struct {
	Stage    string
	ID       uint64
	TextID   string
	InFlight bool
}

// StuckInfo is a handler call, or an unsettled delivery, that outlived the
// bus.
type StuckInfo struct {
	Stage string
	InFlight
}

// maxListed bounds the envelopes that a report names.
const maxListed = 1000

// String is a summary of a few lines.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "drained: %v in %v; %s", r.Drained, r.Took.Round(time.Millisecond), r.Stats.Account())
	for _, s := range r.Stuck {
		fmt.Fprintf(&b, "\nstuck: stage %q envelope %d for %v", s.Stage, s.ID, s.Age.Round(time.Millisecond))
	}
	return b.String()
}

// Shutdown stops outside publishes, wakes every waiter, and lets what was
// accepted finish until ctx ends: hops, retries and publishes from inside go
// on. It does not wait for a retry or a later publish that is due after ctx's
// deadline. What is left then is abandoned, and each such envelope gets that
// Result. It returns the report, and an error that matches ErrNotDrained if
// something was abandoned or a callback is left. Further and concurrent calls return the same report. A
// call from inside a handler does not count that handler's envelope as an
// obstacle to wait for: it waits all the same, so give it a deadline.
func (b *Bus) Shutdown(ctx context.Context) (Report, error) {
	if ctx == nil {
		return Report{}, fault("shutdown", "ctx", "nil", "must not be nil")
	}
	first, done := b.beginShutdown()
	if !first && faults.On(faults.ReportAgain) {
		return Report{}, nil
	}
	if !first {
		select {
		case <-done:
		case <-ctx.Done():
			b.cut() // whoever has the shorter deadline ends it
			<-done
		}
		return b.lastReport()
	}
	began := b.clock.Now()
	b.refuseWaiters()
	b.fireState(StateInfo{State: "draining"})
	drained := b.drain(ctx)
	b.conclude(ctx, began, drained)
	return b.lastReport()
}

// Close cuts: what was accepted and is not finished is abandoned at once, and
// the handlers' contexts are cancelled. It does not wait for handlers. It is
// an error if something was abandoned.
func (b *Bus) Close() error {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := b.Shutdown(over)
	return err
}

// beginShutdown moves to draining; first is true for the caller that does it.
func (b *Bus) beginShutdown() (first bool, done chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.ending != nil {
		return false, b.mu.ending
	}
	b.mu.ending = make(chan struct{})
	if b.phase.Swap(stateDraining) == stateNew {
		b.setGates(gateNotStarted, false)
	}
	b.setGates(gateClosed, true)
	return true, b.mu.ending
}

func (b *Bus) lastReport() (Report, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := *b.mu.report
	if !r.Drained {
		return r, fmt.Errorf("%w: bus %q: %d abandoned, %d stuck, %d callbacks left",
			errNotDrained, b.cfg.Name, r.Stats.Abandoned, len(r.Stuck), r.Callbacks)
	}
	return r, nil
}

// refuseWaiters answers everyone outside who waits to publish.
func (b *Bus) refuseWaiters() {
	for _, s := range b.stagesNow() {
		s.mu.Lock()
		s.mu.draining = true
		s.revokeLanesLocked()
		s.handBackLocked()
		s.answerOutsideLocked(reason.Closed)
		s.answerPathsLocked(reason.Closed, true)
		s.unlockAndStart()
	}
}

// cut makes a running drain end at once.
func (b *Bus) cut() {
	b.cutOnce.Do(func() { close(b.cutNow) })
}

// drain waits until nothing is pending, or until ctx or hope ends.
func (b *Bus) drain(ctx context.Context) bool {
	for !faults.On(faults.DrainGivesUp) {
		pending, hopeless := b.pendingNow(ctx)
		if pending == 0 && b.told() {
			return true
		}
		if hopeless {
			return false
		}
		select {
		case <-b.wake:
		case <-ctx.Done():
			pending, _ = b.pendingNow(ctx)
			return pending == 0 && b.told()
		case <-b.cutNow:
			return false
		}
	}
	return false
}

// told says whether the callbacks and the drop hook have been told everything
// and have returned.
func (b *Bus) told() bool { return b.callbacks.idle() && b.drops.idle() }

// pendingEverywhere adds up the stages. What hops to a stage that was looked at
// before it was may be missed, so that nothing is believed only if no envelope
// has entered a stage meanwhile. copied is how many are publishes that only
// wait for their copies.
func (b *Bus) pendingEverywhere() (pending, copied int) {
	for before, again := uint64(0), false; ; again = true {
		entered := uint64(0)
		pending, copied = 0, 0
		for _, s := range b.stagesNow() {
			n, out, in := s.pending()
			pending += n
			copied += out
			entered += in
		}
		if pending > 0 || (again && entered == before) {
			return pending, copied
		}
		before = entered
	}
}

// pendingNow counts what is not finished; hopeless says that all of it is due
// after the deadline.
func (b *Bus) pendingNow(ctx context.Context) (pending int, hopeless bool) {
	pending, copied := b.pendingEverywhere()
	deadline, ok := ctx.Deadline()
	if pending == 0 || !ok {
		return pending, false
	}
	limit := b.clock.FromWall(deadline)
	late := 0
	b.timers.each(func(when int64, t task) bool {
		if _, ok := t.(*delayedEnvelope); ok && when > limit {
			late++
		}
		return true
	})
	return pending, late > 0 && late == pending-copied && !faults.On(faults.WaitsForLate)
}

// conclude abandons what is left and writes the report.
func (b *Bus) conclude(ctx context.Context, began int64, drained bool) {
	r := &Report{}
	b.phase.Store(stateClosed)
	for _, s := range b.stagesNow() {
		s.close()
	}
	b.abandonAll(r)
	b.timers.close()
	b.cancel(errBusClosed)
	toldAll := b.callbacks.wait(ctx, b.cutNow)
	r.Callbacks = b.callbacks.pending()
	r.Took = time.Duration(b.clock.Now() - began)
	b.ReadStats(&r.Stats)
	r.Drained = drained && toldAll && len(r.Stuck) == 0 && len(r.Abandoned) == 0
	b.mu.Lock()
	b.mu.report = r
	close(b.mu.ending)
	b.mu.Unlock()
	b.fireState(StateInfo{State: "closed"})
}

// settleTime bounds how long the end waits for what moves at that moment; only
// a hook or a journal that does not return takes so long.
const settleTime = time.Second

// abandonAll gives up everything that is left. What moves at that moment, such
// as an envelope between two stages, is waited for and given up as well, so
// that the account balances.
func (b *Bus) abandonAll(r *Report) {
	var limit *time.Timer
	for {
		for _, s := range b.stagesNow() {
			s.abandon(r)
		}
		b.ReadStats(&r.Stats)
		if r.Stats.Pending == 0 && r.Stats.Check() == nil {
			return
		}
		if limit == nil {
			limit = clock.NewTimer(settleTime)
			defer limit.Stop()
		}
		select {
		case <-b.wake:
		case <-limit.C:
			return
		}
	}
}

// close keeps everything from starting and takes unstarted work back.
func (s *Stage) close() {
	s.mu.Lock()
	s.mu.closed = true
	s.revokeLanesLocked()
	s.handBackLocked()
	s.answerWaitersLocked(reason.Closed)
	s.answerPathsLocked(reason.Closed, false)
	s.wakeAllReceiversLocked()
	jobs := s.stopLocked()
	s.unlockAndStart()
	s.runJobs(jobs)
}

// abandon gives up everything that the stage still has.
func (s *Stage) abandon(r *Report) {
	var gone []Envelope
	var inside []bool
	take := func(e *Envelope, in bool) {
		if !faults.On(faults.AbandonUncounted) {
			s.endLocked(e, Abandoned, reason.Shutdown)
		}
		gone = append(gone, *e)
		inside = append(inside, in)
	}
	now := s.bus.clock.Now()
	s.mu.Lock()
	m := &s.mu
	s.takeDelayedLocked(take)
	s.drainLocked(func(e *Envelope) { take(e, false) })
	s.abandonInFlightLocked(r, now, take)
	var parked []arrival
	for m.arrivals.Len() > 0 {
		var a arrival
		m.arrivals.Pop(&m.arrPool, &a)
		parked = append(parked, a)
	}
	idle := m.idle
	m.idle = nil
	s.unlockAndStart()
	for _, ex := range idle {
		ex.cancel(nil)
	}
	for i := range gone {
		s.abandoned(&gone[i], inside[i], r)
	}
	for i := range parked {
		parked[i].abandon(s, r)
	}
}

// takeDelayedLocked takes what waits for its time. What has just fallen due is
// out of the timers and not yet here: it is waited for, and comes to the queue.
func (s *Stage) takeDelayedLocked(take func(*Envelope, bool)) {
	m := &s.mu
	for {
		for _, t := range s.bus.timers.take(func(t task) bool {
			d, ok := t.(*delayedEnvelope)
			return ok && d.stage == s
		}) {
			if d, ok := t.(*delayedEnvelope); ok {
				m.delayed--
				take(&d.env, false)
			}
		}
		if m.delayed == 0 {
			m.postponed = 0
			return
		}
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
}

// abandonInFlightLocked gives up what handlers and pull consumers have.
func (s *Stage) abandonInFlightLocked(r *Report, now int64, take func(*Envelope, bool)) {
	m := &s.mu
	for _, ex := range m.execs {
		if !ex.working || m.topic != nil {
			continue
		}
		w, ok := ex.pinLocked()
		if !ok {
			continue
		}
		if e := ex.handledLocked(w); e != nil {
			r.Stuck = append(r.Stuck, StuckInfo{Stage: s.name, InFlight: ex.describe(e, now)})
			end := e.Clone() // the handler may be writing to its fields
			end.OnDone, end.par = e.OnDone, e.par
			end.flags, end.member = e.flags, e.member
			take(&end, true)
		}
		ex.claim.Store(w | claimLost)
	}
	if m.pull == nil {
		return
	}
	for id, l := range m.pull.out {
		l.state = leaseLost
		s.bus.timers.remove(l.expires)
		r.Stuck = append(r.Stuck, StuckInfo{Stage: s.name, InFlight: l.describe(now)})
		take(&l.env, true)
		delete(m.pull.out, id)
	}
}

// abandoned tells those who wait for e.
func (s *Stage) abandoned(e *Envelope, inside bool, r *Report) {
	if len(r.Abandoned) < maxListed {
		r.Abandoned = append(r.Abandoned, AbandonedInfo{Stage: s.name, ID: e.id, TextID: e.TextID(), InFlight: inside})
	}
	if s.bus.cfg.Journal != nil {
		s.journalEnd(e, Abandoned, reason.Shutdown)
	}
	s.bus.finish(e, Result{End: Abandoned, Reason: reason.Shutdown, Stage: s.name})
}

// abandon gives up a hop, or a copy, that waited for room at s.
func (a *arrival) abandon(s *Stage, r *Report) {
	at, copied := a.from, a.env.flags&flagCopy != 0
	if copied {
		at = s
	}
	at.mu.Lock()
	if copied {
		at.mu.count.entered++
		at.mu.count.copies++
	} else {
		at.leaveParkedLocked(s, 1)
	}
	at.endLocked(&a.env, Abandoned, reason.Shutdown)
	at.unlockAndStart()
	at.abandoned(&a.env, false, r)
	if copied {
		a.from.mu.Lock()
		a.from.mu.topic.lagging--
		a.from.unlockAndStart()
	}
}

// ErrNotDrained is matched by the error of a Shutdown, Close or Run that had
// to abandon something.
var ErrNotDrained = errNotDrained
