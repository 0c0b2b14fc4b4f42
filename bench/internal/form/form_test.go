package form_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bench/internal/form"
	"github.com/sedabus/seda/bench/internal/load"
)

// TestFormsKeepTheirPromises runs every workload through every form; the run
// and the form check that nothing was lost, doubled or reordered and that the
// bus's account balances.
func TestFormsKeepTheirPromises(t *testing.T) {
	all := append(form.Systems(), form.ExactSystems()...)
	for _, sys := range append(all, form.ShardedSystems()...) {
		for _, spec := range load.All() {
			t.Run(sys.Name+"/"+spec.Name, func(t *testing.T) {
				if spec.Work == load.Sleep {
					spec.Work = load.Noop
				}
				require.NoError(t, load.RunCount(sys, spec, 1_003, nil, nil))
			})
		}
	}
}

// TestPoliciesKeepTheirPromises does the same for the policies beside each other.
func TestPoliciesKeepTheirPromises(t *testing.T) {
	specs := load.Policies()
	for _, name := range []string{"W1", "W2", "W3"} {
		spec, err := load.Lookup(name)
		require.NoError(t, err)
		specs = append(specs, spec)
	}
	for _, sys := range form.PolicySystems() {
		for _, spec := range specs {
			t.Run(sys.Name+"/"+spec.Name, func(t *testing.T) {
				if spec.Work != load.Noop {
					spec.Work = load.Noop
				}
				require.NoError(t, load.RunCount(sys, spec, 203, nil, nil))
			})
		}
	}
}

// TestMeasurePublish measures while there is room: nobody waits, nothing is
// allocated.
func TestMeasurePublish(t *testing.T) {
	for _, sys := range []string{"block-publish", "block-handle", "credit-max-publish", "credit-max-handle"} {
		s, err := form.MeasurePublish(t.Context(), sys, time.Millisecond)
		require.NoError(t, err, sys)
		assert.Positive(t, s.Messages)
		if !raceEnabled { // with it, pools forget things
			assert.Less(t, s.Allocs, 0.1)
		}
	}
	_, err := form.MeasurePublish(t.Context(), "chan", time.Millisecond)
	require.ErrorIs(t, err, load.ErrUnsupported)
}

// TestUnevenBatch ends within a batch.
func TestUnevenBatch(t *testing.T) {
	spec, err := load.Lookup("W1")
	require.NoError(t, err)
	for _, sys := range form.Systems() {
		for _, n := range []uint64{1, 31, 32, 33} {
			require.NoError(t, load.RunCount(sys, spec, n, nil, nil), "%s, %d messages", sys.Name, n)
		}
	}
}

func TestMeasureHandles(t *testing.T) {
	m, err := form.MeasureHandles(t.Context(), 50)
	require.NoError(t, err)
	assert.Positive(t, m.Made)
}
