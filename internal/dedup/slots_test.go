package dedup

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSlotsAreReused(t *testing.T) {
	const n = 10
	w := New(n)
	for i := range 1000 {
		w.Seen(strconv.Itoa(i))
		if i%3 == 0 {
			w.Forget(strconv.Itoa(i - i%5))
		}
		require.LessOrEqual(t, len(w.slots), n)
	}
	w.Resize(3)
	require.LessOrEqual(t, cap(w.slots), 4, "the memory must be given back")
}
