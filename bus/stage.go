package bus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sedabus/seda/internal/dedup"
	"github.com/sedabus/seda/internal/queue"
	"github.com/sedabus/seda/internal/spin"
	"github.com/sedabus/seda/internal/stat"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// Handler handles one envelope. It returns nil to acknowledge it or an error
// to refuse it; see [RetryAfter], [RetryNow], [DeadLetter] and [Discard] for
// errors that say more. A panic or a runtime.Goexit counts as an error.
//
// The context is cancelled when the handler timeout or the envelope's deadline
// passes, when the delivery is cancelled by id, and when the bus cuts its work
// off. Where neither timeout nor deadline is set it may outlive the call.
// A publish with it is a publish from inside the bus: it waits for room no
// longer than the hop timeout, and is accepted during a shutdown.
type Handler func(ctx context.Context, e *Envelope) error

// Middleware wraps a handler.
type Middleware func(Handler) Handler

type (
	chunk = queue.Chunk[Envelope]
	fifo  = queue.FIFO[Envelope]
)

// gates are the conditions under which a publish takes the long way.
type gates uint32

const (
	gateClosed gates = 1 << iota
	gateNotStarted
	gatePaused
	gateAccepts
	gateDedup
	gateShed // some stage has a shedder
	gateJournal
	gateTracer
	gateNoHandler
	gateShedInside
	gateSharded
)

// gatesOfBus are set and cleared for all stages at once.
const gatesOfBus = gateClosed | gateNotStarted | gatePaused

// Stage is a named bounded queue with handlers. All methods are safe for
// concurrent use.
type Stage struct {
	// Read by every publish and seldom written.
	bus   *Bus
	name  string
	index int
	takes reflect.Type // StageConfig.Accepts, read without mu

	gates   atomic.Uint32
	removed atomic.Bool
	// laneless says that producers must not use lanes any more.
	laneless atomic.Bool
	// slow says that handlers take long: times are exact, claims are single.
	slow atomic.Bool
	// blockedOn is the next stage for whose room everything here waits.
	blockedOn atomic.Pointer[Stage]
	info      atomic.Pointer[stageInfo]
	// upstream are the edges into this stage.
	upstream    upstreams
	shed        *shedder.Shedder // immutable; nil is none
	door        *door            // beside it
	home        *runLoop         // of a part; nil is none
	whole       *Stage           // of a part
	blocking    bool             // of a part: its handlers run beside the shard's loop
	lent        atomic.Int64     // of a part: places that it has beyond its Capacity
	parts       []*Stage         // of a whole, by shard; they do all the work
	homes       atomic.Int32     // of a whole: how many of them do
	starves     atomic.Bool      // of a part: somebody waits for room there
	ticket      atomic.Uint64    // of a part: its place among those that wait for permits; 0 is none
	hungry      atomic.Int32     // of a whole: how many starve
	wanting     atomic.Int32     // of a whole: edges whose stages wait for room in some part
	holdsCredit atomic.Bool      // of a whole: some producer has acquired credits
	owed        atomic.Int64     // of a whole: places to be given up when they come back
	limits      limits           // of a whole
	load        partLoad         // of a part of a stage with a shedder
	most        atomic.Int32     // with Credit: what one producer can have of the part's own places
	// slack is by how many places hops stop short of the capacity, and beyond
	// how many of them are outside the window of a stage with Credit.
	slack  atomic.Int64
	beyond atomic.Int64

	_ [32]byte

	refused   [reason.Count]atomic.Uint64
	snapshots [reason.Count]snapshot
	shedSnaps [shedSnapshots]snapshot // by the stage whose shedder refused
	panicLog  logLimit
	// Guarded by the permits' own locks.
	permits [permitKinds]permitBook
	// idle says that no executor is at work.
	idle atomic.Bool
	// entering counts publishers that try to get the lock.
	entering atomic.Int32

	_ [88]byte

	// free is the number of free places: the capacity less what holds a token.
	// Taken by anyone; given back with mu held, so that those who wait come
	// first. Requeues and parked hops may bring it below zero.
	free atomic.Int64
	mu   stageMu // follows free: both change hands together
}

// stageMu is what Stage.mu guards. Lock order: Bus.mu, Stage.mu, then the
// leaves permits.mu, timers.mu, callbacks.mu, letters.mu. Two stages' locks
// are never held together.
type stageMu struct {
	spin.Mutex

	// Written for nearly every chunk by publishers and executors: kept on few
	// cache lines, since each one that changes hands costs as much as several
	// envelopes.
	active      int  // executors at work or started
	looping     bool // one of them has the shard's permit
	lined       bool // waits for a permit for one more
	told        bool // of a part: a sibling has places to lend
	executed    int  // executors inside a claim
	claimed     int  // unstarted envelopes in claims of more than one
	laned       int  // envelopes in lanes that are in the books
	batch       int  // current claim size
	maxInFlight int
	minFree     int64    // low-water mark of free since the last reading
	shut        int64    // places that publishes must leave free: beyond the window of a stage with Credit
	q           fifo     // plain stages
	ready       laneList // lanes with something to claim
	pool        queue.Pool[Envelope]
	ids         idBlock
	laneTurn    bool   // the next claim is from a lane
	escape      bool   // a hop uses the place above capacity
	claims      uint64 // made so far
	count       counters

	// Seldom written.
	cfg      StageConfig
	handler  Handler
	draining bool    // no publishes from outside
	closed   bool    // nothing starts any more: the bus has cut its work off
	desk     *desk   // who holds credits of a stage with Credit, or nil
	classes  *lanes  // priority classes, or nil
	keyed    *keyed  // ordered stages, or nil
	lanes    []*lane // of producers
	back     fifo    // claimed, and given back: comes before q and the lanes
	due      fifo    // retries whose time has come: started before anything else

	arrivals  queue.FIFO[arrival] // hops that wait for room here
	arrPool   queue.Pool[arrival]
	parkTimer int64 // when a timer looks for arrivals that wait too long; 0 is never
	excess    int   // envelopes above a lowered capacity; places given back go to them first
	waiters   waitList
	room      chan struct{} // closed when there is room; nil while nobody waits for that
	edges     []*edge
	ring      []*Stage // the ring that a forced claim is to move, while it is being made
	notes     []note   // upstreams to tell that their parked hops entered
	grants    []grant  // permits to pass on, when the lock is released

	delayed   int    // retries and later publishes that hold a token
	postponed int    // of them: later publishes
	parked    int    // own envelopes that wait for room elsewhere
	journaled int    // admitted, but the journal is still being written
	forced    uint64 // the id of the envelope being admitted, if it has one already

	dedup   *dedup.Window
	pull    *pullState
	topic   *topic      // pub/sub
	holds   holds       // suspensions
	orphans atomic.Bool // some producer was collected; set without the lock

	execs   []*executor   // at work
	heldUp  int           // of them: those that the watchdog found held up in a handler
	idle    []*executor   // kept for the next burst
	per     time.Duration // service time of the last claim's envelopes
	again   float64       // retries that an overloaded stage may still make
	sparing bool          // it was overloaded, and has not earned all of them since
	wait    stat.Histogram
	svc     stat.Histogram
}

// stageInfo is what refusals say of a stage; replaced when settings change.
type stageInfo struct {
	full        FullPolicy
	capacity    int
	concurrency int
}

// idBlock hands out envelope ids from blocks that the bus leases.
type idBlock struct{ next, end uint64 }

const idBlockSize = 1 << 12

func (b *idBlock) id(bus *Bus) uint64 {
	if b.next == b.end {
		b.end = bus.ids.Add(idBlockSize) + 1
		b.next = b.end - idBlockSize
	}
	b.next++
	return b.next - 1
}

// Name returns the stage's name.
func (s *Stage) Name() string { return s.name }

// Config returns the settings in force.
func (s *Stage) Config() StageConfig {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mu.cfg
	c.Classes = slices.Clone(c.Classes) // the caller may write to them
	return c
}

// Handle sets the stage's handler, wrapped in the middleware, the first of
// which is the outermost. Up to Concurrency calls of it run at once: consumers
// of a stage share its queue. It starts what is queued. It is an error if
// there is a handler already, if h is nil, if the stage is used for pulling or
// is pub/sub, and after the bus was closed.
func (s *Stage) Handle(h Handler, mw ...Middleware) error {
	h, err := s.compose(h, mw)
	if err != nil {
		return err
	}
	if s.parts != nil {
		for _, p := range s.parts {
			err = errors.Join(err, p.Handle(h))
		}
		return err
	}
	s.mu.Lock()
	err = s.checkHandleLocked()
	if err == nil {
		s.mu.handler = s.traced(h)
		s.setGateLocked(gateNoHandler, false)
		s.countLocked(true)
	}
	s.unlockAndStart()
	return err
}

// replaceHandler gives the stage a handler in place of the one that it may
// have: calls that run may finish, and none of the old one starts afterwards.
// Unlike RemoveHandler and Handle it leaves no moment without a handler.
func (s *Stage) replaceHandler(h Handler) error {
	if s.parts != nil {
		return s.ofParts(func(p *Stage) error { return p.replaceHandler(h) })
	}
	s.mu.Lock()
	old := s.mu.handler
	s.mu.handler = nil
	if err := s.checkHandleLocked(); err != nil {
		s.mu.handler = old
		s.mu.Unlock()
		return err
	}
	s.mu.handler = s.traced(h)
	s.setGateLocked(gateNoHandler, false)
	s.countLocked(true)
	var jobs []job
	if old != nil {
		jobs = s.stopLocked() // claims were made for the old one
	}
	s.unlockAndStart()
	s.runJobs(jobs)
	return nil
}

// compose wraps h in the middleware, the first of which is the outermost.
func (s *Stage) compose(h Handler, mw []Middleware) (Handler, error) {
	if h == nil {
		return nil, fault(s.where(), "handler", "nil", "must not be nil")
	}
	for i, m := range mw {
		if m == nil {
			return nil, fault(s.where(), fmt.Sprintf("middleware[%d]", i), "nil", "must not be nil")
		}
	}
	for i, m := range slices.Backward(mw) {
		if h = m(h); h == nil {
			return nil, fault(s.where(), fmt.Sprintf("middleware[%d]", i), "a func that returned nil", "must return a handler")
		}
	}
	return h, nil
}

func (s *Stage) checkHandleLocked() error {
	switch {
	case s.mu.closed || s.bus.state() >= stateClosed:
		return s.refusal(reason.Closed, nil)
	case s.mu.cfg.Pull:
		return fmt.Errorf("%w: %s is used for pulling and cannot have a handler", ErrConflict, s.where())
	case s.mu.topic != nil:
		return fmt.Errorf("%w: %s is pub/sub and has subscribers instead of a handler", ErrConflict, s.where())
	case s.mu.handler != nil:
		return fmt.Errorf("%w: %s has a handler already; remove it first", ErrConflict, s.where())
	}
	return nil
}

// RemoveHandler takes the handler away; calls that run may finish, and none
// starts after it has returned. The no-handler policy is in force then, also
// for what is queued. Without a handler it does nothing.
func (s *Stage) RemoveHandler() error {
	if s.parts != nil {
		return s.ofParts((*Stage).RemoveHandler)
	}
	s.mu.Lock()
	if s.mu.handler == nil {
		s.mu.Unlock()
		return nil
	}
	s.mu.handler = nil
	s.setGateLocked(gateNoHandler, s.mu.cfg.NoHandler != NoHandlerHold)
	gone := s.countLocked(false)
	jobs := s.stopLocked()
	letters := s.mu.cfg.NoHandler == NoHandlerDeadLetter
	s.mu.Unlock()
	s.runJobs(jobs)
	settleGrants(gone, false)
	if letters {
		s.letterQueued()
	}
	return nil
}

func (s *Stage) where() string { return fmt.Sprintf("stage %q", s.name) }

func (s *Stage) setGateLocked(g gates, on bool) {
	for {
		old := s.gates.Load()
		v := old | uint32(g)
		if !on {
			v = old &^ uint32(g)
		}
		if s.gates.CompareAndSwap(old, v) {
			return
		}
	}
}

// enqueueLocked puts e behind what waits already. It holds a token.
func (s *Stage) enqueueLocked(e *Envelope) {
	switch {
	case s.mu.keyed != nil:
		s.mu.keyed.push(&s.mu.pool, e)
	case s.mu.classes != nil:
		s.mu.classes.push(&s.mu.pool, e)
	default:
		s.mu.q.Push(&s.mu.pool, e)
	}
}

// queuedLocked is the number of envelopes that wait in the queue itself.
func (s *Stage) queuedLocked() int {
	switch {
	case s.mu.keyed != nil:
		return s.mu.keyed.n + s.mu.laned
	case s.mu.classes != nil:
		return s.mu.classes.n
	default:
		return s.mu.back.Len() + s.mu.q.Len() + s.mu.laned
	}
}

// heldLocked is the number of envelopes set aside because their next stage has
// no room.
func (s *Stage) heldLocked() int {
	n := 0
	for _, e := range s.mu.edges {
		n += e.held.Len()
	}
	return n
}

// depthLocked is the number of envelopes that wait here; exact after
// helpLocked.
func (s *Stage) depthLocked() int {
	return s.queuedLocked() + s.mu.due.Len() + s.heldLocked() +
		s.mu.delayed + s.mu.parked + s.mu.claimed
}
