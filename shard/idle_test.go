package shard_test

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shard"
)

// An idle runtime does nothing at all: no timer, no turn, no processor time.
func TestIdleCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := start(t, shard.Config[int]{Shards: 64, Idle: shard.Idle{Spin: 100, Yield: 10}, Handle: func(*shard.Shard[int], *int) {}})
		prod := rt.Producer()
		for i := range 1000 {
			require.NoError(t, prod.Push(t.Context(), hashOf(i), i))
		}
		synctest.Wait()
		var a, b shard.Stats
		rt.ReadStats(&a)
		time.Sleep(time.Hour)
		rt.ReadStats(&b)
		require.EqualValues(t, 1000, b.Total.Handled)
		require.Equal(t, a.Total, b.Total)
		for _, s := range b.Shards {
			require.True(t, s.Parked)
			require.Zero(t, s.Busy)
		}
		require.NoError(t, prod.Push(t.Context(), hashOf(1), 1))
		closeAll(t, rt)
	})
}

// A slow shard holds back what comes from outside, not what is inside.
func TestBrakeHoldsBackWhatComesFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const transit, items = 50, 2000
		slow, fast := uint64(0), uint64(0)
		l := shard.NewLayout(2)
		for k := 0; slow == 0 || fast == 0; k++ {
			if l.Of(hashOf(k)) == 0 {
				slow = hashOf(k)
			} else {
				fast = hashOf(k)
			}
		}
		rt := start(t, shard.Config[item]{Shards: 2, Transit: transit, Lane: 16, Mailbox: 16, Handle: func(s *shard.Shard[item], it *item) {
			if it.hops == 0 {
				require.NoError(t, s.Send(slow, item{hops: 1}))
				return
			}
			time.Sleep(time.Millisecond)
		}})
		go func() {
			prod := rt.Producer()
			for i := range items {
				if i%2 == 0 {
					require.NoError(t, prod.Push(t.Context(), fast, item{}))
				} else {
					require.NoError(t, rt.Push(t.Context(), fast, item{}))
				}
			}
		}()
		var st shard.Stats
		for range items / 2 {
			time.Sleep(time.Millisecond)
			rt.ReadStats(&st)
			require.LessOrEqual(t, st.Inside, transit+16+64*4)
			require.LessOrEqual(t, st.Pending-st.Inside, 32, "what waits outside")
		}
		require.GreaterOrEqual(t, st.Inside, transit/2, "the slow shard never lacks work")
		require.Positive(t, st.Total.Brakes)
		time.Sleep(2 * items * time.Millisecond)
		closeAll(t, rt)
		rt.ReadStats(&st)
		require.EqualValues(t, 2*items, st.Total.Handled)
	})
}

// Alarms that go off while the loop is going to sleep.
func TestNoAlarmIsLost(t *testing.T) {
	back := make(chan struct{}, 1)
	rt := start(t, shard.Config[int]{Shards: 2, Handle: func(s *shard.Shard[int], v *int) {
		if *v >= 0 {
			s.After(time.Duration(*v)*50, s.Key(), -1)
			return
		}
		back <- struct{}{}
	}})
	deadline := time.AfterFunc(time.Minute, func() { panic("an alarm was lost") })
	defer deadline.Stop()
	for i := range 5000 {
		require.NoError(t, rt.Push(t.Context(), hashOf(i), i%100))
		<-back
	}
	closeAll(t, rt)
}

// Pushes that hit the moment in which a loop lets go of a lane.
func TestNoPushIsOverlooked(t *testing.T) {
	var handled atomic.Int64
	rt := start(t, shard.Config[int]{Shards: 1, Handle: func(*shard.Shard[int], *int) { handled.Add(1) }})
	deadline := time.AfterFunc(time.Minute, func() { panic("a push was overlooked") })
	defer deadline.Stop()
	prod := rt.Producer()
	rnd, sum := rand.New(rand.NewPCG(1, 2)), 0
	for i := range 100_000 {
		require.NoError(t, prod.Push(t.Context(), 1, i))
		for range rnd.IntN(1500) { // nanoseconds, while the loop comes to its end
			sum++
		}
		require.NoError(t, prod.Push(t.Context(), 1, i))
		for handled.Load() < int64(2*i+2) {
			runtime.Gosched()
		}
	}
	require.Positive(t, sum)
	closeAll(t, rt)
}

// Wake-ups: one item at a time, each to a loop that is going to sleep or sleeps.
func TestNoWakeUpIsLost(t *testing.T) {
	for _, idle := range []shard.Idle{{}, {Spin: 50}, {Yield: 3}} {
		back := make(chan int, 1)
		rt := start(t, shard.Config[int]{Shards: 3, Idle: idle, Handle: func(s *shard.Shard[int], v *int) {
			if *v%3 == 0 {
				s.Forward(hashOf(*v+1), *v+1)
				return
			}
			back <- *v
		}})
		prod := rt.Producer()
		deadline := time.AfterFunc(time.Minute, func() { panic("a wake-up was lost") })
		for i := range 20_000 {
			if i%2 == 0 {
				require.NoError(t, prod.Push(t.Context(), hashOf(i), i*3))
			} else {
				require.NoError(t, rt.Push(t.Context(), hashOf(i), i*3))
			}
			<-back
			for range i % 50 {
				runtime.Gosched()
			}
		}
		deadline.Stop()
		closeAll(t, rt)
	}
}
