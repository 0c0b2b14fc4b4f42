package shedder_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shedder"
)

// job is one unit of work in a queue behind Allow.
type job struct {
	p       shedder.Promise
	arrived time.Duration
}

// pool is a queue with workers, as somebody without the bus would have it. The
// shedder sees when work is let in and when it ends, and nothing else.
type pool struct {
	s       *shedder.Shedder
	queue   chan job
	service time.Duration // mean of an exponential distribution
	fail    bool

	mu       sync.Mutex
	rng      *rand.Rand
	done     int
	longest  time.Duration // wait of those that started since it was set to 0
	arrivals *rand.Rand
}

func (p *pool) work() {
	for j := range p.queue {
		p.mu.Lock()
		p.longest = max(p.longest, p.s.Now()-j.arrived)
		d := time.Duration(p.rng.ExpFloat64() * float64(p.service))
		p.mu.Unlock()
		time.Sleep(d)
		var err error
		if p.fail {
			err = errors.New("failed")
		}
		j.p.Done(err)
		p.mu.Lock()
		p.done++
		p.mu.Unlock()
	}
}

// offer sends arrivals at a rate for a while, and returns how many were offered,
// refused and done meanwhile.
func (p *pool) offer(rate float64, d time.Duration) (offered, refused, done int) {
	p.mu.Lock()
	before := p.done
	p.longest = 0
	p.mu.Unlock()
	for next, end := p.s.Now(), p.s.Now()+d; next < end; offered++ {
		next += time.Duration(p.arrivals.ExpFloat64() / rate * float64(time.Second))
		time.Sleep(next - p.s.Now())
		promise, err := p.s.Allow()
		if err != nil {
			refused++
			continue
		}
		p.queue <- job{promise, p.s.Now()}
	}
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return offered, refused, p.done - before
}

// Without the bus, service time and wait are told apart by the model of a queue
// alone. If they were not, the backlog at the start of an overload would make
// the service look slow for ever, and the queue would never drain.
func TestStandaloneOverload(t *testing.T) {
	const workers, service = 16, 5 * milli
	const capacity = workers * float64(time.Second) / float64(service)
	for name, fail := range map[string]bool{"work that passes": false, "work that fails": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pool{
					s: newShedder(t, shedder.Config{Concurrency: workers}), queue: make(chan job, 100_000), service: service, fail: fail,
					rng: rand.New(rand.NewPCG(1, 1)), arrivals: rand.New(rand.NewPCG(2, 2)),
				}
				var wg sync.WaitGroup
				for range workers {
					wg.Go(p.work)
				}
				offered, refused, _ := p.offer(capacity*0.8, 3*time.Second)
				require.LessOrEqual(t, refused, offered/1000, "below capacity")

				p.offer(capacity*2, time.Second)
				offered, refused, done := p.offer(capacity*2, 3*time.Second)
				require.GreaterOrEqual(t, float64(done), 0.97*3*capacity, "of %d offered %d were refused", offered, refused)
				require.Less(t, p.longest, 20*service, "the wait stays bounded")
				st := p.s.State(p.s.Now())
				require.InEpsilon(t, float64(service), float64(st.Service), 0.35, "wait is no service")
				require.True(t, p.s.Overloaded(p.s.Now()))

				p.offer(capacity*0.5, time.Second)
				_, refused, _ = p.offer(capacity*0.5, 2*time.Second)
				require.Zero(t, refused, "it recovers by itself")
				require.False(t, p.s.Overloaded(p.s.Now()))
				close(p.queue)
				wg.Wait()
				st = p.s.State(p.s.Now())
				requireAccount(t, st)
				require.Zero(t, st.Promises.Outstanding)
			})
		})
	}
}

// The same with Acquire: callers wait in the shedder, and the workers are its
// places.
func TestStandaloneAcquireUnderOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places, service = 4, 2 * milli
		s := newShedder(t, shedder.Config{Concurrency: places})
		rng := rand.New(rand.NewPCG(3, 3))
		var mu sync.Mutex
		var done, shed, inside int
		var wg sync.WaitGroup
		for range 8000 { // twice what the places can do
			time.Sleep(time.Duration(rng.ExpFloat64() * float64(service) / places / 2))
			d := time.Duration(rng.ExpFloat64() * float64(service))
			wg.Go(func() {
				p, err := s.Acquire(t.Context(), shedder.Request{})
				mu.Lock()
				if err != nil {
					shed++
					mu.Unlock()
					return
				}
				inside++
				if inside > places {
					t.Errorf("%d at once", inside)
				}
				mu.Unlock()
				time.Sleep(d)
				mu.Lock()
				inside--
				mu.Unlock()
				p.Pass()
				mu.Lock()
				done++
				mu.Unlock()
			})
		}
		wg.Wait()
		require.Equal(t, 8000, done+shed)
		require.InDelta(t, 4000, done, 250)
		st := s.State(s.Now())
		requireAccount(t, st)
		require.EqualValues(t, shed, st.Shed)
	})
}
