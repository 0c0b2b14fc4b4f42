package shedgrpc

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// Domain is that of the ErrorInfo of refusals.
const Domain = "sedabus.github.com"

// pushbackHeader is what clients with a retry policy obey (gRFC A6).
const pushbackHeader = "grpc-retry-pushback-ms"

// refusal is a refusal in gRPC's words. It is immutable.
type refusal struct {
	of       *shedder.RefusedError
	err      error
	pushback metadata.MD // nil is none
}

func newRefusal(e *shedder.RefusedError) *refusal {
	r := &refusal{of: e}
	info := &errdetails.ErrorInfo{
		Reason: strings.ToUpper(e.Reason.String()), Domain: Domain,
		Metadata: map[string]string{"rule": string(e.Rule), "limit": number(e.Limit), "value": number(e.Value)},
	}
	details := []protoadapt.MessageV1{info}
	code := codes.ResourceExhausted
	switch e.Reason {
	case reason.Expired:
		code = codes.DeadlineExceeded
	case reason.Canceled:
		code = codes.Canceled
	case reason.ShedDeadline: // another try would have the same deadline
	default:
		if e.RetryAfter > 0 {
			details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
			r.pushback = metadata.Pairs(pushbackHeader, strconv.FormatInt(milliseconds(e.RetryAfter), 10))
		}
	}
	st := status.New(code, e.Error())
	if with, err := st.WithDetails(details...); err == nil {
		st = with
	}
	r.err = st.Err()
	return r
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// milliseconds rounds up.
func milliseconds(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// refusalCache keeps the latest refusal in gRPC's words: a shedder hands the
// same error to many, and refusals should be cheap when there are most.
type refusalCache struct {
	latest atomic.Pointer[refusal]
}

func (c *refusalCache) refuse(ctx context.Context, e *shedder.RefusedError) error {
	r := c.latest.Load()
	if r == nil || r.of != e {
		r = newRefusal(e)
		c.latest.Store(r)
	}
	if r.pushback != nil {
		_ = grpc.SetTrailer(ctx, r.pushback) // without a stream, in a test, there is no trailer
	}
	return r.err
}
