package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
)

// source yields a line at each Read and keeps count.
type source struct {
	left int
	read atomic.Int64
}

func (s *source) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	s.left--
	s.read.Add(1)
	return copy(p, fmt.Sprintf("line %d\n", s.left)), nil
}

// TestReadsNoFasterThanItWorks: what was read and is not done yet never exceeds
// what the stage has credits for, far below its capacity.
func TestReadsNoFasterThanItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lines, workers, most = 2000, 4, 128
		src := &source{left: lines}
		var done, ahead atomic.Int64
		work := func(context.Context, string, *bus.Envelope) error {
			ahead.Store(max(ahead.Load(), src.read.Load()-done.Load()))
			time.Sleep(5 * time.Millisecond)
			done.Add(1)
			return nil
		}
		var out bytes.Buffer
		began := time.Now()
		require.NoError(t, run(t.Context(), src, &out, work))
		require.EqualValues(t, lines, done.Load())
		require.Contains(t, out.String(), "2000 lines")
		require.GreaterOrEqual(t, ahead.Load(), int64(workers))
		require.Less(t, ahead.Load(), int64(most))
		require.InEpsilon(t, lines/workers*5*time.Millisecond, time.Since(began), 0.02, "the handlers were not kept at work")
	})
}

// TestStopsWhileItWaits: an interrupt ends a wait for credits; what was
// published is done.
func TestStopsWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		src := &source{left: 1 << 20}
		err := run(ctx, src, io.Discard, store)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
