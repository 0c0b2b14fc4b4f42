package shedder_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shedder"
)

func TestShedsOnlyWhenOnAndAlive(t *testing.T) {
	s := shedder.Default("s")
	require.True(t, s.Sheds())
	s.Kill(true)
	require.False(t, s.Sheds())
	s.Kill(false)
	for _, m := range []shedder.Mode{shedder.Observe, shedder.Off, shedder.On} {
		require.NoError(t, s.Tune(func(c *shedder.Config) { c.Mode = m }))
		require.Equal(t, m == shedder.On, s.Sheds(), m)
	}
}
