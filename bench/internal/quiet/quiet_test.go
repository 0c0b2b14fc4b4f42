package quiet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	r, err := parse([]byte("cpu  100 10 50 800 40 1 2 7 90 9\ncpu0 1 2 3 4\n"))
	require.NoError(t, err)
	require.Equal(t, 170*tick, r.Busy)
	require.Equal(t, 1010*tick, r.Total)
}

func TestParseRefusesOtherText(t *testing.T) {
	for name, text := range map[string]string{
		"empty":        "",
		"other line":   "intr 1 2 3 4 5 6 7 8",
		"short":        "cpu 1 2 3",
		"not a number": "cpu 1 2 x 4 5 6 7 8",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte(text))
			require.Error(t, err)
		})
	}
}

func TestOthers(t *testing.T) {
	at := func(busy, total int) Reading {
		return Reading{Busy: time.Duration(busy) * tick, Total: time.Duration(total) * tick}
	}
	for _, c := range []struct {
		name          string
		before, after Reading
		own           time.Duration
		want          float64
	}{
		{"alone", at(10, 100), at(60, 200), 50 * tick, 0},
		{"half by others", at(10, 100), at(110, 300), 0, 0.5},
		{"own share taken off", at(0, 0), at(80, 100), 30 * tick, 0.5},
		{"own time rounds above", at(0, 0), at(80, 100), 81 * tick, 0},
		{"no time passed", at(5, 50), at(5, 50), 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.InDelta(t, c.want, Others(c.before, c.after, c.own), 1e-9)
		})
	}
}
