package bus

import (
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/reason"
)

// Hooks are called on changes. Every field is optional. No lock is held during
// a call, and a panic or a runtime.Goexit in one is contained and counted. Each
// runs on a goroutine of its own, for which the bus waits.
type Hooks struct {
	// Drop gets every envelope that ended Dropped, in batches, on a goroutine
	// of the bus that serves all drops one after the other. The slice is valid
	// during the call only.
	Drop func([]DropInfo)
	// DeadLetter is called for every dead letter, before its Result is given.
	DeadLetter func(LetterInfo)
	// Panic is called after a handler, callback or hook panicked.
	Panic func(PanicInfo)
	// State is called after the bus or a stage changed its state, before the
	// call that changed it returns.
	State func(StateInfo)
}

// DropInfo describes an envelope that was dropped.
type DropInfo struct {
	Stage    string
	Reason   reason.Reason
	Envelope Envelope
}

// LetterInfo describes a dead letter.
type LetterInfo struct {
	Stage  string // where to resume
	Reason reason.Reason
	ID     uint64
	TextID string
	Err    error
	To     string // the dead-letter stage, or "" for the store
}

// PanicInfo describes a contained panic.
type PanicInfo struct {
	Stage string
	Where string // "handler", "callback", "hook", "admission", "journal", "tracer", "clone", "size" or "error"
	ID    uint64
	Err   *PanicError
}

// StateInfo describes a change of state.
type StateInfo struct {
	Stage string // "" is the bus
	State string // "started", "paused", "resumed", "suspended", "draining", "closed", "tuned", "window clamped", "detached"
	By    string
	Why   string
}

// contain calls f and turns a panic into a report; a Goexit ends the goroutine
// as it should, after the report.
func (b *Bus) contain(where, stage string, id uint64, f func()) {
	ended := false
	defer func() {
		if ended {
			return
		}
		err := &PanicError{Value: recover(), Stack: debug.Stack()}
		b.panics.Add(1)
		b.reportPanic(PanicInfo{Stage: stage, Where: where, ID: id, Err: err})
	}()
	f()
	ended = true
}

// aside calls f on a goroutine of its own and waits for it, so that a Goexit
// in f ends nothing of the bus.
func aside(f func()) {
	if faults.On(faults.HookInline) {
		f()
		return
	}
	done := make(chan struct{})
	go func() { // ends with f
		defer close(done)
		f()
	}()
	<-done
}

// survive calls f and counts a panic without telling anybody: it is for what
// tells of panics.
func (b *Bus) survive(f func()) {
	defer func() {
		if v := recover(); v != nil {
			b.panics.Add(1)
		}
	}()
	f()
}

// reportPanic tells the logger and the panic hook, and survives their panics.
func (b *Bus) reportPanic(info PanicInfo) {
	b.survive(func() { b.logPanic(info) })
	if f := b.cfg.Hooks.Panic; f != nil {
		aside(func() { b.survive(func() { f(info) }) })
	}
}

// logLimit thins out log lines: one a second.
type logLimit struct {
	last    atomic.Int64 // bus clock of the last line
	leftOut atomic.Uint64
}

// logPanic writes at most one line a second and stage, with the number of
// those left out since the last one. Exact numbers are in the statistics.
func (b *Bus) logPanic(info PanicInfo) {
	limit := &b.panicLog
	if s := b.lookup(info.Stage); s != nil {
		limit = &s.panicLog
	}
	now, last := b.clock.Now(), limit.last.Load()
	if last != 0 && now-last < int64(time.Second) || !limit.last.CompareAndSwap(last, now) {
		limit.leftOut.Add(1)
		return
	}
	b.cfg.Logger.LogAttrs(b.root, slog.LevelError, "panic contained",
		slog.String(keyBus, b.cfg.Name), slog.String(keyStage, info.Stage),
		slog.String(keyWhere, info.Where), slog.Any(keyError, info.Err),
		slog.Uint64(keyLeftOut, limit.leftOut.Swap(0)))
}

func (b *Bus) firePanic(info PanicInfo) { b.reportPanic(info) }

func (b *Bus) fireState(info StateInfo) {
	b.survive(func() {
		if b.cfg.Logger.Enabled(b.root, slog.LevelInfo) {
			b.cfg.Logger.LogAttrs(b.root, slog.LevelInfo, "state changed",
				slog.String(keyBus, b.cfg.Name), slog.String(keyStage, info.Stage),
				slog.String(keyState, info.State), slog.String(keyBy, info.By), slog.String(keyWhy, info.Why))
		}
	})
	if f := b.cfg.Hooks.State; f != nil {
		aside(func() { b.contain("hook", info.Stage, 0, func() { f(info) }) })
	}
}

func (b *Bus) fireLetter(info LetterInfo) {
	if f := b.cfg.Hooks.DeadLetter; f != nil {
		aside(func() { b.contain("hook", info.Stage, info.ID, func() { f(info) }) })
	}
}

// Keys of log attributes.
const (
	keyBus   = "bus"
	keyStage = "stage"
	keyWhere = "where"
	keyError = "error"
	keyState = "state"
	keyBy    = "by"
	keyWhy   = "why"

	keyLeftOut = "left_out"
)

// dropQueue hands dropped envelopes to the drop hook, in batches, off the
// locks and off the publisher that caused the drop.
type dropQueue struct {
	bus *Bus
	mu  struct {
		sync.Mutex
		todo    []DropInfo
		running bool
	}
}

// add takes e if there is a hook.
func (q *dropQueue) add(s *Stage, e *Envelope, why reason.Reason) {
	if q.bus.cfg.Hooks.Drop == nil {
		return
	}
	q.mu.Lock()
	q.mu.todo = append(q.mu.todo, DropInfo{Stage: s.name, Reason: why, Envelope: *e})
	start := !q.mu.running
	q.mu.running = true
	q.mu.Unlock()
	if start {
		go q.run() // ends when there is nothing left to tell
	}
}

func (q *dropQueue) run() {
	ended := false
	defer func() {
		if !ended && !faults.On(faults.HookDies) { // the hook called Goexit
			go q.run()
		}
	}()
	for {
		q.mu.Lock()
		batch := q.mu.todo
		q.mu.todo = nil
		if len(batch) == 0 {
			q.mu.running = false
			q.mu.Unlock()
			ended = true
			q.bus.settled()
			return
		}
		q.mu.Unlock()
		q.bus.contain("hook", batch[0].Stage, 0, func() { q.bus.cfg.Hooks.Drop(batch) })
	}
}

// idle says whether the hook has been told everything.
func (q *dropQueue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.mu.running
}
