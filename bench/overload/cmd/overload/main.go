// Command overload runs the overload bench and prints its table. See --help.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/sedabus/seda/bench/overload/internal/bubble"
	"github.com/sedabus/seda/bench/overload/internal/gate"
	"github.com/sedabus/seda/bench/overload/internal/law"
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
	var said func(report.Key, int, time.Duration)
	if o.verbose {
		said = func(k report.Key, seed int, d time.Duration) {
			_, _ = fmt.Fprintf(diag, "%s %s %s seed %d: %v\n", k.Shape, k.Scale, k.Law, seed, d.Round(time.Millisecond))
		}
	}
	data := o.plan.Run(t, said)
	w := bufio.NewWriter(out)
	if err := report.Table(w, &o.plan, data); err != nil {
		return 0, err
	}
	missed, err = report.Verdict(w, &o.plan, data, o.judged, gate.Table())
	return missed, errors.Join(err, w.Flush())
}
