package bus

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shedder"
)

// longAway is a hop timeout that no test waits for: what moves only by it
// stands still.
const longAway = 1000 * time.Hour

// toss is a set of stages that hand envelopes round.
type toss struct {
	*tokenRun
	ends map[End]int
	n    int
}

// toss makes n stages named r0, r1 ... that take a millisecond an envelope.
func newToss(r *tokenRun, n int, c StageConfig) *toss {
	g := &toss{tokenRun: r, ends: map[End]int{}}
	c.HopTimeout = longAway
	for i := range n {
		r.names = append(r.names, fmt.Sprint("r", i))
		r.stages = append(r.stages, r.stage(r.names[i], c, func(context.Context, *Envelope) error {
			time.Sleep(time.Millisecond)
			return nil
		}))
	}
	return g
}

// round is the itinerary over the stages after i in their order, hops long.
func (g *toss) round(i, hops int) Slip {
	var names []string
	for h := range hops {
		names = append(names, g.names[(i+1+h)%len(g.names)])
	}
	return Via(names...)
}

// publish publishes an envelope with the itinerary to s, if it takes one more.
func (g *toss) publish(s *Stage, slip Slip) bool {
	err := s.TryPublish(&Envelope{Slip: slip, Key: fmt.Sprint(g.n), OnDone: func(r Result) { g.ends[r.End]++ }})
	if err != nil {
		require.ErrorIs(g.t, err, ErrFull)
		return false
	}
	g.n++
	return true
}

// fill publishes to each stage until it takes no more.
func (g *toss) fill(slip func(i int) Slip) {
	for i, s := range g.stages {
		for g.publish(s, slip(i)) {
		}
	}
}

func (g *toss) suspend() {
	for _, s := range g.stages {
		s.Suspend(Hold{})
	}
}

func (g *toss) resume() {
	for _, s := range g.stages {
		s.Resume("")
	}
}

func (g *toss) tune(change func(*StageConfig)) {
	for _, s := range g.stages {
		require.NoError(g.t, s.Tune(change))
	}
}

// checkMoves checks that all envelopes come to their end in good time and that
// every place is accounted for.
func (g *toss) checkMoves() {
	g.t.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	var st Stats
	g.b.ReadStats(&st)
	require.Zero(g.t, st.Pending, "it stands still: %s", g.left(&st))
	require.NoError(g.t, st.Check())
	require.Equal(g.t, map[End]int{Completed: g.n}, g.ends)
	checkTokens(g.t, g.b)
}

// stuckRing fills a ring of n stages so that everything in the first one, whose
// capacity was lowered, is parked at the second, while the others wait for room
// with what they have queued and have as much parked as they may. c is of all.
func stuckRing(r *tokenRun, n int, c StageConfig) *toss {
	g := &toss{tokenRun: r, ends: map[End]int{}}
	c.Capacity, c.HopTimeout, c.Batch = 10, longAway, 1
	c.EgressCap = c.Concurrency
	for i := range n {
		r.names = append(r.names, fmt.Sprint("r", i))
		took := 10 * time.Millisecond
		if i == 0 {
			took = time.Millisecond / 10
		}
		r.stages = append(r.stages, r.stage(r.names[i], c, func(context.Context, *Envelope) error {
			time.Sleep(took)
			return nil
		}))
	}
	first := r.stages[0]
	require.NoError(r.t, first.Tune(func(c *StageConfig) { c.EgressCap = 100 }))
	g.suspend()
	g.fill(func(i int) Slip { return g.round(i, 12) })
	g.resume()
	for range 9 {
		time.Sleep(time.Millisecond)
		g.fill(func(i int) Slip { return g.round(i, 12) })
	}
	time.Sleep(time.Millisecond / 2)
	first.Suspend(Hold{})
	require.NoError(r.t, first.Tune(func(c *StageConfig) { c.Capacity = 1 }))
	time.Sleep(time.Second)
	return g // the first stage is suspended
}

func TestRingsMoveBelowTheirContent(t *testing.T) {
	settings := []struct {
		name string
		c    StageConfig
		max  int // MaxHandlers
	}{
		{"one handler", StageConfig{Concurrency: 1}, 0},
		{"five handlers", StageConfig{Concurrency: 5}, 0},
		{"by key", StageConfig{Concurrency: 5, Order: ByKey}, 0},
		{"in order", StageConfig{Concurrency: 1, Order: InOrder}, 0},
		{"classes", StageConfig{Concurrency: 2, Classes: []Class{{Name: "a"}, {Name: "b"}}}, 0},
		{"few permits", StageConfig{Concurrency: 1}, 8},
		{"few permits by key", StageConfig{Concurrency: 1, Order: ByKey}, 8},
	}
	for _, n := range []int{2, 3, 8} {
		for _, s := range settings {
			t.Run(fmt.Sprintf("%d/%s", n, s.name), func(t *testing.T) {
				tokenBus(t, Config{MaxHandlers: s.max}, func(_ *testing.T, r *tokenRun) {
					g := stuckRing(r, n, s.c)
					g.resume()
					g.checkMoves()
				})
			})
		}
	}
}

// TestMeshMovesBelowItsContent: each stage waits for several others.
func TestMeshMovesBelowItsContent(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			tokenBus(t, Config{MaxHandlers: int(seed % 3)}, func(t *testing.T, r *tokenRun) {
				r.rnd = rand.New(rand.NewPCG(seed, 1))
				g := newToss(r, 2+r.rnd.IntN(5), StageConfig{
					Capacity: 10, EgressCap: r.pick(1, 3, 5), Concurrency: r.pick(1, 3), Order: Order(r.pick(0, 0, 1, 2)),
				})
				random := func(int) Slip {
					var names []string
					for range 5 + r.rnd.IntN(9) {
						names = append(names, g.names[r.rnd.IntN(len(g.names))])
					}
					return Via(names...)
				}
				for range 3 {
					g.suspend()
					g.fill(random)
					g.resume()
					time.Sleep(time.Duration(r.rnd.IntN(20)) * time.Millisecond)
					g.suspend()
					time.Sleep(time.Second)
					for _, s := range g.stages {
						require.NoError(t, s.Tune(func(c *StageConfig) { c.Capacity, c.EgressCap = r.pick(1, 2, 5), r.pick(1, 3, 100) }))
					}
					g.resume()
					time.Sleep(time.Duration(r.rnd.IntN(20)) * time.Millisecond)
				}
				g.checkMoves()
			})
		})
	}
}

// TestRingBesideALineThatStands: two stages that wait for each other go on,
// although one of them waits for a third one that does not; and the third one
// gets no more than the egress cap.
func TestRingBesideALineThatStands(t *testing.T) {
	for _, lower := range []bool{false, true} {
		t.Run(fmt.Sprint("lowered=", lower), func(t *testing.T) {
			tokenBus(t, Config{}, func(t *testing.T, r *tokenRun) {
				g := newToss(r, 2, StageConfig{Capacity: 12, EgressCap: 2})
				line := r.stage("line", StageConfig{Capacity: 1, HopTimeout: longAway}, pass)
				line.Suspend(Hold{})
				g.suspend()
				first := g.stages[0]
				for range 7 { // two enter, two park, the others are set aside
					require.True(t, g.publish(first, Via("line")))
				}
				g.fill(func(i int) Slip { return g.round(i, 9) })
				if lower {
					g.tune(func(c *StageConfig) { c.Capacity = 4 })
				}
				g.resume()
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, g.n-7, g.ends[Completed], "the ring goes on")
				first.mu.Lock()
				require.Equal(t, 2, first.parkedFor(line), "the line keeps its bound")
				first.mu.Unlock()
				line.Resume("")
				g.checkMoves()
			})
		})
	}
}

// stuckTopic fills a ring of a stage and a topic whose publishes travel on
// to it. All that the stage has is parked at the topic, and its capacity was
// lowered.
func stuckTopic(r *tokenRun, subscribe func(topic *Stage)) *toss {
	g := newToss(r, 1, StageConfig{Capacity: 10, EgressCap: 100})
	topic := r.stage("topic", StageConfig{Delivery: PubSub, Capacity: 10, EgressCap: 1, HopTimeout: longAway}, nil)
	subscribe(topic)
	first := g.stages[0]
	slip := Via("topic", "r0", "topic", "r0", "topic")
	for range 5 { // their copies end in ten milliseconds
		require.True(r.t, g.publish(topic, Via("r0", "topic", "r0")))
	}
	time.Sleep(time.Millisecond)
	topic.Suspend(Hold{})
	for g.publish(topic, Via("r0", "topic", "r0")) {
	}
	for range 20 {
		for g.publish(first, slip) {
		}
		time.Sleep(2 * time.Millisecond)
	}
	require.NoError(r.t, first.Tune(func(c *StageConfig) { c.Capacity = 1 }))
	time.Sleep(time.Second)
	topic.Resume("")
	return g
}

// TestRingOfATopic: a topic waits with its queue for the room of a stage that
// waits for it.
func TestRingOfATopic(t *testing.T) {
	tokenBus(t, Config{}, func(_ *testing.T, r *tokenRun) {
		stuckTopic(r, func(topic *Stage) {
			_, err := topic.Subscribe("sub", StageConfig{Concurrency: 100}, LagWait, func(context.Context, *Envelope) error {
				time.Sleep(100 * time.Millisecond)
				return nil
			})
			require.NoError(r.t, err)
		}).checkMoves()
	})
}

// TestRingOfASubscriberAndItsTopic: copies wait for room in a stage whose own
// envelopes wait for room in the topic.
func TestRingOfASubscriberAndItsTopic(t *testing.T) {
	tokenBus(t, Config{}, func(_ *testing.T, r *tokenRun) {
		g := newToss(r, 1, StageConfig{Capacity: 10, EgressCap: 1, Order: InOrder})
		first := g.stages[0]
		topic := r.stage("topic", StageConfig{Delivery: PubSub, Capacity: 10, HopTimeout: longAway}, nil)
		require.NoError(t, topic.SubscribeStage(first, LagWait))
		g.suspend()
		for g.publish(first, Via("topic")) {
		}
		for g.publish(topic, Slip{}) { // all its copies park
			synctest.Wait()
		}
		require.NoError(t, topic.Tune(func(c *StageConfig) { c.Capacity = 1 }))
		g.resume()
		g.checkMoves()
	})
}

// hopBound refuses nobody at the door and stops hops at 6.
type hopBound struct{ shedder.Passive }

func (hopBound) Admit(*shedder.Request) shedder.Verdict { return shedder.Verdict{} }
func (hopBound) Bound() int                             { return 6 }

// TestRingAtItsBounds: a shedder keeps hops short of the capacity.
func TestRingAtItsBounds(t *testing.T) {
	for _, n := range []int{2, 3} {
		bound := func(string) *shedder.Shedder {
			s, err := shedder.New(shedder.Config{Policy: hopBound{}})
			require.NoError(t, err)
			return s
		}
		tokenBus(t, Config{NewShedder: bound}, func(_ *testing.T, r *tokenRun) {
			g := stuckRing(r, n, StageConfig{Concurrency: 2})
			g.resume()
			g.checkMoves()
		})
	}
}

// TestLetInBesideTheEscapePlace: the place above capacity is taken and nothing
// that could give it back is in the queue; one hop gets in, and only one.
func TestLetInBesideTheEscapePlace(t *testing.T) {
	b, err := New(Config{})
	require.NoError(t, err)
	up, err := b.Stage("up", StageConfig{})
	require.NoError(t, err)
	s, err := b.Stage("s", StageConfig{Capacity: 1})
	require.NoError(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mu
	for range 3 {
		slot, _ := m.arrivals.Slot(&m.arrPool)
		*slot = arrival{from: up, until: forever}
	}
	m.parked, m.excess, m.escape = 5, 2, true
	s.free.Store(-3)
	require.True(t, s.letInLocked())
	require.Equal(t, 1, s.queuedLocked())
	require.Zero(t, m.excess)
	require.True(t, m.escape)
	require.EqualValues(t, -4, s.free.Load())
	require.False(t, s.letInLocked())
}

// TestExecutorTooManyIsNotStartedAgain: who sends one executor home would not
// start it again at once, or both would go on for as long as the others are
// held up.
func TestExecutorTooManyIsNotStartedAgain(t *testing.T) {
	b, err := New(Config{})
	require.NoError(t, err)
	s, err := b.Stage("s", StageConfig{Concurrency: 10})
	require.NoError(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mu
	s.slow.Store(false)
	tooMany := 0
	for active := 1; active < 6; active++ {
		for lanes := range 6 {
			for held := range 3 {
				m.batch, m.active, m.heldUp, m.ready.n = 64, active, held, lanes
				if s.oneTooManyLocked() {
					tooMany++
					m.active--
					require.False(t, s.worthAnotherLocked(), "%d at work, %d lanes, %d held up", active, lanes, held)
				}
			}
		}
	}
	require.Positive(t, tooMany)
	m.active, m.heldUp, m.ready.n = 0, 0, 0
}
