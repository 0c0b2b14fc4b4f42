package load

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// ErrUnsupported is returned by an Open for a workload that has no sensible
// form in that system.
var ErrUnsupported = errors.New("load: workload not supported by this system")

// Instance is a system that was opened for a run.
type Instance interface {
	// Produce sends everything src makes and returns when src ends. It is
	// called once for each source, on a goroutine of its own. It pushes out
	// whatever the system holds back on the producer's side.
	Produce(src *Source) error
	// Close returns when every message has been handled. It is called once,
	// after all calls of Produce returned, and reports broken promises that
	// only the system itself can see.
	Close() error
}

// Observer is an Instance with more to say of a run than that it happened. Read
// is called after Close, with how long the run took.
type Observer interface {
	Read(elapsed time.Duration) Inside
	// Entered is how many messages have entered so far. It may be called at any
	// time.
	Entered() uint64
}

// Inside is what happened inside the stage that the producers publish to.
type Inside struct {
	WaitP50  float64 `json:"wait_p50"` // seconds from the entry to the start
	WaitP99  float64 `json:"wait_p99"`
	WaitMean float64 `json:"wait_mean"`
	Depth    float64 `json:"depth"`     // mean number that waited
	MaxDepth float64 `json:"max_depth"` // most that waited, were delayed or parked
	Service  float64 `json:"service"`   // mean, seconds
	Window   float64 `json:"window"`    // credits, at the end
	Target   float64 `json:"target"`    // seconds, of the credits' wait
	Blocked  float64 `json:"blocked"`   // seconds that producers waited, in all; only with credits
}

// System is one way of moving messages.
type System struct {
	// Name is what the command line calls it.
	Name string
	// Open prepares an instance. It fails with ErrUnsupported where the
	// workload has no form in this system.
	Open func(*Run) (Instance, error)
}

// Sample is the outcome of one measurement.
type Sample struct {
	Workload string  `json:"workload"`
	System   string  `json:"system"`
	Messages uint64  `json:"messages"`
	Seconds  float64 `json:"seconds"`  // first send until closed
	CPU      float64 `json:"cpu"`      // seconds, user and system, same interval
	Allocs   float64 `json:"allocs"`   // per message, steady state
	Bytes    float64 `json:"bytes"`    // per message, steady state
	Others   float64 `json:"others"`   // share of the machine taken by other processes
	Turns    float64 `json:"turns"`    // times a goroutine was set running, per message
	Waits    float64 `json:"waits"`    // times a producer waited, per message; see MeasureWaits
	Switches float64 `json:"switches"` // times a thread waited in the kernel, per message
	Inside   Inside  `json:"inside"`
}

// Rate is messages per second.
func (s Sample) Rate() float64 { return float64(s.Messages) / s.Seconds }

// WallNanos is nanoseconds of wall time per message.
func (s Sample) WallNanos() float64 { return s.Seconds * 1e9 / float64(s.Messages) }

// CPUNanos is nanoseconds of CPU time per message.
func (s Sample) CPUNanos() float64 { return s.CPU * 1e9 / float64(s.Messages) }

// Measure warms the system up with a short run of its own and then measures a
// run of about length d. Any broken promise is an error.
func Measure(sys System, spec Spec, d time.Duration) (Sample, error) {
	if _, err := once(sys, spec, d/5); err != nil {
		return Sample{}, err
	}
	return once(sys, spec, d)
}

// MeasureWaits is Measure with a further run of about d, in which it is counted
// how often producers wait until they are woken. What they published into a
// queue that was still empty does not count.
func MeasureWaits(sys System, spec Spec, d time.Duration) (Sample, error) {
	s, err := Measure(sys, spec, d)
	if err != nil {
		return Sample{}, err
	}
	run := NewRun(spec, 0)
	inst, err := sys.Open(run)
	if err != nil {
		return Sample{}, err
	}
	runtime.SetBlockProfileRate(1) // every wait of a goroutine
	p := newCrew(run, inst)
	p.begin()
	time.Sleep(d / 5)
	entered := func() uint64 {
		if o, ok := inst.(Observer); ok {
			return o.Entered()
		}
		return run.Sent()
	}
	sent, waits := entered(), waitCount()
	time.Sleep(d - d/5)
	sent, waits = entered()-sent, waitCount()-waits
	runtime.SetBlockProfileRate(0)
	run.Stop()
	err = errors.Join(p.wait(), inst.Close(), run.Verify())
	s.Waits = waits / float64(max(1, sent))
	return s, err
}

// RunCount sends perProducer messages from every producer and verifies the
// outcome. The started func is called when the system is open, before the first
// message, and stopped when it is closed, before the checks; both may be nil.
func RunCount(sys System, spec Spec, perProducer uint64, started, stopped func()) error {
	run := NewRun(spec, perProducer)
	inst, err := sys.Open(run)
	if err != nil {
		return err
	}
	p := newCrew(run, inst)
	if started != nil {
		started()
	}
	p.begin()
	sendErr := p.wait()
	closeErr := inst.Close()
	if stopped != nil {
		stopped()
	}
	return errors.Join(sendErr, closeErr, run.Verify())
}

func once(sys System, spec Spec, d time.Duration) (Sample, error) {
	run := NewRun(spec, 0)
	runtime.GC()
	inst, err := sys.Open(run)
	if err != nil {
		return Sample{}, err
	}
	p := newCrew(run, inst)
	turnsBefore, switchesBefore := turnCount(), switchCount()
	cpu, start := cpuTime(), time.Now()
	p.begin()
	mem := steady(run, d)
	run.Stop()
	sendErr := p.wait()
	closeErr := inst.Close()
	elapsed := time.Since(start)
	cpu = cpuTime() - cpu
	turns, switches := turnCount()-turnsBefore, switchCount()-switchesBefore

	if err := errors.Join(sendErr, closeErr, run.Verify()); err != nil {
		return Sample{}, fmt.Errorf("%s in %s: %w", sys.Name, spec.Name, err)
	}
	s := Sample{
		Workload: spec.Name, System: sys.Name, Messages: run.Sent(),
		Seconds: elapsed.Seconds(), CPU: cpu.Seconds(), Allocs: mem.allocs, Bytes: mem.bytes,
	}
	if s.Messages == 0 {
		return Sample{}, fmt.Errorf("%s in %s: no message was sent", sys.Name, spec.Name)
	}
	s.Turns, s.Switches = turns/float64(s.Messages), switches/float64(s.Messages)
	if o, ok := inst.(Observer); ok {
		s.Inside = o.Read(elapsed)
	}
	return s, nil
}

// crew is the producers' goroutines. They start together and end with their
// sources.
type crew struct {
	start chan struct{}
	wg    sync.WaitGroup
	errs  []error
}

func newCrew(run *Run, inst Instance) *crew {
	c := &crew{start: make(chan struct{}), errs: make([]error, len(run.Sources()))}
	for i, src := range run.Sources() {
		c.wg.Go(func() {
			<-c.start
			c.errs[i] = inst.Produce(src)
		})
	}
	return c
}

func (c *crew) begin() { close(c.start) }

func (c *crew) wait() error {
	c.wg.Wait()
	return errors.Join(c.errs...)
}

type memory struct{ allocs, bytes float64 }

// steady lets the run go on for d and returns the allocations per message over
// the last four fifths of it, when queues and pools have their final size.
func steady(run *Run, d time.Duration) memory {
	var before, after runtime.MemStats
	time.Sleep(d / 5)
	sent := run.Sent()
	runtime.ReadMemStats(&before)
	time.Sleep(d - d/5)
	sent = run.Sent() - sent
	runtime.ReadMemStats(&after)
	if sent == 0 {
		return memory{}
	}
	return memory{
		allocs: float64(after.Mallocs-before.Mallocs) / float64(sent),
		bytes:  float64(after.TotalAlloc-before.TotalAlloc) / float64(sent),
	}
}
