package metrics

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/reason"
)

// Errors of this package.
var (
	ErrNoBus      = errors.New("metrics: the bus is nil")
	ErrRegistered = errors.New("metrics: a bus of this name is registered already")
)

// Options is how a bus is exported. The zero value exports everything.
type Options struct {
	// NoHistograms leaves out the histograms of wait and service time, 14
	// series each for a stage.
	NoHistograms bool
}

// bounds are the upper bounds of the histograms; with +Inf they are 12 buckets.
//
//nolint:gochecknoglobals // the table of buckets
var bounds = [...]time.Duration{
	100 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second,
}

// Collector exports one bus; see [prometheus.Collector]. Its methods may be
// called from any goroutine, also at once.
type Collector struct {
	bus  *bus.Bus
	opts Options
	name string
	pool sync.Pool // of *bus.Stats

	busCounters, busGauges, stageCounters, stageGauges []*prometheus.Desc

	busRefused, busDropped, stageRefused, stageDropped, wait, service *prometheus.Desc
}

// New returns a collector of b, with the label bus set to its name. It returns
// ErrNoBus for nil. The bus need not be started; stages added later appear with
// the next scrape.
func New(b *bus.Bus, opts Options) (*Collector, error) {
	if b == nil {
		return nil, ErrNoBus
	}
	var s bus.Stats
	b.ReadStats(&s)
	c := &Collector{bus: b, opts: opts, name: s.Name}
	c.pool.New = func() any { return new(bus.Stats) }
	labels := prometheus.Labels{"bus": s.Name}
	desc := func(name, help string, vars ...string) *prometheus.Desc {
		return prometheus.NewDesc("seda_"+name, help, vars, labels)
	}
	for _, f := range busCounters {
		c.busCounters = append(c.busCounters, desc("bus_"+f.name, f.help))
	}
	for _, f := range busGauges {
		c.busGauges = append(c.busGauges, desc("bus_"+f.name, f.help))
	}
	for _, f := range stageCounters {
		c.stageCounters = append(c.stageCounters, desc("stage_"+f.name, f.help, "stage"))
	}
	for _, f := range stageGauges {
		c.stageGauges = append(c.stageGauges, desc("stage_"+f.name, f.help, "stage"))
	}
	c.busRefused = desc("bus_refused_total", "Publishes not accepted, with those to unknown stages.", "reason")
	c.busDropped = desc("bus_dropped_total", "Accepted envelopes dropped; copies are not counted.", "reason")
	c.stageRefused = desc("stage_refused_total", "Publishes not accepted.", "stage", "reason")
	c.stageDropped = desc("stage_dropped_total", "Envelopes dropped after they had entered.", "stage", "reason")
	c.wait = desc("stage_wait_seconds", "Time from entry to start.", "stage")
	c.service = desc("stage_service_seconds", "Time of handler calls.", "stage")
	return c, nil
}

// Describe sends the same descriptors whatever the options are, so that a
// registry knows a second collector of the same bus for what it is.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, list := range [][]*prometheus.Desc{
		c.busCounters, c.busGauges, c.stageCounters, c.stageGauges,
		{c.busRefused, c.busDropped, c.stageRefused, c.stageDropped, c.wait, c.service},
	} {
		for _, d := range list {
			ch <- d
		}
	}
}

// Collect reads the bus and sends what it read.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s, _ := c.pool.Get().(*bus.Stats)
	defer c.pool.Put(s)
	c.bus.ReadStats(s)
	send(ch, prometheus.CounterValue, c.busCounters, busCounters, s)
	send(ch, prometheus.GaugeValue, c.busGauges, busGauges, s)
	sendReasons(ch, c.busRefused, &s.Refused, alwaysRefused)
	sendReasons(ch, c.busDropped, &s.Dropped, alwaysDropped)
	for i := range s.Stages {
		st := &s.Stages[i]
		send(ch, prometheus.CounterValue, c.stageCounters, stageCounters, st, st.Name)
		send(ch, prometheus.GaugeValue, c.stageGauges, stageGauges, st, st.Name)
		sendReasons(ch, c.stageRefused, &st.Refused, alwaysRefused, st.Name)
		sendReasons(ch, c.stageDropped, &st.Dropped, alwaysDropped, st.Name)
		if !c.opts.NoHistograms {
			ch <- histogram(c.wait, &st.Wait, st.Name)
			ch <- histogram(c.service, &st.Service, st.Name)
		}
	}
}

func send[T any](ch chan<- prometheus.Metric, kind prometheus.ValueType, descs []*prometheus.Desc, table []figure[T], s *T, labels ...string) {
	for i := range table {
		ch <- prometheus.MustNewConstMetric(descs[i], kind, table[i].value(s), labels...)
	}
}

func sendReasons(ch chan<- prometheus.Metric, d *prometheus.Desc, counts *[reason.Count]uint64, always func(reason.Reason) bool, labels ...string) {
	for i, n := range counts {
		if r := reason.Reason(i); n > 0 || always(r) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append(slices.Clip(labels), r.String())...)
		}
	}
}

// histogram sorts the buckets of the bus, which are at most 1/16 wide, into
// those of bounds: one that straddles a bound counts above it.
func histogram(d *prometheus.Desc, t *bus.Timing, stage string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(bounds))
	var below uint64
	at := 0
	for upper, n := range t.Buckets {
		for ; at < len(bounds) && upper > bounds[at]; at++ {
			buckets[bounds[at].Seconds()] = below
		}
		below += n
	}
	for ; at < len(bounds); at++ {
		buckets[bounds[at].Seconds()] = below
	}
	return prometheus.MustNewConstHistogram(d, t.Count(), t.Sum().Seconds(), buckets, stage)
}

// Register makes a collector for each bus and registers it: all of them or none.
// Two buses of one name on a registry are ErrRegistered, a nil bus is ErrNoBus.
func Register(reg prometheus.Registerer, opts Options, buses ...*bus.Bus) error {
	done := make([]*Collector, 0, len(buses))
	for i, b := range buses {
		c, err := New(b, opts)
		if err == nil {
			err = register(reg, c)
		}
		if err != nil {
			for _, c := range done {
				reg.Unregister(c)
			}
			return fmt.Errorf("bus %d of %d: %w", i+1, len(buses), err)
		}
		done = append(done, c)
	}
	return nil
}

func register(reg prometheus.Registerer, c *Collector) error {
	err := reg.Register(c)
	if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		return fmt.Errorf("%w: %q; register each bus once and give each a Config.Name of its own", ErrRegistered, c.name)
	}
	return err
}
