package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sedabus/seda/internal/clock"
	"github.com/sedabus/seda/internal/dedup"
	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/layout"
	"github.com/sedabus/seda/internal/names"
	"github.com/sedabus/seda/internal/queue"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// Bus owns stages, their life cycle and the account. Make one with New. All
// methods are safe for concurrent use.
type Bus struct {
	cfg       Config // as given to New
	clock     *clock.Clock
	epoch     int64           // Unix nanoseconds at the clock's origin
	root      context.Context //nolint:containedctx // the root of the handlers' contexts, cancelled by Close
	cancel    context.CancelCauseFunc
	chunks    *sync.Pool
	arrs      *sync.Pool
	waiters   *sync.Pool
	askings   *sync.Pool
	clogs     atomic.Int32  // edges that are clogged, see credit_path.go
	edgesMade atomic.Uint32 // between stages, so far

	ids      atomic.Uint64
	phase    atomic.Int32
	watching atomic.Bool
	stages   atomic.Pointer[stageTable]  // replaced, never changed
	refused  [reason.Count]atomic.Uint64 // publishes to stages that do not exist

	shards        []*runLoop // of a bus in sharded mode, else none
	layout        atomic.Pointer[layout.Layout]
	spread        spread        // of envelopes without a key
	tickets       atomic.Uint64 // of parts that wait for permits
	timers        timers
	permits       permits
	callbacks     callbacks
	letters       Letters
	drops         dropQueue
	panics        atomic.Uint64 // outside handlers
	journalErrors atomic.Uint64 // entries that the journal refused
	panicLog      logLimit      // of panics outside stages

	tuning sync.Mutex // serialises Tune; held around the user's func
	live   atomic.Pointer[liveConfig]

	wake    chan struct{} // something has settled while a shutdown waits
	cutNow  chan struct{} // closed when a second shutdown has less time
	cutOnce sync.Once

	mu struct {
		sync.Mutex
		holds   holds
		report  *Report
		ending  chan struct{} // closed when the shutdown's report is there
		sheds   bool          // some stage has a shedder
		shedOff bool          // the kill switch
	}
}

// stageTable is an immutable registry.
type stageTable struct {
	byName map[string]*Stage
	list   []*Stage // as registered
	work   []*Stage // those that have queues: the parts of sharded ones
}

// The phases of a bus's life.
const (
	stateNew int32 = iota
	stateRunning
	stateDraining // no outside publishes
	stateClosed   // nothing starts any more
)

func (b *Bus) state() int32 { return b.phase.Load() }

// New returns a bus with the given configuration and no stages. All faults of
// the configuration are returned at once, joined.
func New(c Config) (*Bus, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.setDefaults()
	b := &Bus{
		cfg: c, clock: clock.New(), wake: make(chan struct{}, 1), cutNow: make(chan struct{}),
		chunks: queue.NewShared[Envelope](), arrs: queue.NewShared[arrival](), waiters: newWaiters(), askings: newAskings(),
	}
	b.epoch = b.clock.Wall(1).UnixNano() - 1
	b.root, b.cancel = context.WithCancelCause(context.Background())
	b.timers.clock = b.clock
	b.callbacks.init(b)
	b.permits.setLimit(c.MaxHandlers)
	b.stages.Store(&stageTable{byName: map[string]*Stage{}})
	b.drops.bus = b
	b.letters.init(b, c.DeadLetters)
	b.initShards()
	return b, nil
}

// Name returns the bus's name.
func (b *Bus) Name() string { return b.cfg.Name }

// Stage registers a stage, before or after Start, and returns it. A name has 1
// to 128 ASCII letters, digits, '_', '-' and '.', a letter or digit first, no
// '.' last and no two in a row, and is no device name of Windows.
//
// Registering a name again with the settings in force returns the stage that is
// there; other settings are ErrConflict. A bad name and settings out of bounds
// are ErrInvalid, all faults at once. During and after a shutdown it is
// ErrClosed. A stage lives as long as its bus.
func (b *Bus) Stage(name string, c StageConfig) (*Stage, error) {
	s, err := b.register(name, c)
	if err == nil {
		s.tellClamped()
	}
	return s, err
}

func (b *Bus) register(name string, c StageConfig) (*Stage, error) {
	if err := errors.Join(checkName(name), c.validate(name)); err != nil {
		return nil, err
	}
	b.shardDefaults(&c)
	c = c.withDefaults()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state() >= stateDraining {
		return nil, &RejectedError{Stage: name, Reason: reason.Closed}
	}
	old := b.stages.Load()
	if s := old.byName[name]; s != nil {
		return s, s.sameSettings(&c)
	}
	if err := old.checkLetterRing(name, c.DeadLetterTo); err != nil {
		return nil, err
	}
	s, err := b.newStage(name, c, len(old.list))
	if err != nil {
		return nil, err
	}
	if err := b.split(s, c); err != nil {
		return nil, err
	}
	if c.Delivery == PubSub {
		s.mu.topic = newTopic(s)
		s.countLocked(true)
	}
	next := &stageTable{byName: maps.Clone(old.byName), list: append(slices.Clone(old.list), s), work: append(slices.Clone(old.work), s.workers()...)}
	next.byName[name] = s
	b.stages.Store(next)
	if s.shed != nil && !b.mu.sheds {
		b.mu.sheds = true
		b.setGates(gateShed, true)
	}
	return s, nil
}

func checkName(name string) error {
	if err := names.Check(name); err != nil {
		return fmt.Errorf("%w: stage name: %w", ErrInvalid, err)
	}
	return nil
}

// sameSettings returns an error that names the settings in which a second
// registration differs.
func (s *Stage) sameSettings(c *StageConfig) error {
	have := s.Config()
	if faults.On(faults.ConflictIgnored) {
		return nil
	}
	if diff := append(frozenDiff(&have, c), liveDiff(&have, c)...); len(diff) > 0 {
		return fmt.Errorf("%w: %s is registered with other settings: %v; use Tune to change it", ErrConflict, s.where(), diff)
	}
	return nil
}

// checkLetterRing refuses a dead-letter stage that does not exist, is the
// stage itself, or leads back to it. Since a stage must exist to be named, a
// ring could only be closed by the newcomer.
func (t *stageTable) checkLetterRing(name, to string) error {
	if to == "" {
		return nil
	}
	where := fmt.Sprintf("stage %q", name)
	if to == name {
		return fault(where, "DeadLetterTo", to, "must not be the stage itself")
	}
	if t.byName[to] == nil {
		return fault(where, "DeadLetterTo", to, "must be a registered stage")
	}
	return nil
}

func (b *Bus) newStage(name string, c StageConfig, index int) (*Stage, error) {
	s := &Stage{bus: b, name: name, index: index, takes: c.Accepts}
	var err error
	if s.shed, err = b.shedderFor(name, &c); err != nil {
		return nil, err
	}
	if s.shed != nil {
		s.door = &door{}
	}
	m := &s.mu
	m.cfg = c
	m.pool = queue.NewPool[Envelope](b.chunks)
	m.arrPool = queue.NewPool[arrival](b.arrs)
	m.batch = max(1, c.Batch)
	m.minFree = int64(c.Capacity)
	s.free.Store(int64(c.Capacity))
	s.laneless.Store(c.Full == DropOldest || s.shed != nil)
	s.idle.Store(true)
	s.slow.Store(true) // until it is known to be fast
	s.info.Store(&stageInfo{full: c.Full, capacity: c.Capacity, concurrency: c.Concurrency})
	if c.Order != Unordered {
		m.keyed = newKeyed(c.Order)
	}
	if len(c.Classes) > 0 {
		m.classes = newLanes(c.Classes)
	}
	if c.DedupWindow > 0 {
		m.dedup = dedup.New(c.DedupWindow)
	}
	if c.Pull {
		m.pull = newPullState()
	}
	s.tuneCreditLocked() // nobody else knows it yet
	s.gates.Store(uint32(b.gatesFor(&c)))
	return s, nil
}

// shedderFor returns the new stage's shedder: its own, or one that
// Config.NewShedder makes. b.mu is held.
func (b *Bus) shedderFor(name string, c *StageConfig) (*shedder.Shedder, error) {
	sh := c.Shedder
	if sh == nil && b.cfg.NewShedder != nil && c.Delivery != PubSub {
		b.contain("shedder", name, 0, func() { sh = b.cfg.NewShedder(name) })
	}
	if sh == nil {
		return nil, nil //nolint:nilnil // none is wanted
	}
	if err := sh.Attach(); err != nil {
		return nil, fmt.Errorf("%w: stage %q: Shedder: %w", ErrConflict, name, err)
	}
	sh.Kill(b.mu.shedOff)
	return sh, nil
}

// gatesFor returns the gates of a new stage. b.mu is held.
func (b *Bus) gatesFor(c *StageConfig) gates {
	var g gates
	set := func(on bool, bit gates) {
		if on {
			g |= bit
		}
	}
	set(b.state() == stateNew, gateNotStarted)
	set(b.state() >= stateDraining, gateClosed)
	set(b.mu.holds.any(), gatePaused)
	set(c.Accepts != nil, gateAccepts)
	set(c.DedupWindow > 0, gateDedup)
	set(b.mu.sheds, gateShed)
	set(b.cfg.Journal != nil, gateJournal)
	set(b.cfg.Tracer != nil, gateTracer)
	set(c.NoHandler != NoHandlerHold, gateNoHandler)
	set(c.ShedInside, gateShedInside)
	return g
}

// setGates sets or clears gates of all stages. b.mu is held.
func (b *Bus) setGates(g gates, on bool) {
	for _, s := range b.stages.Load().work {
		s.setGateLocked(g, on) // a compare-and-swap: no lock needed
	}
}

func (b *Bus) stagesNow() []*Stage { return b.stages.Load().work }

// named are the stages as they were registered.
func (b *Bus) named() []*Stage { return b.stages.Load().list }

func (b *Bus) lookup(name string) *Stage { return b.stages.Load().byName[name] }

// Lookup returns the stage of that name.
func (b *Bus) Lookup(name string) (*Stage, bool) {
	s := b.lookup(name)
	return s, s != nil
}

// Stages returns all stages in the order of their registration.
func (b *Bus) Stages() []*Stage { return slices.Clone(b.named()) }

// Publish publishes e to the stage of that name; see Stage.Publish.
func (b *Bus) Publish(ctx context.Context, to string, e *Envelope) error {
	if s := b.lookup(to); s != nil {
		return s.Publish(ctx, e)
	}
	r := &RejectedError{Stage: to, Reason: reason.NoStage}
	if what := nilArgument(ctx, e); what != nil {
		r.Reason, r.Cause = reason.Invalid, what
	} else if b.state() >= stateDraining {
		r.Reason = reason.Closed
	}
	b.refused[r.Reason].Add(1)
	return r
}

// anchor turns a deadline as the user gave it into the bus clock's Unix
// nanoseconds, which no change of the wall clock moves.
func (b *Bus) anchor(deadline int64) int64 {
	return b.clock.FromWall(unixTime(deadline)) + b.epoch
}

// expired says whether an anchored deadline has passed at now.
func (b *Bus) expired(deadline, now int64) bool {
	return now+b.epoch >= deadline && !faults.On(faults.DeadlineIgnored)
}

// settled tells a waiting shutdown that something has ended.
func (b *Bus) settled() {
	if b.state() < stateDraining {
		return
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}
