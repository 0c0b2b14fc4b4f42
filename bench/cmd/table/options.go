package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sedabus/seda/bench/internal/form"
	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bench/internal/rival"
)

type options struct {
	pairs      int
	dur        time.Duration
	workloads  []load.Spec
	systems    []string
	gate       bool
	handles    bool
	cpuprofile string
	limit      float64
	tries      int
	wait       time.Duration
	seed       uint64
	one        string
	spin       uint64
}

func parse(args []string, diag io.Writer) (*options, error) {
	o := &options{}
	var only, systems string
	var second bool
	f := flag.NewFlagSet("table", flag.ContinueOnError)
	f.SetOutput(diag)
	f.IntVar(&o.pairs, "pairs", 20, "interleaved rounds")
	f.DurationVar(&o.dur, "dur", 300*time.Millisecond, "length of a measurement")
	f.StringVar(&only, "only", "", "workloads, such as W1,W3 (default all: "+strings.Join(workloadNames(), ",")+")")
	f.StringVar(&systems, "systems", "", "systems (default chan,chan-b32,publish,handle,batch)")
	f.BoolVar(&second, "second-row", false, "add the bus forms with deadlines and exact timing on")
	f.BoolVar(&o.gate, "gate", false, "compare with the floors; advisory, the exit code stays 0")
	f.BoolVar(&o.handles, "handles", true, "print the memory of a producer handle")
	f.StringVar(&o.cpuprofile, "cpuprofile", "", "write a CPU profile of one measurement (one workload, one system) to this file")
	f.Float64Var(&o.limit, "limit", 0.12, "share of the machine others may take before a measurement is repeated")
	f.IntVar(&o.tries, "tries", 3, "how often a measurement is taken at most")
	f.DurationVar(&o.wait, "wait", time.Second, "how long to wait for a quiet moment before each try")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the bootstrap")
	f.StringVar(&o.one, "one", "", "internal: the measurement of a child process")
	f.Uint64Var(&o.spin, "spin", 0, "internal: loop turns of a microsecond (default: measured)")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.pairs < 1 || o.dur < 10*time.Millisecond || o.tries < 1 {
		return nil, errors.New("--pairs and --tries must be at least 1, --dur at least 10ms")
	}
	return o, o.choose(only, systems, second)
}

// choose fills in the workloads and the systems.
func (o *options) choose(only, systems string, second bool) error {
	o.workloads = load.All()
	if only != "" {
		o.workloads = nil
		for name := range strings.SplitSeq(only, ",") {
			w, err := load.Lookup(strings.TrimSpace(name))
			if err != nil {
				return err
			}
			o.workloads = append(o.workloads, w)
		}
	}
	if systems == "" {
		for _, s := range append(rival.Systems(), form.Systems()...) {
			o.systems = append(o.systems, s.Name)
		}
	} else {
		for name := range strings.SplitSeq(systems, ",") {
			s, err := findSystem(strings.TrimSpace(name))
			if err != nil {
				return err
			}
			o.systems = append(o.systems, s.Name)
		}
	}
	if second {
		for _, s := range form.ExactSystems() {
			o.systems = append(o.systems, s.Name)
		}
	}
	return nil
}

func findSystem(name string) (load.System, error) {
	all := append(rival.Systems(), form.Systems()...)
	all = append(all, form.ExactSystems()...)
	all = append(all, form.ShardedSystems()...)
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
	}
	return load.System{}, fmt.Errorf("no system %q", name)
}

func workloadNames() (names []string) {
	for _, w := range load.All() {
		names = append(names, w.Name)
	}
	return names
}
