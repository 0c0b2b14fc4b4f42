package form

import (
	"context"
	"errors"
	"fmt"

	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bus"
)

// Produce sends what src makes through the form's API.
func (in *instance) Produce(src *load.Source) error {
	f := &filler{in: in, slip: in.slips[0]}
	if in.done != nil {
		f.onDone = in.done.next()
	}
	switch in.api {
	case publish:
		return f.publish(src)
	case handle:
		return f.handle(src)
	default:
		return f.batch(src)
	}
}

// filler makes the envelopes of one producer.
type filler struct {
	in     *instance
	slip   bus.Slip
	onDone func(bus.Result)
}

// headers of the mixed workload. The bus never changes the elements, so one
// array serves all envelopes.
var headers = []bus.Header{{Name: "tenant", Value: "acme"}, {Name: "trace", Value: "4bf92f3577b34da6"}}

// fill sets everything that differs from envelope to envelope, and on a fresh
// envelope the rest as well.
func (f *filler) fill(e *bus.Envelope, m *load.Msg) {
	in := f.in
	e.Payload = m
	e.Slip = f.slip
	if in.keys != nil {
		e.Key = in.keys[m.Key]
	}
	if in.exact {
		e.SetDeadline(in.deadline)
	}
	if in.spec.Mixed {
		e.Slip = in.slips[m.Seq%uint64(len(in.slips))]
		e.Headers = headers
		e.OnDone = f.onDone
	}
}

func (f *filler) publish(src *load.Source) error {
	ctx, st := context.Background(), f.in.entry
	var e bus.Envelope
	for m := src.NextRef(); m != nil; m = src.NextRef() {
		f.fill(&e, m)
		if err := st.Publish(ctx, &e); err != nil {
			return err
		}
	}
	return nil
}

func (f *filler) handle(src *load.Source) error {
	ctx, p := context.Background(), f.in.entry.Producer()
	defer p.Close()
	var e bus.Envelope
	for m := src.NextRef(); m != nil; m = src.NextRef() {
		f.fill(&e, m)
		if err := p.Publish(ctx, &e); err != nil {
			return err
		}
	}
	return nil
}

func (f *filler) batch(src *load.Source) error {
	ctx, p := context.Background(), f.in.entry.Producer()
	defer p.Close()
	for m := src.NextRef(); m != nil; {
		b := p.Begin(batchSize)
		n := 0
		for e := b.Next(); e != nil; e = b.Next() {
			f.fill(e, m)
			n++
			if m = src.NextRef(); m == nil {
				break
			}
		}
		accepted, err := b.Publish(ctx)
		if err != nil || accepted != n {
			return errors.Join(err, fmt.Errorf("form: %d of %d accepted", accepted, n))
		}
	}
	return nil
}
