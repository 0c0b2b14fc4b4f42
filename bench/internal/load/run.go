package load

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Run is one passage of a workload through a system: the sources of its
// producers and the books of its consumers.
//
// Consumers are asked for while the system is being opened, by one goroutine;
// reporting is safe for concurrent use as each method says.
type Run struct {
	spec    Spec
	sources []*Source
	tallies []*Tally
	// lastSeq holds the last sequence number by producer and key. An entry
	// belongs to whoever handles the key at the moment.
	lastSeq []uint64
	plain   bool // neither work nor order to check

	_        [padding]byte
	stop     atomic.Bool
	_        [padding]byte
	disorder atomic.Uint64
	doubled  atomic.Uint64
	_        [padding]byte
}

// NewRun prepares a run. Each producer ends after perProducer messages, or when
// the run is stopped if that is 0.
func NewRun(s Spec, perProducer uint64) *Run {
	r := &Run{spec: s, plain: s.Work == Noop && s.Keys == 0}
	if s.Keys > 0 {
		r.lastSeq = make([]uint64, s.Producers*s.Keys)
	}
	for p := range s.Producers {
		r.sources = append(r.sources, newSource(r, p, perProducer))
	}
	return r
}

// Spec returns the workload.
func (r *Run) Spec() Spec { return r.spec }

// Sources returns the producers' sources, one for each goroutine to be.
func (r *Run) Sources() []*Source { return r.sources }

// Stop makes every source end soon.
func (r *Run) Stop() { r.stop.Store(true) }

// Sent is the number of messages made by all sources. It lags a little until
// the producers ended.
func (r *Run) Sent() (n uint64) {
	for _, s := range r.sources {
		n += s.Sent()
	}
	return n
}

// Tally is the book of one consumer that handles one message at a time and
// whose last message happens before Close returns. It needs no atomics to
// count.
type Tally struct {
	_   [padding]byte
	run *Run
	n   uint64
	sum uint64
	// progress lets a producer reuse its messages; stored now and then by the
	// consumer, read by the producer.
	progress atomic.Uint64
	_        [padding]byte
}

// Consumer adds a consumer that runs one handler at a time.
func (r *Run) Consumer() *Tally {
	t := &Tally{run: r}
	r.tallies = append(r.tallies, t)
	return t
}

// Value does the work for a message that was moved as a value, and counts it.
// One goroutine at a time.
func (t *Tally) Value(m *Msg) {
	if !t.run.plain {
		t.run.work(m)
	}
	t.n++
	t.sum += m.ID
}

// Ref does the work for a message of a ring that is consumed in order, counts
// it and lets the producer have its place back. One goroutine at a time.
func (t *Tally) Ref(m *Msg) {
	if !t.run.plain {
		t.run.work(m)
	}
	t.n++
	t.sum += m.ID
	if m.Seq != t.n {
		t.run.disorder.Add(1)
	}
	if t.n%checkEvery == 0 {
		t.progress.Store(t.n)
	}
}

// Shared does the work for a message of a ring that is not consumed in order,
// and lets the producer have its place back. It is safe for concurrent use.
// The one atomic exchange in it is both the release of the place and the proof
// that the message was handled once.
func (r *Run) Shared(m *Msg) {
	if !r.plain {
		r.work(m)
	}
	gen := m.gen // before the exchange: the producer may overwrite m after it
	if r.sources[m.Prod].ring.done[m.slot].Swap(gen) != gen-1 {
		r.doubled.Add(1)
	}
}

// Pass is the work of every stage but the last. Only the handler that holds the
// message may call it.
func Pass(m *Msg) { m.Data[0]++ }

// Visit is the work of every stage of a workload with Laps, the last included.
// Only the handler that holds the message may call it.
func (r *Run) Visit(m *Msg) {
	if m.Data[0]++; m.Data[0]%uint64(r.spec.Visits()) == 0 {
		r.Shared(m)
		return
	}
	if r.spec.Work == Spin10 {
		spin10()
	}
}

func (r *Run) work(m *Msg) {
	switch r.spec.Work {
	case Noop:
	case Spin:
		spin()
	case Sleep:
		time.Sleep(time.Millisecond)
	case Spin10:
		spin10()
	}
	if r.spec.Keys > 0 {
		last := &r.lastSeq[int(m.Prod)*r.spec.Keys+int(m.Key)]
		if m.Seq <= *last {
			r.disorder.Add(1)
		}
		*last = m.Seq
	}
}

// Verify checks the books once the producers ended and the system is closed.
func (r *Run) Verify() error {
	var errs []error
	if n := r.disorder.Load(); n > 0 {
		errs = append(errs, fmt.Errorf("load: %d messages out of order", n))
	}
	if n := r.doubled.Load(); n > 0 {
		errs = append(errs, fmt.Errorf("load: %d messages handled twice", n))
	}
	if len(r.tallies) > 0 {
		errs = append(errs, r.verifyTallies())
	} else {
		errs = append(errs, r.verifyPlaces())
	}
	return errors.Join(errs...)
}

// verifyTallies compares counts and sums of IDs: a lost message that hides
// behind a doubled one changes the sum.
func (r *Run) verifyTallies() error {
	var sent, sum, got, gotSum uint64
	for _, s := range r.sources {
		sent += s.n
		sum += s.sum
	}
	for _, t := range r.tallies {
		got += t.n
		gotSum += t.sum
	}
	copies := uint64(r.spec.Subscribers)
	if got != sent*copies || gotSum != sum*copies {
		return fmt.Errorf("load: sent %d messages for %d subscribers, handled %d; sums %d and %d",
			sent, copies, got, sum*copies, gotSum)
	}
	return nil
}

// verifyPlaces looks for places of rings that were filled and not released.
func (r *Run) verifyPlaces() error {
	lost := 0
	for _, s := range r.sources {
		for i := range s.ring.gens {
			if s.ring.done[i].Load() != s.ring.gens[i] {
				lost++
			}
		}
	}
	if lost > 0 {
		return fmt.Errorf("load: %d messages not handled", lost)
	}
	return nil
}
