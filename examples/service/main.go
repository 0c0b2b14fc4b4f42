// Command service is the whole life of a small HTTP service in a pod: it
// starts, turns ready, hands requests to a stage of a bus, answers refusals in
// HTTP's words, and goes down without losing what it has accepted.
//
// Usage:
//
//	service [flags]
//
// It serves
//
//	/work    one unit of work, through the stage; see parseJob for its parameters
//	/stats   the account and what is waiting, as JSON
//	/readyz  200 while new requests are welcome, 503 once it goes down
//	/healthz 200 as long as the process answers
//
// # Going down
//
// SIGTERM or SIGINT begins a drain:
//
//  1. /readyz says 503 and connections are closed after their answer, while
//     requests are still served for --endpoints-wait: load balancers learn of
//     the change only after a while.
//  2. The listener is closed. Requests that have arrived are answered and the
//     bus drains, both within --grace.
//  3. At the deadline what is left is abandoned, and its callers get a 503.
//  4. One line with the account is printed.
//
// A second signal cuts all of that short. In a pod, the grace period for
// termination must be longer than --endpoints-wait and --grace together.
//
// The exit status is 0 when everything was drained, 1 when work or an answer
// had to be abandoned at the deadline or the service could not start, 2 for
// wrong usage and 130 after a second signal.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sedabus/seda/bus"
)

const (
	exitDrained = 0
	exitFailed  = 1
	exitUsage   = 2
	exitCut     = 130
)

func main() {
	// Two places: neither the first nor the second signal may be missed.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	os.Exit(run(os.Args[1:], signals, os.Stdout, os.Stderr))
}

// options are the settings of a run.
type options struct {
	listen         string
	stage          bus.StageConfig
	requestTimeout time.Duration
	maxBody        int64
	endpointsWait  time.Duration
	grace          time.Duration
}

// parseFlags returns all faults of the command line at once, but for those of
// the stage, which the bus finds.
func parseFlags(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("service", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address to serve on; a pod needs :8080")
	fs.IntVar(&o.stage.Capacity, "capacity", 0, "requests that may wait for a worker; 0 is 1024")
	fs.IntVar(&o.stage.Concurrency, "concurrency", 8, "requests that are worked on at once")
	fs.IntVar(&o.stage.MaxWaiters, "max-waiters", 0, "with --full block, requests that may wait for room; 0 is 10000")
	full := fs.String("full", bus.Reject.String(), "what a full stage does: block, reject, drop-newest or drop-oldest")
	fs.DurationVar(&o.requestTimeout, "request-timeout", 30*time.Second, "how long a request may take, waiting included")
	fs.Int64Var(&o.maxBody, "max-body", 1<<20, "largest request body in bytes")
	fs.DurationVar(&o.endpointsWait, "endpoints-wait", 3*time.Second, "how long to go on serving once readiness is off")
	fs.DurationVar(&o.grace, "grace", 25*time.Second, "how long the drain after that may take")
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
	policy, known := parsePolicy(*full)
	o.stage.Full = policy
	check(known, "--full %q: must be block, reject, drop-newest or drop-oldest", *full)
	check(o.requestTimeout > 0, "--request-timeout %v: must be above 0", o.requestTimeout)
	check(o.maxBody >= 0, "--max-body %d: must not be below 0", o.maxBody)
	check(o.endpointsWait >= 0, "--endpoints-wait %v: must not be below 0", o.endpointsWait)
	check(o.grace > 0, "--grace %v: must be above 0", o.grace)
	return o, errors.Join(errs...)
}

func parsePolicy(name string) (bus.FullPolicy, bool) {
	for _, p := range []bus.FullPolicy{bus.Block, bus.Reject, bus.DropNewest, bus.DropOldest} {
		if p.String() == name {
			return p, true
		}
	}
	return 0, false
}

// run is the program without the process: it returns the exit status.
func run(args []string, signals <-chan os.Signal, stdout, stderr io.Writer) int {
	complain := func(err error) { _, _ = fmt.Fprintln(stderr, "service:", err) }
	o, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitDrained
	}
	if err != nil {
		complain(err)
		return exitUsage
	}
	s, err := newService(o, stdout)
	if err != nil {
		complain(err)
		return exitUsage
	}
	if err := s.start(); err != nil {
		complain(err)
		return exitFailed
	}
	return s.untilDown(signals, complain)
}
