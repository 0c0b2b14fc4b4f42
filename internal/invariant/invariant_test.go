package invariant_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/sedabus/seda/internal/invariant"
)

func TestViolatedPanicsInEveryBuild(t *testing.T) {
	assert.PanicsWithValue(t, "seda: broken invariant: depth -1 of \"a\"", func() {
		invariant.Violated("depth %d of %q", -1, "a")
	})
}

func TestCheck(t *testing.T) {
	assert.NotPanics(t, func() { invariant.Check(true, "never said") })
	broken := func() { invariant.Check(false, "depth %d", -1) }
	if invariant.Enabled {
		assert.PanicsWithValue(t, "seda: broken invariant: depth -1", broken)
	} else {
		assert.NotPanics(t, broken)
	}
}

func TestEnabledFollowsTheBuild(t *testing.T) {
	assert.Equal(t, wantEnabled, invariant.Enabled)
}

func TestCheckAllocatesNothingWhenItHolds(t *testing.T) {
	assert.Zero(t, testing.AllocsPerRun(100, func() { invariant.Check(true, "holds") }))
}
