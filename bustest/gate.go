package bustest

import (
	"context"
	"sync"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/internal/invariant"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// Gate holds handlers until the test lets them go. It is safe for concurrent
// use. Make one with NewGate, inside the bubble.
type Gate struct {
	open chan struct{}
	pass chan struct{}
	once sync.Once

	mu      sync.Mutex
	waiting int
	passed  int
}

// NewGate returns a closed gate.
func NewGate() *Gate {
	return &Gate{open: make(chan struct{}), pass: make(chan struct{})}
}

// Handler returns a handler that waits at the gate and then calls h, which may
// be nil. It returns the context's error if that ends first.
func (g *Gate) Handler(h bus.Handler) bus.Handler {
	return func(ctx context.Context, e *bus.Envelope) error {
		if err := g.Wait(ctx); err != nil {
			return err
		}
		if h == nil {
			return nil
		}
		return h(ctx, e)
	}
}

// Wait waits at the gate. It returns the cause of ctx's end if that comes first.
func (g *Gate) Wait(ctx context.Context) error {
	g.add(1, 0)
	defer g.add(-1, 1)
	select {
	case <-g.open:
		return nil
	case <-g.pass:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *Gate) add(waiting, passed int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting += waiting
	g.passed += passed
}

// Waiting is the number of handlers at the gate.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

// Passed is the number of handlers that have left the gate, also without leave
// because their context ended.
func (g *Gate) Passed() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.passed
}

// Pass lets n handlers through, one after the other, waiting for each to come.
func (g *Gate) Pass(n int) {
	for range n {
		g.pass <- struct{}{}
	}
}

// Open lets all through, now and later.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

// Refuse is an admission policy that refuses with a reason while it is switched
// on. The zero value admits everything. Give [Refuse.Shedder] to a stage.
type Refuse struct {
	shedder.Passive

	once    sync.Once
	shedder *shedder.Shedder

	mu      sync.Mutex
	verdict shedder.Verdict
	asked   int
}

// Shedder returns the shedder that asks r, always the same.
func (r *Refuse) Shedder() *shedder.Shedder {
	r.once.Do(func() {
		s, err := shedder.New(shedder.Config{Policy: r})
		invariant.Check(err == nil, "a shedder with a policy alone is valid")
		r.shedder = s
	})
	return r.shedder
}

// With makes it refuse with v from now on if that has a reason; the zero
// Verdict admits again.
func (r *Refuse) With(v shedder.Verdict) {
	if v.Reason != reason.None {
		v.Action = shedder.Refuse
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verdict = v
}

// Shed makes it refuse with reason shed.
func (r *Refuse) Shed() { r.With(shedder.Verdict{Reason: reason.Shed}) }

// Asked is how often it was asked.
func (r *Refuse) Asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// Admit implements shedder.Policy.
func (r *Refuse) Admit(*shedder.Request) shedder.Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return r.verdict
}
