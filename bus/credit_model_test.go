package bus_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/retry"
)

// creditRun is one random run over three stages with credits. Every other one
// reads the books after each step; a reading calls credits back and serves
// those who wait, so the others do not, and must end as well.
type creditRun struct {
	t      *testing.T
	b      *bus.Bus
	rnd    *rand.Rand
	m      *model
	stages []*bus.Stage
	above  []int // what in hand and used may come to, above the window after it shrank
	hands  []*hand
	reads  bool
	flips  bool // the full policy changes
	slots  bool // the stages have classes
	seq    int
	out    atomic.Int64 // goroutines that publish or acquire
}

// hand is a producer that one goroutine at a time has.
type hand struct {
	p    *bus.Producer
	at   int // its stage
	busy atomic.Bool
}

func (r *creditRun) pick(list ...int) int { return list[r.rnd.IntN(len(list))] }

func (r *creditRun) ms(list ...int) time.Duration {
	return time.Duration(r.pick(list...)) * time.Millisecond
}

// creditOf draws the settings that can be tuned.
func (r *creditRun) creditOf(c *bus.StageConfig) {
	c.Capacity, c.Concurrency = r.pick(1, 4, 20, 100), r.pick(1, 1, 3, maxWorkers)
	c.Credit = bus.CreditConfig{
		Window: r.pick(1, 2, 7, 20, 0, 64, 500, bus.CreditNone), Exclusive: r.pick(-1, 0, 1, 9),
		Lease: r.ms(1, 7, 50, 1000), HopReserve: r.pick(-1, 0, 0, 3),
	}
}

// maxWorkers is the most handlers of a stage, and so the most retries that may
// come back above its window.
const maxWorkers = 6

func (r *creditRun) build() {
	for _, name := range []string{"a", "b", "c"} {
		c := bus.StageConfig{Full: bus.Credit, Batch: r.pick(0, 0, 1, 16), EgressCap: r.pick(0, 0, 1), HopTimeout: r.ms(5, 300)}
		r.creditOf(&c)
		if c.Credit.Window == bus.CreditNone {
			c.Credit.Window = 5
		}
		switch r.rnd.IntN(5) {
		case 0:
			r.slots = true
			c.Classes = []bus.Class{{Name: "high"}, {Name: "low", MinShare: 10}}
		case 1:
			c.Order = bus.ByKey
		}
		c.Retry = retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: 2 * time.Millisecond}
		s := bustest.Stage(r.t, r.b, name, c, r.handler())
		r.stages = append(r.stages, s)
		r.above = append(r.above, 0)
	}
	for i := range 5 {
		r.hands = append(r.hands, &hand{p: r.producer(i % 3), at: i % 3})
	}
}

func (r *creditRun) producer(at int) *bus.Producer {
	c := bus.ProducerConfig{Weight: r.pick(0, 1, 3)}
	if len(r.stages[at].Config().Classes) > 0 && r.rnd.IntN(2) == 0 {
		c.Class = "high"
	}
	p, err := r.stages[at].NewProducer(c)
	require.NoError(r.t, err)
	return p
}

// handler draws what it does from the envelope's number and attempt.
func (r *creditRun) handler() bus.Handler {
	seed := r.rnd.Uint64()
	return func(ctx context.Context, e *bus.Envelope) error {
		n, _ := e.Payload.(int)
		if n < 0 { // published by a handler
			return nil
		}
		rnd := rand.New(rand.NewPCG(seed, uint64(n)<<8|uint64(e.Attempt())))
		d := time.Duration(rnd.IntN(3000)) * time.Microsecond
		switch rnd.IntN(30) {
		case 0:
			return errors.New("failed")
		case 1:
			return bus.RetryAfter(d)
		case 2:
			return bus.RetryNow()
		case 3:
			return bus.DeadLetter("bad")
		case 4:
			return bus.Discard("old")
		case 5:
			panic("boom")
		case 6:
			runtime.Goexit()
		case 7:
			if n < 1<<20 { // once, or it might never end
				e.Payload = n + 1<<20
				e.Push([]string{"a", "b", "c"}[rnd.IntN(3)])
			}
		case 8:
			r.m.published(r.stages[rnd.IntN(3)].Publish(ctx, &bus.Envelope{Payload: -1, OnDone: r.m.done(-r.number())}))
		case 9, 10, 11, 12:
			time.Sleep(d)
		case 13:
			time.Sleep(8 * d)
			return ctx.Err()
		}
		return nil
	}
}

func (r *creditRun) number() int {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	r.seq++
	return r.seq
}

func (r *creditRun) envelope() *bus.Envelope {
	n := r.number()
	e := &bus.Envelope{Payload: n, Key: fmt.Sprint(n % 4), OnDone: r.m.done(n)}
	if r.rnd.IntN(3) == 0 {
		var hops []string
		for range 1 + r.rnd.IntN(3) {
			hops = append(hops, []string{"a", "b", "c"}[r.rnd.IntN(3)])
		}
		e.Slip = bus.Via(hops...)
	}
	if r.rnd.IntN(8) == 0 {
		e.SetDeadline(time.Now().Add(r.ms(-1, 2, 5, 30)))
	}
	if r.slots && r.rnd.IntN(2) == 0 {
		e.Meta = &bus.Meta{Class: "high"}
	}
	return e
}

// context draws one that never ends, ends soon, or is over.
func (r *creditRun) context() (context.Context, context.CancelFunc) {
	switch r.rnd.IntN(4) {
	case 0:
		return context.WithCancel(context.Background())
	case 1:
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx, cancel
	default:
		return context.WithTimeout(context.Background(), r.ms(1, 3, 20))
	}
}

// apart runs f on a goroutine of its own.
func (r *creditRun) apart(h *hand, f func(ctx context.Context)) {
	ctx, cancel := r.context()
	r.out.Add(1)
	if h != nil {
		h.busy.Store(true)
	}
	go func() {
		f(ctx)
		cancel()
		if h != nil {
			h.busy.Store(false)
		}
		r.out.Add(-1)
	}()
}

// acquired books the verdict of an Acquire: refusals are counted like those of
// publishes.
func (r *creditRun) acquired(err error) bool {
	if err != nil {
		r.m.published(err)
	}
	return err == nil
}

func (r *creditRun) step() {
	h := r.hands[r.rnd.IntN(len(r.hands))]
	switch op := r.rnd.IntN(100); {
	case op < 40 && !h.busy.Load():
		r.use(h)
	case op < 58:
		r.plain(r.stages[r.rnd.IntN(3)])
	case op < 80:
		r.operate(r.stages[r.rnd.IntN(3)])
	default:
		time.Sleep(time.Duration(r.rnd.IntN(4000)) * time.Microsecond)
		if r.rnd.IntN(3) == 0 {
			synctest.Wait()
		}
	}
	if r.reads {
		r.read()
	}
}

// use does something with a producer.
func (r *creditRun) use(h *hand) {
	switch r.rnd.IntN(11) {
	case 0, 1:
		for range 1 + r.rnd.IntN(30) {
			r.m.published(h.p.TryPublish(r.envelope()))
		}
	case 2:
		r.acquireAndSpend(h)
	case 3, 4:
		n := r.pick(1, 2, 5, 20, 0, 600)
		r.apart(h, func(ctx context.Context) { r.acquired(h.p.Acquire(ctx, n)) })
		if r.rnd.IntN(6) == 0 {
			synctest.Wait()
			h.p.Close() // against the rules, but nothing may be lost
		}
	case 5, 6:
		e, f := r.envelope(), r.envelope()
		r.apart(h, func(ctx context.Context) { r.m.published(h.p.Publish(ctx, e)); r.m.published(h.p.Publish(ctx, f)) })
	case 7:
		batch := h.p.Begin(64)
		for range 1 + r.rnd.IntN(40) {
			*batch.Next() = *r.envelope()
		}
		n := batch.Len()
		r.apart(h, func(ctx context.Context) {
			if _, err := batch.Publish(ctx); err == nil {
				for range n {
					r.m.published(nil)
				}
				return
			}
			for _, err := range batch.Errs() {
				r.m.published(err)
			}
		})
	case 8:
		h.p.Return(r.pick(0, 1, 3, 100))
		_, _ = h.p.Credits(), h.p.Blocked()
	case 9:
		h.p.Close()
		h.at = r.rnd.IntN(3)
		h.p = r.producer(h.at)
	case 10: // forgotten
		h.at = r.rnd.IntN(3)
		h.p = r.producer(h.at)
		if r.rnd.IntN(40) == 0 {
			runtime.GC()
		}
	}
}

// acquireAndSpend checks what Acquire promises: publishes that find room.
func (r *creditRun) acquireAndSpend(h *hand) {
	n := r.pick(1, 2, 5, 20)
	if !r.acquired(h.p.TryAcquire(n)) {
		return
	}
	require.GreaterOrEqual(r.t, h.p.Credits(), n)
	for range r.rnd.IntN(n + 1) {
		e := r.envelope()
		e.Slip = bus.Slip{}
		e.SetDeadline(time.Time{})
		err := h.p.TryPublish(e)
		r.m.published(err)
		require.NoError(r.t, err, "a publish with an acquired credit")
	}
}

// plain publishes without a producer.
func (r *creditRun) plain(s *bus.Stage) {
	e := r.envelope()
	switch r.rnd.IntN(5) {
	case 0:
		for range r.rnd.IntN(30) {
			r.m.published(s.TryPublish(r.envelope()))
		}
	case 1, 2:
		r.apart(nil, func(ctx context.Context) { r.m.published(s.Publish(ctx, e)) })
	case 3:
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		_, err := s.PublishAfter(ctx, r.ms(1, 9), e)
		cancel()
		r.m.published(err)
	case 4:
		r.apart(nil, func(ctx context.Context) {
			switch _, err := s.Call(ctx, e); {
			case errors.Is(err, bus.ErrRejected):
				r.m.published(err)
			default:
				r.m.published(nil) // also when the wait for the end was cut short
			}
		})
	}
}

// operate does what operators do.
func (r *creditRun) operate(s *bus.Stage) {
	switch r.rnd.IntN(12) {
	case 0, 1:
		s.Suspend(bus.Hold{For: r.ms(1, 4, 9)})
	case 2:
		s.Resume("")
	case 3:
		r.b.Pause(bus.Hold{For: r.ms(1, 3)})
	case 4:
		require.NoError(r.t, r.b.Tune(func(c *bus.Config) { c.MaxHandlers = r.pick(0, 0, 1, 3) }))
	case 5:
		for _, d := range s.InFlight() {
			s.Cancel(d.ID)
		}
		for _, d := range s.Delayed() {
			s.CancelDelayed(d.ID)
		}
	case 6:
		if r.flips {
			r.tune(s, func(c *bus.StageConfig) { c.Full = bus.FullPolicy(r.pick(0, 1, 2, 4, 4, 4)) })
		}
	case 7, 8:
		window := r.pick(1, 3, 10, 0, 200, bus.CreditNone)
		r.tune(s, func(c *bus.StageConfig) { c.Credit.Window = window })
		require.Equal(r.t, window, s.Config().Credit.Window)
	default:
		r.tune(s, r.creditOf)
	}
}

func (r *creditRun) tune(s *bus.Stage, f func(*bus.StageConfig)) {
	r.read() // so that above is what there was
	require.NoError(r.t, s.Tune(f))
}

// read checks the books of all stages.
func (r *creditRun) read() {
	for i, s := range r.stages {
		if s.Config().Full != bus.Credit {
			r.above[i] = 1 << 30
			continue
		}
		c := checkCredit(r.t, s)
		out := c.InHand + c.Used
		limit := max(c.Window, r.above[i])
		if c.Asked == 0 { // it may have been larger for a moment
			limit = max(limit, s.Config().Capacity)
		}
		require.LessOrEqual(r.t, out, limit+maxWorkers+1, "stage %s: %+v", s.Name(), c)
		r.above[i] = max(c.Window, min(limit, out))
		require.GreaterOrEqual(r.t, c.Used, 0)
		require.LessOrEqual(r.t, c.Window, s.Config().Capacity)
	}
}

// end lets everything come to an end: with room, every wait does.
func (r *creditRun) end() {
	r.b.Resume("")
	for _, s := range r.stages {
		s.Resume("")
		require.NoError(r.t, s.Tune(func(c *bus.StageConfig) {
			c.Full, c.Capacity, c.Credit = bus.Credit, 100, bus.CreditConfig{Window: 50, Lease: 20 * time.Millisecond, HopReserve: -1}
		}))
	}
	time.Sleep(20 * time.Second)
	synctest.Wait()
	if left := r.out.Load(); left != 0 {
		for _, s := range r.stages {
			r.t.Logf("%s: %+v", s.Name(), checkCredit(r.t, s))
		}
		r.t.Fatalf("%d wait although there is room", left)
	}
	r.m.check(r.t, r.b)
	st := bustest.RequireBalanced(r.t, r.b)
	require.Zero(r.t, st.Pending, "something was left behind: %+v", st.Stages)
	for i, s := range r.stages {
		c := checkCredit(r.t, s)
		require.Zero(r.t, c.Used, s.Name())
		require.Zero(r.t, c.Waiting, s.Name())
		require.Zero(r.t, c.InHand, "%s: the leases are over", s.Name())
		require.Equal(r.t, 50, c.Free, s.Name())
		if !r.flips {
			require.EqualValues(r.t, st.Stages[i].Accepted, c.Spent, "%s: a credit for each publish", s.Name())
		}
	}
}

// stop ends the bus in the middle, or after all.
func (r *creditRun) stop(how int) {
	switch how {
	case 0:
		_ = r.b.Close()
	case 1:
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		_, _ = r.b.Shutdown(ctx)
		cancel()
	default:
		r.end()
		bustest.Drain(r.t, r.b)
	}
	time.Sleep(20 * time.Second)
	synctest.Wait()
	require.Zero(r.t, r.out.Load(), "nobody waits for a bus that has ended")
	r.m.check(r.t, r.b)
	require.Len(r.t, r.m.ends, r.m.accepted, "every accepted envelope has ended")
	for _, s := range r.stages {
		if s.Config().Full == bus.Credit {
			c := checkCredit(r.t, s)
			require.Zero(r.t, c.InHand, "credits in hand after the end")
			require.Zero(r.t, c.Waiting)
		}
	}
	for _, h := range r.hands {
		h.p.Close()
	}
}

func creditSeed(t *testing.T, seed, steps int) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{MaxHandlers: seed % 3})
		defer func() { // also when it has failed
			_ = b.Close()
			time.Sleep(time.Minute)
		}()
		r := &creditRun{
			t: t, b: b, rnd: rand.New(rand.NewPCG(uint64(seed), 19)), m: newModel(),
			reads: seed%2 == 0, flips: seed%5 == 0,
		}
		r.build()
		bustest.Start(t, b)
		for range steps {
			r.step()
		}
		r.stop(seed / 2 % 4)
	})
}

// TestCreditModel: whatever producers, handlers and operators do, every credit
// is somewhere, nobody waits for what there is, and nothing outlives the bus.
func TestCreditModel(t *testing.T) {
	seeds, steps := 300, 60
	switch {
	case os.Getenv("SEDA_LONG") != "":
		seeds, steps = 10_000, 80
	case fault.Enabled:
		seeds = 60
	}
	const at = 50 // seeds a subtest
	for first := 0; first < seeds; first += at {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			for seed := first; seed < min(first+at, seeds); seed++ {
				t.Run(fmt.Sprint(seed), func(t *testing.T) { creditSeed(t, seed, steps) })
			}
		})
	}
}
