package bus_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/shard"
)

// readShards reads all parts of a stage.
func readShards(t *testing.T, s *bus.Stage, n int) []bus.StageStats {
	t.Helper()
	out := make([]bus.StageStats, n)
	for i := range out {
		require.True(t, s.ReadShard(i, &out[i]))
	}
	require.False(t, s.ReadShard(n, new(bus.StageStats)))
	require.False(t, s.ReadShard(-1, new(bus.StageStats)))
	return out
}

// A key's envelopes are handled on the shard that its hash says, on every stage of
// their itinerary, and after a new key on the shard of that; nothing is handled
// anywhere else.
func TestShardsHandleTheirKeys(t *testing.T) {
	const shards, each = 4, 30
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{Shards: shards})
		a := addStage(t, b, "a", bus.StageConfig{}, ack)
		mid := addStage(t, b, "mid", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			e.Rekey("new-" + e.Key)
			return nil
		})
		last := addStage(t, b, "last", bus.StageConfig{}, ack)
		require.NoError(t, b.Start())
		require.Equal(t, shards, b.Shards())
		layout := shard.NewLayout(shards)
		var want [2][shards]uint64
		for k := range 50 {
			key := fmt.Sprintf("key-%d", k)
			want[0][layout.Of(shard.Hash(key))] += each
			want[1][layout.Of(shard.Hash("new-"+key))] += each
			for range each {
				require.NoError(t, a.Publish(t.Context(), &bus.Envelope{Key: key, Slip: bus.Via("mid", "last")}))
			}
		}
		synctest.Wait()
		for i, s := range []*bus.Stage{a, mid, last} {
			for k, part := range readShards(t, s, shards) {
				require.Equal(t, want[i/2][k], part.Delivered, "stage %d, shard %d", i, k)
			}
		}
		require.EqualValues(t, 50*each, finish(t, b).Stats.Completed)
	})
}

// What has no key is spread, so that every shard has a part; a stage of one handler
// has one home, and those of several stages are not all the same.
func TestShardsSpreadWhatHasNoKey(t *testing.T) {
	const shards = 4
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{Shards: shards})
		var once sync.WaitGroup
		once.Add(shards)
		all := addStage(t, b, "all", bus.StageConfig{}, func(context.Context, *bus.Envelope) error {
			once.Done()
			once.Wait() // until there is one on each shard
			return nil
		})
		require.Equal(t, shards, all.Config().Concurrency, "one handler a shard")
		var homes [shards]int
		var serial []*bus.Stage
		for i := range 2 * shards {
			serial = append(serial, addStage(t, b, fmt.Sprintf("s%d", i), bus.StageConfig{Concurrency: 1}, ack))
		}
		require.NoError(t, b.Start())
		for range shards {
			require.NoError(t, all.Publish(t.Context(), &bus.Envelope{}))
		}
		for _, s := range serial {
			for range 20 {
				require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
			}
		}
		synctest.Wait()
		for _, s := range serial {
			busy := 0
			for i, part := range readShards(t, s, shards) {
				if part.Delivered > 0 {
					busy++
					homes[i]++
				}
			}
			require.Equal(t, 1, busy, "a stage of one handler has one home")
		}
		for i, n := range homes {
			require.Equal(t, 2, n, "stages at home on shard %d", i)
		}
		finish(t, b)
	})
}

// One goroutine at a time runs a shard, whatever stages it works for.
func TestOneAtATimeOnAShard(t *testing.T) {
	const shards, keys, each = 3, 30, 200
	b := newBus(t, bus.Config{Shards: shards})
	layout := shard.NewLayout(shards)
	var inside [shards]atomic.Int32
	var counts [shards]int // without a lock: that is the promise
	h := func(_ context.Context, e *bus.Envelope) error {
		i := layout.Of(shard.Hash(e.Key))
		if inside[i].Add(1) != 1 {
			t.Error("two handlers at once on one shard")
		}
		counts[i]++
		inside[i].Add(-1)
		return nil
	}
	a := addStage(t, b, "a", bus.StageConfig{Capacity: 64}, h)
	addStage(t, b, "b", bus.StageConfig{Capacity: 64}, h)
	require.NoError(t, b.Start())
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() {
			handle := a.Producer()
			defer handle.Close()
			for i := range keys * each {
				e := &bus.Envelope{Key: fmt.Sprintf("%d-%d", p, i%keys), Slip: bus.Via("b")}
				if err := handle.Publish(t.Context(), e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 4*keys*each, finish(t, b).Stats.Completed)
	require.Equal(t, 2*4*keys*each, counts[0]+counts[1]+counts[2])
}

// A batch whose envelopes belong to several shards is published in order for each
// key, with the verdict of each in its place.
func TestShardsTakeBatchesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{Shards: 4})
		var mu sync.Mutex
		seen := map[string][]int{}
		s := addStage(t, b, "s", bus.StageConfig{Accepts: bus.TypeOf[int]()}, func(_ context.Context, e *bus.Envelope) error {
			mu.Lock()
			defer mu.Unlock()
			n, _ := e.Payload.(int)
			seen[e.Key] = append(seen[e.Key], n)
			return nil
		})
		require.NoError(t, b.Start())
		p := s.Producer()
		for round := range 10 {
			batch := p.Begin(40)
			for i := range 40 {
				e := batch.Next()
				e.Key, e.Payload = fmt.Sprintf("key-%d", i%7), round*40+i
				if i == 13 {
					e.Payload = "no number"
				}
			}
			n, err := batch.Publish(t.Context())
			require.Equal(t, 39, n)
			require.ErrorIs(t, err, bus.ErrType)
			for i, verdict := range batch.Errs() {
				require.Equal(t, i == 13, verdict != nil, "verdict %d", i)
			}
		}
		p.Close()
		synctest.Wait()
		total := 0
		for key, got := range seen {
			require.IsIncreasing(t, got, key)
			total += len(got)
		}
		require.Equal(t, 390, total)
		finish(t, b)
	})
}

// The capacity is one bound over the shards: places go where they are wanted, a
// lower one holds at once, and those who wait get what comes free anywhere.
func TestShardsShareThePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{Shards: 4})
		s := addStage(t, b, "s", bus.StageConfig{Capacity: 40, Full: bus.Reject}, ack)
		require.NoError(t, b.Start())
		s.Suspend(bus.Hold{})
		for range 40 { // all on one shard
			require.NoError(t, s.TryPublish(&bus.Envelope{Key: "one"}))
		}
		for i := range 20 {
			require.ErrorIs(t, s.TryPublish(&bus.Envelope{Key: fmt.Sprint(i)}), bus.ErrFull)
		}
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Capacity = 10 }))
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrFull)
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Capacity = 45 }))
		for i := range 5 {
			require.NoError(t, s.TryPublish(&bus.Envelope{Key: fmt.Sprint(i)}))
		}
		require.ErrorIs(t, s.TryPublish(&bus.Envelope{}), bus.ErrFull)
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Full, c.Capacity = bus.Block, 46 }))
		errs := make(chan error, 8)
		for i := range cap(errs) {
			go func() { errs <- s.Publish(t.Context(), &bus.Envelope{Key: fmt.Sprint("w", i)}) }()
		}
		synctest.Wait()
		require.Len(t, errs, 1)
		s.Resume("")
		for range cap(errs) {
			require.NoError(t, <-errs)
		}
		require.EqualValues(t, 40+5+8, finish(t, b).Stats.Completed)
	})
}

// The window of credits stays what it is when the capacity changes.
func TestShardsKeepTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{Shards: 4})
		c := bus.StageConfig{Capacity: 20, Full: bus.Credit}
		c.Credit.Window = 10
		s := addStage(t, b, "s", c, ack)
		require.NoError(t, b.Start())
		s.Suspend(bus.Hold{})
		s.Resume("")
		for _, capacity := range []int{200, 30, 12, 100} {
			require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Capacity = capacity }))
			var got bus.CreditState
			s.ReadCredit(&got)
			require.Equal(t, 10, got.Window, "capacity %d", capacity)
			require.Equal(t, 10, got.Free, "capacity %d", capacity)
			require.Equal(t, 0, got.Used, "capacity %d", capacity)
		}
		finish(t, b)
	})
}

// DropOldest evicts on another shard if there is nobody to evict on its own.
func TestShardsEvictElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{Shards: 4})
		s := addStage(t, b, "s", bus.StageConfig{Capacity: 8, Full: bus.DropOldest}, ack)
		require.NoError(t, b.Start())
		s.Suspend(bus.Hold{})
		for range 8 {
			require.NoError(t, s.TryPublish(&bus.Envelope{Key: "one"}))
		}
		for i := range 30 {
			require.NoError(t, s.TryPublish(&bus.Envelope{Key: fmt.Sprint(i)}))
		}
		s.Resume("")
		st := finish(t, b).Stats
		require.EqualValues(t, 8, st.Completed)
		require.EqualValues(t, 30, st.Stages[0].Entered-st.Completed)
	})
}

// A stage that is marked Blocking does not hold up the others on its shard, and as
// many of its handlers run as its Concurrency says.
func TestBlockingStagesRunBesideTheLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{Shards: 2})
		gate := make(chan struct{})
		var at atomic.Int32
		slow := addStage(t, b, "slow", bus.StageConfig{Concurrency: 7, Blocking: true}, func(context.Context, *bus.Envelope) error {
			at.Add(1)
			<-gate
			return nil
		})
		quick := addStage(t, b, "quick", bus.StageConfig{}, ack)
		require.NoError(t, b.Start())
		for i := range 20 {
			require.NoError(t, slow.Publish(t.Context(), &bus.Envelope{Key: fmt.Sprint(i)}))
		}
		for i := range 100 {
			require.NoError(t, quick.Publish(t.Context(), &bus.Envelope{Key: fmt.Sprint(i)}))
		}
		synctest.Wait()
		require.EqualValues(t, 7, at.Load())
		var st bus.StageStats
		quick.ReadStats(&st)
		require.EqualValues(t, 100, st.Completed)
		close(gate)
		finish(t, b)
	})
}

func TestShardsOutOfBounds(t *testing.T) {
	for _, n := range []int{-2, shard.MaxShards + 1} {
		_, err := bus.New(bus.Config{Shards: n})
		require.ErrorIs(t, err, bus.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprint(n))
	}
	b, err := bus.New(bus.Config{Shards: bus.AutoShards})
	require.NoError(t, err)
	require.Positive(t, b.Shards())
	require.ErrorIs(t, b.Tune(func(c *bus.Config) { c.Shards++ }), bus.ErrConflict)
	require.NoError(t, b.Close())
	b, err = bus.New(bus.Config{})
	require.NoError(t, err)
	require.Zero(t, b.Shards())
	require.NoError(t, b.Close())
}

// Random work in sharded mode: keys, hops with new keys, failures, full stages and
// live changes of every kind of bound; the account balances and nothing is left.
func TestShardsUnderChange(t *testing.T) {
	for seed := range 4 {
		b := newBus(t, bus.Config{Shards: 1 + seed})
		flaky := func(_ context.Context, e *bus.Envelope) error {
			if e.Attempt() == 1 && e.ID()%11 == 0 {
				return errors.New("not yet")
			}
			if e.ID()%3 == 0 {
				e.Rekey(fmt.Sprint(e.ID() % 40))
			}
			return nil
		}
		c := bus.StageConfig{Capacity: 50}
		c.Retry.MaxAttempts = 3
		var stages []*bus.Stage
		for i, name := range []string{"a", "b", "c"} {
			own := c
			own.Concurrency = (seed + i) % 4
			own.Blocking = i == 1
			if i == 2 {
				own.Order = bus.ByKey
			}
			stages = append(stages, addStage(t, b, name, own, flaky))
		}
		require.NoError(t, b.Start())
		var accepted atomic.Int64
		var wg sync.WaitGroup
		for p := range 4 {
			wg.Go(func() {
				handle := stages[p%3].Producer()
				defer handle.Close()
				for i := range 3000 {
					e := &bus.Envelope{Slip: bus.Via("b", "c", "a")}
					if i%4 > 0 {
						e.Key = fmt.Sprint(i % 50)
					}
					var err error
					if i%2 == 0 {
						err = handle.Publish(t.Context(), e)
					} else {
						err = stages[i%3].Publish(t.Context(), e)
					}
					if err != nil {
						t.Error(err)
						return
					}
					accepted.Add(1)
				}
			})
		}
		stop := make(chan struct{})
		tuned := make(chan struct{})
		go func() {
			defer close(tuned)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := stages[i%3].Tune(func(c *bus.StageConfig) { c.Capacity, c.Concurrency = 10+i*7%60, 1+i%6 }); err != nil {
					t.Error(err)
				}
				if err := b.Tune(func(c *bus.Config) { c.MaxHandlers = i % 4 }); err != nil {
					t.Error(err)
				}
			}
		}()
		wg.Wait()
		close(stop)
		<-tuned
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		r, err := b.Shutdown(ctx)
		cancel()
		require.NoError(t, err, "%v", r.String())
		require.NoError(t, r.Stats.Check())
		require.EqualValues(t, accepted.Load(), r.Stats.Completed)
	}
}
