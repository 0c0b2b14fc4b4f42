package credit_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/credit"
)

// demand is a producer that makes work at a rate of its own.
type demand struct {
	rate   float64 // units a second
	weight int
	ended  atomic.Int64
	got    int // in the time that counts
}

// contend lets producers use a gate with 4 workers of 1 ms for a while, and
// counts what each of them gets done.
func contend(t *testing.T, ds []*demand, lasts time.Duration) {
	g := newGate(t, credit.GateConfig{Size: credit.Sizing{Workers: 4}})
	const workers, service = 4, time.Millisecond
	queue := make(chan *demand, 1<<16)
	for range workers {
		go func() {
			for d := range queue {
				time.Sleep(service)
				g.Done(1, service)
				d.ended.Add(1)
			}
		}()
	}
	ends := time.Now().Add(lasts)
	var senders sync.WaitGroup
	for i, d := range ds {
		p, err := g.Producer(credit.AccountConfig{Weight: d.weight})
		require.NoError(t, err)
		rnd := rand.New(rand.NewPCG(uint64(i), 2))
		senders.Go(func() {
			defer p.Close()
			for next := time.Now(); next.Before(ends); {
				next = next.Add(time.Duration(rnd.ExpFloat64() / d.rate * 1e9))
				time.Sleep(time.Until(next))
				if p.Use(t.Context()) != nil {
					return
				}
				if !time.Now().Before(ends) {
					return
				}
				queue <- d
			}
		})
	}
	time.Sleep(lasts)
	for _, d := range ds {
		d.got = int(d.ended.Load())
	}
	senders.Wait()
	time.Sleep(time.Second) // the rest of the work
	close(queue)
	balanced(t, g)
	g.Close()
	synctest.Wait()
}

// maxMin returns the fair shares of a capacity: nobody gets more than it
// demands, and what one leaves goes to the others by weight.
func maxMin(ds []*demand, capacity float64) []float64 {
	shares := make([]float64, len(ds))
	order := make([]int, len(ds))
	weights := 0.0
	for i, d := range ds {
		order[i] = i
		weights += float64(max(1, d.weight))
	}
	slices.SortFunc(order, func(a, b int) int {
		return int(1e6 * (ds[a].rate/float64(max(1, ds[a].weight)) - ds[b].rate/float64(max(1, ds[b].weight))))
	})
	for _, i := range order {
		w := float64(max(1, ds[i].weight))
		shares[i] = min(ds[i].rate, capacity*w/weights)
		capacity -= shares[i]
		weights -= w
	}
	return shares
}

// jain is Jain's index of the parts of their fair shares that ds have got.
func jain(ds []*demand, shares []float64, seconds float64) float64 {
	sum, squares := 0.0, 0.0
	for i, d := range ds {
		x := float64(d.got) / seconds / shares[i]
		sum += x
		squares += x * x
	}
	return sum * sum / squares / float64(len(ds))
}

// TestDemandsOfOneToAHundred: ten producers whose demands go from 1 to 100 get
// their max-min fair shares of a stage that is asked for twice what it can do.
func TestDemandsOfOneToAHundred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ds []*demand
		sum := 0.0
		for i := range 10 {
			ds = append(ds, &demand{rate: 1 + float64(i)*11})
			sum += ds[i].rate
		}
		const capacity = 4000.0
		for _, d := range ds {
			d.rate *= 2 * capacity / sum
		}
		const seconds = 20
		contend(t, ds, seconds*time.Second)
		shares := maxMin(ds, capacity)
		got := 0
		for i, d := range ds {
			t.Logf("demand %6.1f/s, fair %6.1f/s, got %6.1f/s", d.rate, shares[i], float64(d.got)/seconds)
			got += d.got
		}
		index := jain(ds, shares, seconds)
		t.Logf("Jain %.5f, %.1f %% of the capacity", index, float64(got)/seconds/capacity*100)
		require.GreaterOrEqual(t, index, 0.995)
		require.Greater(t, float64(got), 0.99*seconds*capacity)
	})
}

// TestWeightsOfOneToThree: of producers that want all they can get, one of three
// times the weight gets three times as much.
func TestWeightsOfOneToThree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ds := []*demand{{rate: 1e5, weight: 1}, {rate: 1e5, weight: 3}}
		contend(t, ds, 5*time.Second)
		require.InDelta(t, 3, float64(ds[1].got)/float64(ds[0].got), 0.1)
		require.Greater(t, ds[0].got+ds[1].got, 19_500)
	})
}
