package shedder_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shedder"
)

// flood asks one worker of 1 ms for more at even intervals, until it refuses,
// and returns how many wait then.
func flood(t *testing.T, a *shedder.Adaptive, now, every time.Duration) int {
	t.Helper()
	end := now + ms // of the one in service
	asked := 0
	for queue := 0; asked < 1000; asked++ {
		for ; end <= now; end += ms {
			queue = max(queue-1, 0)
			a.Done(done(end, ms, shedder.Load{Waiting: queue, Busy: 1, Concurrency: 1}))
		}
		r := ask(now, 1, queue)
		if r.Busy = 1; asked == 0 {
			r.Busy = 0
		}
		if a.Admit(r).Action == shedder.Refuse {
			return queue
		}
		if asked > 0 {
			queue++
		}
		now += every
	}
	require.Fail(t, "nothing was refused")
	return 0
}

// What comes at once may wait in the whole burst bound; what keeps coming is
// overload before it would wait for longer than a burst may.
func TestAdaptiveTellsABurstFromAFlood(t *testing.T) {
	a, now := warmed(t, 1, ms, 200)
	require.GreaterOrEqual(t, flood(t, a, now+time.Second, 0), 20, "all at once")

	a, now = warmed(t, 1, ms, 200)
	require.GreaterOrEqual(t, flood(t, a, now+time.Second, 10*time.Microsecond), 20, "nearly at once")

	for _, every := range []time.Duration{ms / 20, ms / 10, ms / 4, ms / 2} {
		a, now = warmed(t, 1, ms, 200)
		require.LessOrEqual(t, flood(t, a, now+time.Second, every), 17, "every %v", every)
	}
}

// Whoever comes after such a burst is no overload either.
func TestAdaptiveExcusesTheBurstToThoseBehindIt(t *testing.T) {
	a, now := warmed(t, 1, ms, 200)
	now += time.Second
	r := ask(now, 1, 0)
	a.Admit(r)
	for queue := range 20 {
		r = ask(now, 1, queue)
		r.Busy = 1
		require.Equal(t, shedder.Admit, a.Admit(r).Action)
	}
	for queue := 19; queue > 0; queue-- {
		now += ms
		a.Done(done(now, ms, shedder.Load{Waiting: queue, Busy: 1, Concurrency: 1}))
		require.Equal(t, shedder.Admit, a.Admit(ask(now, 1, queue)).Action, "%d wait", queue)
	}
}

// Where the worker is busy nearly all the time, the same queue is chance.
func TestAdaptiveKeepsTheBurstBoundWhereTheWorkerIsUsuallyBusy(t *testing.T) {
	least := func(load float64) int {
		a, now := warmed(t, 1, ms, 200)
		for range 20_000 { // evenly, so that nothing is ever refused
			now += time.Duration(float64(ms) / load)
			require.Equal(t, shedder.Admit, a.Admit(ask(now, 1, 0)).Action)
			a.Done(done(now+ms/2, ms, shedder.Load{Concurrency: 1}))
		}
		return flood(t, a, now+ms, ms*10/11)
	}
	require.Greater(t, least(0.95), least(0.3)+3)
}

// A clock that jumps leaves no burst unexcused and none excused for ever.
func TestAdaptiveBurstBearsAClockThatJumps(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, 1000 * 24 * time.Hour} {
		a, now := warmed(t, 1, ms, 200)
		now += 2 * time.Hour
		a.Admit(ask(now, 1, 0))
		now += jump
		require.LessOrEqual(t, flood(t, a, now, ms/10), 20, "%v", jump)
		require.LessOrEqual(t, flood(t, a, now+time.Minute, ms/10), 17, "%v", jump)
	}
}
