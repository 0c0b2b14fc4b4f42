package bus_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
)

// A goroutine that outlives its bus fails the bubble.
func TestB009_BusesLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range caseCount(40, 200) {
			b := busyBus(t)
			synctest.Wait()
			if i%2 == 0 {
				require.Error(t, b.Close())
			} else {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				r, err := b.Shutdown(ctx)
				cancel()
				require.ErrorIs(t, err, bus.ErrNotDrained)
				require.NotEmpty(t, r.Abandoned)
			}
			synctest.Wait()
			st := bustest.RequireBalanced(t, b)
			require.Zero(t, st.Pending)
			require.Zero(t, st.CallbacksPending)
			require.Zero(t, st.Handlers)
		}
	})
}

// busyBus returns a bus with something of everything under way.
func busyBus(t *testing.T) *bus.Bus {
	t.Helper()
	b := bustest.New(t, bus.Config{
		MaxHandlers: 8, DeadLetters: bus.LetterBounds{MaxAge: time.Hour},
		Hooks: bus.Hooks{
			Drop: func([]bus.DropInfo) {}, DeadLetter: func(bus.LetterInfo) {},
			Panic: func(bus.PanicInfo) {}, State: func(bus.StateInfo) {},
		},
	})
	retries := retry.Policy{MaxAttempts: 3, Kind: retry.Exponential, Base: time.Minute}
	gate := bustest.NewGate()
	ok := bustest.Stage(t, b, "ok", bus.StageConfig{Concurrency: 4, DedupWindow: 10, Shedder: new(bustest.Refuse).Shedder()}, caseAck)
	fails := bustest.Stage(t, b, "fails", bus.StageConfig{Retry: retries, Order: bus.ByKey}, func(context.Context, *bus.Envelope) error { return assert.AnError })
	lost := bustest.Stage(t, b, "lost", bus.StageConfig{}, func(context.Context, *bus.Envelope) error { panic("lost") })
	hangs := bustest.Stage(t, b, "hangs", bus.StageConfig{Capacity: 1, HandlerTimeout: time.Hour}, gate.Handler(nil))
	pull := bustest.Stage(t, b, "pull", bus.StageConfig{Pull: true, Lease: time.Minute}, nil)
	topic := bustest.Stage(t, b, "topic", bus.StageConfig{Delivery: bus.PubSub}, nil)
	_, err := topic.Subscribe("slow", bus.StageConfig{Capacity: 1}, bus.LagWait, gate.Handler(nil))
	require.NoError(t, err)
	bustest.Start(t, b)
	onDone := func(bus.Result) {}
	for range 4 {
		require.NoError(t, ok.Publish(t.Context(), &bus.Envelope{Slip: bus.Via("fails", "ok"), OnDone: onDone}))
		require.NoError(t, fails.Publish(t.Context(), &bus.Envelope{Key: "k", OnDone: onDone}))
		require.NoError(t, lost.Publish(t.Context(), &bus.Envelope{OnDone: onDone}))
		require.NoError(t, pull.Publish(t.Context(), &bus.Envelope{OnDone: onDone}))
		require.NoError(t, topic.Publish(t.Context(), &bus.Envelope{OnDone: onDone}))
		_, err := ok.PublishAfter(t.Context(), time.Hour, &bus.Envelope{OnDone: onDone})
		require.NoError(t, err)
		go func() { _ = hangs.Publish(context.Background(), &bus.Envelope{OnDone: onDone}) }() // freed by the end of the bus
	}
	_, err = pull.Receive(t.Context())
	require.NoError(t, err)
	ok.Suspend(bus.Hold{By: "test", For: time.Hour})
	b.Pause(bus.Hold{By: "test", For: time.Hour})
	return b
}

// Publishers with a long timeout leave no timer behind when they are served at
// once.
func TestB010_LongTimeoutsCostNothing(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Concurrency: 2}, caseAck)
		bustest.Start(t, b)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		publish := func(n int) {
			for i := range n {
				var e bus.Envelope
				if i%2 == 0 {
					e.SetDeadline(time.Now().Add(time.Hour))
				}
				require.NoError(t, s.Publish(ctx, &e))
			}
			synctest.Wait()
		}
		publish(2_000) // the pools fill up
		before := liveHeap()
		n := caseCount(20_000, 100_000)
		publish(n)
		after := liveHeap()
		// One timer for each publish would be 100 bytes and more.
		require.Less(t, after, before+uint64(n)*20, "the heap grew")
		bustest.Drain(t, b)
	})
}

// liveHeap is the number of bytes that survive a collection.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // and what the pools have kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestB010_LongRetriesDoNotOutliveTheBus(t *testing.T) {
	for _, end := range []struct {
		name string
		f    func(*bus.Bus) error
	}{
		{"shutdown", func(b *bus.Bus) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_, err := b.Shutdown(ctx)
			return err
		}},
		{"close", (*bus.Bus).Close},
	} {
		t.Run(end.name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				var calls, ends atomic.Int64
				n := caseCount(1_000, 10_000)
				s := bustest.Stage(t, b, "s", bus.StageConfig{
					Capacity: n, Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Hour, Cap: time.Hour},
				}, func(context.Context, *bus.Envelope) error {
					calls.Add(1)
					return assert.AnError
				})
				bustest.Start(t, b)
				for range n {
					require.NoError(t, s.Publish(t.Context(), &bus.Envelope{OnDone: func(r bus.Result) {
						assert.Equal(t, bus.Abandoned, r.End)
						ends.Add(1)
					}}))
				}
				synctest.Wait()
				require.Equal(t, n, caseStats(s).Delayed)
				began := time.Now()
				require.ErrorIs(t, end.f(b), bus.ErrNotDrained)
				require.Zero(t, time.Since(began), "nothing waits for a retry that is due too late")
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				require.EqualValues(t, n, calls.Load(), "no retry comes after the end")
				require.EqualValues(t, n, ends.Load())
				require.Empty(t, s.Delayed())
				bustest.RequireBalanced(t, b)
			})
		})
	}
}

// caseEnd is one way in which envelopes end, or are refused.
type caseEnd struct {
	name    string
	config  bus.StageConfig
	handler bus.Handler
	end     bus.End
	why     reason.Reason
	refused bool // and not accepted: there is no callback
	expires bool
}

func TestB011_EveryEndCallsBackOnce(t *testing.T) {
	refuse := &bustest.Refuse{}
	refuse.Shed()
	hold := bus.NoHandlerHold
	for _, c := range []caseEnd{
		{name: "ack", handler: caseAck, end: bus.Completed},
		{name: "dead-letter", handler: func(context.Context, *bus.Envelope) error { return assert.AnError }, end: bus.DeadLettered, why: reason.Attempts},
		{name: "panic", handler: func(context.Context, *bus.Envelope) error { panic("x") }, end: bus.DeadLettered, why: reason.Attempts},
		{name: "discard", handler: func(context.Context, *bus.Envelope) error { return bus.Discard("x") }, end: bus.Dropped, why: reason.Discarded},
		{name: "no handler", end: bus.DeadLettered, why: reason.NoHandler},
		{name: "expired", config: bus.StageConfig{NoHandler: hold}, expires: true, end: bus.Dropped, why: reason.Expired},
		{name: "evicted", config: bus.StageConfig{NoHandler: hold, Full: bus.DropOldest}, end: bus.Dropped, why: reason.Evicted},
		{name: "reject", config: bus.StageConfig{NoHandler: hold, Full: bus.Reject}, refused: true, why: reason.Full},
		{name: "drop newest", config: bus.StageConfig{NoHandler: hold, Full: bus.DropNewest}, refused: true, why: reason.Newest},
		{name: "shed", config: bus.StageConfig{Shedder: refuse.Shedder()}, handler: caseAck, refused: true, why: reason.Shed},
		{name: "shutdown", config: bus.StageConfig{NoHandler: hold, Capacity: 1 << 20}, end: bus.Abandoned, why: reason.Shutdown},
	} {
		t.Run(c.name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) { everyEnd(t, b, &c) })
		})
	}
}

func everyEnd(t *testing.T, b *bus.Bus, c *caseEnd) {
	n := caseCount(500, 100_000)
	if c.config.Full != bus.Block {
		c.config.Capacity = 1
	}
	if c.expires {
		c.config.Capacity = n
	}
	s := bustest.Stage(t, b, "s", c.config, c.handler)
	bustest.Start(t, b)
	calls := make([]atomic.Int32, n)
	accepted := make([]bool, n)
	ends := map[string]int{} // written by the one goroutine that serves callbacks
	for i := range n {
		e := bus.Envelope{OnDone: func(r bus.Result) {
			calls[i].Add(1)
			ends[fmt.Sprint(r.End, " ", r.Reason, " ", r.Stage)]++
		}}
		if c.expires {
			e.SetDeadline(time.Now().Add(time.Second))
		}
		accepted[i] = s.Publish(t.Context(), &e) == nil
	}
	if c.expires {
		time.Sleep(time.Minute)
		require.NoError(t, s.Handle(caseAck))
		synctest.Wait()
	}
	synctest.Wait()
	_ = b.Close() // what waits is abandoned
	synctest.Wait()
	yes := 0
	for i := range calls {
		want := int32(0)
		if accepted[i] {
			want = 1
			yes++
		}
		require.Equal(t, want, calls[i].Load(), "envelope %d", i)
	}
	st := bustest.RequireBalanced(t, b)
	require.Zero(t, st.CallbacksPending, "the callback table is not empty")
	require.EqualValues(t, yes, st.Accepted)
	left := 0 // abandoned in the queue of a stage that drops or refuses the rest
	if c.config.Full != bus.Block {
		left = 1
		require.Equal(t, 1, ends["abandoned shutdown s"])
	}
	if c.refused {
		require.Equal(t, left, yes)
		require.EqualValues(t, n-left, st.Refused[c.why])
		return
	}
	require.Equal(t, n, yes)
	require.Equal(t, n-left, ends[fmt.Sprint(c.end, " ", c.why, " s")], "%v", ends)
}

// The bus is cut while envelopes move between three small stages.
func TestB011_CloseInTheMiddleCallsBackOnce(t *testing.T) {
	for _, order := range []bus.Order{bus.Unordered, bus.ByKey} {
		t.Run(order.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for round := range caseCount(25, 5_000) {
					closeInTheMiddle(t, order, round)
				}
			})
		})
	}
}

func closeInTheMiddle(t *testing.T, order bus.Order, round int) {
	t.Helper()
	const publishers, each = 4, 200
	b := bustest.New(t, bus.Config{})
	for i, name := range []string{"a", "b", "c"} {
		bustest.Stage(t, b, name, bus.StageConfig{Capacity: 8 << (round % 3), Concurrency: 1 + (round+i)%3, Order: order}, caseAck)
	}
	bustest.Start(t, b)
	var calls [publishers * each]atomic.Int32
	var accepted [publishers * each]bool
	slip := bus.Via("b", "c")
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for i := p * each; i < (p+1)*each; i++ {
				accepted[i] = b.Publish(t.Context(), "a", &bus.Envelope{
					Slip: slip, Key: string(rune('a' + i%7)), OnDone: func(bus.Result) { calls[i].Add(1) },
				}) == nil
			}
		})
	}
	all.Go(func() {
		for range round * 7 % 200 {
			runtime.Gosched()
		}
		_ = b.Close() // what was under way is abandoned
	})
	all.Wait()
	synctest.Wait()
	yes := 0
	for i := range calls {
		want := int32(0)
		if accepted[i] {
			want = 1
			yes++
		}
		require.Equal(t, want, calls[i].Load(), "envelope %d", i)
	}
	st := bustest.RequireBalanced(t, b)
	require.EqualValues(t, yes, st.Accepted)
	require.Zero(t, st.Pending)
	require.Zero(t, st.CallbacksPending)
}
