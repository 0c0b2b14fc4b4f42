// Package form runs the workloads on the bus, in each form of its API.
//
// The payload of every envelope is a pointer to a 64-byte message in a ring
// that belongs to the producer. The message is written once by the producer and
// read in place by the handlers; the bus moves the envelope. So the same 64
// bytes cross between cores as with channels of values, and the bus moves its
// envelope on top of that.
package form

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/retry"
)

// batchSize is how many envelopes a batch of the batch form has.
const batchSize = 32

// drainTime bounds the shutdown of a run.
const drainTime = 30 * time.Second

// Suffix marks a form with deadlines and exact timing on.
const Suffix = "-exact"

// Systems returns the forms of the bus: publish uses the stage, handle a
// producer handle, batch fills the bus's own slots 32 at a time.
func Systems() []load.System {
	return []load.System{
		{Name: "publish", Open: kind{api: publish}.open},
		{Name: "handle", Open: kind{api: handle}.open},
		{Name: "batch", Open: kind{api: batch}.open},
	}
}

// ExactSystems returns the same forms with StageConfig.ExactTiming on and a
// deadline on every envelope, far enough not to pass.
func ExactSystems() []load.System {
	return []load.System{
		{Name: "publish" + Suffix, Open: kind{api: publish, exact: true}.open},
		{Name: "handle" + Suffix, Open: kind{api: handle, exact: true}.open},
		{Name: "batch" + Suffix, Open: kind{api: batch, exact: true}.open},
	}
}

// ShardedSystems returns the same forms of a bus in sharded mode, with a shard for
// each processor and one handler a shard where a workload has several.
func ShardedSystems() []load.System {
	return []load.System{
		{Name: "sharded-publish", Open: kind{api: publish, shards: bus.AutoShards}.open},
		{Name: "sharded-handle", Open: kind{api: handle, shards: bus.AutoShards}.open},
		{Name: "sharded-batch", Open: kind{api: batch, shards: bus.AutoShards}.open},
	}
}

type api uint8

const (
	publish api = iota
	handle
	batch
)

// instance is a bus that was built for one run.
type instance struct {
	kind

	run  *load.Run
	spec load.Spec

	bus      *bus.Bus
	entry    *bus.Stage
	last     []*bus.Stage // where messages end: the subscribers, or the last stage
	slips    []bus.Slip   // the itineraries behind the entry; one, or one for each middle stage
	keys     []string
	deadline time.Time
	done     *callbacks
}

// kind is a form of the API, with or without exact timing, and what the stages
// do when they are full.
type kind struct {
	api   api
	exact bool
	full  bus.FullPolicy
	most  bool // the window of credits is the capacity

	shards int // bus.Config.Shards
}

// open builds and starts a bus for the run.
func (k kind) open(r *load.Run) (load.Instance, error) {
	in := &instance{kind: k, run: r, spec: r.Spec(), deadline: time.Now().Add(time.Hour)}
	for i := range in.spec.Keys {
		in.keys = append(in.keys, "key-"+strconv.Itoa(i))
	}
	b, err := bus.New(bus.Config{Name: "bench", Shards: k.shards})
	if err != nil {
		return nil, err
	}
	in.bus = b
	if err := in.build(); err != nil {
		return nil, err // the bus was not started: there is nothing to stop
	}
	return in, b.Start()
}

// config is the settings of every stage that handles messages.
func (in *instance) config() bus.StageConfig {
	c := bus.StageConfig{
		Capacity:    in.spec.Capacity,
		Concurrency: in.spec.Concurrency,
		ExactTiming: in.exact,
		Full:        in.full,
		Blocking:    in.spec.Work == load.Sleep,
	}
	if in.shards != 0 && c.Concurrency > 1 && !c.Blocking {
		c.Concurrency = 0 // one a shard
	}
	if in.most {
		c.Credit.Window = in.spec.Capacity
	}
	if in.spec.Keys > 0 {
		c.Order = bus.ByKey
	}
	return c
}

func (in *instance) build() error {
	switch {
	case in.spec.Mixed:
		return in.buildMixed()
	case in.spec.Subscribers > 1:
		return in.buildTopic()
	default:
		return in.buildLine()
	}
}

// buildLine makes the stages that each message visits one after another.
func (in *instance) buildLine() error {
	var route []string
	for i := range in.spec.Stages {
		h := bus.Handler(pass)
		switch {
		case in.spec.Laps > 0:
			h = in.visit
		case i == in.spec.Stages-1:
			h = in.lastHandler()
		}
		st, err := in.stage("s"+strconv.Itoa(i), in.config(), h)
		if err != nil {
			return err
		}
		if i == 0 {
			in.entry = st
		}
		route = append(route, st.Name())
		in.last = []*bus.Stage{st}
	}
	route = slices.Repeat(route, max(1, in.spec.Laps))
	in.slips = []bus.Slip{bus.Via(route[1:]...)}
	return nil
}

// buildTopic makes a pub/sub stage and its subscribers.
func (in *instance) buildTopic() error {
	c := bus.StageConfig{Capacity: in.spec.Capacity, Delivery: bus.PubSub, ExactTiming: in.exact}
	if in.api == publish {
		c.Concurrency = 1 // in sharded mode plain publishes are spread, and their order is wanted
	}
	st, err := in.bus.Stage("topic", c)
	if err != nil {
		return err
	}
	in.entry, in.slips = st, []bus.Slip{{}}
	for i := range in.spec.Subscribers {
		sub, err := st.Subscribe("sub"+strconv.Itoa(i), in.config(), bus.LagWait, in.lastHandler())
		if err != nil {
			return err
		}
		in.last = append(in.last, sub)
	}
	return nil
}

// buildMixed makes the entry, three stages for the second visit, and the last.
func (in *instance) buildMixed() error {
	in.done = newCallbacks(in.spec.Producers)
	var err error
	if in.entry, err = in.stage("in", in.config(), pass); err != nil {
		return err
	}
	for i := range 3 {
		c := in.config()
		c.Retry = retry.Policy{MaxAttempts: 3}
		h := failSome
		if i == 0 {
			h = bus.Typed(failSomeTyped)
		}
		st, err := in.stage("mid"+strconv.Itoa(i), c, h)
		if err != nil {
			return err
		}
		in.slips = append(in.slips, bus.Via(st.Name(), "out"))
	}
	out, err := in.stage("out", in.config(), in.lastHandler())
	in.last = []*bus.Stage{out}
	return err
}

func (in *instance) stage(name string, c bus.StageConfig, h bus.Handler) (*bus.Stage, error) {
	st, err := in.bus.Stage(name, c)
	if err != nil {
		return nil, err
	}
	return st, st.Handle(h)
}

// errNotMessage is a handler's answer to a payload that nobody published.
var errNotMessage = errors.New("form: payload is not a message")

// pass is the handler of the stages before the last.
func pass(_ context.Context, e *bus.Envelope) error {
	m, ok := e.Payload.(*load.Msg)
	if !ok {
		return errNotMessage
	}
	load.Pass(m)
	return nil
}

// visit is the handler of every stage where messages go round.
func (in *instance) visit(_ context.Context, e *bus.Envelope) error {
	m, ok := e.Payload.(*load.Msg)
	if !ok {
		return errNotMessage
	}
	in.run.Visit(m)
	return nil
}

// lastHandler makes the handler that ends messages. Where the stage promises
// order it counts without atomics, as a hand-written consumer would.
func (in *instance) lastHandler() bus.Handler {
	if in.spec.InOrder() {
		tally := in.run.Consumer()
		return func(_ context.Context, e *bus.Envelope) error {
			m, ok := e.Payload.(*load.Msg)
			if !ok {
				return errNotMessage
			}
			tally.Ref(m)
			return nil
		}
	}
	run := in.run
	return func(_ context.Context, e *bus.Envelope) error {
		m, ok := e.Payload.(*load.Msg)
		if !ok {
			return errNotMessage
		}
		run.Shared(m)
		return nil
	}
}

// Close drains the bus and compares its account with what was sent.
func (in *instance) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	report, err := in.bus.Shutdown(ctx)
	if err != nil {
		return fmt.Errorf("form: %w", err)
	}
	if !report.Drained {
		return errors.New("form: the bus did not drain")
	}
	return in.audit()
}
