package bus

import (
	"errors"
	"fmt"
	"time"

	"github.com/sedabus/seda/internal/stat"
	"github.com/sedabus/seda/reason"
)

// Stats is a reading of the bus's account and its stages. Counters never go
// down. A reading takes one stage after the other, so that it balances exactly
// when nothing is moving.
type Stats struct {
	At   time.Time
	Name string

	// The account: Accepted = Completed + DeadLettered + all Dropped +
	// Abandoned + Pending. Copies of pub/sub stages are not part of it.
	Accepted     uint64
	Completed    uint64
	DeadLettered uint64
	Dropped      [reason.Count]uint64
	Abandoned    uint64
	Pending      uint64

	// Refused counts publishes that were not accepted, over all stages, with
	// those to unknown stages.
	Refused [reason.Count]uint64
	// Copies is the account of the copies that pub/sub stages made.
	Copies CopyStats

	Handlers         int    // executors at work
	MaxHandlers      int    // the limit; 0 is none
	Panics           uint64 // contained in callbacks, hooks and seams
	JournalErrors    uint64 // entries that the journal refused after the accept
	CallbacksPending int
	Letters          LetterStats
	Stages           []StageStats
}

// CopyStats is the account of pub/sub copies: Made = Completed + DeadLettered +
// all Dropped + Abandoned + Pending.
type CopyStats struct {
	Made, Completed, DeadLettered, Abandoned, Pending uint64

	Dropped [reason.Count]uint64
}

// StageStats is a reading of one stage. Its account is
// Entered = Hopped + Completed + DeadLettered + all Dropped + Abandoned +
// Depth + InFlight.
type StageStats struct {
	At        time.Time
	Name      string
	Suspended bool

	Accepted     uint64 // publishes, dead letters and redrives taken in
	FromLetters  uint64 // of it: dead letters of other stages
	FromRedrive  uint64 // of it: redrives
	Entered      uint64 // all that came in: Accepted, hops, copies
	CopiesMade   uint64 // of it: copies of pub/sub stages
	Hopped       uint64 // acknowledged and gone to the next stage
	Completed    uint64 // acknowledged here at the end of the itinerary
	DeadLettered uint64
	Abandoned    uint64
	Dropped      [reason.Count]uint64
	Refused      [reason.Count]uint64
	Copies       CopyStats // of the ends above: those of copies

	Delivered uint64 // handler calls and deliveries handed out
	Nacked    uint64
	Retried   uint64
	Late      uint64 // settlements after the end
	Panics    uint64
	Lapsed    uint64 // leases
	Detached  uint64 // subscribers

	Depth     int // queued + delayed + parked
	InFlight  int // in handlers, with pull consumers, or copied to subscribers and not ended
	Delayed   int // of Depth: retries and later publishes that wait for their time
	Parked    int // of Depth: acknowledged, without room at the next stage
	Lagging   int // copies parked for slow subscribers; they hold places here
	Waiters   int // publishers that wait for room
	Stuck     int // of InFlight: over their limit and not returned
	Executors int

	// High-water marks since the last reading with ResetMarks. With Full Credit
	// MaxDepth is what was out at most: credits in hand, what waited and what was
	// in handlers.
	MaxDepth, MaxInFlight int

	OldestWaiting, OldestInFlight time.Duration

	Wait    Timing // from entry to start
	Service Timing // of handler calls

	Capacity, Concurrency int
	Full                  FullPolicy
	Batch                 int // the claim size in force
}

// Account describes the bus's account in one line.
func (s *Stats) Account() string {
	return fmt.Sprintf("accepted %d = completed %d + dead-lettered %d + dropped %d + abandoned %d + pending %d",
		s.Accepted, s.Completed, s.DeadLettered, sum(&s.Dropped), s.Abandoned, s.Pending)
}

// Check returns an error for every account that does not balance: the bus's,
// the copies' and each stage's. It is meant for when nothing is moving.
func (s *Stats) Check() error {
	var errs []error
	if s.Accepted != s.Completed+s.DeadLettered+sum(&s.Dropped)+s.Abandoned+s.Pending {
		errs = append(errs, fmt.Errorf("bus %q: %s does not balance", s.Name, s.Account()))
	}
	c := &s.Copies
	if c.Made != c.Completed+c.DeadLettered+sum(&c.Dropped)+c.Abandoned+c.Pending {
		errs = append(errs, fmt.Errorf("bus %q: copies do not balance: %+v", s.Name, *c))
	}
	for i := range s.Stages {
		errs = append(errs, s.Stages[i].check())
	}
	return errors.Join(errs...)
}

func (s *StageStats) check() error {
	left := s.Hopped + s.Completed + s.DeadLettered + sum(&s.Dropped) + s.Abandoned
	if s.Depth < 0 || s.InFlight < 0 || s.Entered != left+uint64(s.Depth)+uint64(s.InFlight) {
		return fmt.Errorf("stage %q: entered %d = hopped %d + completed %d + dead-lettered %d + dropped %d + abandoned %d + depth %d + in flight %d does not balance",
			s.Name, s.Entered, s.Hopped, s.Completed, s.DeadLettered, sum(&s.Dropped), s.Abandoned, s.Depth, s.InFlight)
	}
	return nil
}

func sum(a *[reason.Count]uint64) (n uint64) {
	for _, v := range a {
		n += v
	}
	return n
}

// ReadStats writes a reading of the bus and all its stages to dst. It reuses
// dst's memory: with enough of it nothing is allocated.
func (b *Bus) ReadStats(dst *Stats) {
	stages := b.named()
	list := dst.Stages[:0]
	if cap(list) < len(stages) {
		list = make([]StageStats, 0, len(stages))
	}
	*dst = Stats{Name: b.cfg.Name, At: b.clock.Wall(b.clock.Now()), Stages: list[:len(stages)]}
	for i, s := range stages {
		s.ReadStats(&dst.Stages[i])
		dst.add(&dst.Stages[i])
	}
	for i := range dst.Refused {
		dst.Refused[i] += b.refused[i].Load()
	}
	dst.MaxHandlers = b.maxHandlers()
	dst.Panics = b.panics.Load()
	dst.JournalErrors = b.journalErrors.Load()
	dst.CallbacksPending = b.callbacks.pending()
	dst.Letters = b.letters.Stats()
}

func (b *Bus) maxHandlers() int {
	if l := b.live.Load(); l != nil {
		return l.maxHandlers
	}
	return b.cfg.MaxHandlers
}

// add adds one stage's reading to the bus's.
func (s *Stats) add(st *StageStats) {
	c := &st.Copies
	s.Accepted += st.Accepted
	s.Completed += st.Completed - c.Completed
	s.DeadLettered += st.DeadLettered - c.DeadLettered
	s.Abandoned += st.Abandoned - c.Abandoned
	for i := range st.Dropped {
		s.Dropped[i] += st.Dropped[i] - c.Dropped[i]
		s.Refused[i] += st.Refused[i]
		s.Copies.Dropped[i] += c.Dropped[i]
	}
	s.Pending += uint64(st.Depth+st.InFlight) - c.Pending
	s.Handlers += st.Executors
	s.Copies.Made += c.Made
	s.Copies.Completed += c.Completed
	s.Copies.DeadLettered += c.DeadLettered
	s.Copies.Abandoned += c.Abandoned
	s.Copies.Pending += c.Pending
}

// ReadStats writes a reading of the stage to dst, without allocating.
func (s *Stage) ReadStats(dst *StageStats) {
	if s.parts != nil {
		s.readParts(dst)
		return
	}
	now := s.bus.clock.Now()
	s.mu.Lock()
	if s.finishedAhead() {
		// Finished parts of claims are settled first, so that the reading is
		// exact although a handler is held up.
		jobs := s.takeBackLocked()
		s.unlockAndStart()
		s.runJobs(jobs)
		s.mu.Lock()
	}
	s.helpLocked()
	s.gatherLanesLocked()
	*dst = StageStats{Name: s.name, At: s.bus.clock.Wall(now), Suspended: s.mu.holds.any()}
	s.readCountsLocked(dst)
	s.readGaugesLocked(dst, now)
	s.readTimesLocked(dst)
	s.unlockAndStart()
	for i := range dst.Refused {
		dst.Refused[i] = s.refused[i].Load()
	}
}

// finishedAhead says whether an executor has finished envelopes that are not
// settled, before one that takes long.
func (s *Stage) finishedAhead() bool {
	if s.mu.topic != nil {
		return false
	}
	for _, ex := range s.mu.execs {
		w := ex.claim.Load()
		if ex.working && !ex.single && claimCur(w)-claimSettled(w) > 1 {
			return true
		}
	}
	return false
}

func (s *Stage) readCountsLocked(dst *StageStats) {
	c := &s.mu.count
	own, copies := &c.end[0], &c.end[1]
	dst.Accepted, dst.FromLetters, dst.FromRedrive = c.accepted, c.letters, c.redriven
	dst.Entered, dst.CopiesMade, dst.Hopped = c.entered, c.copies, c.hopped
	dst.Completed = own.completed + copies.completed
	dst.DeadLettered = own.deadLettered + copies.deadLettered
	dst.Abandoned = own.abandoned + copies.abandoned
	dst.Copies = CopyStats{
		Made: c.copies, Completed: copies.completed, DeadLettered: copies.deadLettered,
		Abandoned: copies.abandoned, Dropped: copies.dropped,
	}
	dst.Copies.Pending = c.copies - copies.total()
	for i := range dst.Dropped {
		dst.Dropped[i] = own.dropped[i] + copies.dropped[i]
	}
	dst.Delivered, dst.Nacked, dst.Retried, dst.Late = c.delivered, c.nacked, c.retried, c.late
	dst.Panics, dst.Lapsed, dst.Detached = c.panics, c.lapsed, c.detached
}

func (s *Stage) readGaugesLocked(dst *StageStats, now int64) {
	m := &s.mu
	dst.Depth, dst.Delayed, dst.Parked = s.depthLocked(), m.delayed, m.parked
	dst.Waiters, dst.Executors = m.waiters.n, m.active
	dst.Capacity, dst.Concurrency, dst.Full, dst.Batch = m.cfg.Capacity, m.cfg.Concurrency, m.cfg.Full, m.batch
	dst.MaxDepth = max(dst.Depth, m.cfg.Capacity-int(m.minFree))
	dst.MaxInFlight = m.maxInFlight
	s.readInFlightLocked(dst, now)
	if first := s.oldestLocked(); first != 0 {
		dst.OldestWaiting = time.Duration(max(0, now-first))
	}
}

func (s *Stage) readInFlightLocked(dst *StageStats, now int64) {
	m := &s.mu
	if m.topic != nil {
		dst.InFlight, dst.Lagging = m.topic.out, m.topic.lagging
		for _, ex := range m.execs {
			if w := ex.claim.Load(); ex.working && claimLim(w) > 0 {
				dst.InFlight += ex.size // being copied
			}
		}
		return
	}
	for _, ex := range m.execs {
		if !ex.working {
			continue
		}
		w, ok := ex.pinLocked()
		if !ok {
			continue
		}
		in := ex.handledLocked(w) != nil
		ex.claim.Store(w)
		if !in {
			continue
		}
		dst.InFlight++
		dst.OldestInFlight = max(dst.OldestInFlight, time.Duration(now-ex.start))
		if due := ex.overdue.Load(); due != 0 && now >= due {
			dst.Stuck++
		}
	}
	if m.pull == nil {
		return
	}
	for _, l := range m.pull.out {
		dst.InFlight++
		dst.OldestInFlight = max(dst.OldestInFlight, time.Duration(now-l.start))
	}
}

// oldestLocked is when the oldest envelope that waits has entered; 0 is none.
func (s *Stage) oldestLocked() (first int64) {
	look := func(q *fifo) {
		if e := q.Front(); e != nil && (first == 0 || e.entered < first) {
			first = e.entered
		}
	}
	m := &s.mu
	look(&m.due)
	look(&m.back)
	look(&m.q)
	for _, e := range m.edges {
		look(&e.held)
	}
	if m.classes != nil {
		for i := range m.classes.q {
			look(&m.classes.q[i])
		}
	}
	if m.keyed != nil {
		for i := range m.keyed.slots {
			look(&m.keyed.slots[i].q)
			for _, side := range m.keyed.slots[i].held {
				look(&side.fifo)
			}
		}
	}
	return first
}

// pending is the number of envelopes that the stage has not finished, as far
// as its executors have handed their results in; copied is how many of them
// only wait for the ends of their copies, and entered how many have ever
// entered.
func (s *Stage) pending() (n, copied int, entered uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gatherLanesLocked()
	c := &s.mu.count
	if s.mu.topic != nil {
		copied = s.mu.topic.out
	}
	return int(c.entered-c.left()) + s.mu.journaled, copied, c.entered
}

// Timing is a histogram of durations; see the package documentation for its
// resolution. The zero value is empty.
type Timing struct {
	h stat.Histogram
}

// Count is the number of durations.
func (t *Timing) Count() uint64 { return t.h.Count() }

// Quantile returns the duration below which the share q of them lies; 0 if
// there are none. The bucket adds an error of at most 3.2 %.
func (t *Timing) Quantile(q float64) time.Duration { return t.h.Quantile(q) }

// Mean and Max are exact.
func (t *Timing) Mean() time.Duration { return t.h.Mean() }

// Max is the longest duration.
func (t *Timing) Max() time.Duration { return t.h.Max() }

// Sum is the total.
func (t *Timing) Sum() time.Duration { return t.h.Sum() }

// Since returns what was added after old, an earlier reading of the same
// stage.
func (t *Timing) Since(old *Timing) Timing {
	d := *t
	d.h.Sub(&old.h)
	return d
}

// Buckets calls yield with the upper bound and the count of each bucket that
// is not empty, in rising order, until it returns false.
func (t *Timing) Buckets(yield func(upper time.Duration, count uint64) bool) { t.h.Buckets(yield) }

func (s *Stage) readTimesLocked(dst *StageStats) {
	dst.Wait.h, dst.Service.h = s.mu.wait, s.mu.svc
}

// ResetMarks starts the high-water marks anew at the present figures.
func (s *Stage) ResetMarks() {
	if s.parts != nil {
		s.eachPart((*Stage).ResetMarks)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.minFree = s.free.Load()
	s.mu.maxInFlight = s.mu.executed
	if s.mu.pull != nil {
		s.mu.maxInFlight = len(s.mu.pull.out)
	}
}
