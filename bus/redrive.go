package bus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sedabus/seda/reason"
)

// RedriveIdentity says who a redriven envelope is.
type RedriveIdentity uint8

// Redrive identities.
const (
	KeepID    RedriveIdentity = iota // same id, same idempotency key
	NewID                            // new id, same idempotency key
	AllNew                           // new id, no idempotency key
	lastIdent = AllNew
)

// String returns the identity's name.
func (r RedriveIdentity) String() string { return enumName(r, "keep-id", "new-id", "all-new") }

// RedriveOptions says which letters go back, and how.
type RedriveOptions struct {
	// Filter selects the letters; its Limit is the maximum.
	Filter LetterFilter
	// Identity is who they are then.
	Identity RedriveIdentity
	// Delay is how long each waits at its stage before it is started.
	Delay time.Duration
	// Rate bounds the redrives a second by spreading their delays; 0 is none.
	Rate float64
	// MaxRedrives leaves letters alone that were redriven so often; 0 is none.
	MaxRedrives int
}

// RedriveReport says what became of the letters selected.
type RedriveReport struct {
	Redriven int
	Skipped  int   // redriven MaxRedrives times before
	Refused  int   // the stage did not take them; they are still in the store
	Err      error // the first refusal
}

// Redrive publishes dead letters again, each at the stage where it failed,
// with the rest of its slip. Each is a new envelope of the account; the first
// publisher gets no second Result. A stage that does not take one, because it
// is full say, leaves it in the store, which the report says. It never waits for
// room. Options out of their bounds are ErrInvalid and redrive nothing; if ctx
// ends, its error comes with the report of what was done until then.
func (ls *Letters) Redrive(ctx context.Context, o RedriveOptions) (RedriveReport, error) {
	if err := o.validate(); err != nil {
		return RedriveReport{}, err
	}
	if ctx == nil {
		return RedriveReport{}, fault("redrive", "ctx", "nil", "must not be nil")
	}
	ls.mu.Lock()
	var letters []Letter
	for _, st := range ls.selectLocked(o.Filter) {
		letters = append(letters, st.copy())
	}
	ls.mu.Unlock()
	var rep RedriveReport
	for i := range letters {
		if err := ctx.Err(); err != nil {
			return rep, err
		}
		l := &letters[i]
		if o.MaxRedrives > 0 && l.Redrives >= o.MaxRedrives {
			rep.Skipped++
			continue
		}
		if err := ls.redriveOne(l, &o, o.delayOf(rep.Redriven)); err != nil {
			rep.Refused++
			if rep.Err == nil {
				rep.Err = err
			}
			continue
		}
		rep.Redriven++
	}
	return rep, nil
}

func (o *RedriveOptions) validate() error {
	var errs []error
	errs = append(errs, checkDuration("redrive", "Delay", o.Delay),
		checkEnum("redrive", "Identity", o.Identity, lastIdent),
		checkInt("redrive", "MaxRedrives", o.MaxRedrives, math.MaxInt32),
		checkInt("redrive", "Filter.Limit", o.Filter.Limit, math.MaxInt32))
	if math.IsNaN(o.Rate) || o.Rate < 0 || math.IsInf(o.Rate, 0) {
		errs = append(errs, fault("redrive", "Rate", o.Rate, "must be 0 (no bound) or more, and finite"))
	}
	return errors.Join(errs...)
}

// delayOf spreads the n-th redrive by the rate.
func (o *RedriveOptions) delayOf(n int) time.Duration {
	d := o.Delay
	if o.Rate > 0 {
		spread := float64(n) / o.Rate * float64(time.Second)
		d = time.Duration(min(float64(d)+spread, float64(maxDuration)))
	}
	return d
}

// redriveOne takes l out of the store and into its stage, or leaves it.
func (ls *Letters) redriveOne(l *Letter, o *RedriveOptions, delay time.Duration) error {
	s := ls.bus.lookup(l.Stage).partOf(&l.Envelope)
	if ls.bus.state() >= stateDraining {
		return &RejectedError{Stage: l.Stage, Reason: reason.Closed}
	}
	if s == nil {
		return &RejectedError{Stage: l.Stage, Reason: reason.NoStage}
	}
	if why := s.refusesHop(&l.Envelope); why != reason.None {
		return s.refusal(why, nil)
	}
	st := ls.begin(l.ID)
	if st == nil {
		return fmt.Errorf("bus: letter %d is no longer in the store", l.ID)
	}
	e := l.Envelope
	e.deadline = 0
	applyIdentity(&e, o.Identity)
	e.redrives = uint8(min(l.Redrives+1, math.MaxUint8))
	err := s.enterRedrive(&e, delay)
	ls.end(st, err == nil)
	return err
}

func applyIdentity(e *Envelope, id RedriveIdentity) {
	if id != KeepID {
		e.id = 0
	}
	if id == AllNew && e.Meta != nil {
		m := *e.Meta
		m.Idempotency = ""
		e.Meta = &m
	}
}

// enterRedrive admits a redriven envelope.
func (s *Stage) enterRedrive(e *Envelope, delay time.Duration) error {
	s.mu.Lock()
	if s.mu.closed || s.mu.draining || !s.takeFreeLocked() {
		closed := s.mu.closed || s.mu.draining
		s.unlockAndStart()
		if closed {
			return s.refusal(reason.Closed, nil)
		}
		return s.refusal(reason.Full, nil)
	}
	if err := s.recordAcceptLocked(e); err != nil {
		s.unlockAndStart()
		return s.refusal(reason.Store, err)
	}
	s.mu.count.redriven++
	s.mu.forced = e.id
	if delay > 0 {
		s.admitRedriveLocked(e, delay)
	} else {
		s.admitWithLocked(e, flagRedriven)
	}
	s.mu.forced = 0
	s.unlockAndStart()
	return nil
}

func (s *Stage) admitRedriveLocked(e *Envelope, delay time.Duration) {
	now := s.bus.clock.Tick()
	redrives := e.redrives
	s.mu.count.accepted++
	s.mu.count.entered++
	s.mu.delayed++
	s.mu.postponed++
	d := &delayedEnvelope{stage: s, env: *e}
	s.initLocked(&d.env, nil, now)
	d.env.redrives = redrives
	d.env.flags |= flagRedriven
	s.bus.timers.push(now+int64(delay), d)
}

// begin marks the letter of that id as being redriven, so that nobody else
// does; nil says that it is gone.
func (ls *Letters) begin(id uint64) *storedLetter {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	st := ls.mu.byID[id]
	if st == nil || st.away {
		return nil
	}
	st.away = true
	return st
}

// end takes st out if its stage took it, else it stays where it was. It does
// not count as purged.
func (ls *Letters) end(st *storedLetter, taken bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	st.away = false
	if taken && !st.gone { // gone already if it has failed again
		ls.removeLocked(st)
	}
}
