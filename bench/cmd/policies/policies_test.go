package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bench/internal/report"
)

func TestParse(t *testing.T) {
	o, err := parse(nil, io.Discard)
	require.NoError(t, err)
	require.Equal(t, parts, o.only)
	for _, args := range [][]string{{"--only", "all"}, {"--pairs", "0"}, {"--dur", "1ms"}, {"more"}} {
		_, err := parse(args, io.Discard)
		require.Error(t, err, args)
	}
}

// TestPlanMeasuresBothSidesInTheSameRounds: the two cells of every row are in
// one group.
func TestPlanMeasuresBothSidesInTheSameRounds(t *testing.T) {
	p := newPlan(parts)
	require.NotEmpty(t, p.Rows)
	for _, r := range p.Rows {
		found := false
		for _, g := range p.Groups {
			has := map[report.Cell]bool{}
			for _, c := range g {
				has[c] = true
			}
			found = found || has[r.Cell] && has[r.Base]
		}
		assert.True(t, found, "%v", r)
	}
}

// fake is a book in which Credit has the given rate and wait beside a Block of 1
// and 1, in three equal rounds.
func fake(only string, rate, wait float64) book {
	b := book{plan: newPlan([]string{only}), seed: 1}
	b.data.Samples = map[report.Cell][]load.Sample{}
	for _, g := range b.plan.Groups {
		for _, c := range g {
			s := load.Sample{Messages: 1000, Seconds: 1, Waits: 1, Inside: load.Inside{WaitP50: 1, WaitP99: 1, Service: 1}}
			if c.System[0] == 'c' {
				s.Seconds, s.Waits, s.Inside.WaitP50, s.Inside.WaitP99 = 1/rate, wait, wait, wait
			}
			b.data.Samples[c] = []load.Sample{s, s, s}
		}
	}
	return b
}

func TestGates(t *testing.T) {
	for _, c := range []struct {
		only       string
		rate, wait float64
		missed     int
	}{
		{"rate", 1, 1, 0},
		{"rate", 0.9, 1, 12},
		{"rate", 1, 1.1, 12},
		{"wait", 1, 1, 0},
		{"wait", 1, 5, 36},
		{"ring", 1, 1, 0},
		{"cost", 1, 1, 0},
	} {
		b := fake(c.only, c.rate, c.wait)
		var out bytes.Buffer
		require.NoError(t, b.tables(&out))
		missed, err := b.gates(&out)
		require.NoError(t, err)
		assert.Equal(t, c.missed, missed, "%+v\n%s", c, out.String())
	}
}
