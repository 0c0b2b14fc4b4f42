// Package shedgrpc puts a shedder.Shedder in front of the handlers of a gRPC
// server. It is a module of its own, so that nobody else links gRPC.
//
//	s, err := shedder.New(shedder.Config{Concurrency: 32})
//	...
//	i, err := shedgrpc.New(shedgrpc.Config{Shedder: s})
//	...
//	grpc.NewServer(grpc.ChainUnaryInterceptor(i.Unary), grpc.ChainStreamInterceptor(i.Stream))
//
// Concurrency is how many calls are served at once. A call that is let in waits
// for one of these places, within its deadline. Refused calls are answered at
// once:
//
//	| what happened                          | code               | with                           |
//	|----------------------------------------|--------------------|--------------------------------|
//	| shed, pushed out, above a rate limit   | RESOURCE_EXHAUSTED | RetryInfo, ErrorInfo, pushback |
//	| its deadline cannot be met             | RESOURCE_EXHAUSTED | ErrorInfo                      |
//	| its deadline passed while it waited    | DEADLINE_EXCEEDED  | ErrorInfo                      |
//	| the client went away while it waited   | CANCELED           | ErrorInfo                      |
//
// ErrorInfo has the domain [Domain], the reason in the words of package reason,
// in capitals, and the metadata rule, limit and value. RetryInfo, and the
// trailer grpc-retry-pushback-ms that clients with a retry policy obey, say when
// another try may do better; where that is not known they are left out.
//
// A place is given back, and nothing is learnt from the call, when the client
// goes away and when the handler panics; the panic goes on. A stream takes a
// place until its handler returns: leave long-lived ones to [Config.Skip].
package shedgrpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sedabus/seda/shedder"
)

// maxClasses is that of a shedder.Request.
const maxClasses = 8

// Config configures Interceptors. Shedder is required; every other zero field
// means its documented default. The functions are called for each call, by the
// goroutine that serves it, before it is let in, with the call's context and
// full method, as in "/package.Service/Method": they must be quick.
type Config struct {
	// Shedder decides. Its Concurrency must be set. It may serve several
	// Interceptors, which then share its places, but no stage of a bus.
	Shedder *shedder.Shedder
	// NoWait lets calls in without holding them back until one of Concurrency
	// places is free: for handlers that wait themselves. Classes push nothing
	// out then.
	NoWait bool
	// Skip says which calls are served without asking, such as those for
	// health, and streams that live long. Default none.
	Skip func(ctx context.Context, method string) bool
	// Class returns the priority class, 0 the highest; what lies outside 0 to
	// Classes-1 counts as the nearest. Default 0.
	Class func(ctx context.Context, method string) int
	// Classes is the number of classes, 0 or 1 to 8. With Class at least 1.
	Classes int
	// Sender and Key return whose call it is and what it is about, for policies
	// that are fair to, or limit, each of them. Default none. Do not trust what
	// the client can choose freely.
	Sender func(ctx context.Context, method string) string
	Key    func(ctx context.Context, method string) string
	// Failed says whether the error of a handler counts as failed work; it is
	// not asked about nil. Default: the codes UNKNOWN, DEADLINE_EXCEEDED,
	// INTERNAL, UNAVAILABLE and DATA_LOSS do.
	Failed func(err error) bool
	// OnError is told when the shedder cannot decide, which is no refusal: its
	// Concurrency was set to 0 or it was attached to a stage. The call is served
	// without it. Default: nobody is told.
	OnError func(ctx context.Context, method string, err error)
}

func (c *Config) validate() error {
	var errs []error
	fault := func(bad bool, format string, v ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("shedgrpc: "+format, v...))
		}
	}
	fault(c.Shedder == nil, "Shedder is nil: it must be set")
	fault(c.Shedder != nil && c.Shedder.Config().Concurrency == 0,
		"Shedder has a Concurrency of 0: set it to the number of calls to be served at once")
	fault(c.Classes < 0 || c.Classes > maxClasses, "Classes %d: must be from 0 to %d", c.Classes, maxClasses)
	fault(c.Class != nil && c.Classes == 0, "Classes 0: must be 1 or more where Class is set")
	return errors.Join(errs...)
}

// Interceptors are a pair of interceptors of a gRPC server: Unary and Stream.
// They are immutable and safe for concurrent use.
type Interceptors struct {
	cfg   Config
	cache refusalCache
}

// New returns Interceptors. All faults of the Config are returned at once.
func New(c Config) (*Interceptors, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Failed == nil {
		c.Failed = failed
	}
	return &Interceptors{cfg: c}, nil
}

// failed is the default of Config.Failed.
func failed(err error) bool {
	switch status.Code(err) {
	case codes.Unknown, codes.DeadlineExceeded, codes.Internal, codes.Unavailable, codes.DataLoss:
		return true
	default:
		return false
	}
}

var (
	_ grpc.UnaryServerInterceptor  = (*Interceptors)(nil).Unary
	_ grpc.StreamServerInterceptor = (*Interceptors)(nil).Stream
)

// Unary is a grpc.UnaryServerInterceptor.
func (i *Interceptors) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	var answer any
	err := i.serve(ctx, info.FullMethod, func() (err error) {
		answer, err = handler(ctx, req)
		return err
	})
	return answer, err
}

// Stream is a grpc.StreamServerInterceptor.
func (i *Interceptors) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return i.serve(stream.Context(), info.FullMethod, func() error { return handler(srv, stream) })
}

// serve calls the handler, if the call is let in, and settles by what becomes of
// it.
func (i *Interceptors) serve(ctx context.Context, method string, handle func() error) error {
	if i.cfg.Skip != nil && i.cfg.Skip(ctx, method) {
		return handle()
	}
	p, err := i.ask(ctx, method)
	if err != nil {
		if refused, ok := errors.AsType[*shedder.RefusedError](err); ok {
			return i.cache.refuse(ctx, refused)
		}
		if i.cfg.OnError != nil {
			i.cfg.OnError(ctx, method, err)
		}
		return handle()
	}
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit: it goes on
			p.Drop()
		}
	}()
	err = handle()
	returned = true
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		p.Drop()
	case err != nil && i.cfg.Failed(err):
		p.Fail()
	default:
		p.Pass()
	}
	return err
}

// ask describes the call to the shedder.
func (i *Interceptors) ask(ctx context.Context, method string) (shedder.Promise, error) {
	c := &i.cfg
	q := shedder.Request{Classes: c.Classes}
	if c.Class != nil {
		q.Class = min(max(0, c.Class(ctx, method)), c.Classes-1)
	}
	if c.Sender != nil {
		q.Sender = c.Sender(ctx, method)
	}
	if c.Key != nil {
		q.Key = c.Key(ctx, method)
	}
	if !c.NoWait {
		return c.Shedder.Acquire(ctx, q)
	}
	if ctx.Err() != nil {
		q.Deadline = 1 // passed
	} else if t, ok := ctx.Deadline(); ok {
		left := time.Until(t) //nolint:forbidigo // a module of its own has no internal/clock
		q.Deadline = c.Shedder.Now() + min(max(1, left), maxTimeout)
	}
	return c.Shedder.AllowRequest(q)
}

// maxTimeout is beyond what anybody waits, and can be added to a clock.
const maxTimeout = 365 * 24 * time.Hour
