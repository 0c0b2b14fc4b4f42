package bus_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
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

// flood publishes to s for d, open loop, at the rate that load gives as a part
// of capacity (envelopes a second). It returns what was offered and let in, and
// the latencies of what ended after the first part of the time.
type flood struct {
	offered, admitted, completed int
	latency                      []time.Duration
}

func (f *flood) run(t *testing.T, s *bus.Stage, d time.Duration, capacity float64, load func(time.Duration) float64, e func(i int) bus.Envelope) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(7, 7))
	begin := time.Now()
	for at := time.Duration(0); at < d; {
		at += time.Duration(rnd.ExpFloat64() / (load(at) * capacity) * float64(time.Second))
		time.Sleep(time.Until(begin.Add(at)))
		v := e(f.offered)
		sent := time.Now()
		v.OnDone = func(r bus.Result) {
			if r.End == bus.Completed {
				f.completed++
				f.latency = append(f.latency, time.Since(sent))
			}
		}
		f.offered++
		err := s.TryPublish(&v)
		if err == nil {
			f.admitted++
		} else if !errors.Is(err, bus.ErrShed) {
			t.Fatal(err)
		}
	}
}

func (f *flood) quantile(q float64) time.Duration {
	slices.Sort(f.latency)
	return f.latency[int(q*float64(len(f.latency)-1))]
}

// meanService is the mean time of the handlers that takesMean returns.
const meanService = 5 * time.Millisecond

// takesMean returns a handler whose time is exponential.
func takesMean() bus.Handler {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(3, 4))
	return func(context.Context, *bus.Envelope) error {
		mu.Lock()
		d := time.Duration(rnd.ExpFloat64() * float64(meanService))
		mu.Unlock()
		time.Sleep(d)
		return nil
	}
}

func always(load float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return load }
}

func plain(int) bus.Envelope { return bus.Envelope{} }

func TestOverloadIsShedAtTheDoor(t *testing.T) {
	const mean = meanService
	capacity := 16 / mean.Seconds()
	for load, least := range map[float64]float64{0.5: 0, 0.8: 0, 2: 0.985, 10: 0.985} {
		bustest.Run(t, bus.Config{NewShedder: shedder.Default}, func(t *testing.T, b *bus.Bus) {
			s := bustest.Stage(t, b, "s", bus.StageConfig{Concurrency: 16}, takesMean())
			bustest.Start(t, b)
			var f flood
			f.run(t, s, 10*time.Second, capacity, always(load), plain)
			time.Sleep(time.Second)
			synctest.Wait()
			st := bustest.RequireBalanced(t, b)
			t.Logf("load %v: offered %d, admitted %d, p50 %v, p99 %v", load, f.offered, f.admitted, f.quantile(0.5), f.quantile(0.99))
			require.Equal(t, f.completed, f.admitted)
			require.EqualValues(t, f.completed, st.Completed)
			if load < 1 {
				require.Equal(t, f.offered, f.admitted)
				return
			}
			require.Greater(t, float64(f.completed), least*capacity*10)
			require.Less(t, f.quantile(0.5), 8*mean)
		})
	}
}

// A bottleneck at the third stage sheds at the first, with no full queues and
// nothing parked in between.
func TestABottleneckShedsAtTheFirstStage(t *testing.T) {
	const mean = meanService
	bustest.Run(t, bus.Config{NewShedder: shedder.Default}, func(t *testing.T, b *bus.Bus) {
		first := bustest.Stage(t, b, "first", bus.StageConfig{Concurrency: 64}, takesMean())
		second := bustest.Stage(t, b, "second", bus.StageConfig{Concurrency: 64}, takesMean())
		third := bustest.Stage(t, b, "third", bus.StageConfig{Concurrency: 16}, takesMean())
		bustest.Start(t, b)
		capacity := 16 / mean.Seconds()
		slip := bus.Via("second", "third")
		var f flood
		deepest, parked := [3]int{}, 0
		look := func() {
			for i, s := range []*bus.Stage{first, second, third} {
				st := readStage(s)
				deepest[i] = max(deepest[i], st.Depth)
				parked = max(parked, st.Parked)
			}
		}
		f.run(t, first, 10*time.Second, capacity, always(2), func(i int) bus.Envelope {
			if i%50 == 0 {
				look()
			}
			return bus.Envelope{Slip: slip}
		})
		time.Sleep(time.Second)
		synctest.Wait()
		bustest.RequireBalanced(t, b)
		t.Logf("completed %.4f of capacity, p50 %v, p99 %v, deepest %v, parked at most %d",
			float64(f.completed)/capacity/10, f.quantile(0.5), f.quantile(0.99), deepest, parked)
		require.Greater(t, float64(f.completed), 0.985*capacity*10)
		require.Less(t, deepest[0]+deepest[1], 64, "the stages before the bottleneck do not fill up")
		require.Less(t, f.quantile(0.99), 20*mean)
	})
}

// Retries do not keep a stage down: while all work fails for two seconds they
// add a tenth to the load, and afterwards the stage is well at once.
func TestRetriesKeepToTheirBudget(t *testing.T) {
	const outage = 2 * time.Second
	for _, budget := range []float64{0, 0.3, 1000} {
		bustest.Run(t, bus.Config{NewShedder: shedder.Default}, func(t *testing.T, b *bus.Bus) {
			policy := retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: 10 * time.Millisecond, Budget: budget}
			healthy := takesMean()
			began := time.Now()
			s := bustest.Stage(t, b, "s", bus.StageConfig{Concurrency: 16, Retry: policy}, func(ctx context.Context, e *bus.Envelope) error {
				_ = healthy(ctx, e)
				if at := time.Since(began); at > time.Second && at < time.Second+outage {
					return errFails
				}
				return nil
			})
			bustest.Start(t, b)
			var f flood
			capacity := 16 / meanService.Seconds()
			f.run(t, s, 3*time.Second, capacity, always(0.8), plain)
			st := readStage(s)
			amplification := float64(st.Delivered) / float64(st.Delivered-st.Retried)
			var after flood
			shedBefore := st.Refused[reason.Shed]
			time.Sleep(100 * time.Millisecond)
			after.run(t, s, 2*time.Second, capacity, always(0.8), plain)
			time.Sleep(time.Second)
			synctest.Wait()
			st = readStage(s)
			t.Logf("budget %v: amplification %.3f, shed %d, then %d", budget, amplification, shedBefore, st.Refused[reason.Shed]-shedBefore)
			all := bustest.RequireBalanced(t, b)
			switch budget {
			case 0:
				require.Less(t, amplification, 1.11)
				require.Zero(t, st.Refused[reason.Shed], "the retries cost nobody a place")
				require.NotEmpty(t, b.Letters().List(bus.LetterFilter{Reason: reason.RetryBudget}))
			case 0.3:
				require.Less(t, amplification, 1.31)
			default:
				require.Greater(t, amplification, 1.2, "without a budget")
			}
			require.Equal(t, int(all.Accepted), f.admitted+after.admitted)
		})
	}
}
