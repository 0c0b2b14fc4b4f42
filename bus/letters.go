package bus

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/reason"
)

// Letter is a dead letter: an envelope that was given up.
type Letter struct {
	ID       uint64
	TextID   string
	Stage    string // where a redrive resumes
	From     string // the stage that it came from, if a hop failed
	Reason   reason.Reason
	Error    string // the handler's last error
	Attempts int
	First    time.Time // when it entered the stage
	Last     time.Time // when it was given up
	Slip     []string  // the stages after Stage
	Redrives int
	Envelope Envelope // as it was; the payload is shared
}

// letterCause is why an envelope becomes a dead letter.
type letterCause struct {
	why   reason.Reason
	stage string // where to resume
	from  string
	err   error
}

// toLetter ends e at s as a dead letter. No lock is held.
func (s *Stage) toLetter(e *Envelope, c letterCause) {
	b := s.bus
	l := s.newLetter(e, c)
	s.mu.Lock()
	to := s.mu.cfg.DeadLetterTo
	s.mu.Unlock()
	sent := ""
	if to != "" && b.sendLetter(to, &l) {
		sent = to
	} else if !faults.On(faults.LetterLost) {
		b.letters.add(l)
	}
	s.mu.Lock()
	s.endLocked(e, DeadLettered, c.why)
	s.unlockAndStart()
	if b.cfg.Journal != nil && e.flags&flagCopy == 0 {
		s.record([]Entry{{Op: OpDeadLetter, Stage: c.stage, Envelope: e, Reason: c.why}})
	}
	b.fireLetter(LetterInfo{Stage: c.stage, Reason: c.why, ID: e.id, TextID: e.TextID(), Err: c.err, To: sent})
	b.finish(e, Result{End: DeadLettered, Reason: c.why, Stage: s.name, Err: c.err})
	if faults.On(faults.ResultTwice) {
		b.finish(e, Result{End: DeadLettered, Reason: c.why, Stage: s.name, Err: c.err})
	}
	b.settled()
}

func (s *Stage) newLetter(e *Envelope, c letterCause) Letter {
	now := s.bus.clock.Now()
	l := Letter{
		ID: e.id, TextID: e.TextID(), Stage: c.stage, From: c.from, Reason: c.why,
		Attempts: int(e.attempt), First: s.bus.clock.Wall(e.entered), Last: s.bus.clock.Wall(now),
		Slip: e.Slip.Stages(), Redrives: int(e.redrives), Envelope: e.Clone(),
	}
	if c.err != nil {
		l.Error = s.textOf(c.err)
	}
	l.Envelope.OnDone, l.Envelope.par = nil, nil
	return l
}

// Headers that a dead letter has in a dead-letter stage.
const (
	HeaderLetterStage    = "seda-letter-stage"
	HeaderLetterReason   = "seda-letter-reason"
	HeaderLetterError    = "seda-letter-error"
	HeaderLetterAttempts = "seda-letter-attempts"
)

// sendLetter enters l into a dead-letter stage as a new envelope without a
// slip, and reports whether there was room: it never waits.
func (b *Bus) sendLetter(to string, l *Letter) bool {
	s := b.lookup(to).partOf(&l.Envelope)
	if s == nil || s.refusesHop(&l.Envelope) != reason.None {
		return false
	}
	e := l.Envelope.Clone()
	e.deadline = 0
	if !faults.On(faults.LetterKeepsSlip) {
		e.Slip = Slip{}
	}
	e.SetHeader(HeaderLetterStage, l.Stage) // in place of an earlier dead-letter stage's
	e.SetHeader(HeaderLetterReason, l.Reason.String())
	e.SetHeader(HeaderLetterError, l.Error)
	e.SetHeader(HeaderLetterAttempts, strconv.Itoa(l.Attempts))
	s.mu.Lock()
	if s.mu.closed || !s.takeFreeLocked() {
		s.unlockAndStart()
		return false
	}
	e.id = 0
	if s.recordAcceptLocked(&e) != nil {
		s.unlockAndStart()
		return false
	}
	s.mu.count.letters++
	s.mu.forced = e.id
	s.admitWithLocked(&e, flagLetter)
	s.mu.forced = 0
	s.unlockAndStart()
	return true
}

// Letters is the bus's bounded store of dead letters. All methods are safe for
// concurrent use.
type Letters struct {
	bus *Bus
	mu  struct {
		sync.Mutex
		bounds  LetterBounds
		list    []*storedLetter // oldest first; nil where one was taken out
		head    int
		n       int
		bytes   int64
		byID    map[uint64]*storedLetter
		added   uint64
		evicted uint64
		purged  uint64
		aging   bool
	}
}

type storedLetter struct {
	Letter
	size int64
	at   int64 // bus clock
	gone bool
	away bool // being redriven: taken out, or left, when its stage has answered
}

func (ls *Letters) init(b *Bus, bounds LetterBounds) {
	ls.bus = b
	ls.mu.bounds = bounds
	ls.mu.byID = map[uint64]*storedLetter{}
}

// Letters returns the store of dead letters.
func (b *Bus) Letters() *Letters { return &b.letters }

func (ls *Letters) add(l Letter) {
	st := &storedLetter{Letter: l, size: ls.sizeOf(&l), at: ls.bus.clock.Now()}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if old := ls.mu.byID[l.ID]; old != nil {
		ls.removeLocked(old) // it was redriven with its id and failed again
	}
	ls.mu.list = append(ls.mu.list, st)
	ls.mu.byID[l.ID] = st
	ls.mu.n++
	ls.mu.added++
	ls.mu.bytes += st.size
	ls.trimLocked(st.at)
}

// trimLocked evicts the oldest letters until the bounds hold.
func (ls *Letters) trimLocked(now int64) {
	b := ls.mu.bounds
	for ls.mu.n > 0 {
		first := ls.firstLocked()
		old := b.MaxAge > 0 && now-first.at >= int64(b.MaxAge)
		if !old && ls.mu.n <= b.MaxCount && ls.mu.bytes <= b.MaxBytes {
			break
		}
		ls.removeLocked(first)
		ls.mu.evicted++
	}
	if b.MaxAge > 0 && ls.mu.n > 0 && !ls.mu.aging {
		ls.mu.aging = true
		ls.bus.timers.push(ls.firstLocked().at+int64(b.MaxAge), (*letterAging)(ls))
	}
}

// letterAging evicts letters that have become too old.
type letterAging Letters

func (a *letterAging) fire(now int64) {
	ls := (*Letters)(a)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.mu.aging = false
	ls.trimLocked(now)
}

func (ls *Letters) firstLocked() *storedLetter {
	for ls.mu.list[ls.mu.head].gone {
		ls.mu.list[ls.mu.head] = nil
		ls.mu.head++
	}
	return ls.mu.list[ls.mu.head]
}

func (ls *Letters) removeLocked(st *storedLetter) {
	st.gone = true
	st.Envelope = Envelope{}
	delete(ls.mu.byID, st.ID)
	ls.mu.n--
	ls.mu.bytes -= st.size
	ls.compactLocked()
}

// compactLocked drops the places of letters that are gone once they are the
// larger part.
func (ls *Letters) compactLocked() {
	if len(ls.mu.list) < 64 || ls.mu.n > len(ls.mu.list)/2 {
		return
	}
	kept := make([]*storedLetter, 0, ls.mu.n)
	for _, st := range ls.mu.list {
		if st != nil && !st.gone {
			kept = append(kept, st)
		}
	}
	ls.mu.list, ls.mu.head = kept, 0
}

// sizeOf estimates a letter's memory: the payload's if it is bytes, a string
// or says so itself, else a flat figure.
func (ls *Letters) sizeOf(l *Letter) int64 {
	const flat = 512
	n := flat + len(l.Error) + len(l.Envelope.Key) + len(l.TextID)
	for _, h := range l.Envelope.Headers {
		n += len(h.Name) + len(h.Value) + 32
	}
	for _, s := range l.Slip {
		n += len(s) + 16
	}
	switch p := l.Envelope.Payload.(type) {
	case []byte:
		n += len(p)
	case string:
		n += len(p)
	case interface{ Size() int }:
		// Aside, since a letter must come to its end even if Size does not return.
		aside(func() { ls.bus.contain("size", l.Stage, l.ID, func() { n += max(0, p.Size()) }) })
	}
	return int64(n)
}

// LetterFilter selects dead letters; zero fields match everything.
type LetterFilter struct {
	Stage  string
	Reason reason.Reason
	Text   string // is contained in the error text
	After  uint64 // letters behind the one with this id, for paging
	Limit  int    // at most so many; 0 is all
}

func (f *LetterFilter) matches(l *Letter) bool {
	return (f.Stage == "" || f.Stage == l.Stage) && (f.Reason == reason.None || f.Reason == l.Reason) &&
		(f.Text == "" || strings.Contains(l.Error, f.Text))
}

// List returns the letters that match, oldest first.
func (ls *Letters) List(f LetterFilter) []Letter {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var out []Letter
	for _, st := range ls.selectLocked(f) {
		out = append(out, st.copy())
	}
	return out
}

func (st *storedLetter) copy() Letter {
	l := st.Letter
	l.Slip = slices.Clone(l.Slip)
	l.Envelope.Headers = slices.Clone(l.Envelope.Headers)
	return l
}

func (ls *Letters) selectLocked(f LetterFilter) []*storedLetter {
	ls.trimLocked(ls.bus.clock.Now())
	var out []*storedLetter
	passed := f.After == 0 || ls.mu.byID[f.After] == nil
	for _, st := range ls.mu.list[ls.mu.head:] {
		if st == nil || st.gone || st.away {
			continue
		}
		if !passed {
			passed = st.ID == f.After
			continue
		}
		if f.matches(&st.Letter) {
			if out = append(out, st); f.Limit > 0 && len(out) == f.Limit {
				break
			}
		}
	}
	return out
}

// Get returns the letter of that id.
func (ls *Letters) Get(id uint64) (Letter, bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.trimLocked(ls.bus.clock.Now())
	st := ls.mu.byID[id]
	if st == nil {
		return Letter{}, false
	}
	return st.copy(), true
}

// Purge removes the letters that match and returns how many.
func (ls *Letters) Purge(f LetterFilter) int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	chosen := ls.selectLocked(f)
	for _, st := range chosen {
		ls.removeLocked(st)
	}
	ls.mu.purged += uint64(len(chosen))
	return len(chosen)
}

// LetterStats describes the store.
type LetterStats struct {
	Count   int
	Bytes   int64
	Oldest  time.Duration // age of the oldest letter
	Added   uint64        // letters stored so far
	Evicted uint64        // of them: evicted by a bound
	Purged  uint64        // of them: purged
}

// Stats returns the store's size and counts.
func (ls *Letters) Stats() LetterStats {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := ls.bus.clock.Now()
	ls.trimLocked(now)
	st := LetterStats{Count: ls.mu.n, Bytes: ls.mu.bytes, Added: ls.mu.added, Evicted: ls.mu.evicted, Purged: ls.mu.purged}
	if ls.mu.n > 0 {
		st.Oldest = time.Duration(now - ls.firstLocked().at)
	}
	return st
}

func (ls *Letters) setBounds(b LetterBounds) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.mu.bounds = b
	ls.trimLocked(ls.bus.clock.Now())
}
