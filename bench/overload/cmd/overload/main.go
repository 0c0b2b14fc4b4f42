// Command overload runs the overload bench and prints its table. See --help.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sedabus/seda/bench/overload/internal/bubble"
	"github.com/sedabus/seda/bench/overload/internal/gate"
	"github.com/sedabus/seda/bench/overload/internal/law"
	"github.com/sedabus/seda/bench/overload/internal/plot"
	"github.com/sedabus/seda/bench/overload/internal/real"
	"github.com/sedabus/seda/bench/overload/internal/report"
)

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	if err == flag.ErrHelp { //nolint:errorlint // as package flag returns it
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "overload:", err)
		os.Exit(2)
	}
	law.Silence()
	bubble.Main(func(t *testing.T) int {
		missed, err := run(t, o, os.Stdout, os.Stderr)
		if err != nil {
			fmt.Fprintln(os.Stderr, "overload:", err)
			return 2
		}
		if missed > 0 {
			return 1
		}
		return 0
	})
}

func run(t *testing.T, o *options, out, diag io.Writer) (missed int, err error) {
	t.Helper()
	if o.legs != nil {
		return o.byClock(out, diag)
	}
	p := &progress{w: diag, verbose: o.verbose, began: time.Now()}
	p.announce(o)
	data := o.plan.Run(t, p.finished)
	p.end()
	w := bufio.NewWriter(out)
	if o.skipped != "" {
		_, _ = fmt.Fprintln(w, o.skipped) // a bufio.Writer keeps the error for Flush
	}
	if err := report.Table(w, &o.plan, data); err != nil {
		return 0, err
	}
	if err := report.Better(w, &o.plan, data, o.judged); err != nil {
		return 0, err
	}
	missed, err = report.Verdict(w, &o.plan, data, o.judged, gate.Table())
	return missed, errors.Join(err, w.Flush(), o.writeCSV(data), o.draw(t))
}

// byClock runs the legs by the wall clock.
func (o *options) byClock(out, diag io.Writer) (missed int, err error) {
	names, takes := make([]string, len(o.legs)), time.Duration(0)
	for i := range o.legs {
		names[i] = o.legs[i].Name
		takes += o.legs[i].Takes(o.rounds)
	}
	_, _ = fmt.Fprintf(diag, "by the wall clock: %s, rounds: %d, about %v\n", strings.Join(names, ", "), o.rounds, takes) // progress is not worth an error
	return real.Run(out, diag, o.legs, o.rounds)
}

func (o *options) writeCSV(data report.Data) error {
	if o.csv == "" {
		return nil
	}
	return write(o.csv, func(w io.Writer) error { return report.CSV(w, &o.plan, data) })
}

// draw draws the charts for each scale of the plan.
func (o *options) draw(t *testing.T) error {
	t.Helper()
	if o.svg == "" {
		return nil
	}
	for _, sc := range o.plan.Scales {
		for name, chart := range map[string]*plot.Chart{"goodput": o.plan.GoodputChart(t, sc), "flash": o.plan.FlashChart(t, sc)} {
			if err := write(filepath.Join(o.svg, name+"-"+sc.Name+".svg"), chart.Write); err != nil {
				return err
			}
		}
	}
	return nil
}

// write makes a file of what f writes.
func write(path string, f func(io.Writer) error) error {
	out, err := os.Create(path) //nolint:gosec // the user names the file
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	return errors.Join(f(w), w.Flush(), out.Close())
}
