package bus_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/retry"
)

// FuzzSlip pushes stages in front of a slip, as the bytes say, and compares it
// with a slice; then an envelope visits what is left.
func FuzzSlip(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add([]byte{0, 1, 2}, []byte{1, 0})
	f.Add([]byte{3, 200, 3}, []byte{0, 0, 7, 1, 2})
	f.Fuzz(func(t *testing.T, first, pushes []byte) {
		names := []string{"a", "b", "c", "d"}
		pick := func(bs []byte) (out []string) {
			for _, b := range bs[:min(len(bs), 40)] {
				out = append(out, names[int(b)%len(names)])
			}
			return out
		}
		model := pick(first)
		e := bus.Envelope{Slip: bus.Via(model...)}
		for len(pushes) > 0 && len(model) < 60 {
			n := min(int(pushes[0])%4, len(pushes)-1)
			before, kept := e.Slip, slices.Clone(model)
			add := pick(pushes[1 : 1+n])
			e.Push(add...)
			model = append(slices.Clone(add), model...)
			require.True(t, slices.Equal(kept, before.Stages()), "slips are immutable")
			pushes = pushes[1+n:]
		}
		requireSlip(t, e.Slip, model)
		visitSlip(t, &e, model)
	})
}

func requireSlip(t *testing.T, s bus.Slip, model []string) {
	t.Helper()
	require.Equal(t, len(model), s.Len())
	require.True(t, slices.Equal(model, s.Stages()))
	require.Equal(t, strings.Join(model, " > "), s.String())
}

// visitSlip lets e travel and checks the way, and what is left at each stage.
func visitSlip(t *testing.T, e *bus.Envelope, model []string) {
	t.Helper()
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		var visited []string
		for _, name := range []string{"start", "a", "b", "c", "d"} {
			bustest.Stage(t, b, name, bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
				if name != "start" {
					visited = append(visited, name)
				}
				requireSlip(t, e.Slip, model[len(visited):])
				return nil
			})
		}
		bustest.Start(t, b)
		require.NoError(t, b.Publish(t.Context(), "start", e))
		synctest.Wait()
		require.True(t, slices.Equal(model, visited), "%v, not %v", visited, model)
		require.EqualValues(t, 1, bustest.RequireBalanced(t, b).Completed)
	})
}

// choices reads numbers out of the fuzzer's bytes.
type choices struct{ data []byte }

func (c *choices) more() bool { return len(c.data) > 0 }

func (c *choices) byte() byte {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return b
}

func (c *choices) below(n int) int { return int(c.byte()) % n }

// number is small mostly, and sometimes absurd.
func (c *choices) number() int {
	switch b := c.byte(); {
	case b < 200:
		return int(b) % 20
	case b < 210:
		return -int(b)
	case b < 220:
		return math.MinInt
	case b < 230:
		return math.MaxInt
	default:
		var raw [8]byte
		for i := range raw {
			raw[i] = c.byte()
		}
		return int(binary.LittleEndian.Uint64(raw[:]))
	}
}

func (c *choices) fraction() float64 {
	switch c.below(6) {
	case 0:
		return math.NaN()
	case 1:
		return math.Inf(1 - 2*c.below(2))
	default:
		return float64(c.number()) / 7
	}
}

func (c *choices) settings() bus.StageConfig {
	s := bus.StageConfig{
		Capacity: c.number(), Concurrency: c.number(), Batch: c.number(), EgressCap: c.number(),
		Full: bus.FullPolicy(c.below(6)), HopTimeout: time.Duration(c.number()), HandlerTimeout: time.Duration(c.number()),
		MaxWaiters: c.number(), DedupWindow: c.number() % 1000,
		Delivery: bus.Delivery(c.below(8) / 6), Order: bus.Order(c.below(8) / 2), NoHandler: bus.NoHandler(c.below(5)),
		Pull: c.below(5) == 0, ExactTiming: c.below(2) == 0,
		Retry: retry.Policy{
			MaxAttempts: c.number(), Kind: retry.Kind(c.below(4)), Jitter: retry.Jitter(c.below(5)),
			MaxElapsed: time.Duration(c.number()), Seed: uint64(c.byte()),
		},
	}
	if s.Retry.Kind != retry.Immediate {
		s.Retry.Base, s.Retry.Cap, s.Retry.Factor = time.Duration(c.number()), time.Duration(c.number()), c.fraction()
	}
	for range c.below(3) {
		s.Classes = append(s.Classes, bus.Class{Name: string(rune('a' + c.below(3))), MinShare: c.number(), Strict: c.below(3) == 0})
	}
	if c.below(4) == 0 {
		s.DeadLetterTo = []string{"letters", "fuzzed", "nope"}[c.below(3)]
	}
	if s.Pull {
		s.MaxOutstanding, s.Lease = c.number(), time.Duration(c.number())
	}
	return s
}

// FuzzStageConfig registers and tunes a stage with any settings: each is a
// typed error that changes nothing, or works.
func FuzzStageConfig(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	f.Add([]byte("settings of a stage that is used for pulling, perhaps"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := choices{data}
		bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
			bustest.Stage(t, b, "letters", bus.StageConfig{}, acknowledge)
			given := c.settings()
			s, err := b.Stage("fuzzed", given)
			if err != nil {
				require.ErrorIs(t, err, bus.ErrInvalid)
				require.Len(t, b.Stages(), 1)
				return
			}
			again, err := b.Stage("fuzzed", given)
			require.NoError(t, err)
			require.Same(t, s, again)
			bustest.Start(t, b)
			useStage(t, b, s)
			for range 3 {
				before, next := s.Config(), c.settings()
				err := s.Tune(func(c *bus.StageConfig) {
					frozen := *c
					*c = next
					c.Delivery, c.Order, c.Classes, c.NoHandler = frozen.Delivery, frozen.Order, frozen.Classes, frozen.NoHandler
					c.DeadLetterTo, c.DedupWindow, c.Pull, c.ExactTiming = frozen.DeadLetterTo, frozen.DedupWindow, frozen.Pull, frozen.ExactTiming
				})
				if err != nil {
					require.ErrorIs(t, err, bus.ErrInvalid)
					require.Equal(t, before, s.Config())
				}
				useStage(t, b, s)
			}
		})
	})
}

// useStage lets one envelope pass through s, whatever its kind.
func useStage(t *testing.T, b *bus.Bus, s *bus.Stage) {
	t.Helper()
	c := s.Config()
	calls := 0
	count := func(context.Context, *bus.Envelope) error { calls++; return nil }
	ended := false
	e := &bus.Envelope{OnDone: func(bus.Result) { ended = true }}
	switch {
	case c.Pull:
		require.NoError(t, s.TryPublish(e))
		l, err := s.TryReceive()
		require.NoError(t, err)
		require.NoError(t, l.Ack())
		calls++
	case c.Delivery == bus.PubSub:
		to, ok := b.Lookup("sub")
		if !ok {
			to = bustest.Stage(t, b, "sub", bus.StageConfig{}, nil)
		}
		require.NoError(t, to.Handle(count))
		if len(s.Subscribers()) == 0 {
			require.NoError(t, s.SubscribeStage(to, bus.LagWait))
		}
		require.NoError(t, s.TryPublish(e))
		synctest.Wait()
		require.NoError(t, to.RemoveHandler())
	default:
		require.NoError(t, s.Handle(count))
		require.NoError(t, s.TryPublish(e))
		synctest.Wait()
		require.NoError(t, s.RemoveHandler())
	}
	synctest.Wait()
	require.Equal(t, 1, calls)
	require.True(t, ended)
	require.Zero(t, bustest.RequireBalanced(t, b).Pending)
}

// operator applies operations to a small bus, as a fuzzer chooses them.
type operator struct {
	*choices
	b       *bus.Bus
	stages  []*bus.Stage
	delayed []uint64
	leases  []*bus.Lease
	owed    atomic.Int64
}

// FuzzOps applies any sequence of operations to a small bus. Each accepted
// envelope ends exactly once, and the account balances whenever nothing moves.
func FuzzOps(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("publish, tune, suspend, resume, pause, cancel and redrive"))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23})
	f.Add([]byte{6, 0, 0, 0, 0, 0, 0, 0, 0, 6, 1, 0, 0, 0, 15, 0, 3, 3, 0, 6, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 400 {
			return
		}
		bustest.Run(t, bus.Config{MaxHandlers: len(data) % 3}, func(t *testing.T, b *bus.Bus) {
			o := &operator{choices: &choices{data}, b: b}
			o.setUp(t)
			for steps := 0; o.more(); steps++ {
				o.step(t)
				if steps%8 == 0 {
					synctest.Wait()
					bustest.RequireBalanced(t, b)
				}
			}
			o.tearDown(t)
		})
	})
}

func (o *operator) setUp(t *testing.T) {
	t.Helper()
	bustest.Start(t, o.b)
	configs := []bus.StageConfig{
		{Capacity: 2, Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Second}},
		{Capacity: 3, Concurrency: 2, Full: bus.DropOldest, Retry: retry.Policy{MaxAttempts: 3}},
		{Capacity: 2, Order: bus.Order(o.below(3)), Full: bus.FullPolicy(o.below(4)), DeadLetterTo: "s0"},
		{Capacity: 4, Pull: true, Lease: time.Minute, MaxOutstanding: 2},
		{Capacity: 3, Delivery: bus.PubSub},
		{Capacity: 3, Classes: []bus.Class{{Name: "a"}, {Name: "b", Strict: true}}, NoHandler: bus.NoHandler(o.below(3))},
	}
	for i, c := range configs {
		o.stages = append(o.stages, bustest.Stage(t, o.b, "s"+string(rune('0'+i)), c, nil))
		if !c.Pull && c.Delivery == bus.PointToPoint {
			require.NoError(t, o.stages[i].Handle(o.handle))
		}
	}
	require.NoError(t, o.stages[4].SubscribeStage(o.stages[5], bus.Lag(o.below(3))))
	require.NoError(t, o.stages[4].SubscribeStage(o.stages[1], bus.LagWait))
}

// handle does what the payload says.
func (*operator) handle(ctx context.Context, e *bus.Envelope) error {
	what, _ := e.Payload.(int)
	switch what % 9 {
	case 1:
		return errFails
	case 2:
		panic("as asked")
	case 3:
		time.Sleep(time.Duration(1+what%5) * 700 * time.Millisecond)
		return ctx.Err()
	case 4:
		if e.Attempt() < 3 {
			return bus.RetryAfter(time.Second)
		}
	case 5:
		return bus.DeadLetter("as asked")
	case 6:
		return bus.Discard("as asked")
	case 7:
		if e.Slip.Len() < 3 && what < 100 {
			e.Payload = what + 91
			e.Push("s" + string(rune('0'+what%6)))
		}
	}
	return nil
}

func (o *operator) envelope() *bus.Envelope {
	o.owed.Add(1)
	e := &bus.Envelope{
		Payload: int(o.byte()) % 100, Key: string(rune('k' + o.below(3))),
		OnDone: func(bus.Result) { o.owed.Add(-1) },
	}
	for range o.below(3) {
		e.Push("s" + string(rune('0'+o.below(7)))) // s6 does not exist
	}
	if o.below(5) == 0 {
		e.SetDeadline(time.Now().Add(time.Duration(o.below(4)) * time.Second))
	}
	return e
}

func (o *operator) accepted(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		require.ErrorIs(t, err, bus.ErrRejected)
		o.owed.Add(-1)
	}
}

func (o *operator) step(t *testing.T) {
	t.Helper()
	s := o.stages[o.below(len(o.stages))]
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	switch o.below(16) {
	case 0, 1:
		o.accepted(t, s.TryPublish(o.envelope()))
	case 2:
		o.accepted(t, s.Publish(ctx, o.envelope()))
	case 3:
		id, err := s.PublishAfter(ctx, time.Duration(o.below(5))*time.Second, o.envelope())
		o.accepted(t, err)
		o.delayed = append(o.delayed, id)
	case 4:
		p := s.Producer()
		o.accepted(t, p.TryPublish(o.envelope()))
		o.accepted(t, p.TryPublish(o.envelope()))
		p.Close()
	case 5:
		_, err := s.Call(ctx, o.envelope())
		if err != nil && !errors.Is(err, bus.ErrRejected) {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		} else {
			o.accepted(t, err)
		}
	case 6:
		next := choices{o.data}
		err := s.Tune(func(c *bus.StageConfig) {
			c.Capacity, c.Concurrency, c.Full = next.below(6), next.below(4), bus.FullPolicy(next.below(4))
			if c.Delivery == bus.PubSub {
				c.Concurrency = 1
			}
		})
		require.NoError(t, err)
		o.data = next.data
	case 7:
		s.Suspend(bus.Hold{By: "fuzz", For: time.Duration(o.below(3)) * time.Second})
	case 8:
		s.Resume("fuzz")
	case 9:
		o.b.Pause(bus.Hold{By: "fuzz", For: time.Second})
	case 10:
		o.b.Resume("fuzz")
	default:
		o.rareStep(t, s, ctx)
	}
}

func (o *operator) rareStep(t *testing.T, s *bus.Stage, ctx context.Context) { //nolint:revive // the context is no request's
	t.Helper()
	switch o.below(6) {
	case 0:
		for _, id := range o.delayed {
			s.CancelDelayed(id)
		}
		for _, in := range s.InFlight() {
			s.Cancel(in.ID)
		}
	case 1:
		_, err := o.b.Letters().Redrive(ctx, bus.RedriveOptions{
			Filter: bus.LetterFilter{Limit: 2}, Identity: bus.RedriveIdentity(o.below(3)), MaxRedrives: 2,
			Delay: time.Duration(o.below(2)) * time.Second,
		})
		require.NoError(t, err)
	case 2:
		require.NoError(t, s.RemoveHandler())
	case 3:
		if err := s.Handle(o.handle); err != nil {
			require.ErrorIs(t, err, bus.ErrConflict)
		}
	case 4:
		if l, err := o.stages[3].TryReceive(); err == nil {
			o.leases = append(o.leases, l)
		}
		if len(o.leases) > 0 {
			l := o.leases[o.below(len(o.leases))]
			switch o.below(4) {
			case 0:
				_ = l.Ack()
			case 1:
				_ = l.Nack(errFails)
			case 2:
				_ = l.RetryAfter(time.Second)
			case 3:
				_ = l.Extend(time.Second)
			}
		}
	case 5:
		time.Sleep(time.Duration(o.below(200)) * 10 * time.Millisecond)
		_ = o.b.Tune(func(c *bus.Config) { c.MaxHandlers = o.below(3) })
	}
}

// tearDown ends the bus in one of several ways.
func (o *operator) tearDown(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(len(o.stages)*o.below(2))*time.Hour)
	defer cancel()
	r, _ := o.b.Shutdown(ctx)
	require.NoError(t, r.Stats.Check())
	require.Zero(t, r.Stats.Pending)
	time.Sleep(time.Minute) // for handlers that were abandoned
	synctest.Wait()
	require.Zero(t, o.owed.Load(), "each accepted envelope has one result")
	bustest.RequireBalanced(t, o.b)
}
