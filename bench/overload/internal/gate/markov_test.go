package gate_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bench/overload/internal/gate"
)

// Erlang's loss formula, and the closed form of M/M/1/K.
func TestRefusedAgreesWithClosedForms(t *testing.T) {
	t.Parallel()
	require.InDelta(t, .5, gate.Refused(1, 0, 1), 1e-12)
	require.InDelta(t, 2./5, gate.Refused(2, 0, 1), 1e-12) // a²/2 / (1+a+a²/2) with a = 2
	for _, k := range []int{0, 3, 40, 500} {
		for _, load := range []float64{.5, .9, 2, 10} {
			want := (1 - load) * math.Pow(load, float64(k+1)) / (1 - math.Pow(load, float64(k+2)))
			if load > 1 {
				want = (load - 1) / (load - math.Pow(load, -float64(k+1)))
			}
			require.InDelta(t, want, gate.Refused(1, k, load), 1e-9, "%d waiting at %v", k, load)
			require.InDelta(t, load*(1-want), gate.Used(1, k, load), 1e-9, "%d waiting at %v", k, load)
		}
	}
}

// Who waits in M/M/1/1+1 waits for one service, in half of the states that let
// a job in at load 1.
func TestWaitAbove(t *testing.T) {
	t.Parallel()
	require.InDelta(t, .5*math.Exp(-3), gate.WaitAbove(1, 1, 1, 3), 1e-12)
	require.Zero(t, gate.WaitAbove(4, 0, 2, 0))
	used, queue := gate.BestUsed(1, 2, 6)
	require.Equal(t, 1, queue)
	require.InDelta(t, 6./7, used, 1e-9)
	require.LessOrEqual(t, gate.WaitAbove(1, queue, 2, 6), .01)
	require.Greater(t, gate.WaitAbove(1, queue+1, 2, 6), .01)
}

// With no event in n the bound is 1 - 0.025^(1/n); others are from tables.
func TestUpper95(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 1-math.Pow(.025, 1./1000), gate.Upper95(0, 1000), 1e-9)
	require.InDelta(t, .4450, gate.Upper95(1, 10), 5e-4)
	require.InDelta(t, .8129, gate.Upper95(5, 10), 5e-4)
	require.InDelta(t, 1., gate.Upper95(10, 10), 0)
	require.InDelta(t, 1., gate.Upper95(0, 0), 0)
}
