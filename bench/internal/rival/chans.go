// Package rival holds what the bus is compared with: the same workloads written
// by hand on plain Go channels.
package rival

import (
	"sync"

	"github.com/sedabus/seda/bench/internal/load"
)

// Systems returns the rivals.
func Systems() []load.System {
	return []load.System{
		{Name: "chan", Open: openChan},
		{Name: "chan-b32", Open: openBatched},
	}
}

// lanesOf is into how many channels keyed work is split. Each lane has one
// goroutine, which is how plain Go keeps the order of a key. The better number
// was measured for either kind of handler, on two cores: with one that works,
// four lanes for each core, since a lane that is empty or full then does not
// idle a core (1.1 times the rate); with a no-op one lane for each (1.25 times,
// with batches 1.6 times).
func lanesOf(s load.Spec) int {
	switch {
	case s.Keys == 0:
		return 1
	case s.Work == load.Noop:
		return s.Concurrency
	default:
		return 4 * s.Concurrency
	}
}

// chanInstance is buffered channels of messages. Several entries are either
// lanes by key or copies for subscribers.
type chanInstance struct {
	spec    load.Spec
	entries []chan load.Msg
	// stages are closed in this order, each after the one before was emptied.
	stages []chanStage
}

// chanStage is channels that are closed together and the consumers of them.
type chanStage struct {
	chans     []chan load.Msg
	consumers sync.WaitGroup
}

func openChan(r *load.Run) (load.Instance, error) {
	spec := r.Spec()
	if spec.Mixed {
		return nil, load.ErrUnsupported
	}
	in := &chanInstance{spec: spec, stages: make([]chanStage, spec.Stages)}
	for i := range in.stages {
		n := lanesOf(spec)
		size := spec.Capacity / n
		if spec.Subscribers > 1 {
			n = spec.Subscribers // each has the full capacity
		}
		for range n {
			in.stages[i].chans = append(in.stages[i].chans, make(chan load.Msg, size))
		}
	}
	in.entries = in.stages[0].chans
	for i := range in.stages {
		in.consume(r, i)
	}
	return in, nil
}

// consume starts the consumers of stage i: one for each channel where there are
// several, else as many as the concurrency. They end when the channel is closed.
func (in *chanInstance) consume(r *load.Run, i int) {
	st := &in.stages[i]
	each := in.spec.Concurrency
	if len(st.chans) > 1 {
		each = 1
	}
	for _, c := range st.chans {
		for range each {
			if i+1 < len(in.stages) {
				next := in.stages[i+1].chans[0]
				st.consumers.Go(func() {
					for m := range c {
						load.Pass(&m)
						next <- m
					}
				})
				continue
			}
			tally := r.Consumer()
			st.consumers.Go(func() {
				for m := range c {
					tally.Value(&m)
				}
			})
		}
	}
}

// Produce sends each message to its channel, or to those of all subscribers.
func (in *chanInstance) Produce(src *load.Source) error {
	switch {
	case in.spec.Subscribers > 1:
		for m := src.Next(); m != nil; m = src.Next() {
			for _, c := range in.entries {
				c <- *m
			}
		}
	case in.spec.Keys > 0:
		mask := uint32(len(in.entries) - 1) // a power of two, like the keys
		for m := src.Next(); m != nil; m = src.Next() {
			in.entries[m.Key&mask] <- *m
		}
	default:
		c := in.entries[0]
		for m := src.Next(); m != nil; m = src.Next() {
			c <- *m
		}
	}
	return nil
}

// Close lets every stage run empty, the first one first.
func (in *chanInstance) Close() error {
	for i := range in.stages {
		for _, c := range in.stages[i].chans {
			close(c)
		}
		in.stages[i].consumers.Wait()
	}
	return nil
}
