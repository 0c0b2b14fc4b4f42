package shard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/internal/invariant"
	"github.com/sedabus/seda/shard"
)

// item is one unit of work of the tests.
type item struct {
	key, seq, hops int
}

func hashOf(key int) uint64 { return shard.Hash(fmt.Sprint("key-", key)) }

// ledger checks that each key's items come in order, each of them once.
type ledger struct {
	mu   sync.Mutex
	next map[int]int
	n    int
	bad  []string
}

func (l *ledger) saw(it *item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		l.next = make(map[int]int)
	}
	if want := l.next[it.key]; want != it.seq && len(l.bad) < 5 {
		l.bad = append(l.bad, fmt.Sprintf("key %d: %d came when %d was due", it.key, it.seq, want))
	}
	l.next[it.key] = it.seq + 1
	l.n++
}

func (l *ledger) check(t *testing.T, want int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(t, l.bad)
	require.Equal(t, want, l.n)
}

// closeAll closes and expects nothing left.
func closeAll[T any](t *testing.T, rt *shard.Runtime[T]) {
	t.Helper()
	r, err := rt.Close(context.Background())
	require.NoError(t, err)
	require.Zero(t, r.Left)
	var st shard.Stats
	rt.ReadStats(&st)
	require.Zero(t, st.Pending)
	require.Zero(t, st.Inside)
}

func start[T any](t *testing.T, cfg shard.Config[T]) *shard.Runtime[T] {
	t.Helper()
	rt, err := shard.New(cfg)
	require.NoError(t, err)
	return rt
}

// Random programs: producers, plain pushers and handlers that send on, over
// shards whose number changes. Nothing is lost, doubled or out of order.
func TestModel(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) { model(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func model(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	var got ledger
	hops := rnd.IntN(4)
	slow := rnd.IntN(200)
	rt := start(t, shard.Config[item]{
		Shards: 1 + rnd.IntN(9), Mailbox: 1 + rnd.IntN(40), Lane: 1 << rnd.IntN(7), Transit: 1 + rnd.IntN(60), Spread: 1 + rnd.IntN(5),
		Handle: func(s *shard.Shard[item], it *item) {
			if slow > 0 && it.seq%slow == slow-1 {
				time.Sleep(time.Duration(it.key%7) * 200 * time.Microsecond)
			}
			if it.hops < hops {
				next := *it
				next.hops++
				hash := hashOf(it.key*10 + next.hops) // another key at every hop, so another shard
				if it.seq%5 == 0 {
					s.Forward(hash, next)
				} else if err := s.Send(hash, next); err != nil {
					t.Error("the first Send of an item was refused:", err)
				}
				return
			}
			got.saw(it)
		},
	})
	const each = 150
	pushers := 1 + rnd.IntN(6)
	var wg sync.WaitGroup
	for p := range pushers {
		r := rand.New(rand.NewPCG(seed, uint64(p)+2))
		wg.Go(func() { pushAll(t, rt, r, p, each) })
	}
	over := make(chan struct{})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			case <-time.After(time.Duration(rnd.IntN(3000)) * time.Microsecond):
				require.NoError(t, rt.Resize(t.Context(), 1+rnd.IntN(9)))
			}
		}
	})
	time.AfterFunc(20*time.Millisecond, func() { close(over) })
	wg.Wait()
	closeAll(t, rt)
	got.check(t, pushers*each*3)
}

// pushAll pushes the items of three keys in one of four ways.
func pushAll(t *testing.T, rt *shard.Runtime[item], r *rand.Rand, p, each int) {
	prod := rt.Producer()
	defer prod.Close()
	plain := p%2 == 1
	for seq := range each {
		for k := range 3 {
			it := item{key: p*3 + k, seq: seq}
			hash := hashOf(it.key * 10)
			if r.IntN(20) == 0 {
				time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
			}
			var err error
			switch {
			case plain && r.IntN(2) == 0:
				err = retry(func() error { return rt.TryPush(hash, it) })
			case plain:
				err = rt.Push(t.Context(), hash, it)
			case r.IntN(3) == 0:
				var n int
				n, err = prod.PushBatch(t.Context(), hash, []item{it})
				if n != 1 {
					t.Errorf("batch of 1: %d", n)
				}
			case r.IntN(2) == 0:
				err = retry(func() error { return prod.TryPush(hash, it) })
			default:
				err = prod.Push(t.Context(), hash, it)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// retry calls f until there is room.
func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, shard.ErrFull) {
			return err
		}
		time.Sleep(10 * time.Microsecond)
	}
}

// The same on real processors: 1,000 changes under load.
func TestOrderHoldsOverAThousandResizes(t *testing.T) {
	resizes := 1000
	if testing.Short() || invariant.Enabled {
		resizes = 200 // the race detector takes a minute for a thousand
	}
	var got ledger
	counts := make([]int, 64) // by key, without a lock: a key is one shard's at a time
	rt := start(t, shard.Config[item]{
		Shards: 4,
		Handle: func(s *shard.Shard[item], it *item) {
			if it.hops == 0 {
				next := *it
				next.hops = 1
				s.Forward(hashOf(it.key), next)
				return
			}
			counts[it.key]++
			got.saw(it)
		},
	})
	over, pushed := make(chan struct{}), make([]int, 8)
	var wg sync.WaitGroup
	for p := range 8 {
		wg.Go(func() {
			prod := rt.Producer()
			defer prod.Close()
			for seq := 0; ; seq++ {
				select {
				case <-over:
					return
				default:
				}
				for k := range 8 {
					it := item{key: p*8 + k, seq: seq}
					var err error
					if p < 4 {
						err = prod.Push(t.Context(), hashOf(it.key+1000), it)
					} else {
						err = rt.Push(t.Context(), hashOf(it.key+1000), it)
					}
					if err != nil {
						t.Error(err)
					}
					pushed[p]++
				}
			}
		})
	}
	sizes := []int{7, 2, 8, 1, 64, 3, 4}
	for i := range resizes {
		require.NoError(t, rt.Resize(t.Context(), sizes[i%len(sizes)]))
	}
	close(over)
	wg.Wait()
	closeAll(t, rt)
	total, counted := 0, 0
	for _, n := range pushed {
		total += n
	}
	for _, n := range counts {
		counted += n
	}
	got.check(t, total)
	require.Equal(t, total, counted, "a counter kept without a lock")
	var st shard.Stats
	rt.ReadStats(&st)
	require.EqualValues(t, 2*total, st.Total.Handled)
	require.EqualValues(t, resizes, st.Resizes)
	t.Logf("%d items over %d resizes", total, resizes)
}

// Two shards that are both full and send to each other go on.
func TestTwoFullShardsSendToEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int64
		to := [2]uint64{}
		l := shard.NewLayout(2)
		for k := 0; to[0] == 0 || to[1] == 0; k++ {
			to[l.Of(hashOf(k))] = hashOf(k)
		}
		rt := start(t, shard.Config[item]{
			Shards: 2, Mailbox: 4, Lane: 4, Transit: 4,
			Handle: func(s *shard.Shard[item], it *item) {
				if it.hops == 100 {
					ended.Add(1)
					return
				}
				next := *it
				next.hops++
				if err := s.Send(to[1-s.Index()], next); err != nil {
					t.Error(err)
				}
			},
		})
		var wg sync.WaitGroup
		for p := range 8 {
			wg.Go(func() {
				prod := rt.Producer()
				for range 50 {
					if err := prod.Push(t.Context(), to[p%2], item{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		closeAll(t, rt)
		require.EqualValues(t, 400, ended.Load())
	})
}

// What one handler sends beyond its own place is bounded.
func TestSendRefusesBeyondTwiceTheTransit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent, refused := 0, 0
		rt := start(t, shard.Config[item]{Shards: 3, Transit: 10, Handle: func(s *shard.Shard[item], it *item) {
			if it.hops > 0 {
				return
			}
			for i := range 1000 {
				err := s.Send(hashOf(i), item{hops: 1})
				if i%2 == 1 {
					err = s.Keep(item{hops: 1})
				}
				if err != nil {
					require.ErrorIs(t, err, shard.ErrFull)
					refused++
				} else {
					sent++
				}
			}
		}})
		require.NoError(t, rt.Push(t.Context(), 1, item{}))
		closeAll(t, rt)
		require.GreaterOrEqual(t, sent, 10)
		require.LessOrEqual(t, sent, 25)
		require.Positive(t, refused)
	})
}

func TestPushWaitsInOrderAndGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		var got []int
		rt := start(t, shard.Config[int]{Shards: 1, Mailbox: 2, Lane: 2, Handle: func(_ *shard.Shard[int], v *int) {
			<-hold
			got = append(got, *v)
		}})
		for i := range 2 {
			require.NoError(t, rt.Push(t.Context(), 1, i))
			synctest.Wait()
		}
		require.ErrorIs(t, rt.TryPush(1, 9), shard.ErrFull)
		cause := errors.New("no more time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		began := time.Now()
		err := rt.Push(ctx, 1, 9)
		require.ErrorIs(t, err, shard.ErrFull)
		require.ErrorIs(t, err, cause)
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, cause, rt.Push(ctx, 1, 9), "over at once: the cause alone")
		for i := 2; i < 5; i++ {
			go func() { require.NoError(t, rt.Push(t.Context(), 1, i)) }()
			synctest.Wait()
		}
		prod := rt.Producer()
		require.NoError(t, prod.TryPush(1, 5))
		require.NoError(t, prod.TryPush(1, 6))
		require.ErrorIs(t, prod.TryPush(1, 9), shard.ErrFull)
		ctx, cancel2 := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel2()
		n, err := prod.PushBatch(ctx, 1, []int{9})
		require.Zero(t, n)
		require.ErrorIs(t, err, shard.ErrFull)
		require.ErrorIs(t, err, cause)
		close(hold)
		n, err = prod.PushBatch(t.Context(), 1, []int{7, 8, 9, 10, 11, 12, 13})
		require.NoError(t, err)
		require.Equal(t, 7, n)
		closeAll(t, rt)
		var plain, own []int
		for _, v := range got {
			if v < 5 {
				plain = append(plain, v)
			} else {
				own = append(own, v)
			}
		}
		require.Equal(t, []int{0, 1, 2, 3, 4}, plain)
		require.Equal(t, []int{5, 6, 7, 8, 9, 10, 11, 12, 13}, own)
	})
}

func TestDelayedItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		at := map[int]time.Duration{}
		began := time.Now()
		rt := start(t, shard.Config[int]{Shards: 4, Handle: func(s *shard.Shard[int], v *int) {
			if *v == 0 {
				for i, d := range []time.Duration{-1, 0, time.Millisecond, time.Second, time.Hour, 1<<63 - 1} {
					s.After(d, hashOf(i), i+1)
				}
				return
			}
			mu.Lock()
			defer mu.Unlock()
			at[*v] = time.Since(began)
		}})
		require.NoError(t, rt.Push(t.Context(), 0, 0))
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, rt.Resize(t.Context(), 1))
		time.Sleep(time.Minute)
		synctest.Wait()
		r, err := rt.Close(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, r.Delayed)
		require.Equal(t, map[int]time.Duration{1: 0, 2: 0, 3: time.Millisecond, 4: time.Second}, at)
		var st shard.Stats
		rt.ReadStats(&st)
		require.EqualValues(t, 4, st.Total.Fired)
	})
}

func TestItemsWithoutAKeySpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var by [4]atomic.Int64
		rt := start(t, shard.Config[int]{Shards: 4, Spread: 8, Handle: func(s *shard.Shard[int], v *int) {
			by[s.Index()].Add(1)
			if *v == 1 {
				for range 320 {
					s.Forward(0, 2)
				}
			}
		}})
		prod := rt.Producer()
		for range 320 {
			require.NoError(t, prod.Push(t.Context(), 0, 0))
		}
		synctest.Wait()
		for i := range by {
			require.InDelta(t, 80, by[i].Load(), 8, "a producer's")
		}
		require.NoError(t, rt.Push(t.Context(), 0, 1))
		synctest.Wait()
		for i := range by {
			require.InDelta(t, 160, by[i].Load(), 17, "a handler's")
		}
		closeAll(t, rt)
	})
}

func TestTurnIsLocalWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left, done atomic.Int64
		rt := start(t, shard.Config[int]{
			Shards: 2,
			Handle: func(_ *shard.Shard[int], v *int) { left.Add(int64(*v)) },
			Turn: func(s *shard.Shard[int]) bool {
				if left.Load() <= 0 || s.Index() != 0 {
					return false
				}
				done.Add(1)
				return left.Add(-1) > 0
			},
		})
		k := 0
		for rt.Layout().Of(hashOf(k)) != 0 {
			k++
		}
		require.NoError(t, rt.Push(t.Context(), hashOf(k), 1000))
		closeAll(t, rt)
		require.EqualValues(t, 1000, done.Load(), "Close waits for it")
	})
}
