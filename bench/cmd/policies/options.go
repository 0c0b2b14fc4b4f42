package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

type options struct {
	pairs int
	dur   time.Duration
	only  []string
	gate  bool
	limit float64
	tries int
	wait  time.Duration
	seed  uint64
	one   string
	spin  uint64
}

// parts are what can be measured by itself.
var parts = []string{"rate", "wait", "ring", "cost", "overload"}

func parse(args []string, diag io.Writer) (*options, error) {
	o := &options{}
	var only string
	f := flag.NewFlagSet("policies", flag.ContinueOnError)
	f.SetOutput(diag)
	f.IntVar(&o.pairs, "pairs", 12, "interleaved rounds")
	f.DurationVar(&o.dur, "dur", 300*time.Millisecond, "length of a measurement")
	f.StringVar(&only, "only", "", "parts to measure (default all: "+strings.Join(parts, ",")+")")
	f.BoolVar(&o.gate, "gate", false, "end with exit code 3 if a bound was missed")
	f.Float64Var(&o.limit, "limit", 0.12, "share of the machine others may take before a measurement is repeated")
	f.IntVar(&o.tries, "tries", 3, "how often a measurement is taken at most")
	f.DurationVar(&o.wait, "wait", time.Second, "how long to wait for a quiet moment before each try")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the bootstrap")
	f.StringVar(&o.one, "one", "", "internal: the measurement of a child process")
	f.Uint64Var(&o.spin, "spin", 0, "internal: loop turns of a microsecond")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.pairs < 1 || o.dur < 10*time.Millisecond || o.tries < 1 {
		return nil, errors.New("--pairs and --tries must be at least 1, --dur at least 10ms")
	}
	o.only = parts
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	for _, p := range o.only {
		if !slices.Contains(parts, p) {
			return nil, fmt.Errorf("no part %q", p)
		}
	}
	return o, nil
}

func wants(only []string, part string) bool { return slices.Contains(only, part) }
