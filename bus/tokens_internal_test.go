package bus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/retry"
)

// checkTokens checks, while nothing moves, that every place is accounted for:
// what a stage has free and what waits in it come to its capacity, and nobody
// waits for what there is.
func checkTokens(t *testing.T, b *Bus) {
	t.Helper()
	idle := 0
	for _, s := range b.stagesNow() {
		checkStageTokens(t, s)
		b.permits.mu.Lock()
		require.Zero(t, s.permits[ofBus].held, "%s: permits", s.name)
		if s.permits[ofBus].counted {
			idle++
		}
		b.permits.mu.Unlock()
	}
	b.permits.mu.Lock()
	defer b.permits.mu.Unlock()
	require.Zero(t, b.permits.mu.running, "permits out")
	require.Equal(t, idle, b.permits.mu.idle, "stages without a permit")
}

func checkStageTokens(t *testing.T, s *Stage) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mu
	require.Zero(t, m.active, "%s: executors", s.name)
	require.Empty(t, m.execs, "%s: executors at work", s.name)
	require.Zero(t, m.executed, "%s: claims", s.name)
	for _, ex := range m.idle {
		require.Zero(t, ex.resv.n, "%s: reservations", s.name)
		require.Zero(t, ex.permit, "%s: an idle executor with a permit", s.name)
	}
	s.gatherLanesLocked()
	for _, l := range m.lanes {
		l.revokeLocked()
	}
	above := 0
	if m.escape {
		above = 1
	}
	depth := s.depthLocked()
	if m.topic != nil {
		depth += m.topic.lagging
	}
	require.EqualValues(t, m.cfg.Capacity-depth-m.journaled+above, s.free.Load(), "%s: places, depth %d", s.name, depth)
	want := 0
	if list := s.upstream.list.Load(); list != nil {
		for _, e := range *list {
			if e.want.Load() {
				want++
			}
		}
	}
	require.EqualValues(t, want, s.upstream.wanting.Load(), "%s: edges that want room", s.name)
	if depth == 0 {
		require.False(t, m.escape, "%s: the place above capacity", s.name)
		require.Zero(t, m.excess, "%s: excess", s.name)
		require.Zero(t, m.arrivals.Len(), "%s: arrivals", s.name)
		require.Zero(t, m.waiters.n, "%s: waiters", s.name)
	}
}

// tokenRun is one random run.
type tokenRun struct {
	t      *testing.T
	b      *Bus
	rnd    *rand.Rand
	stages []*Stage // with handlers
	all    []*Stage // to publish to
	names  []string
	prods  []*Producer
	pull   *Stage
}

func (r *tokenRun) pick(list ...int) int { return list[r.rnd.IntN(len(list))] }

func (r *tokenRun) stage(name string, c StageConfig, h Handler) *Stage {
	s, err := r.b.Stage(name, c)
	require.NoError(r.t, err)
	if h != nil {
		require.NoError(r.t, s.Handle(h))
	}
	return s
}

func (r *tokenRun) settings() StageConfig {
	c := StageConfig{
		Capacity: r.pick(1, 3, 10, 64, 300), Concurrency: r.pick(1, 2, 5), Batch: r.pick(0, 1, 8, 64, 64),
		EgressCap: r.pick(0, 1, 20), Full: FullPolicy(r.pick(0, 0, 1, 2, 3, 4, 4)), Order: Order(r.pick(0, 0, 1, 2)),
		HopTimeout: time.Duration(r.pick(5, 5000)) * time.Millisecond,
		Retry:      retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: 2 * time.Millisecond},
	}
	if c.Order == Unordered && r.rnd.IntN(4) == 0 {
		c.Classes = []Class{{Name: "high"}, {Name: "low", MinShare: 10}}
	}
	if r.rnd.IntN(5) == 0 {
		c.Accepts = TypeOf[int]()
	}
	return c
}

func (r *tokenRun) handler() Handler {
	seed := r.rnd.Uint64()
	return func(ctx context.Context, e *Envelope) error {
		switch rand.New(rand.NewPCG(seed, e.id<<8|uint64(e.attempt))).IntN(60) { // no lock: several at once
		case 0:
			return errors.New("failed")
		case 1:
			return RetryAfter(3 * time.Millisecond)
		case 2:
			return RetryNow()
		case 3:
			return DeadLetter("bad")
		case 4:
			return Discard("old")
		case 5:
			panic("boom")
		case 6, 7:
			time.Sleep(4 * time.Millisecond)
		case 8:
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
}

func (r *tokenRun) build() {
	n := 3 + r.rnd.IntN(4)
	for i := range n {
		r.names = append(r.names, fmt.Sprint("s", i))
	}
	for _, name := range r.names {
		r.stages = append(r.stages, r.stage(name, r.settings(), r.handler()))
	}
	topic := r.stage("topic", StageConfig{Delivery: PubSub, Capacity: r.pick(1, 5, 100)}, nil)
	for i := range 3 {
		s, err := topic.Subscribe(fmt.Sprint(i), r.settings(), Lag(r.rnd.IntN(2)), r.handler())
		require.NoError(r.t, err)
		r.stages = append(r.stages, s)
	}
	r.pull = r.stage("pull", StageConfig{Pull: true, Capacity: r.pick(1, 10), Lease: 5 * time.Millisecond}, nil)
	r.names = append(r.names, "topic")
	r.all = append(append(r.all, r.stages[:n]...), topic)
	for range 4 {
		r.prods = append(r.prods, r.all[r.rnd.IntN(len(r.all))].Producer())
	}
	require.NoError(r.t, r.b.Start())
}

func (r *tokenRun) envelope() Envelope {
	e := Envelope{Payload: 1, Key: fmt.Sprint(r.rnd.IntN(5))}
	if r.rnd.IntN(10) == 0 {
		e.Payload = "text"
	}
	var hops []string
	for range r.rnd.IntN(5) {
		hops = append(hops, r.names[r.rnd.IntN(len(r.names))])
	}
	if r.rnd.IntN(8) == 0 {
		hops = append(hops, "pull")
	}
	e.Slip = Via(hops...)
	if r.rnd.IntN(4) == 0 {
		e.Meta = &Meta{Class: "low"}
	}
	return e
}

func (r *tokenRun) publish() {
	s := r.all[r.rnd.IntN(len(r.all))]
	k := r.rnd.IntN(len(r.prods))
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Millisecond)
	defer cancel()
	e := r.envelope()
	switch r.rnd.IntN(6) {
	case 0:
		for range r.rnd.IntN(80) {
			_ = r.prods[k].TryPublish(&e)
		}
	case 1:
		batch := r.prods[k].Begin(64)
		for range 1 + r.rnd.IntN(64) {
			*batch.Next() = r.envelope()
		}
		_, _ = batch.Publish(ctx)
	case 2:
		_ = r.prods[k].Publish(ctx, &e)
		r.prods[k].Close()
		r.prods[k] = s.Producer()
	case 3:
		_, _ = s.PublishAfter(ctx, 2*time.Millisecond, &e)
	case 4:
		go func() {
			ctx, cancel := context.WithTimeout(r.t.Context(), 3*time.Millisecond)
			defer cancel()
			_ = s.Publish(ctx, &e)
		}()
	default:
		for range r.rnd.IntN(80) {
			_ = s.TryPublish(&e)
		}
	}
}

func (r *tokenRun) step() {
	s := r.stages[r.rnd.IntN(len(r.stages))]
	switch op := r.rnd.IntN(40); {
	case op < 22:
		r.publish()
	case op < 25:
		s.Suspend(Hold{For: time.Duration(1+r.rnd.IntN(9)) * time.Millisecond})
	case op < 28:
		require.NoError(r.t, s.Tune(func(c *StageConfig) {
			c.Capacity, c.Concurrency = r.pick(1, 3, 10, 100), r.pick(1, 2, 5)
			c.EgressCap, c.Batch = r.pick(0, 1, 20), r.pick(0, 1, 64)
			c.Full = FullPolicy(r.rnd.IntN(5))
		}))
	case op < 29:
		require.NoError(r.t, r.b.Tune(func(c *Config) { c.MaxHandlers = r.pick(0, 1, 2, 5) }))
	case op < 32:
		for _, d := range s.InFlight() {
			s.Cancel(d.ID)
		}
		for _, d := range s.Delayed() {
			s.CancelDelayed(d.ID)
		}
	case op < 34:
		_, _ = r.b.Letters().Redrive(r.t.Context(), RedriveOptions{})
	default:
		time.Sleep(time.Duration(r.rnd.IntN(3000)) * time.Microsecond)
	}
}

// finish lets everything end; it fails when nothing moves any more.
func (r *tokenRun) finish() (st Stats) {
	moved, still := uint64(0), 0
	for r.b.ReadStats(&st); st.Pending > 0 && still < 100; r.b.ReadStats(&st) {
		r.receiveAll()
		for _, s := range r.stages {
			s.Resume("")
			for _, d := range s.InFlight() {
				s.Cancel(d.ID)
			}
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		now := uint64(0)
		for i := range st.Stages {
			now += st.Stages[i].Entered + st.Stages[i].Delivered + st.Stages[i].Hopped
		}
		if still++; now != moved {
			moved, still = now, 0
		}
	}
	require.Zero(r.t, st.Pending, "something was left behind: %s", r.left(&st))
	time.Sleep(time.Second)
	synctest.Wait()
	return st
}

func (r *tokenRun) receiveAll() {
	for {
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Millisecond)
		d, err := r.pull.Receive(ctx)
		cancel()
		if err != nil {
			return
		}
		_ = d.Ack()
	}
}

// left describes the stages that something was left in.
func (r *tokenRun) left(st *Stats) string {
	var out strings.Builder
	for i := range st.Stages {
		if v := &st.Stages[i]; v.Depth+v.InFlight+v.Lagging > 0 {
			s := r.b.lookup(v.Name)
			s.mu.Lock()
			fmt.Fprintf(&out, "\n%s: in flight %d, depth %d, held %d, due %d, delayed %d, parked %d, arrivals %d, free %d, "+
				"escape %v, excess %d, waiters %d, active %d, ready lanes %d, slow %v, capacity %d, egress %d, permit queued %v",
				v.Name, v.InFlight, v.Depth, s.heldLocked(), s.mu.due.Len(), s.mu.delayed, s.mu.parked, s.mu.arrivals.Len(), s.free.Load(),
				s.mu.escape, s.mu.excess, s.mu.waiters.n, s.mu.active, s.mu.ready.n, s.slow.Load(), s.mu.cfg.Capacity,
				s.mu.cfg.egressCap(), s.permits[ofBus].queued)
			for _, e := range s.mu.edges {
				fmt.Fprintf(&out, "\n   -> %s: held %d, parked %d, want %v", e.to.name, e.held.Len(), e.parked, e.want.Load())
			}
			for _, d := range s.Delayed() {
				fmt.Fprintf(&out, "\n   delayed %d, due in %v, retry %v", d.ID, time.Until(d.Due), d.Retry)
			}
			if k := s.mu.keyed; k != nil {
				for i := range k.slots {
					if slot := &k.slots[i]; slot.q.Len()+len(slot.held) > 0 {
						fmt.Fprintf(&out, "\n   slot %d: queued %d, busy %v, ready %v, held %v", i, slot.q.Len(), slot.busy, slot.ready, slot.held)
					}
				}
			}
			if to := s.blockedOn.Load(); to != nil {
				fmt.Fprintf(&out, "\n   blocked on %s", to.name)
			}
			s.mu.Unlock()
		}
	}
	return out.String()
}

// TestTokensAfterRandomRuns checks that no place is lost or made by whatever
// happens to envelopes.
func TestTokensAfterRandomRuns(t *testing.T) {
	seeds, steps := 15, 150
	if os.Getenv("SEDA_LONG") != "" {
		seeds, steps = 1000, 400
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, err := New(Config{MaxHandlers: seed % 4})
				require.NoError(t, err)
				r := &tokenRun{t: t, b: b, rnd: rand.New(rand.NewPCG(uint64(seed), 7))}
				r.build()
				for range steps {
					r.step()
				}
				st := r.finish()
				require.NoError(t, st.Check())
				checkTokens(t, b)
				for _, p := range r.prods {
					p.Close()
				}
				_, err = b.Shutdown(t.Context())
				require.NoError(t, err)
			})
		})
	}
}
