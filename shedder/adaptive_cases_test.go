package shedder_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// One unit of work in 5 s, one of them slow: a window with next to nothing in it
// is no evidence. Seen in Istio, Netflix concurrency-limits and Envoy.
func TestB038_AdaptiveNeverShedsOnAHandfulOfSamples(t *testing.T) {
	a := newAdaptive(t, shedder.AdaptiveConfig{})
	for i := range 60 {
		now := time.Duration(i) * 5 * time.Second
		r := ask(now, 1, 0)
		require.Equal(t, shedder.Admit, a.Admit(r).Action)
		took := 5 * ms
		if i == 20 {
			took = 2 * time.Second
		}
		a.Done(done(now+took, took, shedder.Load{Concurrency: 1}))
	}
}

// After an overload, and after a silence, nothing is shed: no latch, no timer
// that was not armed again. Seen in Envoy and go-zero.
func TestB039_AdaptiveRecoversByItself(t *testing.T) {
	s := scales()[0]
	s.policy, s.seed = newAdaptive(t, shedder.AdaptiveConfig{}), 1
	over := 10 * time.Second
	s.load = func(at time.Duration) float64 {
		switch {
		case at < over:
			return 0.8
		case at < over+time.Minute:
			return 0.2
		case at < over+2*time.Minute:
			return 1e-6
		}
		return 0.2
	}
	s.slow = step(1, 50, 0, over)
	s.until = over + 3*time.Minute
	r := s.run()
	require.Positive(t, r.shed)
	require.Less(t, r.lastShed, over+5*time.Second)
	require.GreaterOrEqual(t, a0(s.policy).Bound, 32)
}

func a0(p shedder.Policy) shedder.State {
	var st shedder.State
	p.Inspect(0, &st)
	return st
}

// Failures of 10 µs and refusals do not mislead the bound: failed work counts as
// what it took, refused work not at all. Seen in Netflix concurrency-limits.
func TestB040_AdaptiveIsNotMisledByFastFailures(t *testing.T) {
	bound := func(failing float64) float64 {
		s := scales()[0]
		s.policy, s.seed = newAdaptive(t, shedder.AdaptiveConfig{}), 1
		s.load = constant(2)
		s.service = func(r *rand.Rand) float64 {
			if r.Float64() < failing {
				return 0.002
			}
			return 1
		}
		s.until = 10 * time.Second
		s.run()
		return float64(a0(s.policy).Bound)
	}
	require.InEpsilon(t, bound(0), bound(0.1), 0.1)
}

// A stage whose work only fails, at once, is not throttled. Seen in go-zero.
func TestAdaptiveDoesNotThrottleAStageThatOnlyFails(t *testing.T) {
	s := scales()[0]
	s.policy, s.seed = newAdaptive(t, shedder.AdaptiveConfig{}), 1
	s.load = constant(0.9)
	s.service = func(*rand.Rand) float64 { return 0.002 }
	s.until = 10 * time.Second
	require.Zero(t, s.run().shed)
}

// The bound stays within sane limits whatever the service times do. Seen in
// Envoy.
func TestB041_AdaptiveBoundNeverFallsBelowItsFloor(t *testing.T) {
	a := newAdaptive(t, shedder.AdaptiveConfig{})
	rng := rand.New(rand.NewPCG(1, 1))
	now := time.Duration(0)
	for range 100_000 {
		took := time.Duration(math.Exp(rng.Float64()*math.Log(1e4)) * float64(ms))
		now += took
		a.Done(done(now, took, shedder.Load{Waiting: rng.IntN(20), Busy: 5, Concurrency: 5}))
		a.Admit(ask(now, 5, rng.IntN(100)))
		if st := a0(a); st.Warm {
			require.GreaterOrEqual(t, st.Bound, 2)
			require.LessOrEqual(t, st.Bound, 1000)
		}
	}
}

// Modest overload for half an hour: the bound settles, it does not climb. Seen
// in Netflix concurrency-limits and failsafe-go.
func TestB045_AdaptiveDoesNotDriftInLongOverload(t *testing.T) {
	s := scales()[0]
	s.policy, s.seed = newAdaptive(t, shedder.AdaptiveConfig{}), 1
	s.mean = 50 * ms // as many units of time in fewer jobs
	s.load = constant(1.2)
	s.from, s.until = 29*time.Minute, 30*time.Minute
	late := s.run()
	s.policy = newAdaptive(t, shedder.AdaptiveConfig{})
	s.from, s.until = time.Minute, 2*time.Minute
	early := s.run()
	require.InEpsilon(t, float64(early.wait(50)), float64(late.wait(50)), 0.25)
	require.Less(t, late.p99(), 16*s.mean, "chance gives some of the burst budget back now and then")
}

// There is no ramp: what a big stage can take it takes at once, and the queue
// does not overshoot its bound. Seen in Netflix concurrency-limits.
func TestB046_AdaptiveNeedsNoRampUp(t *testing.T) {
	s := sim{workers: 1000, mean: 100 * ms, seed: 1, until: 6 * time.Second, from: 500 * ms}
	s.policy = newAdaptive(t, shedder.AdaptiveConfig{})
	s.load = step(0.02, 2, 500*ms, time.Hour)
	r := s.run()
	require.Greater(t, r.used(&s), 0.95)
	require.LessOrEqual(t, r.most, 16_000)
}

// One lucky sample is no baseline. Seen in Netflix concurrency-limits.
func TestAdaptiveIsNotFooledByALuckySample(t *testing.T) {
	a, now := warmed(t, 16, 300*ms, 1000)
	before := a.Bound()
	a.Done(done(now+ms, time.Microsecond, shedder.Load{Concurrency: 16}))
	require.InEpsilon(t, before, a.Bound(), 0.05)
}

// Less than one request a second and a cold window refuse nothing. Seen in
// Envoy.
func TestAdaptiveAdmitsWhileColdAndIdle(t *testing.T) {
	a := newAdaptive(t, shedder.AdaptiveConfig{})
	for i := range 1000 {
		require.Equal(t, shedder.Admit, a.Admit(ask(time.Duration(i), 1, i)).Action, "nothing has ended yet")
	}
	require.Zero(t, a.Bound(), "no bound is known")
	require.Equal(t, reason.ShedDeadline, a.Admit(&shedder.Request{Now: 5, Deadline: 4}).Reason)
}

// A stage that is idle tries again although its deadlines looked hopeless when
// it was last seen.
func TestAdaptiveProbesAfterAnOutage(t *testing.T) {
	a, now := warmed(t, 4, time.Second, 100)
	r := ask(now+ms, 4, 0)
	r.Deadline = r.Now + 100*ms
	v := a.Admit(r)
	require.Equal(t, shedder.RuleDeadline, v.Rule)
	require.Equal(t, reason.ShedDeadline, v.Reason)
	r.Now += time.Minute
	r.Deadline = r.Now + 100*ms
	require.Equal(t, shedder.Admit, a.Admit(r).Action)
}

func TestAdaptiveForeseesTheQueueOfALaterStage(t *testing.T) {
	a, now := warmed(t, 16, 5*ms, 100)
	bound := a.Bound()
	r := ask(now, 16, 0)
	r.Later, r.Inbound = true, bound+10
	require.Equal(t, shedder.Refuse, a.Admit(r).Action, "all of it is in front of this one")
	r.Transit = 10 * ms // in which 32 are done
	v := a.Admit(r)
	require.Equal(t, shedder.Admit, v.Action)
	require.InDelta(t, float64(bound+10-32+1)*5/16*1e6, float64(v.Wait), 1e5)
	r.Inbound = 20
	require.Zero(t, a.Admit(r).Wait)
}

func TestAdaptiveTakesAChangedConcurrencyAtOnce(t *testing.T) {
	a, now := warmed(t, 4, 5*ms, 200)
	before := a.Bound()
	require.Equal(t, shedder.Refuse, a.Admit(ask(now, 4, before)).Action)
	require.Equal(t, shedder.Admit, a.Admit(ask(now, 32, before)).Action)
	require.Greater(t, a.Bound(), 4*before)
	require.Equal(t, shedder.Refuse, a.Admit(ask(now, 4, before)).Action)
}

func TestAdaptiveObeysGuards(t *testing.T) {
	a, now := warmed(t, 16, 5*ms, 100)
	r := ask(now, 16, 40)
	require.Equal(t, shedder.Admit, a.Admit(r).Action)
	r.Guards = &shedder.Guards{MaxTarget: 10 * ms} // 32 units
	v := a.Admit(r)
	require.Equal(t, shedder.Refuse, v.Action)
	require.Equal(t, shedder.RuleTarget, v.Rule)
	require.InDelta(t, 32, v.Limit, 0.1)
	r.Guards = &shedder.Guards{Baseline: ms / 2}
	r.Waiting, r.Ahead = 300, 300
	v = a.Admit(r)
	require.Equal(t, ms/2, v.Service, "the baseline is believed")
	r.Guards = nil
	require.Equal(t, 5*ms, a.Admit(r).Service)
}

func TestAdaptivePushesOutLowerClassesFirst(t *testing.T) {
	a, now := warmed(t, 16, 5*ms, 100)
	r := ask(now, 16, a.Bound())
	r.Classes, r.Ahead, r.Evictable = 2, 10, a.Bound()-10
	require.Equal(t, shedder.PushOut, a.Admit(r).Action)
}

// Demand statistics of nothing, and of one that was idle, are no credit. Seen in
// Kubernetes.
func TestAdaptiveFairnessStoresNoCredit(t *testing.T) {
	a, now := warmed(t, 16, 5*ms, 100)
	admitted := 0
	for i := range 4000 {
		now += 100 * time.Microsecond
		r := ask(now, 16, 20)
		r.Sender = "busy"
		if i == 0 {
			r.Waiting, r.Ahead = 1000, 1000
		}
		if i > 3000 { // was idle so far
			r.Sender = "idle"
		}
		if i%10 == 0 {
			a.Done(done(now, 5*ms, r.Load))
		}
		if v := a.Admit(r); i > 3000 && v.Action == shedder.Admit {
			admitted++
		}
	}
	require.Less(t, admitted, 900)
}

func TestAdaptiveTellsABoundedNumberOfSendersApart(t *testing.T) {
	a := newAdaptive(t, shedder.AdaptiveConfig{Senders: 4})
	now := time.Duration(0)
	for i := range 2000 {
		now += ms
		r := ask(now, 1, i%30)
		r.Sender = string(rune('a' + i%50))
		a.Admit(r)
		a.Undo(r)
		a.Done(done(now, 2*ms, r.Load))
	}
}

func FuzzAdaptive(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Add([]byte{0xff, 0, 0x80, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Fuzz(func(t *testing.T, data []byte) {
		a := newAdaptive(t, shedder.AdaptiveConfig{})
		at := 0
		num := func() int64 {
			if at >= len(data) {
				return 0
			}
			b := data[at]
			at++
			x := int64(b&15) << (b >> 4 * 4)
			if b == 0xff {
				return math.MinInt64
			}
			return x
		}
		for at < len(data) {
			l := shedder.Load{
				Waiting: int(num()), Ahead: int(num()), Evictable: int(num()), Inbound: int(num()),
				Busy: int(num()), Concurrency: int(num()), Capacity: int(num()),
			}
			r := &shedder.Request{
				Now: time.Duration(num()), Deadline: time.Duration(num()), Transit: time.Duration(num()), Later: num()&1 == 1,
				Class: int(num()), Classes: int(num()), Share: math.Float64frombits(uint64(num())), Load: l,
			}
			if n := num(); n&1 == 1 {
				r.Sender = string(rune(n))
			}
			if num()&1 == 1 {
				r.Guards = &shedder.Guards{MaxTarget: time.Duration(num()), Baseline: time.Duration(num())}
			}
			v := a.Admit(r)
			if v.Action == shedder.Refuse && r.Deadline == 0 && !r.Later && l.Waiting <= 0 && l.Busy < max(l.Concurrency, 1) {
				t.Fatalf("an idle stage refuses: %+v %+v", r, v)
			}
			if v.Wait < 0 || v.Service < 0 || v.RetryAfter < 0 || math.IsNaN(v.Limit) || math.IsNaN(v.Value) {
				t.Fatalf("verdict %+v", v)
			}
			if num()&1 == 1 {
				a.Undo(r)
			}
			a.Done(&shedder.Done{
				Now: time.Duration(num()), N: int(num()), Service: time.Duration(num()),
				Squares: math.Float64frombits(uint64(num()) << 8), Load: l, Guards: r.Guards,
			})
			if b := a.Bound(); b < 0 || b > 1<<30 {
				t.Fatalf("bound %d", b)
			}
			var st shedder.State
			a.Inspect(r.Now, &st)
			if math.IsNaN(st.DrainRate) || math.IsInf(st.DrainRate, 0) || math.IsNaN(st.Burst) || st.Burst < 0 || st.Burst > 1 || st.Target < 0 {
				t.Fatalf("state %+v", st)
			}
		}
	})
}
