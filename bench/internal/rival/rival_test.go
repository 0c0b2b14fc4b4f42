package rival_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bench/internal/rival"
)

func TestRivalsLoseNothing(t *testing.T) {
	for _, sys := range rival.Systems() {
		for _, spec := range load.All() {
			t.Run(sys.Name+"/"+spec.Name, func(t *testing.T) {
				if spec.Work == load.Sleep {
					spec.Work = load.Noop
				}
				err := load.RunCount(sys, spec, 2_003, nil, nil)
				if spec.Mixed {
					require.ErrorIs(t, err, load.ErrUnsupported)
					return
				}
				require.NoError(t, err)
			})
		}
	}
}

func TestBatchesRefuseSleepingHandlers(t *testing.T) {
	spec, err := load.Lookup("w6")
	require.NoError(t, err)
	for _, sys := range rival.Systems() {
		if sys.Name == "chan-b32" {
			require.ErrorIs(t, load.RunCount(sys, spec, 1, nil, nil), load.ErrUnsupported)
		}
	}
}
