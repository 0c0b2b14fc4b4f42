package bus

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// Sentinels for errors.Is. Every refusal of a publish matches ErrRejected and
// the sentinel of its reason; use errors.AsType[*RejectedError] for the
// details.
var (
	// ErrRejected matches every refused publish.
	ErrRejected = errors.New("bus: rejected")
	// ErrInvalid: a nil or malformed argument.
	ErrInvalid = errors.New("bus: invalid argument")
	// ErrClosed: the bus shuts down or is closed.
	ErrClosed = errors.New("bus: closed")
	// ErrNoStage: no stage of that name.
	ErrNoStage = errors.New("bus: no such stage")
	// ErrType: the stage does not take this payload type.
	ErrType = errors.New("bus: wrong payload type")
	// ErrNotStarted: the bus was not started.
	ErrNotStarted = errors.New("bus: not started")
	// ErrPaused: admission is paused.
	ErrPaused = errors.New("bus: admission paused")
	// ErrExpired: the deadline has passed, or cannot be met.
	ErrExpired = errors.New("bus: deadline passed")
	// ErrDuplicate: the idempotency key was seen before.
	ErrDuplicate = errors.New("bus: duplicate")
	// ErrShed: refused by the shedder although there was room.
	ErrShed = errors.New("bus: shed")
	// ErrNoCredit: the producer holds no credit.
	ErrNoCredit = errors.New("bus: no credit")
	// ErrFull: the stage is full.
	ErrFull = errors.New("bus: full")
	// ErrDropped: the stage is full and drops the newest.
	ErrDropped = errors.New("bus: dropped newest")
	// ErrNoHandler: the stage has no handler and rejects.
	ErrNoHandler = errors.New("bus: no handler")
	// ErrStore: the journal could not take the envelope.
	ErrStore = errors.New("bus: store failed")
	// ErrSettled: the delivery was settled before.
	ErrSettled = errors.New("bus: already settled")
	// ErrLeaseExpired: the delivery's lease has lapsed and it was given back.
	ErrLeaseExpired = errors.New("bus: lease expired")
	// ErrEmpty: there is nothing to receive now.
	ErrEmpty = errors.New("bus: nothing to receive")
	// ErrConflict: a registration contradicts an earlier one.
	ErrConflict = errors.New("bus: conflicting registration")
)

// sentinels maps reasons to sentinels.
var sentinels = [reason.Count]error{ //nolint:gochecknoglobals // a constant table
	reason.Invalid: ErrInvalid, reason.Closed: ErrClosed, reason.Shutdown: ErrClosed,
	reason.NoStage: ErrNoStage, reason.Type: ErrType,
	reason.NotStarted: ErrNotStarted, reason.Paused: ErrPaused, reason.Expired: ErrExpired,
	reason.Duplicate: ErrDuplicate, reason.Shed: ErrShed, reason.ShedDeadline: ErrShed,
	reason.Rate: ErrShed, reason.NoCredit: ErrNoCredit, reason.Full: ErrFull,
	reason.Newest: ErrDropped, reason.NoHandler: ErrNoHandler, reason.Store: ErrStore,
}

// sentinelOf returns the sentinel of a reason, or nil.
func sentinelOf(r reason.Reason) error {
	if int(r) < len(sentinels) {
		return sentinels[r]
	}
	return nil
}

// RejectedError says why a publish was refused. Values are immutable and
// shared: the figures in one are at most 10 ms old while refusals keep coming.
type RejectedError struct {
	Stage           string        // the stage, or the name asked for
	Reason          reason.Reason // why
	Policy          FullPolicy    // the stage's full policy
	Capacity, Depth int           // of the stage; 0 if it does not exist
	At              string        // shed, no_credit: the stage that refused; Stage itself, or a later one of the slip
	Rule            shedder.Rule  // shed: which of its rules decided
	Limit, Value    float64       // shed: the limit that decided and the value it was compared with; no_credit: the window and the credits out
	RetryAfter      time.Duration // a hint: when to try again; 0 is unknown
	Cause           error         // a further error that errors.Is matches, such as the context's; may be nil
}

// Error names stage, reason, bound and remedy.
func (e *RejectedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "bus: stage %q refused (%s)", e.Stage, e.Reason)
	switch e.Reason {
	case reason.Full, reason.Newest:
		fmt.Fprintf(&b, ": depth %d of capacity %d, full policy %s; raise Capacity or Concurrency, or publish less", e.Depth, e.Capacity, e.Policy)
	case reason.NoCredit:
		if e.Rule != shedder.RuleNone {
			e.describeShed(&b)
		} else {
			e.describeCredit(&b)
		}
	case reason.Shed, reason.ShedDeadline, reason.Rate:
		e.describeShed(&b)
	case reason.NoStage:
		b.WriteString(": no stage of that name is registered")
	case reason.Closed:
		b.WriteString(": the bus shuts down or is closed")
	case reason.Expired:
		b.WriteString(": its deadline has passed")
	case reason.Duplicate:
		b.WriteString(": its idempotency key was seen within the DedupWindow")
	case reason.NoHandler:
		b.WriteString(": it has no handler, see Handle and NoHandler")
	case reason.NotStarted:
		b.WriteString(": call Start first")
	case reason.Paused:
		b.WriteString(": admission is paused, see Bus.Holds")
	default:
		if e.Rule != shedder.RuleNone {
			e.describeShed(&b)
		}
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

// describeCredit says whose credits are missing and what to do.
func (e *RejectedError) describeCredit(b *strings.Builder) {
	if e.At != "" && e.At != e.Stage {
		fmt.Fprintf(b, ": too much waits for stage %q on its way", e.At)
	} else {
		fmt.Fprintf(b, ": %.0f of the window of %.0f credits are out", e.Value, e.Limit)
	}
	b.WriteString("; wait with Publish or Producer.Acquire, or raise Concurrency, see Stage.ReadCredit")
}

// describeShed says which rule of which stage decided, against what, and what
// to do.
func (e *RejectedError) describeShed(b *strings.Builder) {
	if e.Rule != shedder.RuleNone {
		fmt.Fprintf(b, " by rule %q", string(e.Rule))
	}
	if e.At != e.Stage && e.At != "" {
		fmt.Fprintf(b, " of stage %q on its way", e.At)
	}
	if e.Limit != 0 || e.Value != 0 {
		fmt.Fprintf(b, ": %.4g against the limit %.4g", e.Value, e.Limit)
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(b, ", retry after %v", e.RetryAfter)
	}
	switch e.Reason {
	case reason.ShedDeadline:
		b.WriteString("; allow more time, publish less or raise Concurrency")
	case reason.Shed:
		b.WriteString("; publish less or raise Concurrency")
	default:
		b.WriteString("; publish less")
	}
	b.WriteString(", see Stage.ShedderState")
}

// Is matches ErrRejected, the reason's sentinel and, for shed_deadline,
// ErrExpired.
func (e *RejectedError) Is(target error) bool {
	if target == ErrRejected || target == sentinelOf(e.Reason) && target != nil {
		return true
	}
	return e.Reason == reason.ShedDeadline && target == ErrExpired
}

// Unwrap returns Cause.
func (e *RejectedError) Unwrap() error { return e.Cause }

// PanicError is the error of a handler that panicked or called
// runtime.Goexit.
type PanicError struct {
	Value any    // what was passed to panic; nil for Goexit
	Stack []byte // of the panicking goroutine
}

// Error describes the panic without the stack.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return "bus: handler called runtime.Goexit"
	}
	return fmt.Sprintf("bus: handler panicked: %v", e.Value)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// outcome is what a handler's error asks for beyond a plain nack.
type outcome struct {
	kind  outcomeKind
	delay time.Duration
	why   string
	shed  bool // the stage's shedder refuses a retry
}

type outcomeKind uint8

const (
	outNack outcomeKind = iota
	outRetry
	outLetter
	outDiscard
)

func (o *outcome) Error() string {
	switch o.kind {
	case outRetry:
		return fmt.Sprintf("bus: retry after %v", o.delay)
	case outLetter:
		return "bus: dead letter: " + o.why
	case outDiscard:
		return "bus: discarded: " + o.why
	default:
		return "bus: nack"
	}
}

// RetryAfter returns the error by which a handler asks to get the envelope
// again after d, without calling it a failure: it does not count against
// MaxAttempts, only against the policy's MaxElapsed. A negative d counts as 0.
func RetryAfter(d time.Duration) error { return &outcome{kind: outRetry, delay: max(0, d)} }

// RetryNow is RetryAfter(0): the envelope comes back before anything else.
func RetryNow() error { return RetryAfter(0) }

// DeadLetter returns the error by which a handler dead-letters the envelope at
// once, whatever attempts are left.
func DeadLetter(why string) error { return &outcome{kind: outLetter, why: why} }

// Discard returns the error by which a handler drops the envelope: it ends
// Dropped with the reason discarded, without dead letter.
func Discard(why string) error { return &outcome{kind: outDiscard, why: why} }

// outcomeOf returns what a handler's error for e asks for. Methods of that
// error run, and maybe the shedder, so no lock may be held; one that panics
// leaves a plain nack.
func (s *Stage) outcomeOf(e *Envelope, err error) (o outcome) {
	switch known := err.(type) { //nolint:errorlint // a shortcut for those of the bus
	case nil:
		return o
	case *outcome:
		o = *known
	default:
		s.bus.contain("error", s.name, 0, func() {
			if found, ok := errors.AsType[*outcome](err); ok {
				o = *found
			}
		})
	}
	if gates(s.gates.Load())&gateShedInside != 0 && s.wouldRetry(e, o.kind) {
		o.shed = s.shedInside(e) != reason.None
	}
	return o
}

// textOf is err.Error(), whatever that does.
func (s *Stage) textOf(err error) (text string) {
	text = "bus: an error without text: its Error method panicked"
	s.bus.contain("error", s.name, 0, func() { text = err.Error() })
	return text
}

// fault describes one bad setting.
func fault(where, field string, value any, bound string) error {
	return fmt.Errorf("%w: %s: %s is %v: %s", ErrInvalid, where, field, value, bound)
}
