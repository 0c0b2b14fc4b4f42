// Package door compares what a full stage does with those at its door: all five
// full policies, under the same load, in simulated time. Its functions have to
// be called in a bubble, and give the same figures again.
package door

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/shedder"
)

// Scenario says what Overload runs.
const Scenario = "8 handlers each of 4, 10 and 5 ms in the mean, exponential; 32 producers, " +
	"1,600 jobs/s in all at random times; a job is in time if it ends within 200 ms of when its producer took it up"

// Possible is how many jobs a second the pipeline can do: eight handlers of 10 ms.
const Possible = 800.0

const (
	workers   = 8
	producers = 32
	offered   = 2 * Possible
	deadline  = 200 * time.Millisecond
	warm      = 10 * time.Second
	end       = 40 * time.Second
)

// Case is one way to set up the door.
type Case struct {
	Name     string
	Full     bus.FullPolicy
	Capacity int
	Shed     bool // with the default shedder
	Acquire  bool // the producer acquires a credit before it takes up a job
}

// Cases are the rows of the table.
func Cases() []Case {
	const usual, small = 1024, 32
	return []Case{
		{Name: "Block", Full: bus.Block, Capacity: usual},
		{Name: "Reject", Full: bus.Reject, Capacity: usual},
		{Name: "DropNewest", Full: bus.DropNewest, Capacity: usual},
		{Name: "DropOldest", Full: bus.DropOldest, Capacity: usual},
		{Name: "Credit", Full: bus.Credit, Capacity: usual},
		{Name: "Credit, Acquire first", Full: bus.Credit, Capacity: usual, Acquire: true},
		{Name: "Block, shedder", Full: bus.Block, Capacity: usual, Shed: true},
		{Name: "Credit, shedder", Full: bus.Credit, Capacity: usual, Shed: true},
		{Name: "Block", Full: bus.Block, Capacity: small},
		{Name: "Reject", Full: bus.Reject, Capacity: small},
		{Name: "DropOldest", Full: bus.DropOldest, Capacity: small},
	}
}

// Outcome is what became of the jobs of one case, without the warm-up.
type Outcome struct {
	Span                           time.Duration
	InTime, Late, Refused, Dropped int
	Left                           int           // due, and not taken up
	WaitP50, WaitP99               time.Duration // in the pipeline, of what was done
	Blocked                        float64       // share of the producers' time
}

// job is one job.
type job struct {
	born    time.Duration // taken up by its producer
	entered atomic.Int64  // accepted
	work    [3]time.Duration
	done    *books
}

// books are of one run; their times count from its start.
type books struct {
	began time.Time
	mu    sync.Mutex
	out   Outcome
	waits []time.Duration
	taken int
}

func (b *books) now() time.Duration { return time.Since(b.began) }

// counts says whether what happens now is counted.
func (b *books) counts() bool {
	now := b.now()
	return now >= warm && now < end
}

// Overload runs one case.
func Overload(c Case) (Outcome, error) {
	b := &books{began: time.Now()}
	bs, first, err := open(c, b)
	if err != nil {
		return Outcome{}, err
	}
	ctx, cancel := context.WithDeadline(context.Background(), b.began.Add(end))
	defer cancel()
	var wg sync.WaitGroup
	var blocked atomic.Int64
	for i := range producers {
		wg.Go(func() { blocked.Add(int64(produce(ctx, c, b, first, uint64(i)))) })
	}
	wg.Wait()
	stop, cancelStop := context.WithTimeout(context.Background(), time.Minute)
	defer cancelStop()
	report, err := bs.Shutdown(stop)
	err = errors.Join(err, report.Stats.Check())
	o := b.out
	o.Span = end - warm
	o.Left = max(0, int(offered*o.Span.Seconds())-b.taken)
	o.Blocked = time.Duration(blocked.Load()).Seconds() / o.Span.Seconds() / producers
	slices.Sort(b.waits)
	if n := len(b.waits); n > 0 {
		o.WaitP50, o.WaitP99 = b.waits[n/2], b.waits[n*99/100]
	}
	return o, err
}

func open(c Case, b *books) (*bus.Bus, *bus.Stage, error) {
	cfg := bus.Config{}
	if c.Shed {
		cfg.NewShedder = shedder.Default
	}
	bs, err := bus.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	var first *bus.Stage
	for i, name := range stages() {
		st, err := bs.Stage(name, bus.StageConfig{Concurrency: workers, Capacity: c.Capacity, Full: c.Full})
		if err != nil {
			return nil, nil, err
		}
		h := func(_ context.Context, e *bus.Envelope) error {
			j, ok := e.Payload.(*job)
			if !ok {
				return errPayload
			}
			time.Sleep(j.work[i])
			if i == len(j.work)-1 {
				b.ended(j)
			}
			return nil
		}
		if err := st.Handle(h); err != nil {
			return nil, nil, err
		}
		if first == nil {
			first = st
		}
	}
	return bs, first, bs.Start()
}

var errPayload = errors.New("door: not a job")

func stages() []string { return []string{"parse", "work", "store"} }

// means are how long the stages' handlers take.
func means() [3]time.Duration {
	return [3]time.Duration{4 * time.Millisecond, 10 * time.Millisecond, 5 * time.Millisecond}
}

// ended books a job that was done.
func (b *books) ended(j *job) {
	if !b.counts() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if now-j.born <= deadline {
		b.out.InTime++
	} else {
		b.out.Late++
	}
	b.waits = append(b.waits, now-time.Duration(j.entered.Load())-j.work[0]-j.work[1]-j.work[2])
}

// produce is one producer: it takes up jobs when they are due, or later, one
// after the other, and returns for how long it was blocked.
func produce(ctx context.Context, c Case, b *books, first *bus.Stage, seed uint64) (blocked time.Duration) {
	rnd := rand.New(rand.NewPCG(seed, 5))
	p := first.Producer()
	defer p.Close()
	slip := bus.Via(stages()[1:]...)
	var due time.Duration
	for {
		due += time.Duration(rnd.ExpFloat64() / (offered / producers) * float64(time.Second))
		time.Sleep(max(0, due-b.now()))
		if b.now() >= end {
			return blocked
		}
		waits := b.now()
		if c.Acquire {
			if p.Acquire(ctx, 1) != nil {
				return blocked + b.within(waits)
			}
		}
		j := &job{born: b.now(), done: b}
		for i, mean := range means() {
			j.work[i] = time.Duration(rnd.ExpFloat64() * float64(mean))
		}
		publish := first.Publish
		if c.Acquire {
			publish = p.Publish
		}
		err := publish(ctx, &bus.Envelope{Payload: j, Slip: slip, OnDone: b.onDone})
		j.entered.Store(int64(b.now()))
		blocked += b.within(waits)
		b.took(err)
	}
}

// within is how long it is since from, without the warm-up.
func (b *books) within(from time.Duration) time.Duration {
	return max(0, min(b.now(), end)-max(from, warm))
}

// took books a job that was taken up.
func (b *books) took(err error) {
	if !b.counts() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken++
	if err != nil {
		b.out.Refused++
	}
}

// onDone books what was dropped after it was accepted.
func (b *books) onDone(r bus.Result) {
	if r.End != bus.Completed && b.counts() {
		b.mu.Lock()
		b.out.Dropped++
		b.mu.Unlock()
	}
}
