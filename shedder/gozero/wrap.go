package gozero

import (
	"errors"
	"sync/atomic"

	"github.com/zeromicro/go-zero/core/load"

	"github.com/sedabus/seda/shedder"
)

// Wrap returns s behind go-zero's interface, for go-zero's SheddingHandler,
// UnarySheddingInterceptor, and whatever else takes a load.Shedder. The
// Concurrency of s must be set: how many requests are served at once.
//
// A refusal matches load.ErrServiceOverloaded and shedder.ErrShed, and holds the
// *shedder.RefusedError with the reason. If s cannot decide (its Concurrency was
// set to 0 since, or it was attached to a stage), work is let in.
//
// What Wrap returns is safe for concurrent use. Each of its promises must be
// settled exactly once. Fail means the same as the Fail of a shedder.Promise,
// whose time counts; go-zero learns nothing from a Fail.
func Wrap(s *shedder.Shedder) (load.Shedder, error) {
	if s == nil {
		return nil, errors.New("gozero: Shedder is nil: it must be set")
	}
	if s.Config().Concurrency == 0 {
		return nil, errors.New("gozero: Shedder has a Concurrency of 0: set it to the number of requests to be served at once")
	}
	return &wrapper{s: s}, nil
}

type wrapper struct {
	s      *shedder.Shedder
	latest atomic.Pointer[overloadedError] // what it points to is immutable
}

// Allow implements load.Shedder.
func (w *wrapper) Allow() (load.Promise, error) {
	p, err := w.s.Allow()
	if err == nil {
		return p, nil
	}
	refused, ok := errors.AsType[*shedder.RefusedError](err)
	if !ok {
		return shedder.Promise{}, nil
	}
	e := w.latest.Load()
	if e == nil || e.RefusedError != refused { // the shedder hands the same one to many
		e = &overloadedError{refused}
		w.latest.Store(e)
	}
	return nil, e
}

// overloadedError is a refusal in go-zero's words too.
type overloadedError struct{ *shedder.RefusedError }

// Is matches load.ErrServiceOverloaded.
func (*overloadedError) Is(target error) bool { return target == load.ErrServiceOverloaded }

// Unwrap returns the refusal.
func (e *overloadedError) Unwrap() error { return e.RefusedError }
