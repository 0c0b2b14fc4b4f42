package conformance

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
)

// bed is what a case has: a bus, and a book of what was accepted, handled and
// ended. Envelopes are known by their payload, a number. Its methods are safe
// for concurrent use, but those that fail the test with Fatal belong to the
// test's goroutine.
type bed struct {
	*testing.T

	kit Kit
	row *Row
	bus *bus.Bus
	ctx context.Context //nolint:containedctx // ends with the case, so that nobody stays blocked

	mu       sync.Mutex
	cleanups []func()
	accepted []int
	handled  []int
	ends     map[int][]bus.Result
}

// inBubble runs a case in virtual time. When the case is over, the bus is shut
// down and everything has to add up.
func inBubble(t *testing.T, k Kit, r *Row, c *check) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := &bed{T: t, kit: k, row: r, ctx: ctx, ends: map[int][]bus.Result{}}
		d.bus = k.New(t, c.cfg)
		defer func() { // also when the case was left by FailNow
			cancel()
			_ = d.bus.Close()
			for _, f := range d.cleanups {
				f()
			}
			synctest.Wait()
		}()
		c.run(d)
		d.drain()
	})
}

// pass lets virtual time pass.
func pass(d time.Duration) { time.Sleep(d) }

// patience is how long a case waits in virtual time for what must come: no
// bound of its own is near it.
const patience = 24 * time.Hour

// drain shuts the bus down, unless that was done, and checks the account and
// the Results.
func (d *bed) drain() {
	d.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, _ := d.bus.Shutdown(ctx)
	d.balanced(&r.Stats)
	if r.Stats.Pending != 0 {
		d.Fatalf("pending after the shutdown: %s", r.Stats.Account())
	}
	d.oneResultEach()
}

// mustDrain is for cases in which nothing may be left.
func (d *bed) mustDrain() {
	d.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := d.bus.Shutdown(ctx)
	if err != nil {
		d.Fatalf("not drained: %v\n%s", err, r.String())
	}
}

func (d *bed) balanced(st *bus.Stats) {
	d.Helper()
	if err := st.Check(); err != nil {
		d.Fatalf("the account does not balance: %v", err)
	}
}

// rest lets everything come to rest. It is long enough for the bus to see that
// a handler is held up, and shorter than any bound that a case sets.
func rest() {
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
}

// stats lets everything come to rest and returns the account, which must
// balance.
func (d *bed) stats() *bus.Stats {
	d.Helper()
	rest()
	st := bustest.RequireBalanced(d.T, d.bus)
	return &st
}

// stageStats is stats of one stage.
func (d *bed) stageStats(s *bus.Stage) *bus.StageStats {
	d.Helper()
	st := d.stats()
	i := slices.IndexFunc(st.Stages, func(x bus.StageStats) bool { return x.Name == s.Name() })
	if i < 0 {
		d.Fatalf("no statistics of stage %q", s.Name())
	}
	return &st.Stages[i]
}

// stage registers a stage whose handler notes what it handles and then calls
// h, if there is one. A nil handler is none.
func (d *bed) stage(name string, c bus.StageConfig, h bus.Handler) *bus.Stage {
	d.Helper()
	return bustest.Stage(d.T, d.bus, name, d.serial(c), h)
}

// serial sets the concurrency that the cases mean where they set none: one. With
// shards the default is one a shard; a stage of one handler has its home on one
// of them, each stage on another one.
func (d *bed) serial(c bus.StageConfig) bus.StageConfig {
	if d.kit.Shards > 0 && c.Concurrency == 0 && d.row.Scope == Stage && !c.Pull {
		c.Concurrency = 1
	}
	return c
}

func (d *bed) start() {
	d.Helper()
	bustest.Start(d.T, d.bus)
}

// note is a handler that writes the envelope into the book.
func (d *bed) note(_ context.Context, e *bus.Envelope) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handled = append(d.handled, number(e))
	return nil
}

// noting notes the envelope and then calls h.
func (d *bed) noting(h bus.Handler) bus.Handler {
	return func(ctx context.Context, e *bus.Envelope) error {
		_ = d.note(ctx, e)
		return h(ctx, e)
	}
}

// number is the number that an envelope is known by; -1 is none.
func number(e *bus.Envelope) int {
	if n, ok := e.Payload.(int); ok {
		return n
	}
	return -1
}

// seen returns the numbers of what was handled, in order.
func (d *bed) seen() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.handled)
}

// env returns envelope n for the given further stages. Its Result is noted.
func (d *bed) env(n int, via ...string) *bus.Envelope {
	e := &bus.Envelope{Payload: n, OnDone: func(r bus.Result) { d.ended(n, r) }}
	if len(via) > 0 {
		e.Slip = bus.Via(via...)
	}
	if d.row.Scope == Shard && d.kit.Shards > 0 {
		e.Key = "one"
	}
	return e
}

func (d *bed) ended(n int, r bus.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ends[n] = append(d.ends[n], r)
}

// publish publishes e, which env has made, and notes it if it was accepted.
func (d *bed) publish(s *bus.Stage, e *bus.Envelope) error {
	err := s.Publish(d.ctx, e)
	if err == nil {
		d.noteAccepted(number(e))
	}
	return err
}

// try is publish that never waits.
func (d *bed) try(s *bus.Stage, e *bus.Envelope) error {
	err := s.TryPublish(e)
	if err == nil {
		d.noteAccepted(number(e))
	}
	return err
}

func (d *bed) noteAccepted(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.accepted = append(d.accepted, n)
}

func (d *bed) acceptedCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.accepted)
}

// mustPublish publishes envelopes a to b-1.
func (d *bed) mustPublish(s *bus.Stage, a, b int, via ...string) {
	d.Helper()
	for n := a; n < b; n++ {
		if err := d.publish(s, d.env(n, via...)); err != nil {
			d.Fatalf("publish %d to %q: %v", n, s.Name(), err)
		}
	}
}

// onEnd runs f when the case is over, also when it failed.
func (d *bed) onEnd(f func()) { d.cleanups = append(d.cleanups, f) }

// gate returns a gate that opens at the latest when the case is over.
func (d *bed) gate() *bustest.Gate {
	g := bustest.NewGate()
	d.onEnd(g.Open)
	return g
}

// oneResultEach checks that all that was accepted got one Result.
func (d *bed) oneResultEach() {
	d.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.accepted {
		switch got := d.ends[n]; len(got) {
		case 1:
		case 0:
			d.Errorf("accepted envelope %d got no Result", n)
		default:
			d.Errorf("accepted envelope %d got %d Results: %v", n, len(got), got)
		}
	}
	for n := range d.ends {
		if !slices.Contains(d.accepted, n) {
			d.Errorf("envelope %d was refused and got a Result", n)
		}
	}
}

// result returns the Result of n.
func (d *bed) result(n int) (r bus.Result, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.ends[n]) == 0 {
		return r, false
	}
	return d.ends[n][0], true
}

// wantEnd checks how n ended, after everything has come to rest.
func (d *bed) wantEnd(n int, end bus.End, why reason.Reason) {
	d.Helper()
	rest()
	r, ok := d.result(n)
	if !ok {
		d.Errorf("accepted envelope %d got no Result, want %v (%v)", n, end, why)
		return
	}
	if r.End != end || r.Reason != why {
		d.Errorf("envelope %d ended %v (%v), want %v (%v)", n, r.End, r.Reason, end, why)
	}
}

// want fails the case unless ok; what is the promise that was broken.
func (d *bed) want(ok bool, what string, args ...any) {
	d.Helper()
	if !ok {
		d.Fatalf(what, args...)
	}
}

// equal fails the case unless got is want; what says of what they are.
func equal[T comparable](d *bed, what string, got, want T) {
	d.Helper()
	if got != want {
		d.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// sameOrder is equal for sequences.
func sameOrder[T comparable](d *bed, what string, got, want []T) {
	d.Helper()
	if !slices.Equal(got, want) {
		d.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// upTo returns the numbers from a to b-1.
func upTo(a, b int) []int {
	var out []int
	for n := a; n < b; n++ {
		out = append(out, n)
	}
	return out
}

// sorted returns a sorted copy.
func sorted(s []int) []int {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

func keyOf(n int) string { return "key-" + strconv.Itoa(n) }
