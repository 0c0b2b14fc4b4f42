package load

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMessageIsOneLine(t *testing.T) {
	require.Equal(t, uintptr(64), unsafe.Sizeof(Msg{}))
}

func TestLookup(t *testing.T) {
	for _, want := range All() {
		got, err := Lookup(want.Name)
		require.NoError(t, err)
		require.Equal(t, want, got)
		assert.Equal(t, 1024, got.Capacity)
		assert.Zero(t, got.Keys&(got.Keys-1), "keys are a power of two")
	}
	_, err := Lookup("W99")
	require.Error(t, err)
}

// direct calls the consumer from the producer. The fault, if any, is done to
// the message with the sequence number 700.
type direct struct {
	run    *Run
	tally  []*Tally
	refs   bool
	mu     sync.Mutex
	held   []*Msg
	faulty func(d *direct, m *Msg)
}

const faultAt = 700

func (d *direct) Produce(src *Source) error {
	next := src.Next
	if d.refs {
		next = src.NextRef
	}
	for m := next(); m != nil; m = next() {
		d.mu.Lock()
		if d.faulty != nil && m.Seq == faultAt && m.Prod == 0 {
			d.faulty(d, m)
		} else {
			d.handle(m)
		}
		d.mu.Unlock()
	}
	return nil
}

func (d *direct) handle(m *Msg) {
	switch {
	case !d.refs:
		for _, t := range d.tally {
			t.Value(m)
		}
	case d.run.spec.InOrder():
		for _, t := range d.tally {
			t.Ref(m)
		}
	default:
		d.run.Shared(m)
	}
}

func (d *direct) Close() error {
	for _, m := range d.held {
		d.handle(m)
	}
	return nil
}

func directSystem(refs bool, faulty func(d *direct, m *Msg)) System {
	return System{Name: "direct", Open: func(r *Run) (Instance, error) {
		d := &direct{run: r, refs: refs, faulty: faulty}
		if !refs || r.spec.InOrder() {
			for range r.spec.Subscribers {
				d.tally = append(d.tally, r.Consumer())
			}
		}
		return d, nil
	}}
}

// quick returns the workload without its work.
func quick(t *testing.T, name string) Spec {
	t.Helper()
	s, err := Lookup(name)
	require.NoError(t, err)
	s.Work = Noop
	return s
}

func TestFaithfulSystemPasses(t *testing.T) {
	for _, refs := range []bool{false, true} {
		for _, s := range All() {
			require.NoError(t, RunCount(directSystem(refs, nil), quick(t, s.Name), 5_001, nil, nil), "%s refs=%v", s.Name, refs)
		}
	}
}

func TestFaultsAreFound(t *testing.T) {
	lose := func(*direct, *Msg) {}
	double := func(d *direct, m *Msg) { d.handle(m); d.handle(m) }
	late := func(d *direct, m *Msg) { d.held = append(d.held, m) }
	swapForAnother := func(d *direct, m *Msg) { c := *m; c.ID++; d.handle(&c) }
	for _, c := range []struct {
		name, workload string
		refs           bool
		fault          func(*direct, *Msg)
		text           string
	}{
		{"value lost", "W2", false, lose, "handled"},
		{"value doubled", "W2", false, double, "handled"},
		{"value replaced", "W2", false, swapForAnother, "sums"},
		{"copy lost", "W4", false, lose, "handled"},
		{"ref lost in order", "W1", true, lose, "out of order"},
		{"ref doubled in order", "W1", true, double, "out of order"},
		{"ref late in order", "W4", true, late, "out of order"},
		{"ref lost", "W3", true, lose, "1 messages not handled"},
		{"ref doubled", "W3", true, double, "1 messages handled twice"},
		{"key out of order", "W5n", true, late, "out of order"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// No more messages than the ring has places, so that a lost one does
			// not hold up the producer for ever.
			err := RunCount(directSystem(c.refs, c.fault), quick(t, c.workload), faultAt+64, nil, nil)
			require.ErrorContains(t, err, c.text)
		})
	}
}

func TestLateRefIsNotOverwritten(t *testing.T) {
	var kept Msg
	keep := func(d *direct, m *Msg) { kept = *m; d.held = append(d.held, m) }
	sys := directSystem(true, keep)
	open := sys.Open
	var d *direct
	sys.Open = func(r *Run) (Instance, error) {
		in, err := open(r)
		d, _ = in.(*direct)
		return in, err
	}
	s := quick(t, "W2")
	require.NoError(t, RunCount(sys, s, uint64(20*ringSize(s)), nil, nil))
	require.Equal(t, kept, *d.held[0])
}

func TestProducerWaitsForPlaces(t *testing.T) {
	for _, name := range []string{"W1", "W2"} {
		run := NewRun(quick(t, name), 0)
		var tally *Tally
		if run.spec.InOrder() {
			tally = run.Consumer()
		}
		src := run.Sources()[0]
		size := ringSize(run.spec)
		var all []*Msg
		for range size {
			all = append(all, src.NextRef())
		}
		release := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			<-release
			for _, m := range all[:2*checkEvery] {
				if tally != nil {
					tally.Ref(m)
				} else {
					run.Shared(m)
				}
			}
		})
		first := *all[0]
		close(release)
		again := src.NextRef() // waits until places are free
		wg.Wait()
		require.Equal(t, uint64(size+1), again.Seq, name)
		require.Equal(t, uint64(1), first.Seq)
		require.Contains(t, all[:2*checkEvery], again, "the place of a handled message is used again")
	}
}

func TestRunCountSendsExactly(t *testing.T) {
	for _, n := range []uint64{1, 15, 16, 17, 1_000} {
		var ids []uint64
		collect := func(r *Run) (Instance, error) { return &collector{ids: &ids, tally: r.Consumer()}, nil }
		s := quick(t, "W1")
		order := ""
		err := RunCount(System{Name: "c", Open: collect}, s, n, func() { order += "started " }, func() { order += "stopped" })
		require.NoError(t, err)
		require.Equal(t, "started stopped", order)
		require.Len(t, ids, int(n))
		slices.Sort(ids)
		require.Len(t, slices.Compact(ids), int(n), "IDs are unique")
		ids = nil
	}
}

type collector struct {
	ids   *[]uint64
	tally *Tally
}

func (c *collector) Produce(src *Source) error {
	for m := src.Next(); m != nil; m = src.Next() {
		*c.ids = append(*c.ids, m.ID)
		c.tally.Value(m)
	}
	return nil
}

func (*collector) Close() error { return nil }

func TestMeasure(t *testing.T) {
	s, err := Measure(directSystem(true, nil), quick(t, "W2"), 20*time.Millisecond)
	require.NoError(t, err)
	assert.Equal(t, "W2", s.Workload)
	assert.Equal(t, "direct", s.System)
	assert.Positive(t, s.Messages)
	assert.Positive(t, s.Seconds)
	assert.InEpsilon(t, float64(s.Messages)/s.Seconds, s.Rate(), 1e-9)
	assert.InEpsilon(t, 1e9/s.Rate(), s.WallNanos(), 1e-9)
}

func TestMeasureReportsFaults(t *testing.T) {
	broken := errors.New("cannot send")
	for name, c := range map[string]struct {
		open func(*Run) (Instance, error)
		want error
	}{
		"open":    {func(*Run) (Instance, error) { return nil, ErrUnsupported }, ErrUnsupported},
		"produce": {func(r *Run) (Instance, error) { r.Consumer(); return failing{broken, nil}, nil }, broken},
		"close":   {func(r *Run) (Instance, error) { r.Consumer(); return failing{nil, broken}, nil }, broken},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Measure(System{Name: "x", Open: c.open}, quick(t, "W1"), 10*time.Millisecond)
			require.ErrorIs(t, err, c.want)
		})
	}
}

type failing struct{ produce, close error }

func (f failing) Produce(*Source) error { return f.produce }
func (f failing) Close() error          { return f.close }

func TestCalibrateGivesWork(t *testing.T) {
	require.Positive(t, Calibrate())
}
