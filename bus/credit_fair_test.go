package bus_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
)

// jain is Jain's index of fairness over what each got of its share, from 1/n to
// 1 (Jain, Chiu and Hawe 1984).
func jain(got, share []float64) float64 {
	var sum, squares float64
	for i := range got {
		x := got[i] / share[i]
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(got)) * squares)
}

// maxMin shares total out over demands: nobody gets more than it demands, and
// what it does not take is shared by the others.
func maxMin(total float64, demands []float64) []float64 {
	share := make([]float64, len(demands))
	for left := len(demands); left > 0; {
		each, met := total/float64(left), false
		for i, d := range demands {
			if share[i] == 0 && d <= each {
				share[i], met = d, true
				total -= d
				left--
			}
		}
		if met {
			continue
		}
		for i := range share {
			if share[i] == 0 {
				share[i] = each
			}
		}
		return share
	}
	return share
}

// rates lets producers publish for a while, each at a demand a second at most,
// to a stage that does rate a second, and returns what each got published.
func rates(t *testing.T, c bus.StageConfig, producers []bus.ProducerConfig, demands []float64, rate float64, batch int) []float64 {
	t.Helper()
	const seconds = 20
	b := newBus(t, bus.Config{})
	if c.Concurrency == 0 {
		c.Concurrency = 4
	}
	took := time.Duration(float64(c.Concurrency) / rate * float64(time.Second))
	s := addStage(t, b, "s", c, func(context.Context, *bus.Envelope) error { time.Sleep(took); return nil })
	require.NoError(t, b.Start())
	ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
	defer cancel()
	got := make([]float64, len(producers))
	done := make(chan struct{}, len(producers))
	for i := range producers {
		p, err := s.NewProducer(producers[i])
		require.NoError(t, err)
		gap := time.Duration(float64(batch) / demands[i] * float64(time.Second))
		go func() {
			for next := time.Now(); ctx.Err() == nil; next = next.Add(gap) {
				time.Sleep(time.Until(next))
				if batch > 1 && p.Acquire(ctx, batch) != nil {
					break
				}
				for range batch {
					if p.Publish(ctx, &bus.Envelope{}) == nil {
						got[i]++
					}
				}
			}
			p.Close()
			done <- struct{}{}
		}()
	}
	for range producers {
		<-done
	}
	checkCredit(t, s)
	finish(t, b)
	for i := range got {
		got[i] /= seconds
	}
	return got
}

// Ten producers with demands of 1 to 100 share what the stage can do: the small
// get all they want, the others the same each.
func TestCreditFairShares(t *testing.T) {
	for _, batch := range []int{1, 4} {
		for _, window := range []int{0, 16} {
			synctest.Test(t, func(t *testing.T) {
				var demands []float64
				for i := range 10 {
					demands = append(demands, 10+110*float64(i)) // 10 to 1000 a second
				}
				got := rates(t, credit(window), make([]bus.ProducerConfig, 10), demands, 2000, batch)
				share := maxMin(2000, demands)
				index := jain(got, share)
				t.Logf("batch %d, window %d: Jain %.5f, got %.0f of shares %.0f", batch, window, index, got, share)
				require.GreaterOrEqual(t, index, 0.995)
			})
		}
	}
}

func TestCreditWeightedShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := credit(0)
		c.Concurrency = 1 // with as many as there are producers each finds a credit whenever it comes
		got := rates(t, c, []bus.ProducerConfig{{Weight: 3}, {Weight: 1}, {Weight: 3}, {Weight: 1}}, []float64{1e4, 1e4, 1e4, 1e4}, 1600, 1)
		share := []float64{600, 200, 600, 200}
		t.Logf("got %.0f of shares %.0f", got, share)
		require.GreaterOrEqual(t, jain(got, share), 0.995)
	})
}

// The highest class comes first, and a lower one gets its minimum share.
func TestCreditClassShares(t *testing.T) {
	for _, least := range []int{0, 20} {
		synctest.Test(t, func(t *testing.T) {
			c := credit(0)
			c.Classes = []bus.Class{{Name: "high"}, {Name: "low", MinShare: least, Strict: least == 0}}
			// Each producer has one publish at a time: four keep the class wanting.
			var producers []bus.ProducerConfig
			var demands []float64
			for i := range 8 {
				producers = append(producers, bus.ProducerConfig{Class: []string{"high", "low"}[i/4]})
				demands = append(demands, 1e4)
			}
			got := rates(t, c, producers, demands, 1000, 1)
			high, low := got[0]+got[1]+got[2]+got[3], got[4]+got[5]+got[6]+got[7]
			t.Logf("least %d %%: high %.0f, low %.0f", least, high, low)
			require.InDelta(t, 1000*(1-float64(least)/100), high, 40)
			require.InDelta(t, 1000*float64(least)/100, low, 40)
		})
	}
}

// A producer that acquires all and stops costs the others one lease.
func TestCreditHoarderCostsOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		c := credit(20)
		c.Credit.Lease = 300 * time.Millisecond
		s := addStage(t, b, "s", c, ack)
		require.NoError(t, b.Start())
		hoarder := s.Producer()
		require.NoError(t, hoarder.Acquire(t.Context(), 20))
		began := time.Now()
		done := make(chan time.Duration, 10)
		for range cap(done) {
			go func() {
				p := s.Producer()
				defer p.Close()
				for range 100 {
					if err := p.Publish(t.Context(), &bus.Envelope{}); err != nil {
						t.Error(err)
					}
				}
				done <- time.Since(began)
			}()
		}
		for range cap(done) {
			require.LessOrEqual(t, <-done, c.Credit.Lease)
		}
		require.EqualValues(t, 20, checkCredit(t, s).Expired)
		hoarder.Close()
		finish(t, b)
	})
}

// Two that want the whole window take turns.
func TestCreditWholeWindowInTurns(t *testing.T) {
	for _, window := range []int{1, 5, 64, 100} {
		synctest.Test(t, func(t *testing.T) {
			b := newBus(t, bus.Config{})
			c := credit(window)
			c.Credit.Lease = time.Hour
			s := addStage(t, b, "s", c, func(context.Context, *bus.Envelope) error { time.Sleep(time.Millisecond); return nil })
			require.NoError(t, b.Start())
			const laps = 200
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			done := make(chan error, 2)
			for range cap(done) {
				go func() {
					p := s.Producer()
					defer p.Close()
					for lap := range laps {
						if err := p.Acquire(ctx, window); err != nil {
							done <- fmt.Errorf("lap %d: %w", lap, err)
							return
						}
						if lap%3 == 0 { // changes its mind
							p.Return(window)
							continue
						}
						for range window {
							if err := p.TryPublish(&bus.Envelope{}); err != nil {
								done <- err
								return
							}
						}
					}
					done <- nil
				}()
			}
			for range cap(done) {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			require.Zero(t, checkCredit(t, s).InHand)
			finish(t, b)
		})
	}
}
