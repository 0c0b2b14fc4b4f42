package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// What runs without a flag, with --all and with --real is there by name, and
// grows in this order of work.
func TestScopes(t *testing.T) {
	t.Parallel()
	few, err := parse(nil, io.Discard)
	require.NoError(t, err)
	all, err := parse([]string{"--all"}, io.Discard)
	require.NoError(t, err)
	_, some := few.plan.Size()
	_, most := all.plan.Size()
	require.Less(t, some, 100e6, "some minutes")
	require.Greater(t, most, 10*some)
	require.Equal(t, fewSeeds, few.plan.Seeds)
	require.Equal(t, allSeeds, all.plan.Seeds)
	require.Empty(t, few.legs)
	byClock, err := parse([]string{"--real", "--shape", "cost,cpu"}, io.Discard)
	require.NoError(t, err)
	require.Len(t, byClock.legs, 2)
}

func TestWrongFlagsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--shape", "nope"},
		{"--scale", "nope"},
		{"--law", "nope"},
		{"--seeds", "-1"},
		{"--seeds", "101"},
		{"--real", "--shape", "step"},
		{"--real", "--rounds", "0"},
		{"rest"},
		{"--data", "/does/not/exist"},
	} {
		_, err := parse(args, io.Discard)
		require.Error(t, err, "%v", args)
	}
}
