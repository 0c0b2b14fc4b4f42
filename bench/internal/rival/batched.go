package rival

import (
	"sync"
	"sync/atomic"

	"github.com/sedabus/seda/bench/internal/load"
)

// batchSize is how many messages a batch has.
const batchSize = 32

// batch is what the batched channels carry. Batches are recycled. With
// subscribers the last of them to finish recycles it.
type batch struct {
	msgs []load.Msg
	left atomic.Int32
}

// batchedInstance is channels of recycled slices, the expert's hand-written
// form: it trades delay for throughput, since messages wait in the producer
// until 32 of them are together.
type batchedInstance struct {
	spec    load.Spec
	free    chan *batch
	entries []chan *batch
	stages  []batchedStage
}

type batchedStage struct {
	chans     []chan *batch
	consumers sync.WaitGroup
}

func openBatched(r *load.Run) (load.Instance, error) {
	spec := r.Spec()
	if spec.Mixed || spec.Work == load.Sleep {
		return nil, load.ErrUnsupported // a batch would run its sleeps one after another
	}
	in := &batchedInstance{spec: spec, free: make(chan *batch, 1024), stages: make([]batchedStage, spec.Stages)}
	for i := range in.stages {
		n := lanesOf(spec)
		size := spec.Capacity / batchSize / n
		if spec.Subscribers > 1 {
			n = spec.Subscribers // each has the full capacity
		}
		for range n {
			in.stages[i].chans = append(in.stages[i].chans, make(chan *batch, size))
		}
	}
	in.entries = in.stages[0].chans
	for i := range in.stages {
		in.consume(r, i)
	}
	return in, nil
}

func (in *batchedInstance) consume(r *load.Run, i int) {
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
					for b := range c {
						for k := range b.msgs {
							load.Pass(&b.msgs[k])
						}
						next <- b
					}
				})
				continue
			}
			tally := r.Consumer()
			st.consumers.Go(func() {
				for b := range c {
					for k := range b.msgs {
						tally.Value(&b.msgs[k])
					}
					in.release(b)
				}
			})
		}
	}
}

func (in *batchedInstance) get() *batch {
	select {
	case b := <-in.free:
		b.msgs = b.msgs[:0]
		return b
	default:
		return &batch{msgs: make([]load.Msg, 0, batchSize)}
	}
}

func (in *batchedInstance) release(b *batch) {
	if in.spec.Subscribers > 1 && b.left.Add(-1) > 0 {
		return
	}
	select {
	case in.free <- b:
	default:
	}
}

func (in *batchedInstance) send(lane int, b *batch) {
	if in.spec.Subscribers > 1 {
		b.left.Store(int32(in.spec.Subscribers))
		for _, c := range in.entries {
			c <- b
		}
		return
	}
	in.entries[lane] <- b
}

// Produce fills a batch for each lane and sends it when it is full.
func (in *batchedInstance) Produce(src *load.Source) error {
	n := lanesOf(in.spec)
	open := make([]*batch, n)
	for i := range open {
		open[i] = in.get()
	}
	mask := uint32(n - 1)
	for m := src.Next(); m != nil; m = src.Next() {
		lane := int(m.Key & mask)
		b := open[lane]
		b.msgs = append(b.msgs, *m)
		if len(b.msgs) == batchSize {
			in.send(lane, b)
			open[lane] = in.get()
		}
	}
	for lane, b := range open {
		if len(b.msgs) > 0 {
			in.send(lane, b)
		}
	}
	return nil
}

// Close lets every stage run empty, the first one first.
func (in *batchedInstance) Close() error {
	for i := range in.stages {
		for _, c := range in.stages[i].chans {
			close(c)
		}
		in.stages[i].consumers.Wait()
	}
	return nil
}
