package demo

import (
	"context"
	"sync/atomic"
	"time"
)

// napper waits in place of work, so that the demo shows queues and not how
// many cores the machine has. Timers end late, by up to a millisecond and
// more; what one nap took too long the next ones take less, so that the mean
// is right. It is safe for concurrent use.
type napper struct {
	owed atomic.Int64 // nanoseconds that naps took too long
}

// mostOwed bounds what later naps make good: after a machine was suspended
// there must be no burst of free work.
const mostOwed = int64(50 * time.Millisecond)

// nap waits for d, or until ctx ends and then returns its error.
func (n *napper) nap(ctx context.Context, d time.Duration) error {
	want := int64(d) - n.owed.Swap(0)
	if want <= 0 {
		n.owed.Add(-want)
		return ctx.Err()
	}
	start := time.Now()
	timer := time.NewTimer(time.Duration(want))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	if late := int64(time.Since(start)) - want; late > 0 {
		n.owed.Add(min(late, mostOwed))
	}
	return nil
}
