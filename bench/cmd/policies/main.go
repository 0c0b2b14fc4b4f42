// Command policies measures the full policies of a stage beside each other and
// prints markdown tables: first Credit beside Block at the same work, by the
// clock on the wall; then all five at twice the load that a pipeline can bear,
// in simulated time.
//
// Every measurement by the wall runs in a process of its own, after a warm-up,
// and the two sides of a ratio are measured in turns. A measurement during which
// other processes took more of the machine than --limit is repeated. With --gate
// the exit code is 3 if a bound was missed. See --help.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/sedabus/seda/bench/internal/bubble"
	"github.com/sedabus/seda/bench/internal/form"
	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bench/internal/report"
)

const missedCode = 3

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	if err != nil {
		fail(err)
	}
	if o.one == overloadJob {
		bubble.Main(func(in func(func())) int { return simulateAll(in, os.Stdout) })
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	missed, err := run(ctx, o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fail(err)
	}
	if o.gate && missed > 0 {
		os.Exit(missedCode)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "policies:", err)
	os.Exit(1)
}

func run(ctx context.Context, o *options, out, diag io.Writer) (missed int, err error) {
	if o.one != "" {
		return 0, measureOne(ctx, o, out)
	}
	o.spin = load.Calibrate()
	start := time.Now()
	say := func(text string) { _, _ = fmt.Fprintln(diag, text) } // progress only
	plan := newPlan(o.only)
	say(fmt.Sprintf("%d measurements of %v in each of %d rounds", plan.Count(), o.dur, o.pairs))
	children := &report.Children{
		Args: func(c report.Cell) []string {
			return []string{
				"--one", c.Workload + "/" + c.System, "--dur", o.dur.String(),
				"--spin", strconv.FormatUint(o.spin, 10),
			}
		},
		Limit: o.limit, Tries: o.tries, Patience: o.wait, Timeout: 2*time.Minute + 4*o.dur,
	}
	data, err := report.Collect(ctx, plan.Plan, o.pairs, children.Measure, say)
	if err != nil {
		say("ended early: " + err.Error())
	}
	var doc bytes.Buffer
	fmt.Fprintf(&doc, "%s, %s/%s, GOMAXPROCS %d, %d rounds of %v, %v in all. Medians of the rounds; in brackets the 95 %% bootstrap interval.\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), o.pairs, o.dur, time.Since(start).Round(time.Second))
	b := book{data: data, seed: o.seed, plan: plan}
	errs := []error{b.tables(&doc), data.Broken()}
	if wants(o.only, "overload") {
		errs = append(errs, printOverload(ctx, &doc))
	}
	missed, err = b.gates(&doc)
	_, writeErr := doc.WriteTo(out)
	return missed, errors.Join(append(errs, err, writeErr)...)
}

// measureOne is what a child does.
func measureOne(ctx context.Context, o *options, out io.Writer) error {
	workload, system, _ := strings.Cut(o.one, "/")
	load.SetSpin(o.spin)
	if workload == cost {
		return json.NewEncoder(out).Encode(report.NewAnswer(form.MeasurePublish(ctx, system, o.dur)))
	}
	spec, err := load.Lookup(workload)
	if err != nil {
		return err
	}
	for _, sys := range form.PolicySystems() {
		if sys.Name == system {
			return json.NewEncoder(out).Encode(report.NewAnswer(load.MeasureWaits(sys, spec, o.dur)))
		}
	}
	return fmt.Errorf("no system %q", system)
}
