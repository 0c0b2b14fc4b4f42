package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sedabus/seda/bus"
)

const (
	stageRead  = "read"
	stageParse = "parse"
	stageCount = "count"

	// capacity bounds the lines that wait before parse and before count. With
	// the longest lines it is the program's memory: twice 1,024 times
	// --max-line.
	capacity = 1024

	// patience is how long a line waits for the next stage. The stages behind
	// always make progress, so this is only there to end what is broken.
	patience = time.Hour

	// Bounds of the dead-letter store.
	letterCount = 100_000
	letterBytes = 64 << 20
)

// pipeline is one run: files enter read, whose handler publishes their lines to
// parse with a slip that goes on to count. Every stage blocks when it is full,
// so the slowest one sets the pace and memory stays bounded.
type pipeline struct {
	o       options
	sources []*source
	bus     *bus.Bus
	read    *bus.Stage
	parse   *bus.Stage

	// tally belongs to the handler of count, which runs once at a time, and to
	// report after the drain.
	tally map[record]uint64
}

// newPipeline builds the bus without starting it. When ctx ends, reading stops.
func newPipeline(ctx context.Context, o options, list []*source, stdin io.Reader) (*pipeline, error) {
	b, err := bus.New(bus.Config{
		Name:        "logpipe",
		DeadLetters: bus.LetterBounds{MaxCount: letterCount, MaxBytes: letterBytes},
	})
	if err != nil {
		return nil, err
	}
	p := &pipeline{o: o, sources: list, bus: b, tally: map[record]uint64{}}
	var errs []error
	stage := func(name string, concurrency int, h bus.Handler) *bus.Stage {
		s, err := b.Stage(name, bus.StageConfig{Capacity: capacity, Concurrency: concurrency, HopTimeout: patience})
		if err == nil {
			err = s.Handle(h)
		}
		errs = append(errs, err)
		return s
	}
	// One file at a time, in the order given; one counter, which needs no lock.
	p.read = stage(stageRead, 1, bus.Typed(p.reader(ctx, stdin)))
	p.parse = stage(stageParse, o.workers, bus.Typed(p.parseLine))
	stage(stageCount, 1, bus.Typed(p.countLine))
	return p, errors.Join(errs...)
}

// run puts the sources through the stages and drains the bus.
func (p *pipeline) run(ctx context.Context) error {
	if err := p.bus.Start(); err != nil {
		return err
	}
	var reading sync.WaitGroup
	var refused error
	for _, s := range p.sources {
		reading.Add(1)
		e := bus.Envelope{Payload: s, OnDone: func(bus.Result) { reading.Done() }}
		if err := p.read.Publish(ctx, &e); err != nil {
			reading.Done()
			s.interrupted = ctx.Err() != nil
			if !s.interrupted {
				refused = errors.Join(refused, fmt.Errorf("%s: %w", s.path, err))
			}
		}
	}
	// Reading may take as long as it likes; only what is left in the stages
	// then has a deadline, also after an interrupt.
	reading.Wait()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.o.grace)
	defer cancel()
	_, err := p.bus.Shutdown(drain)
	return errors.Join(refused, err)
}

// reader returns the handler of read. A file that cannot be read is not an
// envelope's failure: the source records it, and what was read of it counts.
func (p *pipeline) reader(interrupt context.Context, stdin io.Reader) func(context.Context, *source, *bus.Envelope) error {
	next := bus.Via(stageCount)
	return func(ctx context.Context, s *source, _ *bus.Envelope) error {
		publish := func(l *line) error {
			// The handler's own context, not the interrupt: what was read is
			// counted.
			return p.parse.Publish(ctx, &bus.Envelope{Payload: l, Slip: next})
		}
		err := s.each(interrupt, stdin, p.o.maxLine, publish)
		switch {
		case err == nil:
		case interrupt.Err() != nil:
			s.interrupted = true
		default:
			s.err = err
		}
		return nil
	}
}

// parseLine is the handler of parse: it fills in the record, or dead-letters the
// line with the reason.
func (p *pipeline) parseLine(_ context.Context, l *line, _ *bus.Envelope) error {
	if l.long {
		l.why = fmt.Sprintf("%d bytes, more than %d", l.size, p.o.maxLine)
		return bus.DeadLetter(l.why)
	}
	rec, err := parse(p.o.form, l.text)
	if err != nil {
		l.why = err.Error()
		return bus.DeadLetter(l.why)
	}
	l.rec = rec
	return nil
}

// countLine is the handler of count.
func (p *pipeline) countLine(_ context.Context, l *line, _ *bus.Envelope) error {
	if _, seen := p.tally[l.rec]; !seen {
		// The first key of its kind would keep its whole line in memory.
		l.rec.level, l.rec.component = strings.Clone(l.rec.level), strings.Clone(l.rec.component)
	}
	p.tally[l.rec]++
	return nil
}
