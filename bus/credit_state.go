package bus

import (
	"fmt"
	"time"
)

// CreditState is a reading of a stage's credits. Granted = Spent + Returned +
// Expired + InHand holds at every instant, for all producers together and for
// each; and InHand + Used exceeds Window only after that was lowered, or by
// retries and hops that must not wait.
type CreditState struct {
	On     bool   // the stage has Full Credit
	Window int    // credits in all, in force
	Asked  int    // CreditConfig.Window
	Note   string // why Window is not what was asked for, else ""

	InHand  int // granted and not spent
	Used    int // places of envelopes: waiting, delayed, parked or in handlers
	Free    int // to be granted
	Reserve int // of it: left to hops that arrive from other stages
	Waiting int // producers that wait for credits

	Granted, Spent, Returned, Expired uint64

	// Blocked is for how long producers have waited, added up over all of them.
	// A wait that goes on is not in it before it ends, but for the longest.
	Blocked time.Duration
	// Target is the wait in the stage that the window aims at, and Drain how many
	// envelopes a second it takes the stage for; 0 is not known.
	Target time.Duration
	Drain  float64

	Producers []ProducerCredit
}

// ProducerCredit is a reading of one producer's credits.
type ProducerCredit struct {
	Plain   bool   // publishes without a Producer, of one class
	Class   string // "" without classes
	Weight  int
	InHand  int
	Waiting bool
	Blocked time.Duration

	Granted, Spent, Returned, Expired uint64
}

// ReadCredit writes a reading of the stage's credits to dst. It reuses dst's
// memory: with enough of it nothing is allocated, unless there is a Note.
func (s *Stage) ReadCredit(dst *CreditState) {
	list := dst.Producers[:0]
	*dst = CreditState{Producers: list}
	if s.parts != nil {
		s.readCreditOfParts(dst)
		return
	}
	s.mu.Lock()
	defer s.unlockAndStart()
	m := &s.mu
	d := m.desk
	if d == nil {
		return
	}
	s.helpLocked()
	d.tellLocked()
	now := s.bus.clock.Now()
	for _, a := range d.accounts {
		dst.Producers = append(dst.Producers, a.readLocked(now))
	}
	c := d.ledger.Counts()
	dst.On, dst.Window, dst.Asked, dst.Reserve = true, d.windowNow(), m.cfg.Credit.Window, int(m.shut-s.beyond.Load())
	dst.Granted, dst.Spent, dst.Returned, dst.Expired, dst.InHand = c.Granted, c.Spent, c.Returned, c.Expired, c.Outstanding
	free := int(s.free.Load())
	dst.Used = s.capacityNow() - free - c.Outstanding
	dst.Free = max(0, free-int(s.beyond.Load()))
	dst.Waiting = m.waiters.n
	dst.Blocked = d.blocked
	state := d.sizer.State()
	dst.Target, dst.Drain = state.Target, state.Rate
	dst.Note = s.clampNoteLocked()
}

// clampNoteLocked says why the window is smaller than what was asked for.
func (s *Stage) clampNoteLocked() string {
	c := &s.mu.cfg
	if s.parts != nil {
		if c.Full != Credit || c.Credit.Window <= c.Capacity {
			return ""
		}
	} else if d := s.mu.desk; d == nil || !d.clamped {
		return ""
	}
	return fmt.Sprintf("a window of %d was asked for; it ends at the capacity of %d", s.mu.cfg.Credit.Window, s.mu.cfg.Capacity)
}

// tellClamped tells the hook and the log that the window ends at the capacity.
func (s *Stage) tellClamped() {
	note := s.clampNote()
	if note != "" {
		s.bus.fireState(StateInfo{Stage: s.name, State: "window clamped", Why: note})
	}
}

// readLocked books what the lane has spent, so that the counts are exact.
func (a *account) readLocked(now int64) ProducerCredit {
	if l := a.lane; l != nil && l.c != nil {
		a.bookLocked(int(l.c.Mark.Load() & laneCountMask))
	}
	c := a.led.Counts()
	p := ProducerCredit{
		Plain: a.plain, Weight: max(1, a.weight), InHand: c.Outstanding, Waiting: a.turns.head != nil, Blocked: a.waits.at(now),
		Granted: c.Granted, Spent: c.Spent, Returned: c.Returned, Expired: c.Expired,
	}
	if cl := a.stage.mu.cfg.Classes; len(cl) > 0 {
		p.Class = cl[a.class].Name
	}
	return p
}
