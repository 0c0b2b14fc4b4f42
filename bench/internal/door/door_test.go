package door_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bench/internal/door"
	"github.com/sedabus/seda/bus"
)

func overload(t *testing.T, c door.Case) (o door.Outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		o, err = door.Overload(c)
		require.NoError(t, err)
	})
	return o
}

// TestOverload: who waits is blocked and loses nothing, who does not is refused.
func TestOverload(t *testing.T) {
	for _, c := range door.Cases() {
		if c.Shed || c.Capacity > 100 && c.Full != bus.Credit {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			o := overload(t, c)
			done := float64(o.InTime+o.Late) / o.Span.Seconds()
			require.InEpsilon(t, door.Possible, done, 0.05)
			if waits := c.Full == bus.Block || c.Full == bus.Credit; waits {
				require.Zero(t, o.Refused+o.Dropped)
				require.Greater(t, o.Blocked, 0.9)
			} else {
				require.Positive(t, o.Refused+o.Dropped)
				require.Zero(t, o.Blocked)
			}
		})
	}
}

// TestFan: with Credit the healthy branches get what they are sent.
func TestFan(t *testing.T) {
	for _, c := range door.FanCases() {
		if c.Mixed {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			o, err := door.RunFan(c)
			require.NoError(t, err)
			if c.Full == bus.Credit {
				require.InEpsilon(t, door.HealthyOffered, o.Healthy, 0.01)
			} else {
				require.Less(t, o.Healthy, door.HealthyOffered/2)
			}
		})
	}
}
