// Command logpipe counts log lines by level and by component.
//
// It reads files, or standard input, line by line through three stages of a
// bus, read, parse and count, and prints a report that ends with the account:
// every line that was read was either counted or dead-lettered. The bus's own
// account has one envelope more for each file.
//
// Usage:
//
//	logpipe [flags] [file ...]
//
// A file named "-", or no file and no --dir, is standard input. The exit status
// is 0 when everything was read and the account balances, 1 when a file could
// not be read, work was abandoned or the account does not balance, 2 for wrong
// usage, and 130 when the run was interrupted: what was read by then is
// reported. A second interrupt ends the program at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the next signal has its usual effect again
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the settings of a run.
type options struct {
	form    form
	dir     string
	paths   []string
	workers int           // parsers at once
	maxLine int           // bytes of a line without its ending
	letters int           // malformed lines in the report
	grace   time.Duration // for what is in the stages once reading has ended
	json    bool
}

const (
	maxWorkers  = 1024
	maxMaxLine  = 16 << 20
	maxLettersN = letterCount
)

// parseFlags returns all faults of the command line at once.
func parseFlags(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("logpipe", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		_, _ = fmt.Fprintln(stderr, "usage: logpipe [flags] [file ...]")
		fs.PrintDefaults()
	}
	fs.StringVar((*string)(&o.form), "form", string(formAuto), "form of the lines: auto, apache, hdfs or zookeeper")
	fs.StringVar(&o.dir, "dir", "", "read every regular file in this folder, in the order of names")
	fs.IntVar(&o.workers, "workers", min(runtime.GOMAXPROCS(0), maxWorkers), "parsers that run at once")
	fs.IntVar(&o.maxLine, "max-line", 64<<10, "longest line in bytes without its ending; longer ones are malformed")
	fs.IntVar(&o.letters, "letters", 10, "malformed lines that the report lists")
	fs.DurationVar(&o.grace, "grace", 30*time.Second, "how long the stages may take to drain after the last line")
	fs.BoolVar(&o.json, "json", false, "write the report as JSON")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.paths = fs.Args()
	var errs []error
	check := func(ok bool, format string, v ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, v...))
		}
	}
	known := []form{formAuto, formApache, formHDFS, formZooKeeper}
	check(slices.Contains(known, o.form), "--form %q: must be one of %q", o.form, known)
	check(o.workers >= 1 && o.workers <= maxWorkers, "--workers %d: must be from 1 to %d", o.workers, maxWorkers)
	check(o.maxLine >= 1 && o.maxLine <= maxMaxLine, "--max-line %d: must be from 1 to %d", o.maxLine, maxMaxLine)
	check(o.letters >= 0 && o.letters <= maxLettersN, "--letters %d: must be from 0 to %d", o.letters, maxLettersN)
	check(o.grace > 0, "--grace %v: must be above 0", o.grace)
	return o, errors.Join(errs...)
}

// run is the program without the process: it returns the exit status. When ctx
// ends it stops reading and reports what was read.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		complain(stderr, err)
		return exitUsage
	}
	list, err := sources(o.paths, o.dir)
	failed := err != nil
	if err != nil {
		complain(stderr, err)
	}
	p, err := newPipeline(ctx, o, list, stdin)
	if err != nil {
		complain(stderr, err)
		return exitFailed
	}
	if err := p.run(ctx); err != nil {
		complain(stderr, err)
		failed = true
	}
	for _, s := range list {
		if s.err != nil {
			complain(stderr, s.err)
			failed = true
		}
	}
	r := p.report()
	if err := r.write(stdout, o.json); err != nil {
		complain(stderr, fmt.Errorf("writing the report: %w", err))
		failed = true
	}
	switch {
	case failed || !r.Account.Balanced || !r.Bus.Balanced:
		return exitFailed
	case r.Interrupted:
		return exitInterrupted
	default:
		return exitOK
	}
}

// complain writes an error that may name files, line by line.
func complain(stderr io.Writer, err error) {
	for l := range strings.SplitSeq(err.Error(), "\n") {
		_, _ = fmt.Fprintln(stderr, "logpipe:", shown(l)) // nowhere to tell that it failed
	}
}
