package bus_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
	"github.com/sedabus/seda/shedder"
)

// model is what a random run must come to: every accepted envelope ends
// exactly once, and every refusal is counted once.
type model struct {
	mu       sync.Mutex
	accepted int
	refused  map[reason.Reason]int
	ends     map[int]int // by sequence number
	results  map[bus.End]int
	dropped  map[reason.Reason]int
	faults   []string
}

func newModel() *model {
	return &model{refused: map[reason.Reason]int{}, ends: map[int]int{}, results: map[bus.End]int{}, dropped: map[reason.Reason]int{}}
}

// published books the verdict of a publish.
func (m *model) published(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.accepted++
		return
	}
	r, ok := errors.AsType[*bus.RejectedError](err)
	if !ok {
		m.faults = append(m.faults, err.Error())
		return
	}
	m.refused[r.Reason]++
}

// done returns the callback of envelope seq.
func (m *model) done(seq int) func(bus.Result) {
	return func(r bus.Result) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.results[r.End]++
		if r.End == bus.Dropped {
			m.dropped[r.Reason]++
		}
		if m.ends[seq]++; m.ends[seq] > 1 {
			m.faults = append(m.faults, fmt.Sprintf("envelope %d ended %d times", seq, m.ends[seq]))
		}
	}
}

// moved counts all that has ever moved.
func moved(st *bus.Stats) (n uint64) {
	for i := range st.Stages {
		s := &st.Stages[i]
		n += s.Entered + s.Hopped + s.Delivered + s.Completed + s.DeadLettered + s.Retried
	}
	return n
}

// check compares the model with the account while nothing moves.
func (m *model) check(t *testing.T, b *bus.Bus) {
	t.Helper()
	// A reading settles what is finished of claims, which may set more going.
	var st bus.Stats
	for before := uint64(1); before != moved(&st); {
		before = moved(&st)
		b.ReadStats(&st)
		synctest.Wait()
	}
	st = bustest.RequireBalanced(t, b)
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Empty(t, m.faults)
	require.EqualValues(t, m.accepted, st.Accepted, "accepted")
	require.EqualValues(t, m.results[bus.Completed], st.Completed, "completed")
	require.EqualValues(t, m.results[bus.DeadLettered], st.DeadLettered, "dead-lettered")
	require.EqualValues(t, m.results[bus.Abandoned], st.Abandoned, "abandoned")
	for i := range st.Dropped {
		require.EqualValues(t, m.dropped[reason.Reason(i)], st.Dropped[i], "dropped %v", reason.Reason(i))
		require.EqualValues(t, m.refused[reason.Reason(i)], st.Refused[i], "refused %v", reason.Reason(i))
	}
	require.EqualValues(t, m.accepted-len(m.ends), st.Pending, "pending")
	for i := range st.Stages {
		s := &st.Stages[i]
		require.GreaterOrEqual(t, s.Depth, s.Delayed+s.Parked, "%s", s.Name)
		require.GreaterOrEqual(t, s.InFlight, s.Stuck, "%s", s.Name)
		require.GreaterOrEqual(t, s.Lagging, 0, "%s", s.Name)
	}
}

// checkWaiters fails the test if a publisher waits for long although there is
// room. A place may be promised to a claimed envelope of another stage, until
// the watchdog takes that back.
func (r *run) checkWaiters() {
	waiting := map[string]int{}
	const looks = 5
	for range looks {
		synctest.Wait()
		var st bus.Stats
		r.b.ReadStats(&st)
		for i := range st.Stages {
			if s := &st.Stages[i]; s.Waiters > 0 && r.hasRoom(s) {
				waiting[s.Name]++
			}
		}
		time.Sleep(3 * time.Millisecond)
	}
	for name, n := range waiting {
		require.Less(r.t, n, looks, "%s: a publisher waits although there is room", name)
	}
}

// hasRoom says whether a publish would find a place. With credits one is taken until
// its work has left the stage, and the window is what counts.
func (r *run) hasRoom(st *bus.StageStats) bool {
	if st.Full != bus.Credit {
		return st.Depth+st.Lagging < st.Capacity
	}
	s, ok := r.b.Lookup(st.Name)
	require.True(r.t, ok)
	var c bus.CreditState
	s.ReadCredit(&c)
	return c.Free > c.Reserve && len(s.Holds()) == 0
}

// run is one random run.
type run struct {
	t     *testing.T
	b     *bus.Bus
	rnd   *rand.Rand
	m     *model
	plain []*bus.Stage // with handlers
	topic *bus.Stage
	all   []*bus.Stage
	names []string // where hops may go
	seq   int
}

func (r *run) pick(list ...int) int { return list[r.rnd.IntN(len(list))] }

// settings draws the settings of a stage.
func (r *run) settings(i int) bus.StageConfig {
	c := bus.StageConfig{
		Capacity:    r.pick(1, 2, 5, 20, 100),
		Concurrency: r.pick(1, 1, 2, 8),
		Batch:       r.pick(0, 0, 1, 7, 64),
		EgressCap:   r.pick(0, 0, 1, 30),
		Full:        bus.FullPolicy(r.rnd.IntN(5)),
		Order:       bus.Order(r.rnd.IntN(3)),
		NoHandler:   bus.NoHandler(r.rnd.IntN(3)),
		HopTimeout:  time.Duration(r.pick(1, 50, 5000)) * time.Millisecond,
		ExactTiming: r.rnd.IntN(4) == 0,
	}
	if r.rnd.IntN(3) == 0 {
		c.HandlerTimeout = 20 * time.Millisecond
	}
	if r.rnd.IntN(2) == 0 {
		c.Retry = retry.Policy{MaxAttempts: 3, Kind: retry.Kind(r.rnd.IntN(3))}
		if c.Retry.Kind != retry.Immediate {
			c.Retry.Base = 3 * time.Millisecond
		}
	}
	if c.Order == bus.Unordered && r.rnd.IntN(3) == 0 {
		c.Classes = []bus.Class{{Name: "high"}, {Name: "low", Strict: true}}
	}
	switch r.rnd.IntN(6) {
	case 0:
		c.Shedder = shedder.Default("")
	case 1:
		p := waitsAtMost(r.pick(1, 2, 5, 50))
		c.Shedder, c.ShedInside = shell(r.t, p), r.rnd.IntN(3) == 0
	}
	if i > 1 && r.rnd.IntN(5) == 0 {
		c.Accepts = bus.TypeOf[int]()
	}
	return c
}

// handler does what an envelope's payload and chance say.
func (r *run) handler(name string, c bus.StageConfig) bus.Handler {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(r.rnd.Uint64(), 0))
	inside := map[string]int{}
	enter := func(key string, by int) {
		mu.Lock()
		defer mu.Unlock()
		if c.Order == bus.InOrder {
			key = ""
		}
		if inside[key] += by; inside[key] > 1 && c.Order != bus.Unordered {
			r.m.mu.Lock()
			r.m.faults = append(r.m.faults, fmt.Sprintf("%s: two of key %q at once", name, key))
			r.m.mu.Unlock()
		}
	}
	return func(ctx context.Context, e *bus.Envelope) error {
		enter(e.Key, 1)
		defer enter(e.Key, -1)
		mu.Lock()
		what, d := rnd.IntN(40), time.Duration(rnd.IntN(4000))*time.Microsecond
		target := r.names[rnd.IntN(len(r.names))]
		mu.Unlock()
		switch what {
		case 0:
			return errors.New("failed")
		case 1:
			return bus.RetryAfter(d)
		case 2:
			return bus.DeadLetter("bad")
		case 3:
			return bus.Discard("old")
		case 4:
			panic("boom")
		case 5:
			if !strings.HasPrefix(name, "topic.") {
				e.Push(target)
			}
		case 6, 7, 8, 9:
			time.Sleep(d)
		case 10:
			time.Sleep(10 * d)
			return ctx.Err()
		case 11:
			e.Rekey(fmt.Sprint("r", what))
		}
		return nil
	}
}

func (r *run) build() {
	r.names = []string{"a", "b", "c", "d", "topic", "nowhere"}
	if r.rnd.IntN(4) > 0 {
		r.names = r.names[:5]
	}
	for i, name := range []string{"a", "b", "c", "d"} {
		c := r.settings(i)
		s := bustest.Stage(r.t, r.b, name, c, r.handler(name, c))
		r.plain = append(r.plain, s)
	}
	c := r.settings(0)
	r.topic = bustest.Stage(r.t, r.b, "topic", bus.StageConfig{
		Delivery: bus.PubSub, Capacity: c.Capacity, Full: c.Full, HopTimeout: c.HopTimeout, NoHandler: c.NoHandler,
	}, nil)
	for i := range 1 + r.rnd.IntN(3) {
		name := fmt.Sprint("s", i)
		c := r.settings(0)
		s, err := r.topic.Subscribe(name, c, bus.Lag(r.rnd.IntN(3)), r.handler("topic."+name, c))
		require.NoError(r.t, err)
		r.plain = append(r.plain, s)
	}
	r.all = r.b.Stages()
}

// envelope draws an envelope with up to three hops.
func (r *run) envelope() *bus.Envelope {
	r.seq++
	e := &bus.Envelope{Payload: r.seq, Key: fmt.Sprint("k", r.rnd.IntN(6)), OnDone: r.m.done(r.seq)}
	if r.rnd.IntN(20) == 0 {
		e.Payload = "text"
	}
	var hops []string
	for range r.rnd.IntN(4) {
		hops = append(hops, r.names[r.rnd.IntN(len(r.names))])
	}
	e.Slip = bus.Via(hops...)
	if r.rnd.IntN(10) == 0 {
		e.SetDeadline(time.Now().Add(time.Duration(r.rnd.IntN(50)-3) * time.Millisecond))
	}
	if r.rnd.IntN(4) == 0 {
		e.Meta = &bus.Meta{Class: []string{"high", "low", "other"}[r.rnd.IntN(3)]}
	}
	return e
}

// step does one random operation.
func (r *run) step() {
	s := r.all[r.rnd.IntN(len(r.all))]
	p := r.plain[r.rnd.IntN(len(r.plain))]
	op := r.rnd.IntN(100)
	switch {
	case op < 50:
		r.m.published(s.TryPublish(r.envelope()))
	case op < 65:
		e, limit := r.envelope(), time.Duration(r.rnd.IntN(30))*time.Millisecond
		go func() {
			ctx, cancel := context.WithTimeout(r.t.Context(), limit)
			defer cancel()
			r.m.published(s.Publish(ctx, e))
		}()
	case op < 70:
		ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Millisecond)
		_, err := s.PublishAfter(ctx, time.Duration(r.rnd.IntN(9))*time.Millisecond, r.envelope())
		cancel()
		r.m.published(err)
	case op < 74:
		p.Suspend(bus.Hold{For: time.Duration(1+r.rnd.IntN(20)) * time.Millisecond})
	case op < 76:
		p.Resume("")
	case op < 80:
		require.NoError(r.t, s.Tune(func(c *bus.StageConfig) {
			c.Capacity, c.Full = r.pick(1, 3, 10, 50), bus.FullPolicy(r.rnd.IntN(5))
			c.EgressCap, c.Batch = r.pick(0, 1, 5), r.pick(0, 1, 64)
			if s != r.topic {
				c.Concurrency = r.pick(1, 2, 5)
			}
		}))
	case op < 82:
		require.NoError(r.t, r.b.Tune(func(c *bus.Config) { c.MaxHandlers = r.pick(0, 1, 2, 5) }))
	case op < 85:
		for _, d := range s.InFlight() {
			s.Cancel(d.ID)
		}
	case op < 88:
		for _, d := range s.Delayed() {
			if !d.Retry {
				s.CancelDelayed(d.ID)
			}
		}
	case op < 90:
		if p.RemoveHandler() == nil {
			r.settle()
			c := p.Config()
			require.NoError(r.t, p.Handle(r.handler(p.Name(), c)))
		}
	case op < 91:
		r.b.Pause(bus.Hold{For: time.Millisecond})
	case op < 94:
		r.shedding()
	default:
		r.settle()
	}
}

// shedding throws the kill switch or tunes a shedder.
func (r *run) shedding() {
	if r.rnd.IntN(3) == 0 {
		r.b.SetShedding(r.rnd.IntN(2) == 0)
		return
	}
	var all []*shedder.Shedder
	for _, s := range r.all {
		if sh := s.Shedder(); sh != nil {
			all = append(all, sh)
		}
	}
	if len(all) == 0 {
		return
	}
	require.NoError(r.t, all[r.rnd.IntN(len(all))].Tune(func(c *shedder.Config) {
		c.Mode = shedder.Mode(r.pick(0, 0, 1, 2))
		c.Guards = shedder.Guards{FloorInFlight: r.pick(0, 0, 3), MaxShare: float64(r.pick(0, 0, 1)) / 2}
		if r.rnd.IntN(3) == 0 {
			c.Guards.Exempt = []int{r.rnd.IntN(2)}
		}
		if _, own := c.Policy.(*judge); own && r.rnd.IntN(2) == 0 {
			c.Policy = waitsAtMost(r.pick(1, 3, 20))
		}
	}))
}

func (r *run) settle() {
	time.Sleep(time.Duration(r.rnd.IntN(10)) * time.Millisecond)
	synctest.Wait()
	r.m.check(r.t, r.b)
	if r.rnd.IntN(4) == 0 {
		r.checkWaiters()
	}
}

func TestModel(t *testing.T) {
	seeds, steps := 12, 250
	if os.Getenv("SEDA_LONG") != "" {
		seeds, steps = 400, 1000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bustest.Run(t, bus.Config{MaxHandlers: seed % 3}, func(t *testing.T, b *bus.Bus) {
				r := &run{t: t, b: b, rnd: rand.New(rand.NewPCG(uint64(seed), 1)), m: newModel()}
				r.build()
				bustest.Start(t, b)
				for range steps {
					r.step()
				}
				b.Resume("")
				for _, s := range r.all {
					s.Resume("")
				}
				if seed%4 == 3 { // cut: what is left is abandoned
					synctest.Wait()
					_ = b.Close()
					time.Sleep(time.Second)
				} else {
					time.Sleep(10 * time.Second)
					if len(r.topic.Subscribers()) == 0 { // all detached: what is queued waits
						_, err := r.topic.Subscribe("end", bus.StageConfig{Capacity: 1000}, bus.LagWait, ack)
						require.NoError(t, err)
						time.Sleep(10 * time.Second)
					}
					synctest.Wait()
					r.m.check(t, b)
					st := bustest.RequireBalanced(t, b)
					require.Zero(t, st.Pending, "something was left behind: %+v", st.Stages)
					bustest.Drain(t, b)
				}
				synctest.Wait()
				r.m.check(t, b)
				require.Len(t, r.m.ends, r.m.accepted, "every accepted envelope has ended")
			})
		})
	}
}
