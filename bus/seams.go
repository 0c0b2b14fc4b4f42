package bus

import (
	"context"
	"errors"
	"time"

	"github.com/sedabus/seda/reason"
)

// Journal records accepted work and its ends, for delivery after a crash. It
// is called in batches at the boundaries of chunks, without a lock, and
// concurrently.
type Journal interface {
	// Append records entries in order. An error refuses the publish that asked
	// for it (OpAccept), and is counted and logged for the other ops.
	Append(entries []Entry) error
}

// Op is what a journal entry records.
type Op uint8

// Ops.
const (
	OpAccept     Op = iota // the envelope is about to be accepted by Stage
	OpRefuse               // an accept that was recorded came to nothing
	OpAdvance              // Stage has acknowledged it; Next is where it goes
	OpSettle               // it ended with End
	OpDelay                // it waits for Delay at Stage
	OpDeadLetter           // it became a dead letter of Stage
)

// String returns the op's name.
func (o Op) String() string {
	return enumName(o, "accept", "refuse", "advance", "settle", "delay", "dead-letter")
}

// Entry is one journal record. Envelope is valid during the call only.
type Entry struct {
	Op       Op
	Stage    string
	Next     string
	Envelope *Envelope
	End      End
	Reason   reason.Reason
	Delay    time.Duration
}

// append calls the journal; a panic in it counts as ErrStore.
func (b *Bus) appendJournal(stage string, entries []Entry) error {
	err := ErrStore
	b.contain("journal", stage, 0, func() { err = b.cfg.Journal.Append(entries) })
	return err
}

// record journals something that cannot be refused any more.
func (s *Stage) record(entries []Entry) {
	if len(entries) == 0 {
		return
	}
	if err := s.bus.appendJournal(s.name, entries); err != nil {
		s.bus.journalErrors.Add(uint64(len(entries)))
	}
}

// enterJournaled records e before it is accepted: it takes a place, asks the
// journal, and enters.
func (s *Stage) enterJournaled(ctx context.Context, v Envelope, par *parent, asked *asking) error {
	e := &v
	if err := s.reserve(ctx, e, par, asked); err != nil {
		return err
	}
	s.mu.Lock()
	e.id = s.mu.ids.id(s.bus)
	s.mu.Unlock()
	err := s.bus.appendJournal(s.name, []Entry{{Op: OpAccept, Stage: s.name, Envelope: e}})
	id := e.id
	s.mu.Lock()
	s.mu.journaled--
	if err != nil || s.mu.closed {
		closed := s.mu.closed
		s.releaseAsideLocked(1)
		s.unlockAndStart()
		if err == nil && closed {
			s.record([]Entry{{Op: OpRefuse, Stage: s.name, Envelope: e}})
			return s.refuse(reason.Closed, nil)
		}
		return s.refuse(reason.Store, err)
	}
	s.mu.forced = id
	s.admitLocked(e, par, s.bus.clock.Tick())
	s.mu.forced = 0
	s.unlockAndStart()
	return nil
}

// recordAcceptLocked records an envelope of the bus itself, which holds a
// place, before it is entered with the id that it gets here. s.mu is released
// meanwhile; an error gives the place back.
func (s *Stage) recordAcceptLocked(e *Envelope) error {
	if s.bus.cfg.Journal == nil {
		return nil
	}
	if e.id == 0 {
		e.id = s.mu.ids.id(s.bus)
	}
	s.mu.journaled++
	s.mu.Unlock()
	err := s.bus.appendJournal(s.name, []Entry{{Op: OpAccept, Stage: s.name, Envelope: e}})
	s.mu.Lock()
	if err == nil && s.mu.closed {
		s.mu.Unlock()
		s.record([]Entry{{Op: OpRefuse, Stage: s.name, Envelope: e}})
		s.mu.Lock()
		err = ErrClosed
	}
	s.mu.journaled--
	if err != nil {
		s.releaseLocked(1)
	}
	return err
}

// reserve takes a place for an envelope that is entered later.
func (s *Stage) reserve(ctx context.Context, e *Envelope, par *parent, asked *asking) error {
	s.mu.Lock()
	if s.shutToLocked(ctx) {
		s.unlockAndStart()
		return s.refuse(reason.Closed, nil)
	}
	s.helpLocked()
	if s.takeOneLocked(e, par) {
		s.mu.journaled++
		s.unlockAndStart()
		return nil
	}
	switch {
	case (s.mu.cfg.Full == Block || s.mu.desk != nil) && ctx != nil:
		asked.stepAside()
		return s.wait(ctx, e, par, true)
	case s.mu.cfg.Full == DropOldest:
		var victim Envelope
		if s.evictLocked(&victim) {
			s.mu.journaled++
			s.unlockAndStart()
			s.dropped(&victim, reason.Evicted)
			return nil
		}
	case s.mu.cfg.Full == DropNewest:
		s.unlockAndStart()
		return s.refuse(reason.Newest, nil)
	}
	why := s.fullLocked()
	s.unlockAndStart()
	return s.refuse(why, nil)
}

// journalAcks records what a settled range did.
func (s *Stage) journalAcks(c *chunk, a, b int) {
	entries := make([]Entry, 0, b-a)
	for i := a; i < b; i++ {
		e := &c.Items[i]
		switch {
		case e.disp == dispGone || e.flags&flagCopy != 0:
		case e.Slip.route == nil:
			entries = append(entries, Entry{Op: OpSettle, Stage: s.name, Envelope: e, End: Completed})
		default:
			entries = append(entries, Entry{Op: OpAdvance, Stage: s.name, Next: e.Slip.next(), Envelope: e})
		}
	}
	s.record(entries)
}

// journalEnd records an end other than completion and dead letter.
func (s *Stage) journalEnd(e *Envelope, end End, why reason.Reason) {
	if e.flags&flagCopy == 0 {
		s.record([]Entry{{Op: OpSettle, Stage: s.name, Envelope: e, End: end, Reason: why}})
	}
}

// journalDelay records that e waits for a retry.
func (s *Stage) journalDelay(e *Envelope, d time.Duration) {
	if s.bus.cfg.Journal != nil && e.flags&flagCopy == 0 {
		s.record([]Entry{{Op: OpDelay, Stage: s.name, Envelope: e, Delay: d}})
	}
}

// Tracer sees publishes and handler calls.
type Tracer interface {
	// Publish is called before e is admitted; it may set headers.
	Publish(stage string, e *Envelope)
	// Handle is called before a handler call; the context goes to the handler,
	// and done, which may be nil, is called with its error, or with an error of
	// its own if the handler panics.
	Handle(ctx context.Context, stage string, e *Envelope) (_ context.Context, done func(error))
}

func (s *Stage) tracePublish(e Envelope) Envelope {
	s.bus.contain("tracer", s.name, 0, func() { s.bus.cfg.Tracer.Publish(s.name, &e) })
	return e
}

// traced wraps h for the bus's tracer.
func (s *Stage) traced(h Handler) Handler {
	t := s.bus.cfg.Tracer
	if t == nil {
		return h
	}
	contain := func(f func()) { s.bus.contain("tracer", s.name, 0, f) }
	return func(ctx context.Context, e *Envelope) (err error) {
		var inner context.Context
		var done func(error)
		contain(func() { inner, done = t.Handle(ctx, s.name, e) }) //nolint:fatcontext // once a call
		if inner == nil {
			inner = ctx
		}
		if done != nil {
			err = errNotReturned
			defer func() { contain(func() { done(err) }) }()
		}
		err = h(inner, e)
		return err
	}
}

// errNotReturned is what a tracer is told of a handler that panicked or called
// Goexit.
var errNotReturned = errors.New("bus: the handler did not return")
