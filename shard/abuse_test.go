package shard_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shard"
)

func TestConfigNamesAllFaults(t *testing.T) {
	_, err := shard.New(shard.Config[int]{
		Shards: -1, Mailbox: math.MaxInt, Lane: 3, Transit: -5, Spread: math.MinInt, Stall: 1,
		Idle: shard.Idle{Spin: -1, Yield: 1 << 20}, Pin: shard.Pin{CPUs: []int{0, -1}},
	})
	require.ErrorIs(t, err, shard.ErrInvalid)
	for _, field := range []string{
		"Handle is nil", "Shards is -1: 0 to 1024", "Mailbox is 9223372036854775807: 0 to 1048576", "Lane is 3: a power of two",
		"Transit is -5", "Spread is -9223372036854775808", "Stall is 1ns", "Idle.Spin is -1", "Idle.Yield is 1048576", "Pin.CPUs[1] is -1",
	} {
		require.ErrorContains(t, err, field)
	}
}

func TestZeroConfigIsFourShardsForEachProcessor(t *testing.T) {
	rt := start(t, shard.Config[int]{Handle: func(*shard.Shard[int], *int) {}})
	require.Equal(t, min(4*runtime.GOMAXPROCS(0), shard.MaxShards), rt.Layout().Shards())
	closeAll(t, rt)
}

func TestPanicAndGoexitCostOneItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []int
		var told []shard.Panic
		rt := start(t, shard.Config[int]{
			Shards: 2,
			Handle: func(s *shard.Shard[int], v *int) {
				switch *v % 10 {
				case 3:
					panic(*v)
				case 5:
					if *v < 1000 {
						s.Forward(s.Key(), 1000+*v) // what was sent before lives on
					}
					runtime.Goexit()
				}
				mu.Lock()
				defer mu.Unlock()
				got = append(got, *v)
			},
			OnPanic: func(p shard.Panic) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, p)
				panic("a broken hook")
			},
		})
		prod := rt.Producer()
		for i := range 100 {
			require.NoError(t, prod.Push(t.Context(), 1, i))
			if i%2 == 0 {
				require.NoError(t, rt.Push(t.Context(), 2, 0))
			}
		}
		closeAll(t, rt)
		require.Len(t, got, 80+50)
		require.Len(t, told, 30)
		goexits, panics := 0, 0
		for _, p := range told {
			if p.Goexit {
				goexits++
				require.Nil(t, p.Value)
				continue
			}
			panics++
			require.Contains(t, string(p.Stack), "TestPanicAndGoexit")
		}
		require.Equal(t, 10, panics)
		require.Equal(t, 20, goexits, "what the sent items do counts too")
		var st shard.Stats
		rt.ReadStats(&st)
		require.EqualValues(t, 10, st.Total.Panics)
		require.EqualValues(t, 20, st.Total.Exits)
		require.EqualValues(t, 160, st.Total.Handled)
	})
}

func TestTurnThatFailsIsContained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns, handled atomic.Int64
		rt := start(t, shard.Config[int]{
			Shards: 1,
			Handle: func(*shard.Shard[int], *int) { handled.Add(1) },
			Turn: func(*shard.Shard[int]) bool {
				switch turns.Add(1) % 3 {
				case 1:
					panic("turn")
				case 2:
					runtime.Goexit()
				}
				return false
			},
		})
		for i := range 10 {
			require.NoError(t, rt.Push(t.Context(), 1, i))
			synctest.Wait()
		}
		closeAll(t, rt)
		require.EqualValues(t, 10, handled.Load())
	})
}

// A handler gets answers, not a deadlock: change, close, push into its own shard.
func TestCallsFromInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rt *shard.Runtime[int]
		var errs [5]error
		var prod *shard.Producer[int]
		rt = start(t, shard.Config[int]{Shards: 1, Mailbox: 1, Lane: 2, Handle: func(_ *shard.Shard[int], v *int) {
			if *v != 1 {
				return
			}
			errs[0] = rt.Resize(context.Background(), 2)
			for errs[1] == nil {
				errs[1] = rt.Push(context.Background(), 1, 2)
			}
			for errs[2] == nil {
				errs[2] = prod.Push(context.Background(), 1, 2)
			}
			_, errs[3] = rt.Close(context.Background())
			errs[4] = rt.TryPush(1, 3)
		}})
		prod = rt.Producer()
		began := time.Now()
		require.NoError(t, rt.TryPush(1, 1))
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 10*time.Millisecond, time.Since(began))
		for i := range 4 {
			require.ErrorIs(t, errs[i], shard.ErrInside, "call %d", i)
		}
		require.ErrorIs(t, errs[4], shard.ErrClosed)
		closeAll(t, rt)
	})
}

func TestCallsFromOnResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rt *shard.Runtime[int]
		var inner error
		var answer func() error
		rt = start(t, shard.Config[int]{
			Shards: 2,
			Handle: func(*shard.Shard[int], *int) {},
			OnResize: func(from, to *shard.Layout) error {
				require.Equal(t, 2, from.Shards())
				require.Equal(t, 3, to.Shards())
				inner = rt.Resize(context.Background(), 5)
				return answer()
			},
		})
		refusal := errors.New("this state cannot be split")
		answer = func() error { return refusal }
		require.Equal(t, refusal, rt.Resize(t.Context(), 3))
		require.ErrorIs(t, inner, shard.ErrInside)
		answer = func() error { panic("a broken hook") }
		require.ErrorContains(t, rt.Resize(t.Context(), 3), "a broken hook")
		require.Equal(t, 2, rt.Layout().Shards())
		answer = func() error { runtime.Goexit(); return nil }
		go func() { _ = rt.Resize(t.Context(), 3) }()
		synctest.Wait()
		require.Equal(t, 2, rt.Layout().Shards())
		require.NoError(t, rt.Push(t.Context(), 1, 1), "the shards go on")
		synctest.Wait()
		answer = func() error { return nil }
		require.NoError(t, rt.Resize(t.Context(), 3))
		require.Equal(t, 3, rt.Layout().Shards())
		for _, n := range []int{0, -1, 1025, math.MaxInt} {
			require.ErrorIs(t, rt.Resize(t.Context(), n), shard.ErrInvalid)
		}
		closeAll(t, rt)
		require.ErrorIs(t, rt.Resize(t.Context(), 2), shard.ErrClosed)
	})
}

// State kept by shard, without locks, moves in OnResize and stays exact.
func TestStateKeptByShardIsExactOverResizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := make([]map[uint64]int, shard.MaxShards)
		for i := range state {
			state[i] = map[uint64]int{}
		}
		rt := start(t, shard.Config[int]{
			Shards: 4,
			Handle: func(s *shard.Shard[int], _ *int) { state[s.Index()][s.Key()]++ },
			OnResize: func(from, to *shard.Layout) error {
				for i := range from.Shards() {
					for k, n := range state[i] {
						if j := to.Of(k); j != i {
							state[j][k] = n
							delete(state[i], k)
						}
					}
				}
				return nil
			},
		})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				prod := rt.Producer()
				for i := range 3000 {
					require.NoError(t, prod.Push(t.Context(), hashOf(i%30), i))
				}
			})
		}
		for i := range 100 {
			require.NoError(t, rt.Resize(t.Context(), 1+i*5%11))
		}
		wg.Wait()
		closeAll(t, rt)
		l := rt.Layout()
		for k := range 30 {
			require.Equal(t, 400, state[l.Of(hashOf(k))][hashOf(k)], "key %d", k)
		}
	})
}

func TestCloseCutsAndReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		rt := start(t, shard.Config[int]{Shards: 4, Handle: func(_ *shard.Shard[int], v *int) {
			if *v == 0 {
				<-hold
			}
			time.Sleep(time.Second)
		}})
		require.NoError(t, rt.Push(t.Context(), hashOf(1), 0))
		synctest.Wait()
		for i := range 100 {
			require.NoError(t, rt.Push(t.Context(), hashOf(i), 1))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer cancel()
		began := time.Now()
		r, err := rt.Close(ctx)
		require.ErrorIs(t, err, shard.ErrCut)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(began), 5600*time.Millisecond)
		require.Len(t, r.Stuck, 4, "those that sleep, too")
		// 101 were pushed; three shards ended 5 each, and each call in hand counts as left
		require.Equal(t, 101-3*5, r.Left)
		again, err2 := rt.Close(t.Context())
		require.Equal(t, r, again)
		require.Equal(t, err.Error(), err2.Error())
		require.ErrorIs(t, rt.TryPush(1, 1), shard.ErrClosed)
		require.ErrorIs(t, rt.Push(t.Context(), 1, 1), shard.ErrClosed)
		require.ErrorIs(t, rt.Producer().TryPush(1, 1), shard.ErrClosed)
		_, err = rt.Producer().PushBatch(t.Context(), 1, []int{1})
		require.ErrorIs(t, err, shard.ErrClosed)
		close(hold)
		time.Sleep(5 * time.Second) // the bubble ends only if the stuck loops have
	})
}

// A loop that has taken a run of fast items that turn out slow still stops after
// the one in hand.
func TestCutEndsAfterTheItemInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Int64
		rt := start(t, shard.Config[int]{Shards: 1, Handle: func(_ *shard.Shard[int], v *int) {
			if *v == 1 {
				time.Sleep(time.Second)
				slow.Add(1)
			}
		}})
		prod := rt.Producer()
		for range 1000 {
			require.NoError(t, prod.Push(t.Context(), 1, 0))
		}
		synctest.Wait()
		n, err := prod.PushBatch(t.Context(), 1, slices.Repeat([]int{1}, 64))
		require.NoError(t, err)
		require.Equal(t, 64, n)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		r, err := rt.Close(ctx)
		require.ErrorIs(t, err, shard.ErrCut)
		require.Equal(t, []int{0}, r.Stuck)
		require.GreaterOrEqual(t, r.Left, 62)
		time.Sleep(time.Hour)
		require.EqualValues(t, 2, slow.Load())
	})
}

// Close while a change waits, and while OnResize does not return.
func TestCloseDuringResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		rt := start(t, shard.Config[int]{
			Shards: 2, Handle: func(*shard.Shard[int], *int) { <-hold },
			OnResize: func(_, _ *shard.Layout) error { <-hold; return nil },
		})
		go func() { require.NoError(t, rt.Resize(context.Background(), 3)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := rt.Close(ctx)
		require.ErrorIs(t, err, shard.ErrCut)
		close(hold)
		synctest.Wait()
		_, err = rt.Close(t.Context())
		require.NoError(t, err, "nothing was left in the end")
	})
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		rt := start(t, shard.Config[int]{Shards: 2, Handle: func(*shard.Shard[int], *int) { <-hold }})
		require.NoError(t, rt.Push(t.Context(), 1, 1))
		synctest.Wait()
		resized := make(chan error)
		go func() { resized <- rt.Resize(context.Background(), 3) }()
		time.Sleep(time.Second)
		go func() { closeAll(t, rt) }()
		require.ErrorIs(t, <-resized, shard.ErrClosed)
		close(hold)
	})
}

func TestCloseWakesThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		var handled atomic.Int64
		rt := start(t, shard.Config[int]{Shards: 1, Mailbox: 1, Lane: 2, Handle: func(*shard.Shard[int], *int) {
			<-hold
			handled.Add(1)
		}})
		var acc, refused atomic.Int64
		for i := range 8 {
			go func() {
				var err error
				if i%2 == 0 {
					err = rt.Push(t.Context(), 1, i)
				} else {
					prod := rt.Producer()
					for err == nil {
						if err = prod.Push(t.Context(), 1, i); err == nil {
							acc.Add(1)
						}
					}
				}
				if err == nil {
					acc.Add(1)
				} else if errors.Is(err, shard.ErrClosed) {
					refused.Add(1)
				}
			}()
		}
		synctest.Wait()
		go func() { time.Sleep(time.Second); close(hold) }()
		closeAll(t, rt)
		synctest.Wait()
		require.Equal(t, acc.Load(), handled.Load())
		require.Positive(t, refused.Load())
	})
}

// 200 runtimes leave no goroutine behind.
func TestNothingIsLeftBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 200 {
		rt := start(t, shard.Config[int]{Shards: 8, Stall: time.Second, Handle: func(s *shard.Shard[int], v *int) {
			if *v > 0 {
				s.After(time.Hour, 1, 0)
				s.Forward(uint64(*v)<<60, *v-1)
			}
		}})
		prod := rt.Producer()
		for i := range 20 {
			require.NoError(t, prod.Push(t.Context(), hashOf(i), 5))
		}
		require.NoError(t, rt.Resize(t.Context(), 3))
		closeAll(t, rt)
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 5*time.Second, time.Millisecond)
}

func TestStallIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []shard.Stall
		hold := make(chan struct{})
		rt := start(t, shard.Config[int]{
			Shards: 4, Stall: 100 * time.Millisecond, OnStall: func(s shard.Stall) {
				told = append(told, s)
				panic("a broken hook")
			},
			Handle: func(s *shard.Shard[int], v *int) {
				s.Note(int64(*v))
				<-hold
			},
		})
		require.NoError(t, rt.Push(t.Context(), hashOf(1), 77))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, told, 4, "at 100, 200, 400 and 800 ms")
		for i, s := range told {
			require.Equal(t, shardOfKey1(4), s.Shard)
			require.EqualValues(t, 77, s.Note)
			require.GreaterOrEqual(t, s.For, 100*time.Millisecond<<i)
		}
		var st shard.Stats
		rt.ReadStats(&st)
		require.Equal(t, time.Second, st.Shards[shardOfKey1(4)].Busy)
		require.EqualValues(t, 77, st.Shards[shardOfKey1(4)].Note)
		close(hold)
		closeAll(t, rt)
		rt.ReadStats(&st)
		require.EqualValues(t, 1, st.Total.Stalls)
		require.Equal(t, time.Second, st.Total.Longest)
	})
}

func TestPinnedShardsWork(t *testing.T) {
	var n atomic.Int64
	rt, err := shard.New(shard.Config[int]{Shards: 2, Pin: shard.Pin{CPUs: []int{0}}, Handle: func(_ *shard.Shard[int], v *int) {
		n.Add(1)
		if *v == 50 {
			runtime.Goexit() // the thread ends, the shard gets another
		}
	}})
	if err != nil {
		require.ErrorIs(t, err, shard.ErrAffinity)
		require.True(t, strings.Contains(err.Error(), runtime.GOOS) || strings.Contains(err.Error(), "may use"))
		return
	}
	for i := range 100 {
		require.NoError(t, rt.Push(t.Context(), hashOf(i), i))
	}
	require.NoError(t, rt.Resize(t.Context(), 3))
	closeAll(t, rt)
	require.EqualValues(t, 100, n.Load())
}

func TestPinToWhatIsNotThere(t *testing.T) {
	_, err := shard.New(shard.Config[int]{Pin: shard.Pin{CPUs: []int{1023}}, Handle: func(*shard.Shard[int], *int) {}})
	require.ErrorIs(t, err, shard.ErrAffinity)
}

func TestClosedProducerIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		rt := start(t, shard.Config[int]{Shards: 3, Handle: func(*shard.Shard[int], *int) { n.Add(1) }})
		for range 100 {
			prod := rt.Producer()
			for i := range 10 {
				require.NoError(t, prod.Push(t.Context(), hashOf(i), i))
			}
			prod.Close()
			prod.Close()
			require.ErrorIs(t, prod.TryPush(1, 1), shard.ErrClosed)
		}
		synctest.Wait()
		require.Zero(t, shard.OpenLanes(rt))
		closeAll(t, rt)
		require.EqualValues(t, 1000, n.Load())
	})
}
