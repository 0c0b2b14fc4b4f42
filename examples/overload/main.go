// Command overload shows what a shedder in front of an HTTP service is good
// for. It starts the service on loopback, with and without a shedder, sends it
// as many requests as it can do and several times as many, and prints what
// became of them:
//
//	load  shedder  sent   in time  late   refused  unsent  in time/s  of capacity  p50   p99
//
// A request is in time if its answer arrives within --patience after the moment
// at which it was due to be sent. Below capacity nothing is refused. Above it,
// a service without a shedder does as much work as ever, but all of it too
// late; with one, some are told at once to come back later and the others are
// served in time.
//
// Usage:
//
//	overload [flags]
//
// With --listen it serves instead, with a shedder, until it is interrupted:
//
//	/work    one unit of work
//	/stats   what the shedder knows, as JSON
//
// The exit status is 0, 1 when the account of requests does not balance or the
// service cannot start, and 2 for wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

const (
	exitFine   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// options are the settings of a run.
type options struct {
	listen      string
	workers     int
	service     time.Duration
	loads       []float64
	length      time.Duration
	patience    time.Duration
	outstanding int
	status      int
	seed        uint64
}

// capacity is how many requests a second the service can do.
func (o *options) capacity() float64 { return float64(o.workers) / o.service.Seconds() }

// parseFlags returns all faults of the command line at once.
func parseFlags(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("overload", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.listen, "listen", "", "serve on this address and send nothing")
	fs.IntVar(&o.workers, "workers", 8, "requests that are worked on at once")
	fs.DurationVar(&o.service, "service", 20*time.Millisecond, "how long one takes")
	loads := fs.String("loads", "0.7,3", "loads to try, in capacities of the service")
	fs.DurationVar(&o.length, "for", 3*time.Second, "for how long each of them")
	fs.DurationVar(&o.patience, "patience", 400*time.Millisecond, "within what time an answer is worth something")
	fs.IntVar(&o.outstanding, "outstanding", 1000, "requests without an answer at which no more are sent")
	fs.IntVar(&o.status, "status", 503, "status of refusals, such as 503 or 429")
	fs.Uint64Var(&o.seed, "seed", 1, "of the random times between requests")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	check := func(ok bool, format string, v ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, v...))
		}
	}
	check(fs.NArg() == 0, "unexpected argument %q", fs.Args())
	check(o.workers >= 1 && o.workers <= 10_000, "--workers %d: must be from 1 to 10000", o.workers)
	check(o.service > 0 && o.service <= time.Minute, "--service %v: must be above 0 and at most 1m", o.service)
	check(o.length > 0 && o.length <= time.Hour, "--for %v: must be above 0 and at most 1h", o.length)
	check(o.patience > 0, "--patience %v: must be above 0", o.patience)
	check(o.outstanding >= 1 && o.outstanding <= 100_000, "--outstanding %d: must be from 1 to 100000", o.outstanding)
	check(o.status >= 400 && o.status <= 599, "--status %d: must be from 400 to 599", o.status)
	for text := range strings.SplitSeq(*loads, ",") {
		load, err := strconv.ParseFloat(text, 64)
		check(err == nil && load > 0 && load <= 100, "--loads %q: must be numbers above 0 and at most 100, with commas between them", *loads)
		o.loads = append(o.loads, load)
	}
	if len(errs) == 0 {
		most := o.capacity() * maxOf(o.loads)
		check(most <= 1e6, "%.4g requests a second: must be at most 1e6", most)
	}
	return o, errors.Join(errs...)
}

func maxOf(numbers []float64) float64 {
	most := math.Inf(-1)
	for _, n := range numbers {
		most = max(most, n)
	}
	return most
}

// run is the program without the process: it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	complain := func(err error) { _, _ = fmt.Fprintln(stderr, "overload:", err) }
	o, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitFine
	}
	if err != nil {
		complain(err)
		return exitUsage
	}
	if o.listen != "" {
		err = serve(ctx, &o, stdout)
	} else {
		err = compare(ctx, &o, loopback, stdout)
	}
	if err != nil {
		complain(err)
		return exitFailed
	}
	return exitFine
}
