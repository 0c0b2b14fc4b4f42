package shard

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"time"
)

// Bounds and defaults of [Config].
const (
	perProc        = 4 // shards for each of GOMAXPROCS
	defaultMailbox = 1024
	maxMailbox     = 1 << 20
	defaultLane    = 256
	maxLane        = 1 << 16
	defaultTransit = 1 << 14
	maxTransit     = 1 << 24
	defaultSpread  = 16
	maxSpread      = 1 << 20
	maxSpin        = 1 << 20
	maxYield       = 1 << 12
	maxCPU         = 1023
	minStall       = time.Millisecond
	defaultStall   = 100 * time.Millisecond
)

// Config holds the settings of a [Runtime]. All but Handle may be zero.
//
// Handle, Turn and OnPanic are called by the loops, each shard's calls one
// after the other. A panic in any function of Config is contained.
type Config[T any] struct {
	// Shards is the number of shards to start with: 1 to [MaxShards]. 0 is four
	// for each of GOMAXPROCS at that moment, so that a shard with a hot key leaves
	// the others to the remaining processors; a later change of GOMAXPROCS is not
	// followed, see [Runtime.Resize].
	Shards int
	// Handle is called for every item; it must be set. The item is valid during
	// the call. A handler that blocks stops its shard, and nothing else.
	Handle func(s *Shard[T], item *T)
	// Turn, if set, is called once in every turn of a shard's loop for work that
	// comes from nowhere else. While it returns true the shard does not go idle,
	// and Close waits.
	Turn func(s *Shard[T]) (more bool)

	// Mailbox is how many items pushed without a [Producer] wait in one shard: up
	// to 1048576; 0 is 1024.
	Mailbox int
	// Lane is how many items of one [Producer] wait in one shard: a power of two up
	// to 65536; 0 is 256. Their memory is taken at the first push to that shard.
	Lane int
	// Transit bounds what handlers have sent and nobody has handled, over all
	// shards: up to 16777216; 0 is 16384. From there on no shard takes items from
	// outside, and from twice that on [Shard.Send] refuses.
	Transit int
	// Spread is how many items without a key go to one shard before the next one
	// has its turn: up to 1048576; 0 is 16.
	Spread int

	// Idle is what a loop without work does.
	Idle Idle
	// Pin binds shards to threads and processors.
	Pin Pin

	// Stall is how long a shard may be in handlers without coming up for air: 1ms
	// or more. 0 is 100ms if OnStall is set, else nobody looks.
	Stall time.Duration
	// OnStall is called, on a goroutine of its own and one call at a time, when a
	// shard stalls, and again whenever the time has doubled since.
	OnStall func(Stall)
	// OnPanic is called for each call of Handle or Turn that panicked or ended its
	// goroutine. The item counts as handled; the shard goes on with the next.
	OnPanic func(Panic)
	// OnResize is called by [Runtime.Resize] while no shard runs anything, before
	// the first item is handled under the new layout: the place to move what is
	// kept by shard. An error, or a panic, refuses the change. It must not push.
	OnResize func(from, to *Layout) error
}

// Idle is how long a loop without work looks for some before it parks. The zero
// value parks at once, which is best in most programs: a loop that keeps looking
// takes a processor, and the line of memory that a producer is about to write,
// away from whoever has work. A parked shard costs no CPU, whatever is set here.
// In a testing/synctest bubble time stands while a loop spins.
type Idle struct {
	Spin  int // looks without giving the processor away: up to 1048576
	Yield int // looks after that, each after runtime.Gosched: up to 4096
}

// Pin binds loops to threads and processors. It is off by default, because it
// costs more than it brings. Measured on two processors (BenchmarkRoundTrip,
// BenchmarkPinned): a push that wakes a parked loop, and the answer, take 33 µs with
// a thread for each loop, 0.6 µs without; a loaded pipeline between two shards gets
// 0.55 of its throughput. It pays for loops that never park, on processors that
// nothing else uses.
type Pin struct {
	// Thread gives each loop a thread of its own (runtime.LockOSThread).
	Thread bool
	// CPUs, if not empty, are the processors that shard after shard is bound to,
	// over and over; it implies Thread. Linux only: elsewhere, and where the process
	// may not use one of them, [New] returns [ErrAffinity].
	CPUs []int
}

// Stall is what OnStall gets.
type Stall struct {
	Shard int           // the shard that does not come up
	For   time.Duration // so far
	Note  int64         // what its handler last passed to [Shard.Note]
}

// Panic is what OnPanic gets.
type Panic struct {
	Shard  int
	Value  any    // what was passed to panic; nil after runtime.Goexit
	Stack  []byte // of the call that panicked; nil after runtime.Goexit
	Goexit bool   // the handler ended its goroutine
}

// Validate returns all faults of c at once, each with field, value and bound.
// They match [ErrInvalid].
func (c *Config[T]) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: Config.%s", ErrInvalid, fmt.Sprintf(format, args...)))
	}
	within := func(name string, v, most int) {
		if v < 0 || v > most {
			fault("%s is %d: 0 to %d", name, v, most)
		}
	}
	if c.Handle == nil {
		fault("Handle is nil: a function")
	}
	within("Shards", c.Shards, MaxShards)
	within("Mailbox", c.Mailbox, maxMailbox)
	within("Lane", c.Lane, maxLane)
	if c.Lane > 0 && bits.OnesCount(uint(c.Lane)) != 1 {
		fault("Lane is %d: a power of two", c.Lane)
	}
	within("Transit", c.Transit, maxTransit)
	within("Spread", c.Spread, maxSpread)
	within("Idle.Spin", c.Idle.Spin, maxSpin)
	within("Idle.Yield", c.Idle.Yield, maxYield)
	for i, cpu := range c.Pin.CPUs {
		within(fmt.Sprintf("Pin.CPUs[%d]", i), cpu, maxCPU)
	}
	if c.Stall != 0 && c.Stall < minStall {
		fault("Stall is %v: 0, or %v or more", c.Stall, minStall)
	}
	return errors.Join(faults...)
}

// withDefaults returns a copy with the defaults filled in.
func (c *Config[T]) withDefaults() Config[T] {
	d := *c
	d.Pin.CPUs = slices.Clone(d.Pin.CPUs)
	for _, f := range []struct {
		field *int
		value int
	}{
		{&d.Shards, min(perProc*runtime.GOMAXPROCS(0), MaxShards)},
		{&d.Mailbox, defaultMailbox},
		{&d.Lane, defaultLane},
		{&d.Transit, defaultTransit},
		{&d.Spread, defaultSpread},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if d.Stall == 0 && d.OnStall != nil {
		d.Stall = defaultStall
	}
	return d
}
