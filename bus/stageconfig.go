package bus

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/internal/names"
	"github.com/sedabus/seda/internal/queue"
	"github.com/sedabus/seda/retry"
	"github.com/sedabus/seda/shedder"
)

// StageConfig configures a stage. The zero value is valid; every zero field
// means its documented default, and a value out of its bounds is an error at
// registration that names field, value and bound, all faults at once. Fields
// marked live can be changed with Stage.Tune while the bus runs.
type StageConfig struct {
	// Capacity bounds the stage's depth: what waits, is delayed or parked here.
	// Default 1024, at most 1<<30. Live. Requeues may exceed it by at most the
	// concurrency, and arriving hops by one.
	Capacity int
	// Concurrency is how many handlers run at once. Default 1, in sharded mode one
	// a shard; at most 1<<20. In sharded mode one that is set gives the stage as
	// many homes: 1 is truly serial, and what is above the number of shards runs
	// beside their loops. Homes are chosen when the stage is registered.
	// Live: raising starts waiting work at once, lowering cancels nothing.
	Concurrency int
	// Batch is how many envelopes an executor claims at a time. Default 0 adapts
	// from 1 (handlers above 20 µs) to 64; else fixed, at most 64. Live.
	Batch int
	// EgressCap is how many envelopes may wait parked for one next stage before
	// this stage starts no more of those that go there. Default 0 is the
	// concurrency. Live.
	EgressCap int
	// Delivery is PointToPoint (default) or PubSub, which excludes Pull, ByKey,
	// Classes and a Concurrency above 1: set them on the subscribers.
	Delivery Delivery
	// Full is what a publish does when the stage is full. Default Block. Live.
	Full FullPolicy
	// Credit is how the stage grants credits to its producers while Full is
	// Credit. Live.
	Credit CreditConfig
	// Order is Unordered (default), ByKey or InOrder.
	Order Order
	// Classes are the priority classes, highest first; at most 16, not together
	// with Order. None is one class.
	Classes []Class
	// Retry says how often and when a failed envelope is handled again. Default
	// one attempt. Live.
	Retry retry.Policy
	// HopTimeout bounds how long an envelope that comes to this stage may wait
	// parked for room, and how long a publish from inside a handler waits.
	// Default 5 s. Live.
	HopTimeout time.Duration
	// HandlerTimeout cancels a handler's context after that time; the delivery
	// settles when the handler returns. Default none. Live.
	HandlerTimeout time.Duration
	// NoHandler is what happens to envelopes while the stage has no handler.
	// Default NoHandlerDeadLetter; a Pull stage holds.
	NoHandler NoHandler
	// DeadLetterTo names the stage that gets this stage's dead letters. Default
	// "" is the bus's store. The stage must exist, and rings are refused.
	DeadLetterTo string
	// Accepts is the payload type that the stage takes, an interface for all
	// that implement it; nil takes everything. See TypeOf.
	Accepts reflect.Type
	// DedupWindow is how many idempotency keys are remembered. Default 0 is off;
	// at most 1<<24.
	DedupWindow int
	// MaxWaiters bounds the publishers that wait in a full stage with Block; the
	// next one is refused as full. Default 10,000, at most 1<<24. Live.
	MaxWaiters int
	// Blocking says that handlers wait for something: in sharded mode they run
	// beside the loop of their shard, which else would stand still meanwhile.
	Blocking bool
	anyShard bool // Concurrency is not set: one a shard
	// Pull hands envelopes out through Receive instead of to handlers.
	Pull bool
	// MaxOutstanding bounds the deliveries that pull consumers hold unsettled.
	// Default the capacity, at most 1<<30; only with Pull. Live.
	MaxOutstanding int
	// Lease is how long a pull consumer may hold a delivery before it goes back
	// to the stage, which costs an attempt. Default none; only with Pull. Live.
	Lease time.Duration
	// ExactTiming reads the clock for every envelope instead of every chunk.
	ExactTiming bool
	// Shedder decides at the door which new itineraries are let in: those that
	// are published here, and those published elsewhere whose slip leads here.
	// It serves this stage only. Default nil: Config.NewShedder is asked for
	// one. Its settings are its own: see Shedder.Tune.
	Shedder *shedder.Shedder
	// ShedInside asks the Shedder about arriving hops and about retries, too:
	// those that it refuses become dead letters with the reason shed. Default
	// off: work under way finishes. Needs a Shedder.
	ShedInside bool
}

// Delivery is how a stage hands envelopes out.
type Delivery uint8

// Deliveries.
const (
	PointToPoint Delivery = iota // each envelope to one handler call
	PubSub                       // a copy to each subscriber
)

// String returns the setting's name.
func (d Delivery) String() string { return enumName(d, "point-to-point", "pub/sub") }

// FullPolicy is what a publish does when the stage is full.
type FullPolicy uint8

// Full policies.
const (
	Block      FullPolicy = iota // wait, first come first served, until the context ends
	Reject                       // refuse at once with ErrFull
	DropNewest                   // refuse at once with ErrDropped
	DropOldest                   // accept; the oldest that was never started is dropped
	Credit                       // wait until the stage grants a credit, see CreditConfig
)

// String returns the setting's name.
func (p FullPolicy) String() string {
	return enumName(p, "block", "reject", "drop-newest", "drop-oldest", "credit")
}

// Order is the order in which a stage handles envelopes. Publishers that wait
// for one publish before the next see their order kept up to the queue in any
// case; this says what happens behind it.
type Order uint8

// Orders.
const (
	// Unordered starts envelopes first in, first out, lets several run at once
	// and lets others pass one that is retried.
	Unordered Order = iota
	// ByKey handles the envelopes of one key one at a time and in order; an
	// envelope that is retried holds its key, other keys pass. Envelopes without
	// a key share the empty one.
	ByKey
	// InOrder handles all envelopes one at a time and in order, whatever the
	// concurrency; one that is retried holds all.
	InOrder
)

// String returns the setting's name.
func (o Order) String() string { return enumName(o, "unordered", "by-key", "in-order") }

// NoHandler is what happens to envelopes of a stage without handler.
type NoHandler uint8

// No-handler policies.
const (
	NoHandlerDeadLetter NoHandler = iota // accepted, then dead-lettered at once
	NoHandlerReject                      // refused; what is queued waits
	NoHandlerHold                        // accepted and kept until there is one
)

// String returns the setting's name.
func (n NoHandler) String() string { return enumName(n, "dead-letter", "reject", "hold") }

// Class is a priority class of a stage.
type Class struct {
	// Name is what Meta.Class says.
	Name string
	// MinShare is the percentage of starts that the class gets at least while it
	// has work, from 1 to 100; default 5. The shares of all classes must not
	// exceed 100.
	MinShare int
	// Strict gives the class no minimum share: it is served only when nothing
	// waits in a higher one.
	Strict bool
}

// Lag is what a subscriber's fullness does. A publish of which a copy was
// dropped ends Dropped with the reason lag when its other copies have ended, or
// DeadLettered if one of those was, and does not travel on.
type Lag uint8

// Lag policies.
const (
	LagWait   Lag = iota // the pub/sub stage holds its publishers back
	LagDrop              // copies that do not fit are dropped and counted
	LagDetach            // as LagDrop, and the subscriber is unsubscribed and counted
)

// String returns the setting's name.
func (l Lag) String() string { return enumName(l, "wait", "drop", "detach") }

const (
	defaultCapacity    = 1024
	defaultConcurrency = 1
	defaultHopTimeout  = 5 * time.Second
	defaultMaxWaiters  = 10_000
	defaultMinShare    = 5
	maxCapacity        = 1 << 30
	maxConcurrency     = 1 << 20
	maxWindow          = 1 << 24
	maxClasses         = 16
)

func enumName[E ~uint8](e E, all ...string) string {
	if int(e) < len(all) {
		return all[e]
	}
	return "unknown(" + strconv.Itoa(int(e)) + ")"
}

func rangeText(most int) string { return "must be from 0 (default) to " + strconv.Itoa(most) }

// TypeOf returns the type for StageConfig.Accepts.
func TypeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// withDefaults returns c with every zero field replaced by its default.
func (c *StageConfig) withDefaults() StageConfig {
	d := *c
	d.setDefaults()
	return d
}

func (c *StageConfig) setDefaults() {
	if !faults.On(faults.NoDefault) {
		setDefault(&c.Capacity, defaultCapacity)
	}
	setDefault(&c.Concurrency, defaultConcurrency)
	setDefault(&c.HopTimeout, defaultHopTimeout)
	setDefault(&c.MaxWaiters, defaultMaxWaiters)
	if c.Pull {
		setDefault(&c.MaxOutstanding, c.Capacity)
		c.NoHandler = NoHandlerHold
	}
	c.Retry = c.Retry.WithDefaults()
	c.Credit.setDefaults()
	classes := make([]Class, len(c.Classes))
	for i, cl := range c.Classes {
		if cl.MinShare == 0 && !cl.Strict {
			cl.MinShare = defaultMinShare
		}
		classes[i] = cl
	}
	c.Classes = classes
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// egressCap is the effective cap per downstream edge.
func (c *StageConfig) egressCap() int {
	if c.EgressCap > 0 {
		return c.EgressCap
	}
	return c.Concurrency
}

// validate returns all faults of c, named for the stage.
func (c *StageConfig) validate(stage string) error {
	if faults.On(faults.ConfigUnchecked) {
		return nil
	}
	where := fmt.Sprintf("stage %q", stage)
	errs := []error{
		checkInt(where, "Capacity", c.Capacity, maxCapacity),
		checkInt(where, "Concurrency", c.Concurrency, maxConcurrency),
		checkInt(where, "Batch", c.Batch, queue.Len),
		checkInt(where, "EgressCap", c.EgressCap, maxConcurrency),
		checkInt(where, "DedupWindow", c.DedupWindow, maxWindow),
		checkInt(where, "MaxWaiters", c.MaxWaiters, maxWindow),
		checkInt(where, "MaxOutstanding", c.MaxOutstanding, maxCapacity),
		checkDuration(where, "HopTimeout", c.HopTimeout),
		checkDuration(where, "HandlerTimeout", c.HandlerTimeout),
		checkDuration(where, "Lease", c.Lease),
		checkEnum(where, "Delivery", c.Delivery, PubSub),
		checkEnum(where, "Full", c.Full, Credit),
		checkEnum(where, "Order", c.Order, InOrder),
		checkEnum(where, "NoHandler", c.NoHandler, NoHandlerHold),
	}
	if err := c.Retry.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("%w: %s: Retry: %w", ErrInvalid, where, err))
	}
	errs = append(errs, c.validateClasses(where)...)
	errs = append(errs, c.Credit.validate(where)...)
	errs = append(errs, c.validateMix(where)...)
	return errors.Join(errs...)
}

func (c *StageConfig) validateClasses(where string) []error {
	var errs []error
	if len(c.Classes) > maxClasses {
		errs = append(errs, fault(where, "Classes", len(c.Classes), "at most "+strconv.Itoa(maxClasses)))
	}
	seen := map[string]bool{}
	shares := 0
	for i, cl := range c.Classes {
		field := fmt.Sprintf("Classes[%d]", i)
		if err := names.Check(cl.Name); err != nil {
			errs = append(errs, fault(where, field+".Name", strconv.Quote(cl.Name), err.Error()))
		}
		if seen[cl.Name] {
			errs = append(errs, fault(where, field+".Name", cl.Name, "must be unique"))
		}
		seen[cl.Name] = true
		if cl.MinShare < 0 || cl.MinShare > 100 {
			errs = append(errs, fault(where, field+".MinShare", cl.MinShare, "must be from 0 (default 5) to 100 percent"))
		}
		if cl.Strict && cl.MinShare > 0 {
			errs = append(errs, fault(where, field+".MinShare", cl.MinShare, "a strict class has none"))
		}
		if cl.MinShare == 0 && !cl.Strict {
			shares += defaultMinShare
		}
		shares += max(0, cl.MinShare)
	}
	if shares > 100 {
		errs = append(errs, fault(where, "Classes", shares, "the minimum shares must not exceed 100 percent"))
	}
	return errs
}

// validateMix checks settings that exclude each other.
func (c *StageConfig) validateMix(where string) []error {
	var errs []error
	add := func(bad bool, field string, v any, bound string) {
		if bad {
			errs = append(errs, fault(where, field, v, bound))
		}
	}
	add(len(c.Classes) > 0 && c.Order != Unordered, "Order", c.Order, "cannot be combined with Classes")
	add(c.Delivery == PubSub && c.Pull, "Pull", true, "a pub/sub stage has no pull consumers of its own; subscribe a stage with Pull")
	add(c.Delivery == PubSub && c.Order == ByKey, "Order", c.Order, "a pub/sub stage keeps the publish order; set Order on its subscribers")
	add(c.Delivery == PubSub && len(c.Classes) > 0, "Classes", len(c.Classes), "set them on the subscribers of a pub/sub stage")
	add(c.Delivery == PubSub && c.Concurrency > 1, "Concurrency", c.Concurrency, "a pub/sub stage fans out one chunk at a time; set it on the subscribers")
	add(!c.Pull && c.MaxOutstanding > 0, "MaxOutstanding", c.MaxOutstanding, "needs Pull")
	add(!c.Pull && c.Lease > 0, "Lease", c.Lease, "needs Pull")
	add(c.ShedInside && c.Shedder == nil, "ShedInside", true, "needs a Shedder")
	add(c.Delivery == PubSub && c.Shedder != nil, "Shedder", "set", "a pub/sub stage hands on at once; set it on the subscribers, which the stage asks")
	return errs
}

func checkEnum[E interface {
	~uint8
	fmt.Stringer
}](where, field string, v, most E) error {
	if v > most {
		return fault(where, field, v, fmt.Sprintf("must be one of 0 (%v) to %d (%v)", E(0), most, most))
	}
	return nil
}

// checkComparable refuses what could not be told from another value later.
func checkComparable(where, field string, v any) error {
	if v != nil && !reflect.ValueOf(v).Comparable() {
		return fault(where, field, reflect.TypeOf(v), "must be of a comparable type, such as a pointer")
	}
	return nil
}

// frozenDiff names the settings in which a and b differ although they cannot
// change while the stage lives.
func frozenDiff(a, b *StageConfig) []string {
	var out []string
	add := func(differ bool, field string) {
		if differ {
			out = append(out, field)
		}
	}
	add(a.Delivery != b.Delivery, "Delivery")
	add(a.Order != b.Order, "Order")
	add(!equalClasses(a.Classes, b.Classes), "Classes")
	add(a.NoHandler != b.NoHandler, "NoHandler")
	add(a.DeadLetterTo != b.DeadLetterTo, "DeadLetterTo")
	add(a.Accepts != b.Accepts, "Accepts")
	add(a.DedupWindow != b.DedupWindow, "DedupWindow")
	add(a.Pull != b.Pull, "Pull")
	add(a.Blocking != b.Blocking, "Blocking")
	add(a.ExactTiming != b.ExactTiming, "ExactTiming")
	add(a.Shedder != b.Shedder, "Shedder")
	add(a.ShedInside != b.ShedInside, "ShedInside")
	return out
}

// liveDiff names the live settings in which a and b differ.
func liveDiff(a, b *StageConfig) []string {
	var out []string
	add := func(differ bool, field string) {
		if differ {
			out = append(out, field)
		}
	}
	add(a.Capacity != b.Capacity, "Capacity")
	add(a.Concurrency != b.Concurrency, "Concurrency")
	add(a.Batch != b.Batch, "Batch")
	add(a.EgressCap != b.EgressCap, "EgressCap")
	add(a.Full != b.Full, "Full")
	add(a.Credit != b.Credit, "Credit")
	add(a.Retry != b.Retry, "Retry")
	add(a.HopTimeout != b.HopTimeout, "HopTimeout")
	add(a.HandlerTimeout != b.HandlerTimeout, "HandlerTimeout")
	add(a.MaxWaiters != b.MaxWaiters, "MaxWaiters")
	add(a.MaxOutstanding != b.MaxOutstanding, "MaxOutstanding")
	add(a.Lease != b.Lease, "Lease")
	return out
}

func equalClasses(a, b []Class) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
