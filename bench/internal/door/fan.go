package door

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sedabus/seda/bus"
)

// Fan says what RunFan runs.
const Fan = "handlers of 1 ms, 32 in front and 8 behind, 10 ms in the slow one; each is sent 80 % of what a healthy one can do"

const (
	branches   = 4
	fanWorkers = 8
	fanTook    = time.Millisecond
	fanGap     = fanTook * 10 / (fanWorkers * 8) // between two jobs of a branch
	fanSpan    = 5 * time.Second
)

// HealthyOffered is how many jobs a second the healthy branches are sent.
const HealthyOffered = float64((branches - 1) * time.Second / fanGap)

// FanCase is a way to publish to the four.
type FanCase struct {
	Name  string
	Full  bus.FullPolicy
	Mixed bool // each producer publishes to all branches in turn
	Try   bool // and never waits
}

// FanCases are the rows of the table.
func FanCases() []FanCase {
	var all []FanCase
	for _, full := range []bus.FullPolicy{bus.Block, bus.Credit} {
		all = append(all,
			FanCase{Name: "one a branch", Full: full},
			FanCase{Name: "four mixed, Publish", Full: full, Mixed: true},
			FanCase{Name: "four mixed, TryPublish", Full: full, Mixed: true, Try: true})
	}
	return all
}

// FanOutcome is what came of a case.
type FanOutcome struct {
	Healthy, Slow, Skipped float64 // a second
	P99                    time.Duration
}

// fan is a run in progress.
type fan struct {
	c     FanCase
	front *bus.Stage

	mu    sync.Mutex
	times []time.Duration // of the healthy branches
	slow  int
	skips int
}

// RunFan runs one case.
func RunFan(c FanCase) (FanOutcome, error) {
	f := &fan{c: c}
	bs, err := bus.New(bus.Config{})
	if err != nil {
		return FanOutcome{}, err
	}
	if err := f.build(bs); err != nil {
		return FanOutcome{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), fanSpan)
	defer cancel()
	var wg sync.WaitGroup
	for i := range branches {
		wg.Go(func() { f.produce(ctx, i) })
	}
	wg.Wait()
	f.mu.Lock()
	o := FanOutcome{
		Healthy: float64(len(f.times)) / fanSpan.Seconds(), Slow: float64(f.slow) / fanSpan.Seconds(), Skipped: float64(f.skips) / fanSpan.Seconds(),
	}
	slices.Sort(f.times)
	if n := len(f.times); n > 0 {
		o.P99 = f.times[n*99/100]
	}
	f.mu.Unlock()
	stop, cancelStop := context.WithTimeout(context.Background(), time.Minute)
	defer cancelStop()
	_, err = bs.Shutdown(stop)
	return o, err
}

func (f *fan) build(bs *bus.Bus) (err error) {
	add := func(name string, n int, h bus.Handler) *bus.Stage {
		st, e := bs.Stage(name, bus.StageConfig{Concurrency: n, Full: f.c.Full})
		if e == nil {
			e = st.Handle(h)
		}
		err = errors.Join(err, e)
		return st
	}
	f.front = add("front", branches*fanWorkers, func(context.Context, *bus.Envelope) error {
		time.Sleep(fanTook)
		return nil
	})
	for i := range branches {
		took := fanTook
		if i == branches-1 {
			took *= 10
		}
		add(strconv.Itoa(i), fanWorkers, func(_ context.Context, e *bus.Envelope) error {
			time.Sleep(took)
			f.ended(e, i)
			return nil
		})
	}
	return errors.Join(err, bs.Start())
}

func (f *fan) ended(e *bus.Envelope, branch int) {
	published, _ := e.Payload.(time.Time)
	f.mu.Lock()
	defer f.mu.Unlock()
	if branch == branches-1 {
		f.slow++
		return
	}
	f.times = append(f.times, time.Since(published))
}

func (f *fan) produce(ctx context.Context, branch int) {
	p := f.front.Producer()
	defer p.Close()
	for n := branch; ctx.Err() == nil; n++ {
		to := branch
		if f.c.Mixed {
			to = n % branches
		}
		e := &bus.Envelope{Payload: time.Now(), Slip: bus.Via(strconv.Itoa(to))}
		if !f.c.Try {
			if p.Publish(ctx, e) != nil {
				return
			}
		} else if p.TryPublish(e) != nil {
			f.mu.Lock()
			f.skips++
			f.mu.Unlock()
		}
		time.Sleep(fanGap)
	}
}
