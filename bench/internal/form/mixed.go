package form

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bus"
)

// errSometimes is what a handler of the mixed workload answers to one message
// in a hundred, at its first attempt.
var errSometimes = errors.New("form: fails once")

// failSome is the middle stage's handler for payloads of any type.
func failSome(_ context.Context, e *bus.Envelope) error {
	m, ok := e.Payload.(*load.Msg)
	if !ok {
		return errNotMessage
	}
	return failOne(m, e)
}

// failSomeTyped is the middle stage's handler behind the typed adapter.
func failSomeTyped(_ context.Context, m *load.Msg, e *bus.Envelope) error {
	return failOne(m, e)
}

func failOne(m *load.Msg, e *bus.Envelope) error {
	if m.Seq%100 == 0 && e.Attempt() == 1 {
		return errSometimes
	}
	load.Pass(m)
	return nil
}

// callbacks counts the completion callbacks of all producers. The callbacks run
// on the bus's goroutine.
type callbacks struct {
	taken     atomic.Int32
	completed []count
	failed    atomic.Uint64
}

type count struct {
	n atomic.Uint64
	_ [120]byte
}

func newCallbacks(producers int) *callbacks {
	return &callbacks{completed: make([]count, producers)}
}

// next makes the callback of one producer, which it uses for all its messages.
func (c *callbacks) next() func(bus.Result) {
	mine := &c.completed[c.taken.Add(1)-1]
	return func(r bus.Result) {
		if r.End != bus.Completed {
			c.failed.Add(1)
			return
		}
		mine.n.Add(1)
	}
}

func (c *callbacks) check(sent uint64) error {
	var n uint64
	for i := range c.completed {
		n += c.completed[i].n.Load()
	}
	if n != sent || c.failed.Load() > 0 {
		return fmt.Errorf("form: %d of %d messages called back as completed, %d otherwise", n, sent, c.failed.Load())
	}
	return nil
}
