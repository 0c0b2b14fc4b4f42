// Command table measures the bus beside hand-written channels and prints a
// markdown table.
//
// Every measurement runs in a process of its own, after a warm-up, and the two
// sides of a ratio are measured in turns. A measurement during which other
// processes took more of the machine than --limit is repeated. See --help.
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
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bench/internal/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, diag io.Writer) error {
	o, err := parse(args, diag)
	if err != nil {
		return err
	}
	switch {
	case o.one == handlesJob:
		return writeJSON(out, measureHandles(ctx))
	case o.one != "":
		return measureOne(o, out)
	case o.cpuprofile != "":
		return profileOne(o, out)
	default:
		return table(ctx, o, out, diag)
	}
}

// table runs the plan and prints what came out. It fails only when a system
// broke a promise; missed floors do not make it fail.
func table(ctx context.Context, o *options, out, diag io.Writer) error {
	o.spin = load.Calibrate()
	plan := report.NewPlan(o.workloads, o.systems)
	start := time.Now()
	say := func(text string) { _, _ = fmt.Fprintln(diag, text) } // progress only
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
	data, err := report.Collect(ctx, plan, o.pairs, children.Measure, say)
	if err != nil {
		say("ended early: " + err.Error())
	}
	rows := report.Summarise(plan, data, o.seed)
	var doc bytes.Buffer
	fmt.Fprintf(&doc, "%s, %s/%s, GOMAXPROCS %d, %d rounds of %v, %v in all. Ratios: median of the rounds with the bootstrap interval.\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), o.pairs, o.dur, time.Since(start).Round(time.Second))
	if err := report.Table(&doc, rows); err != nil {
		return err
	}
	if o.gate {
		doc.WriteString("\nFloors (advisory):\n\n")
		missed, err := report.Gate(&doc, rows, report.Floors())
		if err != nil {
			return err
		}
		fmt.Fprintf(&doc, "\n%d missed.\n", missed)
	}
	if o.handles {
		if err := printHandles(ctx, &doc); err != nil {
			doc.WriteString("\n" + err.Error() + "\n")
		}
	}
	_, err = doc.WriteTo(out)
	return errors.Join(err, data.Broken())
}

// measureOne is what a child does.
func measureOne(o *options, out io.Writer) error {
	workload, system, _ := strings.Cut(o.one, "/")
	spec, err := load.Lookup(workload)
	if err != nil {
		return err
	}
	sys, err := findSystem(system)
	if err != nil {
		return err
	}
	return writeJSON(out, report.NewAnswer(measure(o, sys, spec)))
}

func measure(o *options, sys load.System, spec load.Spec) (load.Sample, error) {
	if o.spin == 0 {
		o.spin = load.Calibrate()
	}
	load.SetSpin(o.spin)
	return load.Measure(sys, spec, o.dur)
}

// profileOne takes a single measurement in this process under the CPU profiler.
func profileOne(o *options, out io.Writer) error {
	if len(o.workloads) != 1 || len(o.systems) != 1 {
		return errors.New("--cpuprofile needs one workload (--only) and one system (--systems)")
	}
	sys, err := findSystem(o.systems[0])
	if err != nil {
		return err
	}
	f, err := os.Create(o.cpuprofile) //nolint:gosec // the user names the file
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // Close below reports it
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	s, err := measure(o, sys, o.workloads[0])
	pprof.StopCPUProfile()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s %s: %.2f M msg/s, %.1f ns, %.1f CPU ns, %.2f allocs, %.0f bytes\n", s.Workload, s.System,
		s.Rate()/1e6, s.WallNanos(), s.CPUNanos(), s.Allocs, s.Bytes)
	return errors.Join(err, f.Close())
}

func writeJSON(w io.Writer, v any) error {
	return json.NewEncoder(w).Encode(v)
}
