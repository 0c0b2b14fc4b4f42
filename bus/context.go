package bus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/sedabus/seda/reason"
)

// handlerContext is the context of an executor's handler calls. It wraps a
// context of package context, so that contexts derived from it need no
// goroutine.
type handlerContext struct {
	context.Context //nolint:containedctx // this is a context
	ex              *executor
}

// insideKey is the key under which a handler's context names its bus.
type insideKey struct{}

// Value answers for the bus.
func (c *handlerContext) Value(key any) any {
	if _, ok := key.(insideKey); ok {
		return c.ex.stage.bus
	}
	return c.Context.Value(key)
}

// valuesContext lets an envelope's Meta.Values answer for what the bus does
// not know.
type valuesContext struct {
	context.Context //nolint:containedctx // this is a context
	values          func(any) any
}

// Value asks the bus first.
func (c *valuesContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values(key)
}

// isInside says whether ctx is a handler's context of this bus.
func (b *Bus) isInside(ctx context.Context) bool {
	return ctx.Value(insideKey{}) == b
}

// callTimed calls the handler with the envelope's deadline and the stage's
// handler timeout, and times the call exactly.
func (ex *executor) callTimed(e *Envelope) error {
	s := ex.stage
	now := s.bus.clock.Tick()
	if e.deadline != 0 {
		if s.bus.expired(e.deadline, now) {
			ex.notStarted()
			return errExpiredAtStart
		}
		if s.shed != nil && s.doomed(e, now) {
			ex.notStarted()
			return errDoomed
		}
	}
	limit := ex.timeLimit(e, now)
	ctx := ex.ctx
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errHandlerTimeout)
		defer cancel()
		ex.overdue.Store(now + int64(limit))
		defer ex.overdue.Store(0)
	}
	if e.Meta != nil && e.Meta.Values != nil {
		ctx = &valuesContext{ctx, e.Meta.Values}
	}
	ex.begun.Store(now)
	err := ex.handler(ctx, e)
	end := s.bus.clock.Tick()
	if ex.timed {
		s.mu.Lock()
		s.mu.wait.Add(now-e.entered, 1)
		s.mu.svc.Add(end-now, 1)
		s.adaptLocked(time.Duration(end-now), s.mu.batch)
		s.mu.Unlock()
	}
	return err
}

// notStarted takes an envelope off the tally that is dropped instead of handled:
// it was counted before, and will be once more, as failed.
func (ex *executor) notStarted() {
	ex.tally.delivered--
	ex.tally.failed--
}

// timeLimit is the shorter of the handler timeout and what is left of the
// envelope's deadline; 0 is none.
func (ex *executor) timeLimit(e *Envelope, now int64) time.Duration {
	limit := ex.timeout
	if e.deadline != 0 {
		left := time.Duration(e.deadline - ex.stage.bus.epoch - now)
		if limit == 0 || left < limit {
			limit = left
		}
	}
	return limit
}

var (
	errHandlerTimeout = &causeError{"bus: handler timeout or deadline passed", context.DeadlineExceeded}
	errExpiredAtStart = &causeError{"bus: deadline passed before the start", ErrExpired}
	errDoomed         = &causeError{"bus: the deadline cannot be met any more", ErrExpired}
	errCanceledByID   = &causeError{"bus: delivery cancelled by id", context.Canceled}
	errBusClosed      = &causeError{"bus: closed", ErrClosed}
	errNilContext     = &causeError{"the context must not be nil", ErrInvalid}
	errNilEnvelope    = &causeError{"the envelope must not be nil", ErrInvalid}
	errZeroTime       = &causeError{"the time must not be zero", ErrInvalid}
)

// nilArgument says which argument of a publish is nil; nil if none is.
func nilArgument(ctx context.Context, e *Envelope) error {
	switch {
	case ctx == nil:
		return errNilContext
	case e == nil:
		return errNilEnvelope
	default:
		return nil
	}
}

// causeError is a cause of a cancelled context, or of a refusal.
type causeError struct {
	text string
	is   error
}

func (e *causeError) Error() string { return e.text }
func (e *causeError) Unwrap() error { return e.is }

// overBecause returns why ctx has ended: its error, with the cause that it was
// given if that is another one.
func overBecause(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func unixTime(ns int64) time.Time { return time.Unix(0, ns) }

// typeFits says whether payload is of type want, or implements it.
func typeFits(payload any, want reflect.Type) bool {
	have := reflect.TypeOf(payload)
	if have == nil {
		return false
	}
	return have == want || (want.Kind() == reflect.Interface && have.Implements(want))
}

// Typed adapts a handler of payloads of type T, or of an interface T. Another
// payload is dead-lettered with ErrType.
func Typed[T any](h func(ctx context.Context, payload T, e *Envelope) error) Handler {
	if h == nil {
		return nil
	}
	return func(ctx context.Context, e *Envelope) error {
		v, ok := e.Payload.(T)
		if !ok {
			return wrongType[T](e)
		}
		return h(ctx, v, e)
	}
}

func wrongType[T any](e *Envelope) error {
	return &typeError{have: reflect.TypeOf(e.Payload), want: reflect.TypeFor[T]()}
}

type typeError struct{ have, want reflect.Type }

func (e *typeError) Error() string {
	return "bus: payload is " + typeName(e.have) + ", not " + typeName(e.want)
}

func (*typeError) Unwrap() error { return ErrType }

func typeName(t reflect.Type) string {
	if t == nil {
		return "nil"
	}
	return t.String()
}

// Bool adapts a handler that returns true to acknowledge and false to refuse.
func Bool(h func(ctx context.Context, e *Envelope) bool) Handler {
	if h == nil {
		return nil
	}
	return func(ctx context.Context, e *Envelope) error {
		if h(ctx, e) {
			return nil
		}
		return errNack
	}
}

var errNack = &outcome{}

// judgeKnown handles the errors that the bus itself returns for a delivery.
func judgeKnown(err error) (judgement, bool) {
	switch e := err.(type) { //nolint:errorlint // the bus's own, never wrapped
	case *causeError:
		switch e {
		case errExpiredAtStart:
			return judgement{do: judgeDrop, why: reason.Expired}, true
		case errDoomed:
			return judgement{do: judgeDrop, why: reason.Doomed}, true
		case errCanceledByID:
			return judgement{do: judgeDrop, why: reason.Canceled}, true
		}
	case *typeError:
		return judgement{do: judgeLetter, why: reason.Type}, true
	}
	return judgement{}, false
}
