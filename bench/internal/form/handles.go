package form

import (
	"context"
	"errors"
	"runtime"

	"github.com/sedabus/seda/bus"
)

// HandleMemory is the heap that a producer handle takes, in bytes.
type HandleMemory struct {
	// Made is right after Stage.Producer.
	Made float64 `json:"made"`
	// Used is after the handle published a message that was handled.
	Used float64 `json:"used"`
}

// MeasureHandles makes n producer handles on one stage and returns the growth
// of the heap for each of them. Run it in a process that does nothing else.
func MeasureHandles(ctx context.Context, n int) (HandleMemory, error) {
	b, err := bus.New(bus.Config{})
	if err != nil {
		return HandleMemory{}, err
	}
	defer b.Shutdown(ctx) //nolint:errcheck // nothing is left to lose
	st, err := b.Stage("s", bus.StageConfig{})
	if err != nil {
		return HandleMemory{}, err
	}
	handled := make(chan struct{})
	h := func(context.Context, *bus.Envelope) error {
		handled <- struct{}{}
		return nil
	}
	if err := errors.Join(st.Handle(h), b.Start()); err != nil {
		return HandleMemory{}, err
	}
	payload := new(int)
	if err := st.Publish(ctx, &bus.Envelope{Payload: payload}); err != nil { // whatever is made once
		return HandleMemory{}, err
	}
	<-handled

	producers := make([]*bus.Producer, n)
	var m HandleMemory
	before := steadyHeap()
	for i := range producers {
		producers[i] = st.Producer()
	}
	m.Made = (heap() - before) / float64(n)
	for _, p := range producers {
		if err := p.Publish(ctx, &bus.Envelope{Payload: payload}); err != nil {
			return HandleMemory{}, err
		}
		<-handled
	}
	m.Used = (heap() - before) / float64(n)
	for _, p := range producers {
		p.Close()
	}
	runtime.KeepAlive(producers) // they have to live until the second reading
	return m, nil
}

// steadyHeap is heap once nothing of what was done before is given back any
// more: cleanups run, and free, one collection after the other.
func steadyHeap() float64 {
	last := heap()
	for range 20 {
		runtime.Gosched()
		now := heap()
		if now >= last {
			break
		}
		last = now
	}
	return last
}

// heap is the bytes of live objects.
func heap() float64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC() // the second empties pools
	runtime.ReadMemStats(&s)
	return float64(s.HeapAlloc)
}
