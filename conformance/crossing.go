package conformance

import (
	"context"
	"time"

	"github.com/sedabus/seda/bus"
)

func crossShard() []check {
	return []check{
		{name: "KeysChange", run: keysChange},
		{name: "KeysChangeInARing", run: keysChangeInARing},
		{name: "FewerHomes", run: fewerHomes},
	}
}

// rekeying gives the envelope the next of a few keys, which are spread over the
// shards.
func rekeying(_ context.Context, e *bus.Envelope) error {
	e.Rekey(keyOf((number(e) + len(e.Key)*7 + int(e.ID())) % 16))
	return nil
}

// keysChange: two stages with few places, whose work goes to another shard with
// each hop, in both directions at once.
func keysChange(d *bed) {
	const all = 400
	c := bus.StageConfig{Capacity: 2, Concurrency: 64, HopTimeout: time.Hour}
	a := d.stage("a", c, rekeying)
	b := d.stage("b", c, rekeying)
	d.start()
	done := make(chan struct{}, 2)
	for i, from := range []*bus.Stage{a, b} {
		to := []*bus.Stage{b, a}[i]
		go func() {
			for n := i * all; n < (i+1)*all; n++ {
				e := d.env(n, to.Name(), from.Name(), to.Name())
				e.Key = keyOf(n % 16)
				if err := d.publish(from, e); err != nil {
					d.Errorf("publish %d: %v", n, err)
				}
			}
			done <- struct{}{}
		}()
	}
	for range cap(done) {
		<-done
	}
	d.mustDrain()
	for n := range 2 * all {
		d.wantEnd(n, bus.Completed, 0)
	}
}

// keysChangeInARing: the ring is filled while it is held, so that every stage of
// it is full on every shard when it starts.
func keysChangeInARing(d *bed) {
	c := bus.StageConfig{Capacity: 3, HopTimeout: time.Hour}
	var stages []*bus.Stage
	for _, name := range []string{"a", "b", "c"} {
		s := d.stage(name, c, rekeying)
		s.Suspend(bus.Hold{})
		stages = append(stages, s)
	}
	d.start()
	const laps = 5
	for i, s := range stages {
		var via []string
		for k := range 3 * laps {
			via = append(via, stages[(i+k+1)%3].Name())
		}
		for n := range 3 {
			e := d.env(10*i+n, via...)
			e.Key = keyOf(n)
			if err := d.publish(s, e); err != nil {
				d.Fatal(err)
			}
		}
	}
	for _, s := range stages {
		s.Resume("")
	}
	d.mustDrain()
	for i := range stages {
		for n := range 3 {
			d.wantEnd(10*i+n, bus.Completed, 0)
		}
	}
}

// fewerHomes: one key's envelopes keep their order over stages of one handler, of
// as many as there are shards, and of one again.
func fewerHomes(d *bed) {
	one := d.stage("one", bus.StageConfig{Concurrency: 1}, func(context.Context, *bus.Envelope) error { return nil })
	d.stage("many", bus.StageConfig{Concurrency: 64, Order: bus.ByKey}, func(context.Context, *bus.Envelope) error { return nil })
	last := d.stage("last", bus.StageConfig{Concurrency: 1}, d.note)
	_ = last
	d.start()
	const keys, each = 5, 40
	for n := range keys * each {
		e := d.env(n, "many", "last")
		e.Key = keyOf(n % keys)
		if err := d.publish(one, e); err != nil {
			d.Fatal(err)
		}
	}
	d.mustDrain()
	var latest [keys]int
	for _, n := range d.seen() {
		d.want(n >= latest[n%keys], "key %d: envelope %d after %d", n%keys, n, latest[n%keys])
		latest[n%keys] = n
	}
	equal(d, "handled at the last stage", len(d.seen()), keys*each)
}
