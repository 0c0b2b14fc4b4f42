package shedgrpc_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/shedgrpc"
)

// script is a policy that answers as told and notes what it is told.
type script struct {
	shedder.Passive

	mu struct {
		sync.Mutex

		verdict   shedder.Verdict
		asked     []shedder.Request
		n, failed int
	}
}

func (p *script) Admit(r *shedder.Request) shedder.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.asked = append(p.mu.asked, *r)
	return p.mu.verdict
}

func (p *script) Done(d *shedder.Done) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.n += d.N
	p.mu.failed += d.Failed
}

func (p *script) answer(v shedder.Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.verdict = v
}

func (p *script) learnt() (n, failed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.n, p.mu.failed
}

func (p *script) last() shedder.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.asked[len(p.mu.asked)-1]
}

// service is gRPC's own health service, with handlers of the test's.
type service struct {
	health.UnimplementedHealthServer

	check func(ctx context.Context, r *health.HealthCheckRequest) error
	watch func(s grpc.ServerStreamingServer[health.HealthCheckResponse]) error
}

func (s *service) Check(ctx context.Context, r *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	if s.check != nil {
		if err := s.check(ctx, r); err != nil {
			return nil, err
		}
	}
	return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
}

func (s *service) Watch(_ *health.HealthCheckRequest, stream grpc.ServerStreamingServer[health.HealthCheckResponse]) error {
	return s.watch(stream)
}

// recovers is what servers put in front, so that a panic ends a call only.
func recovers(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (_ any, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = status.Errorf(codes.Internal, "recovered: %v", x)
		}
	}()
	return h(ctx, req)
}

// bed is a server on loopback with a shedder, and a client.
type bed struct {
	t      *testing.T
	s      *shedder.Shedder
	policy *script
	client health.HealthClient
}

func newBed(t *testing.T, c shedgrpc.Config, concurrency int, svc *service) *bed {
	t.Helper()
	b := &bed{t: t, policy: &script{}}
	var err error
	b.s, err = shedder.New(shedder.Config{Policy: b.policy, Concurrency: concurrency})
	require.NoError(t, err)
	c.Shedder = b.s
	i, err := shedgrpc.New(c)
	require.NoError(t, err)
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(recovers, i.Unary), grpc.ChainStreamInterceptor(i.Stream))
	health.RegisterHealthServer(srv, svc)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	b.client = health.NewHealthClient(conn)
	t.Cleanup(func() {
		assert.NoError(t, conn.Close())
		srv.GracefulStop() // every handler has returned
		assert.NoError(t, <-served)
		b.settled()
	})
	return b
}

func (b *bed) settled() {
	b.t.Helper()
	p := b.s.State(b.s.Now()).Promises
	assert.Zero(b.t, p.Outstanding)
	assert.Zero(b.t, p.Twice)
}

func (b *bed) check(ctx context.Context, opts ...grpc.CallOption) error {
	_, err := b.client.Check(ctx, &health.HealthCheckRequest{Service: "svc"}, opts...)
	return err
}

// until yields to the server until what it is about holds; the test's own
// deadline ends it otherwise.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	for !holds() {
		require.NoError(t, t.Context().Err())
		runtime.Gosched()
	}
}

func (b *bed) outstanding() int { return b.s.State(b.s.Now()).Promises.Outstanding }

func details(t *testing.T, err error) (info *errdetails.ErrorInfo, retry *errdetails.RetryInfo) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			retry = d
		}
	}
	require.NotNil(t, info)
	require.Equal(t, shedgrpc.Domain, info.Domain)
	return info, retry
}

func TestAnswers(t *testing.T) {
	refuse := func(why reason.Reason, after time.Duration) shedder.Verdict {
		return shedder.Verdict{Action: shedder.Refuse, Rule: shedder.RuleBound, Reason: why, Limit: 52, Value: 60.5, RetryAfter: after}
	}
	b := newBed(t, shedgrpc.Config{}, 1, &service{check: func(context.Context, *health.HealthCheckRequest) error {
		t.Error("served")
		return nil
	}})
	for name, c := range map[string]struct {
		verdict  shedder.Verdict
		reason   string
		pushback string
	}{
		"shed":     {refuse(reason.Shed, 1200*time.Millisecond), "SHED", "1200"},
		"soon":     {refuse(reason.Rate, time.Microsecond), "SHED_RATE", "1"},
		"unknown":  {refuse(reason.Shed, 0), "SHED", ""},
		"deadline": {refuse(reason.ShedDeadline, time.Second), "SHED_DEADLINE", ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, b.s.Tune(func(*shedder.Config) {})) // forgets the error of the case before
			b.policy.answer(c.verdict)
			for range 2 { // made, and remembered
				var trailer metadata.MD
				err := b.check(t.Context(), grpc.Trailer(&trailer))
				require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
				info, retry := details(t, err)
				require.Equal(t, c.reason, info.Reason)
				require.Equal(t, map[string]string{"rule": "bound", "limit": "52", "value": "60.5"}, info.Metadata)
				require.Equal(t, c.pushback, strings.Join(trailer.Get("grpc-retry-pushback-ms"), " "))
				require.Equal(t, c.pushback != "", retry != nil)
				if retry != nil {
					require.Equal(t, c.verdict.RetryAfter, retry.RetryDelay.AsDuration())
				}
			}
		})
	}
}

func TestStreamIsRefused(t *testing.T) {
	b := newBed(t, shedgrpc.Config{}, 1, &service{watch: func(grpc.ServerStreamingServer[health.HealthCheckResponse]) error {
		t.Error("served")
		return nil
	}})
	b.policy.answer(shedder.Verdict{Action: shedder.Refuse, RetryAfter: time.Second})
	stream, err := b.client.Watch(t.Context(), &health.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, retry := details(t, err)
	require.Equal(t, time.Second, retry.RetryDelay.AsDuration())
	require.Equal(t, []string{"1000"}, stream.Trailer().Get("grpc-retry-pushback-ms"))
}

// TestStream: a place is taken to the end of the stream.
func TestStream(t *testing.T) {
	more := make(chan struct{})
	b := newBed(t, shedgrpc.Config{}, 1, &service{watch: func(s grpc.ServerStreamingServer[health.HealthCheckResponse]) error {
		if err := s.Send(&health.HealthCheckResponse{}); err != nil {
			return err
		}
		<-more
		return s.Send(&health.HealthCheckResponse{})
	}})
	stream, err := b.client.Watch(t.Context(), &health.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	require.Equal(t, 1, b.outstanding())
	close(more)
	_, err = stream.Recv()
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Error(t, err, "the end")
	until(t, func() bool { n, _ := b.policy.learnt(); return n == 1 })
}

func TestConcurrencyIsEnforced(t *testing.T) {
	var mu sync.Mutex
	now, most := 0, 0
	step := make(chan struct{})
	b := newBed(t, shedgrpc.Config{}, 3, &service{check: func(context.Context, *health.HealthCheckRequest) error {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		<-step
		mu.Lock()
		now--
		mu.Unlock()
		return nil
	}})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { assert.NoError(t, b.check(t.Context())) })
	}
	until(t, func() bool { return b.outstanding() == 20 })
	close(step)
	wg.Wait()
	require.Equal(t, 3, most)
	n, failed := b.policy.learnt()
	require.Equal(t, []int{20, 0}, []int{n, failed})
}

// TestHangUp: a client that goes away while it waits, or while it is served,
// leaves no place taken, and teaches nothing.
func TestHangUp(t *testing.T) {
	for _, noWait := range []bool{false, true} {
		entered := make(chan struct{}, 2)
		b := newBed(t, shedgrpc.Config{NoWait: noWait}, 1, &service{check: func(ctx context.Context, _ *health.HealthCheckRequest) error {
			entered <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}})
		errs := make(chan error)
		call := func(ctx context.Context) { errs <- b.check(ctx) }
		ctx, cancel := context.WithCancel(t.Context())
		go call(ctx)
		<-entered
		if !noWait {
			waiting, giveUp := context.WithCancel(t.Context())
			go call(waiting)
			until(t, func() bool { return b.outstanding() == 2 })
			giveUp()
			require.Equal(t, codes.Canceled, status.Code(<-errs))
			until(t, func() bool { return b.outstanding() == 1 })
		}
		cancel()
		require.Equal(t, codes.Canceled, status.Code(<-errs))
		until(t, func() bool { return b.outstanding() == 0 })
		n, _ := b.policy.learnt()
		require.Zero(t, n)
		require.Empty(t, entered)
	}
}

func TestPanic(t *testing.T) {
	b := newBed(t, shedgrpc.Config{}, 1, &service{check: func(context.Context, *health.HealthCheckRequest) error { panic("mine") }})
	for range 3 {
		err := b.check(t.Context())
		require.ErrorContains(t, err, "recovered: mine")
		b.settled()
	}
	n, _ := b.policy.learnt()
	require.Zero(t, n)
}

func TestFailed(t *testing.T) {
	var answer error
	svc := &service{check: func(context.Context, *health.HealthCheckRequest) error { return answer }}
	b := newBed(t, shedgrpc.Config{}, 1, svc)
	own := newBed(t, shedgrpc.Config{Failed: func(err error) bool { return status.Code(err) == codes.NotFound }}, 1, svc)
	for code, fails := range map[codes.Code]bool{
		codes.OK: false, codes.NotFound: false, codes.InvalidArgument: false, codes.Unimplemented: false, codes.ResourceExhausted: false,
		codes.Unknown: true, codes.DeadlineExceeded: true, codes.Internal: true, codes.Unavailable: true, codes.DataLoss: true,
	} {
		answer = status.Error(code, "as told")
		n, before := b.policy.learnt()
		require.Equal(t, code, status.Code(b.check(t.Context())))
		m, after := b.policy.learnt()
		require.Equal(t, n+1, m)
		require.Equal(t, fails, after > before, code)
		require.Equal(t, code, status.Code(own.check(t.Context())))
	}
	_, failed := own.policy.learnt()
	require.Equal(t, 1, failed)
	answer = errors.New("plain")
	_, before := b.policy.learnt()
	require.Equal(t, codes.Unknown, status.Code(b.check(t.Context())))
	_, after := b.policy.learnt()
	require.Equal(t, before+1, after)
}

func TestDeadlines(t *testing.T) {
	for _, noWait := range []bool{false, true} {
		b := newBed(t, shedgrpc.Config{NoWait: noWait}, 1, &service{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		require.NoError(t, b.check(ctx))
		cancel()
		left := b.policy.last().Deadline - b.policy.last().Now
		require.InDelta(t, time.Hour, left, float64(time.Minute))
		require.NoError(t, b.check(t.Context()))
		require.Zero(t, b.policy.last().Deadline)
	}
	// Without a server in between, so that the client does not end it first.
	for _, noWait := range []bool{false, true} {
		s, err := shedder.New(shedder.Config{Concurrency: 1})
		require.NoError(t, err)
		i, err := shedgrpc.New(shedgrpc.Config{Shedder: s, NoWait: noWait})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		_, err = i.Unary(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
			t.Error("served")
			return nil, nil
		})
		cancel()
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		info, _ := details(t, err)
		require.Equal(t, "EXPIRED", info.Reason)
	}
}

func TestDescribesTheCall(t *testing.T) {
	class := 1
	b := newBed(t, shedgrpc.Config{
		Class:   func(context.Context, string) int { return class },
		Classes: 3,
		Sender: func(ctx context.Context, _ string) string {
			md, _ := metadata.FromIncomingContext(ctx)
			return strings.Join(md.Get("from"), "")
		},
		Key: func(_ context.Context, method string) string { return method },
	}, 1, &service{})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "from", "ann")
	for given, want := range map[int]int{-5: 0, 0: 0, 1: 1, 2: 2, 77: 2} {
		class = given
		require.NoError(t, b.check(ctx))
		q := b.policy.last()
		require.Equal(t, want, q.Class)
		require.Equal(t, 3, q.Classes)
		require.Equal(t, "ann", q.Sender)
		require.Equal(t, health.Health_Check_FullMethodName, q.Key)
	}
}

func TestSkip(t *testing.T) {
	b := newBed(t, shedgrpc.Config{Skip: func(_ context.Context, m string) bool { return m == health.Health_Check_FullMethodName }}, 1, &service{})
	b.policy.answer(shedder.Verdict{Action: shedder.Refuse})
	require.NoError(t, b.check(t.Context()))
	require.Zero(t, b.s.State(b.s.Now()).Asked)
}

// TestNoDecision: a shedder that cannot decide lets the calls through, and
// somebody is told.
func TestNoDecision(t *testing.T) {
	told := make(chan error, 1)
	b := newBed(t, shedgrpc.Config{OnError: func(_ context.Context, _ string, err error) { told <- err }}, 1, &service{})
	require.NoError(t, b.s.Tune(func(c *shedder.Config) { c.Concurrency = 0 }))
	require.NoError(t, b.check(t.Context()))
	require.ErrorIs(t, <-told, shedder.ErrConcurrency)

	b = newBed(t, shedgrpc.Config{}, 1, &service{})
	require.NoError(t, b.s.Attach())
	require.NoError(t, b.check(t.Context()))
}

func TestConfigFaults(t *testing.T) {
	_, err := shedgrpc.New(shedgrpc.Config{Classes: 9})
	for _, want := range []string{"Shedder is nil", "Classes 9"} {
		require.ErrorContains(t, err, want)
	}
	s, err := shedder.New(shedder.Config{})
	require.NoError(t, err)
	_, err = shedgrpc.New(shedgrpc.Config{Shedder: s, Class: func(context.Context, string) int { return 0 }})
	for _, want := range []string{"Shedder has a Concurrency of 0", "Classes 0: must be 1 or more"} {
		require.ErrorContains(t, err, want)
	}
}
