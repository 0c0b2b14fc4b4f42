package retry_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/retry"
)

func TestValidateAccepts(t *testing.T) {
	for name, p := range map[string]retry.Policy{
		"zero":              {},
		"huge":              {MaxAttempts: math.MaxInt, Kind: retry.Exponential, Base: maxDuration, Cap: maxDuration, Factor: math.MaxFloat64, Jitter: retry.Full, MaxElapsed: maxDuration, Seed: math.MaxUint64},
		"base equals cap":   {Kind: retry.Constant, Base: 5, Cap: 5},
		"factor one":        {Kind: retry.Exponential, Factor: 1},
		"base, default cap": {Kind: retry.Exponential, Base: time.Hour},
		"cap, default base": {Kind: retry.Exponential, Cap: 1},
		"constant jitter":   {Kind: retry.Constant, Jitter: retry.Equal},
		"decorrelated":      {Kind: retry.Exponential, Jitter: retry.Decorrelated},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, p.Validate())
			require.NoError(t, p.WithDefaults().Validate(), "defaults must be valid")
		})
	}
}

func TestValidateRefuses(t *testing.T) {
	tests := []struct {
		name string
		p    retry.Policy
		want string
	}{
		{"attempts", retry.Policy{MaxAttempts: -1}, "retry: MaxAttempts -1: must be 0 (one attempt) or more"},
		{"kind", retry.Policy{Kind: 3}, "retry: Kind Kind(3): must be immediate, constant or exponential"},
		{"base", retry.Policy{Kind: retry.Constant, Base: -time.Second}, "retry: Base -1s: must be 0 (the default) or more"},
		{"base without a wait", retry.Policy{Base: time.Second}, "retry: Base 1s: needs Kind constant or exponential"},
		{"cap", retry.Policy{Kind: retry.Constant, Cap: -1}, "retry: Cap -1ns: must be 0 (the default) or more"},
		{"cap below base", retry.Policy{Kind: retry.Constant, Base: 2 * time.Second, Cap: time.Second}, "retry: Cap 1s: must be at least Base (2s)"},
		{"factor", retry.Policy{Kind: retry.Exponential, Factor: 0.5}, "retry: Factor 0.5: must be a finite number of 1 or more, or 0 (the default)"},
		{"factor negative", retry.Policy{Factor: -1}, "retry: Factor -1: must be"},
		{"factor NaN", retry.Policy{Factor: math.NaN()}, "retry: Factor NaN: must be"},
		{"factor infinite", retry.Policy{Factor: math.Inf(1)}, "retry: Factor +Inf: must be"},
		{"jitter", retry.Policy{Kind: retry.Exponential, Jitter: 4}, "retry: Jitter Jitter(4): must be none, full, equal or decorrelated"},
		{"jitter without a wait", retry.Policy{Jitter: retry.Full}, "retry: Jitter full: needs Kind constant or exponential"},
		{"decorrelated constant", retry.Policy{Kind: retry.Constant, Jitter: retry.Decorrelated}, "retry: Jitter decorrelated: needs Kind exponential"},
		{"elapsed", retry.Policy{MaxElapsed: -1}, "retry: MaxElapsed -1ns: must be 0 (no bound) or more"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.p.Validate()
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "\n", "one fault, one line")
		})
	}
}

func TestValidateTellsAllFaultsAtOnce(t *testing.T) {
	p := retry.Policy{MaxAttempts: -1, Kind: 9, Base: -1, Cap: -1, Factor: -1, Jitter: 9, MaxElapsed: -1}
	lines := strings.Split(p.Validate().Error(), "\n")
	fields := []string{"MaxAttempts", "Kind", "Base", "Cap", "Factor", "Jitter", "MaxElapsed"}
	require.Len(t, lines, len(fields))
	for i, field := range fields {
		assert.True(t, strings.HasPrefix(lines[i], "retry: "+field+" "), lines[i])
	}
}

func TestNames(t *testing.T) {
	for k := retry.Immediate; k <= retry.Exponential; k++ {
		got, err := retry.ParseKind(k.String())
		require.NoError(t, err)
		assert.Equal(t, k, got)
	}
	for j := retry.NoJitter; j <= retry.Decorrelated; j++ {
		got, err := retry.ParseJitter(j.String())
		require.NoError(t, err)
		assert.Equal(t, j, got)
	}
	assert.Equal(t, "Kind(7)", retry.Kind(7).String())
	assert.Equal(t, "Jitter(255)", retry.Jitter(255).String())
	for _, bad := range []string{"", "Full", "Kind(7)", strings.Repeat("x", 1000)} {
		_, err := retry.ParseKind(bad)
		require.ErrorContains(t, err, "must be immediate, constant or exponential")
		assert.Less(t, len(err.Error()), 120)
		_, err = retry.ParseJitter(bad)
		require.ErrorContains(t, err, "must be none, full, equal or decorrelated")
		assert.Less(t, len(err.Error()), 120)
	}
}
