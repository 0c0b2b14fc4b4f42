package shedder_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shedder"
)

// The short way of most requests answers and remembers what the long way does,
// whatever is asked.
func TestAdaptivePlainIsTheSame(t *testing.T) {
	const steps = 20_000
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		short, long := newAdaptive(t, shedder.AdaptiveConfig{}), newAdaptive(t, shedder.AdaptiveConfig{})
		now, queue, plain := time.Duration(0), 0, 0
		guards := []*shedder.Guards{nil, {}, {FloorRate: 5}, {MaxTarget: ms}, {Baseline: 2 * ms}}
		g := guards[0]
		for i := range steps {
			if rnd.IntN(500) == 0 {
				g = guards[rnd.IntN(len(guards))]
			}
			queue = max(0, queue+rnd.IntN(9)-4)
			if rnd.IntN(3000) == 0 {
				queue = rnd.IntN(300)
			}
			now += time.Duration(rnd.ExpFloat64() * 4e5)
			l := shedder.Load{Waiting: queue, Ahead: queue, Busy: min(4, rnd.IntN(8)), Concurrency: 4, Capacity: 1000}
			if queue > 0 {
				l.Busy = 4
			}
			if rnd.IntN(3) == 0 {
				d := done(now, time.Duration(rnd.ExpFloat64()*1e6), l)
				d.Guards = g
				short.Done(d)
				long.Done(d)
				continue
			}
			r := &shedder.Request{Now: now, Guards: g, Load: l}
			odd(rnd, r)
			other := *r
			v, ok := short.AdmitPlain(r)
			if ok {
				plain++
			} else {
				require.Zero(t, v)
				v = short.AdmitAny(r)
			}
			require.Equal(t, long.AdmitAny(&other), v, "seed %d, step %d: %+v", seed, i, r)
			require.True(t, short.Same(long), "seed %d, step %d: %+v", seed, i, r)
		}
		require.Greater(t, plain, steps/8, "seed %d", seed)
	}
}

// odd makes a request special now and then.
func odd(rnd *rand.Rand, r *shedder.Request) {
	switch rnd.IntN(60) {
	case 0:
		r.Classes, r.Class, r.Share = 4, rnd.IntN(4), 0.1
	case 1:
		r.Sender = string(rune('a' + rnd.IntN(20)))
	case 2:
		r.Deadline = r.Now + time.Duration(rnd.IntN(1e7))
	case 3:
		r.Later, r.Transit, r.Inbound = true, ms, rnd.IntN(20)
	case 4:
		r.Inbound = rnd.IntN(20)
	case 5:
		r.Held = true
	case 6:
		r.Now -= time.Duration(rnd.IntN(1e7))
	case 7:
		r.Concurrency = rnd.IntN(6) - 1
	case 8:
		r.Waiting, r.Ahead = -r.Waiting, -1
	case 9:
		r.Ahead = r.Waiting + rnd.IntN(9) - 4
	case 10:
		r.Evictable = rnd.IntN(3)
	case 11:
		r.Busy = -1
	case 12:
		r.Now += time.Duration(rnd.IntN(1e9))
	}
}
