package shard

import (
	"errors"
	"fmt"
	"time"
)

// Sentinels for errors.Is.
var (
	// ErrInvalid: a setting or an argument is out of its bounds.
	ErrInvalid = errors.New("shard: invalid")
	// ErrClosed: the runtime or the producer was closed.
	ErrClosed = errors.New("shard: closed")
	// ErrFull: there is no room, or, for a call that never waits, a change of
	// the number of shards is just going on.
	ErrFull = errors.New("shard: full")
	// ErrInside: a handler asked for what only ends when the handler has.
	ErrInside = errors.New("shard: called from inside a handler")
	// ErrStalled: a shard did not come to the end of an item in time.
	ErrStalled = errors.New("shard: stalled")
	// ErrAffinity: a shard cannot be bound to the processors asked for.
	ErrAffinity = errors.New("shard: no affinity")
	// ErrCut: Close ended before all was handled.
	ErrCut = errors.New("shard: cut")
)

// StalledError says which shard kept a [Runtime.Resize] from happening. It
// matches [ErrStalled] and the cause for which the caller's context ended.
type StalledError struct {
	Shard int           // the shard
	For   time.Duration // how long its handler had been running
	Cause error         // why no more time was given
}

// Error implements error.
func (e *StalledError) Error() string {
	return fmt.Sprintf("shard: shard %d has been in a handler for %v, so the number of shards stays: %v", e.Shard, e.For, e.Cause)
}

// Unwrap makes e match ErrStalled and its cause.
func (e *StalledError) Unwrap() []error { return []error{ErrStalled, e.Cause} }
