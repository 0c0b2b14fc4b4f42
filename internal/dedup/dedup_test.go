package dedup_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/internal/dedup"
)

func TestOldestKeyLeavesFirst(t *testing.T) {
	w := dedup.New(2)
	assert.False(t, w.Seen("a"))
	assert.False(t, w.Seen("b"))
	assert.True(t, w.Seen("a"), "seeing it again does not make it younger")
	assert.False(t, w.Seen("c"))
	assert.Equal(t, 2, w.Len())
	assert.True(t, w.Seen("b"))
	assert.True(t, w.Seen("c"))
	assert.False(t, w.Seen("a"), "it was pushed out")
}

func TestNothingIsRememberedWithoutRoom(t *testing.T) {
	for _, n := range []int{0, -1} {
		w := dedup.New(n)
		assert.False(t, w.Seen("a"))
		assert.False(t, w.Seen("a"))
		assert.Zero(t, w.Len())
		assert.False(t, w.Forget("a"))
		w.Resize(1)
		assert.False(t, w.Seen("a"))
		assert.True(t, w.Seen("a"))
		w.Resize(n)
		assert.False(t, w.Seen("a"))
		assert.Zero(t, w.Len())
	}
}

func TestTheEmptyKeyIsAKey(t *testing.T) {
	w := dedup.New(3)
	assert.False(t, w.Seen(""))
	assert.True(t, w.Seen(""))
	assert.True(t, w.Forget(""))
	assert.False(t, w.Seen(""))
}

func TestForget(t *testing.T) {
	w := dedup.New(3)
	for _, key := range []string{"a", "b", "c"} {
		w.Seen(key)
	}
	assert.True(t, w.Forget("b"))
	assert.False(t, w.Forget("b"))
	assert.False(t, w.Forget("x"))
	assert.Equal(t, 2, w.Len())
	assert.False(t, w.Seen("b"), "it counts as new, and as the youngest")
	assert.False(t, w.Seen("d"))
	assert.False(t, w.Seen("e"))
	assert.True(t, w.Seen("b"))
	assert.False(t, w.Seen("a"))
}

func TestResizeKeepsTheYoungest(t *testing.T) {
	w := dedup.New(5)
	for _, key := range []string{"a", "b", "c", "d"} {
		w.Seen(key)
	}
	w.Resize(2)
	assert.Equal(t, 2, w.Len())
	assert.True(t, w.Seen("c"))
	assert.True(t, w.Seen("d"))
	w.Resize(3)
	assert.False(t, w.Seen("e"))
	assert.True(t, w.Seen("c"))
	assert.False(t, w.Seen("f"))
	assert.False(t, w.Seen("c"))
}

func TestKeysAreCopied(t *testing.T) {
	body := new([1 << 16]byte)
	ref := weak.Make(body)
	copy(body[:], "key")
	w := dedup.New(1)
	w.Seen(unsafe.String(&body[0], 3))
	runtime.GC()
	runtime.GC()
	assert.Nil(t, ref.Value(), "the text that the key was cut from must be garbage")
	assert.True(t, w.Seen("key"))
}

// Large keys that were evicted, forgotten or cut off must not stay in memory.
func TestForgottenKeysAreReleased(t *testing.T) {
	const size, n = 1 << 20, 32
	key := func(i int) string { return strings.Repeat("x", size) + strconv.Itoa(i) }
	w := dedup.New(n)
	for i := range n {
		w.Seen(key(i))
	}
	full := heapInUse()
	require.Greater(t, full, uint64(n*size))
	for i := range n {
		w.Seen(strconv.Itoa(i)) // evicts
	}
	assert.Less(t, heapInUse(), full-(n-1)*size)

	for i := range n {
		w.Seen(key(i))
	}
	for i := range n / 2 {
		w.Forget(key(i))
	}
	assert.Less(t, heapInUse(), full-(n/2-1)*size)
	w.Resize(1)
	assert.Less(t, heapInUse(), full-(n-2)*size)
	assert.Equal(t, 1, w.Len())
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// model is the plainest thing that behaves like a Window.
type model struct {
	limit int
	keys  []string
}

func (m *model) seen(key string) bool {
	if slices.Contains(m.keys, key) {
		return true
	}
	m.keys = append(m.keys, key)
	m.trim()
	return false
}

func (m *model) forget(key string) bool {
	i := slices.Index(m.keys, key)
	if i >= 0 {
		m.keys = slices.Delete(m.keys, i, i+1)
	}
	return i >= 0
}

func (m *model) trim() {
	if over := len(m.keys) - m.limit; over > 0 {
		m.keys = m.keys[over:]
	}
}

// step runs one operation on both and compares the answers.
func step(t *testing.T, w *dedup.Window, m *model, op, arg int) {
	t.Helper()
	key := strconv.Itoa(arg)
	switch op {
	case 0:
		require.Equal(t, m.forget(key), w.Forget(key))
	case 1:
		n := arg%12 - 1
		m.limit = max(n, 0)
		m.trim()
		w.Resize(n)
	default:
		require.Equal(t, m.seen(key), w.Seen(key))
	}
	require.Equal(t, len(m.keys), w.Len())
}

func TestWindowAgainstModel(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		w, m := dedup.New(8), &model{limit: 8}
		for range 3000 {
			op := 2
			switch rnd.IntN(20) {
			case 0:
				op = 1
			case 1, 2, 3:
				op = 0
			}
			step(t, w, m, op, rnd.IntN(16))
		}
	}
}

// Each byte pair is an operation and its argument.
func FuzzWindow(f *testing.F) {
	f.Add([]byte{2, 1, 2, 2, 2, 1, 0, 1, 2, 1, 1, 1, 2, 3})
	f.Add([]byte{1, 3, 2, 1, 2, 2, 2, 3, 2, 4, 0, 3, 1, 2, 2, 3, 1, 9, 2, 7})
	f.Fuzz(func(t *testing.T, ops []byte) {
		w, m := dedup.New(4), &model{limit: 4}
		for ; len(ops) >= 2; ops = ops[2:] {
			step(t, w, m, int(ops[0]%4), int(ops[1]%24))
		}
	})
}

func TestKnownKeysAllocateNothing(t *testing.T) {
	w := dedup.New(10)
	w.Seen("a")
	assert.Zero(t, testing.AllocsPerRun(100, func() { w.Seen("a") }))
}

func BenchmarkSeenNew(b *testing.B) {
	keys := make([]string, 4096)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	w := dedup.New(1024)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.Seen(keys[i%len(keys)])
	}
}
