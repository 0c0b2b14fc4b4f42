package timer

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBackingArrayShrinksAfterABurst(t *testing.T) {
	var h Heap[int]
	for i := range 100_000 {
		h.Push(int64(i), i)
	}
	for i := range 100_000 {
		_, ok := h.PopDue(int64(i))
		require.True(t, ok)
		if c := cap(h.items); c > minCap && c > 4*h.Len()+4 {
			t.Fatalf("%d places for %d items", c, h.Len())
		}
		for _, it := range h.items[h.Len():min(h.Len()+1, cap(h.items))] {
			require.Nil(t, it, "the slot behind the last item must be clear")
		}
	}
	assert.LessOrEqual(t, cap(h.items), minCap)
}

// A load that swings around one size must not reallocate each time.
func TestBackingArrayIsStableUnderSteadyLoad(t *testing.T) {
	var h Heap[int]
	for i := range 1000 {
		h.Push(int64(i), i)
	}
	place := &h.items[0]
	for i := range 1000 {
		h.Push(int64(1000+i), i)
		h.PopDue(1 << 40)
	}
	assert.True(t, place == &h.items[0], "moved")
}
