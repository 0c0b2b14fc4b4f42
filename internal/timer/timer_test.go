package timer_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/internal/timer"
)

func TestZeroHeapIsEmpty(t *testing.T) {
	var h timer.Heap[string]
	assert.Zero(t, h.Len())
	_, ok := h.Peek()
	assert.False(t, ok)
	_, ok = h.PopDue(math.MaxInt64)
	assert.False(t, ok)
	assert.False(t, h.Remove(nil))
	assert.False(t, h.Remove(&timer.Item[string]{}), "an item of no heap")
	h.All(func(*timer.Item[string]) bool { t.Error("an item"); return true })
}

func TestPopDueWaitsForItsTime(t *testing.T) {
	var h timer.Heap[string]
	h.Push(20, "late")
	h.Push(-10, "early")
	when, ok := h.Peek()
	require.True(t, ok)
	assert.Equal(t, int64(-10), when)
	_, ok = h.PopDue(-11)
	assert.False(t, ok)
	v, ok := h.PopDue(-10)
	require.True(t, ok)
	assert.Equal(t, "early", v)
	_, ok = h.PopDue(19)
	assert.False(t, ok)
	v, ok = h.PopDue(math.MaxInt64)
	require.True(t, ok)
	assert.Equal(t, "late", v)
	assert.Zero(t, h.Len())
}

func TestEqualTimesAreFIFO(t *testing.T) {
	var h timer.Heap[int]
	items := make([]*timer.Item[int], 100)
	for i := range items {
		items[i] = h.Push(int64(i%2), i)
	}
	for i := 0; i < len(items); i += 7 {
		require.True(t, h.Remove(items[i]))
	}
	var want, got []int
	for _, parity := range []int{0, 1} {
		for i := parity; i < len(items); i += 2 {
			if i%7 != 0 {
				want = append(want, i)
			}
		}
	}
	for v, ok := h.PopDue(1); ok; v, ok = h.PopDue(1) {
		got = append(got, v)
	}
	assert.Equal(t, want, got)
}

func TestRemoveIsIdempotent(t *testing.T) {
	var h, other timer.Heap[string]
	a, b := h.Push(1, "a"), h.Push(2, "b")
	other.Push(1, "x")
	assert.False(t, other.Remove(a), "an item of another heap")
	assert.True(t, h.Remove(a))
	assert.False(t, h.Remove(a))
	assert.Empty(t, a.Value, "the handle must keep nothing alive")
	_, ok := h.PopDue(2)
	require.True(t, ok)
	assert.False(t, h.Remove(b), "popped already")
	assert.Empty(t, b.Value)
	h.Push(3, "c")
	assert.False(t, h.Remove(b), "its place is taken by another")
	assert.Equal(t, 1, h.Len())
	assert.Equal(t, 1, other.Len())
}

func TestAllVisitsEachOnce(t *testing.T) {
	var h timer.Heap[int]
	for i := range 10 {
		h.Push(int64(-i), i)
	}
	var got []int
	for it := range h.All {
		assert.Equal(t, int64(-it.Value), it.When)
		got = append(got, it.Value)
	}
	slices.Sort(got)
	assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, got)
	visited := 0
	h.All(func(*timer.Item[int]) bool { visited++; return visited < 3 })
	assert.Equal(t, 3, visited)
}

// A value that left, by any way, must be garbage although the heap lives on and
// its handle is kept.
func TestValuesThatLeftAreReleased(t *testing.T) {
	var h timer.Heap[*[64]int]
	var handles []*timer.Item[*[64]int]
	var refs []weak.Pointer[[64]int]
	for i := range 256 {
		v := new([64]int)
		refs = append(refs, weak.Make(v))
		handles = append(handles, h.Push(int64(i/4), v))
	}
	for i := 0; i < 256; i += 2 {
		require.True(t, h.Remove(handles[i]))
	}
	for _, ok := h.PopDue(47); ok; _, ok = h.PopDue(47) {
	}
	runtime.GC()
	runtime.GC()
	alive := 0
	for i, ref := range refs {
		if ref.Value() != nil {
			alive++
			assert.True(t, i >= 192 && i%2 == 1, "value %d left and is alive", i)
		}
	}
	assert.Equal(t, h.Len(), alive)
	runtime.KeepAlive(&h)
	runtime.KeepAlive(handles)
}

// model is the plainest thing that behaves like a Heap: a slice that stays
// sorted by time, new items after those of the same time.
type model struct {
	entries []entry
}

type entry struct {
	when int64
	id   int
}

func (m *model) push(when int64, id int) {
	i := len(m.entries)
	for i > 0 && m.entries[i-1].when > when {
		i--
	}
	m.entries = slices.Insert(m.entries, i, entry{when, id})
}

func (m *model) popDue(now int64) (id int, ok bool) {
	if len(m.entries) == 0 || m.entries[0].when > now {
		return 0, false
	}
	id = m.entries[0].id
	m.entries = m.entries[1:]
	return id, true
}

func (m *model) remove(id int) bool {
	i := slices.IndexFunc(m.entries, func(e entry) bool { return e.id == id })
	if i >= 0 {
		m.entries = slices.Delete(m.entries, i, i+1)
	}
	return i >= 0
}

// pair runs each operation on heap and model, and compares the answers.
type pair struct {
	t     *testing.T
	heap  timer.Heap[int]
	model model
	items []*timer.Item[int] // every item ever pushed; its index is its value
}

func (p *pair) push(when int64) {
	id := len(p.items)
	p.items = append(p.items, p.heap.Push(when, id))
	p.model.push(when, id)
}

func (p *pair) popDue(now int64) {
	want, wantOK := p.model.popDue(now)
	got, ok := p.heap.PopDue(now)
	require.Equal(p.t, wantOK, ok)
	require.Equal(p.t, want, got)
}

func (p *pair) remove(id int) {
	require.Equal(p.t, p.model.remove(id), p.heap.Remove(p.items[id]))
}

func (p *pair) check() {
	require.Equal(p.t, len(p.model.entries), p.heap.Len())
	when, ok := p.heap.Peek()
	require.Equal(p.t, len(p.model.entries) > 0, ok)
	if ok {
		require.Equal(p.t, p.model.entries[0].when, when)
	}
}

func (p *pair) drain() {
	for p.heap.Len() > 0 || len(p.model.entries) > 0 {
		p.popDue(math.MaxInt64)
		p.check()
	}
}

func TestHeapAgainstModel(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		p := &pair{t: t}
		for range 2000 {
			switch rnd.IntN(5) {
			case 0, 1:
				p.push(rnd.Int64N(50) - 25)
			case 2:
				if len(p.items) > 0 {
					p.remove(rnd.IntN(len(p.items)))
				}
			default:
				p.popDue(rnd.Int64N(60) - 30)
			}
			p.check()
		}
		p.drain()
	}
}

// Each byte pair is an operation and its argument.
func FuzzHeap(f *testing.F) {
	f.Add([]byte{0, 5, 0, 5, 0, 1, 2, 1, 1, 3, 1, 9})
	f.Add([]byte{1, 0, 0, 255, 0, 0, 2, 0, 2, 0, 1, 255})
	f.Fuzz(func(t *testing.T, ops []byte) {
		p := &pair{t: t}
		for ; len(ops) >= 2; ops = ops[2:] {
			switch arg := int(ops[1]); ops[0] % 4 {
			case 0:
				p.push(int64(int8(arg)))
			case 1:
				p.popDue(int64(int8(arg)))
			case 2:
				if len(p.items) > 0 {
					p.remove(arg % len(p.items))
				}
			default: // a burst, so that the array grows and shrinks
				for i := range arg {
					p.push(int64(i % 7))
				}
			}
			p.check()
		}
		p.drain()
	})
}

func BenchmarkPushPop(b *testing.B) {
	var h timer.Heap[int]
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		h.Push(rnd.Int64N(1000), i)
	}
	b.ReportAllocs()
	now := int64(1000)
	for b.Loop() {
		h.Push(now+rnd.Int64N(1000), 0)
		h.PopDue(math.MaxInt64)
		now++
	}
}
