// Command credit reads lines from a source only as fast as they can be worked
// off. It asks for a credit before it reads a line, so that no line waits in
// memory for room: what is not read yet stays where it is safe, in the file or
// at the broker.
//
//	yes | head -500 | go run ./examples/credit
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/sedabus/seda/bus"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdin, os.Stdout, store)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "credit:", err)
		os.Exit(1)
	}
}

// store is the work: slow, as a database is.
func store(context.Context, string, *bus.Envelope) error {
	time.Sleep(5 * time.Millisecond)
	return nil
}

// run works off all lines of in.
func run(ctx context.Context, in io.Reader, out io.Writer, work func(context.Context, string, *bus.Envelope) error) error {
	b, err := bus.New(bus.Config{})
	if err != nil {
		return err
	}
	lines, err := b.Stage("lines", bus.StageConfig{Concurrency: 4, Full: bus.Credit})
	if err != nil {
		return err
	}
	if err := errors.Join(lines.Handle(bus.Typed(work)), b.Start()); err != nil {
		return err
	}
	readErr := read(ctx, in, lines)
	var credits bus.CreditState
	lines.ReadCredit(&credits)
	report, err := b.Shutdown(context.WithoutCancel(ctx))
	_, printErr := fmt.Fprintf(out, "%d lines; the reader waited %v for credits, of which there were %d at the end\n",
		report.Stats.Completed, credits.Blocked.Round(time.Millisecond), credits.Window)
	return errors.Join(readErr, err, printErr)
}

// read publishes what it reads. It holds a credit before it asks the source for
// a line, so the publish that follows finds room at once.
func read(ctx context.Context, in io.Reader, lines *bus.Stage) error {
	p := lines.Producer()
	defer p.Close() // credits that were not used go back
	source := bufio.NewScanner(in)
	for {
		if err := p.Acquire(ctx, 1); err != nil {
			return err
		}
		if !source.Scan() {
			return source.Err()
		}
		if err := p.Publish(ctx, &bus.Envelope{Payload: source.Text()}); err != nil {
			return err
		}
	}
}
