package shard_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shard"
)

// Handlers block while the number changes and publishers go on: each change
// returns in its time, refused, and the rest of the shards work.
func TestResizeWhileHandlersBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		var handled, other atomic.Int64
		stuck := shardOfKey1(8)
		rt := start(t, shard.Config[int]{Shards: 8, Handle: func(s *shard.Shard[int], v *int) {
			if *v < 0 {
				<-hold
			} else if s.Index() != stuck {
				other.Add(1)
			}
			handled.Add(1)
		}})
		require.NoError(t, rt.Push(t.Context(), hashOf(1), -1))
		synctest.Wait()
		over := make(chan struct{})
		var pushed, hung atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				prod := rt.Producer()
				for i := 0; ; i++ {
					select {
					case <-over:
						return
					default:
					}
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					began := time.Now()
					if prod.Push(ctx, hashOf(i%40), i) == nil {
						pushed.Add(1)
					}
					if time.Since(began) > 50*time.Millisecond {
						hung.Add(1)
					}
					cancel()
					time.Sleep(100 * time.Microsecond)
				}
			})
		}
		for _, n := range []int{2, 8, 2, 16} {
			before := other.Load()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			err := rt.Resize(ctx, n)
			took := time.Since(began)
			cancel()
			if n == 8 {
				require.NoError(t, err)
				continue
			}
			require.Equal(t, time.Second, took)
			require.ErrorIs(t, err, shard.ErrStalled)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			st, ok := errors.AsType[*shard.StalledError](err)
			require.True(t, ok)
			require.Equal(t, stuck, st.Shard)
			require.GreaterOrEqual(t, st.For, time.Second)
			require.Equal(t, 8, rt.Layout().Shards())
			require.Greater(t, other.Load(), before+100, "the other shards go on")
		}
		close(hold)
		require.NoError(t, rt.Resize(t.Context(), 2))
		require.NoError(t, rt.Resize(t.Context(), 8))
		close(over)
		wg.Wait()
		closeAll(t, rt)
		require.Zero(t, hung.Load())
		require.Equal(t, pushed.Load()+1, handled.Load())
	})
}

func shardOfKey1(shards int) int { return shard.NewLayout(shards).Of(hashOf(1)) }

// A handler that spins is one that blocks.
func TestResizeWhileAHandlerSpins(t *testing.T) {
	var stop atomic.Bool
	var handled atomic.Int64
	begun := make(chan struct{})
	rt := start(t, shard.Config[int]{Shards: 2, Handle: func(_ *shard.Shard[int], v *int) {
		if *v < 0 {
			close(begun)
			for !stop.Load() {
				handled.Load()
			}
		}
		handled.Add(1)
	}})
	require.NoError(t, rt.Push(t.Context(), hashOf(1), -1))
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	err := rt.Resize(ctx, 3)
	st, ok := errors.AsType[*shard.StalledError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, shardOfKey1(2), st.Shard)
	for k := 2; ; k++ {
		if rt.Layout().Of(hashOf(k)) != st.Shard {
			require.NoError(t, rt.Push(t.Context(), hashOf(k), 1))
			break
		}
	}
	require.Eventually(t, func() bool { return handled.Load() == 1 }, 10*time.Second, time.Millisecond, "the other shard goes on")
	stop.Store(true)
	require.NoError(t, rt.Resize(t.Context(), 3))
	closeAll(t, rt)
	require.EqualValues(t, 2, handled.Load())
}

// Changes after changes do not let in more and more.
func TestResizesDoNotLiftTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := start(t, shard.Config[int]{Shards: 2, Mailbox: 10, Transit: 10, Handle: func(*shard.Shard[int], *int) { time.Sleep(10 * time.Millisecond) }})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := 0; rt.Push(ctx, hashOf(g*1000+i), i) == nil; i++ {
				}
			})
		}
		most, n := 0, 0
		for rt.Resize(ctx, 1+n%2) == nil {
			var st shard.Stats
			rt.ReadStats(&st)
			most = max(most, st.Pending)
			n++
		}
		wg.Wait()
		require.Greater(t, n, 10)
		require.LessOrEqual(t, most, 2*20+2)
		closeAll(t, rt)
	})
}
