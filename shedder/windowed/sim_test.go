package windowed_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/windowed"
)

// stage is a simulated stage of one queue and some workers, arrivals and
// service times random, in the time of a bubble.
type stage struct {
	workers int
	service time.Duration
	rnd     *rand.Rand
	p       *windowed.Policy
	now     time.Duration

	ends          []work // in service, soonest last
	queue         []time.Duration
	asked, shed   int
	longest, done int // longest queue
}

type work struct{ start, end time.Duration }

// run offers rho times the capacity for n arrivals, and stops counting what
// came before.
func (s *stage) run(rho float64, n int) {
	s.asked, s.shed, s.longest, s.done = 0, 0, 0, 0
	mean := float64(s.service) / float64(s.workers) / rho
	next := s.now + time.Duration(s.rnd.ExpFloat64()*mean)
	for s.asked < n {
		if k := len(s.ends); k > 0 && s.ends[k-1].end <= next {
			s.advance(s.ends[k-1].end)
			s.finish()
			continue
		}
		s.advance(next)
		s.arrive()
		next = s.now + time.Duration(s.rnd.ExpFloat64()*mean)
	}
}

func (s *stage) advance(to time.Duration) {
	time.Sleep(to - s.now)
	s.now = to
}

func (s *stage) load() shedder.Load {
	return shedder.Load{Waiting: len(s.queue), Ahead: len(s.queue), Busy: len(s.ends), Concurrency: s.workers}
}

func (s *stage) arrive() {
	s.asked++
	if s.p.Admit(&shedder.Request{Now: s.now, Load: s.load()}).Action == shedder.Refuse {
		s.shed++
		return
	}
	s.queue = append(s.queue, s.now)
	s.start()
	s.longest = max(s.longest, len(s.queue))
}

func (s *stage) start() {
	if len(s.ends) == s.workers || len(s.queue) == 0 {
		return
	}
	s.queue = s.queue[1:]
	w := work{s.now, s.now + time.Duration(s.rnd.ExpFloat64()*float64(s.service))}
	i, _ := slices.BinarySearchFunc(s.ends, w, func(a, b work) int { return int(b.end - a.end) })
	s.ends = slices.Insert(s.ends, i, w)
}

func (s *stage) finish() {
	w := s.ends[len(s.ends)-1]
	s.ends = s.ends[:len(s.ends)-1]
	s.done++
	s.start()
	s.p.Done(&shedder.Done{Now: s.now, N: 1, Service: w.end - w.start, Load: s.load()})
}

// TestStage holds the policy to what its documentation says of the defaults:
// how much it sheds below capacity, that at twice the capacity the workers
// never run out of work and no queue stands above the bound, and that nothing
// is shed any more once that is over.
func TestStage(t *testing.T) {
	for _, c := range []struct {
		workers   int
		service   time.Duration
		falseShed float64
		queue     int
	}{
		{1, time.Millisecond, 0.05, 12},
		{4, 100 * time.Millisecond, 2e-3, 48},
		{16, 5 * time.Millisecond, 2e-4, 80},
		{64, 500 * time.Microsecond, 1e-5, 128},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{workers: c.workers, service: c.service, rnd: rand.New(rand.NewPCG(1, 2)), p: policy(t, windowed.Config{})}
			s.run(0.9, 40_000)
			t.Logf("%d workers of %v: shed %d of %d at 0.9, longest queue %d", c.workers, c.service, s.shed, s.asked, s.longest)
			assert.LessOrEqual(t, float64(s.shed)/float64(s.asked), c.falseShed)

			began := s.now
			s.run(2, 30_000)
			goodput := float64(s.done) * float64(c.service) / float64(c.workers) / float64(s.now-began)
			t.Logf("shed %d of %d at 2, %.4f of the capacity done, longest queue %d", s.shed, s.asked, goodput, s.longest)
			assert.GreaterOrEqual(t, goodput, 0.98)
			assert.LessOrEqual(t, s.longest, c.queue)

			s.run(0.5, 1000)
			s.run(0.5, 10_000)
			assert.Zero(t, s.shed, "after the overload")
		})
	}
}
