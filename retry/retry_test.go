package retry_test

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/retry"
)

const maxDuration = time.Duration(math.MaxInt64)

// The series must stay within its bounds for any attempt number: a cap that is
// applied after an overflow lets a negative or zero wait through.
func TestB048_DelayNeverOverflows(t *testing.T) {
	bases := []time.Duration{1, time.Microsecond, time.Second, time.Hour, 1<<53 + 1, maxDuration - 1, maxDuration}
	caps := []time.Duration{1, time.Minute, 1<<62 + 600, maxDuration}
	for _, factor := range []float64{1.000001, 1.5, 2, 10, 1e300, math.MaxFloat64} {
		for _, base := range bases {
			for _, limit := range caps {
				if base > limit {
					continue
				}
				p := retry.Policy{Kind: retry.Exponential, Base: base, Cap: limit, Factor: factor}
				require.NoError(t, p.Validate())
				t.Run(fmt.Sprintf("%v/%v/%v", factor, base, limit), func(t *testing.T) { checkSeries(t, p) })
			}
		}
	}
}

func TestB048_EachOfAHundredThousandDelays(t *testing.T) {
	for _, factor := range []float64{1.5, 2, 10} {
		p := retry.Policy{Kind: retry.Exponential, Base: time.Second, Cap: time.Minute, Factor: factor}
		prev := time.Second
		for n := 1; n <= 100_000; n++ {
			d := p.Delay(n, prev, 0)
			if d < prev || d > p.Cap || n > 20 && d != p.Cap {
				t.Fatalf("factor %v, failure %d: wait %v after %v", factor, n, d, prev)
			}
			prev = d
		}
	}
}

func checkSeries(t *testing.T, p retry.Policy) {
	t.Helper()
	require.Equal(t, p.Base, p.Delay(1, 0, 0))
	prev := p.Base
	capped := false
	for n := 1; n <= 100_000; n += 1 + n/1000 { // each of the first thousand, then in steps
		d := p.Delay(n, prev, 0)
		if d < prev || d > p.Cap || capped && d != p.Cap {
			t.Fatalf("failure %d: wait %d after %d, cap %d", n, d, prev, p.Cap)
		}
		prev, capped = d, d == p.Cap
	}
	for shift := 17; shift < bits.UintSize-1; shift++ {
		d := p.Delay(1<<shift, prev, 0)
		require.GreaterOrEqual(t, d, prev)
		require.LessOrEqual(t, d, p.Cap)
		prev = d
	}
	require.Equal(t, p.Cap, p.Delay(math.MaxInt, prev, 0), "the series must end at the cap")
}

// Consecutive steps of the slowest factor that counts as growth, close to where
// the power has lost most of its precision.
func TestB048_SlowGrowthNeverShrinks(t *testing.T) {
	p := retry.Policy{Kind: retry.Exponential, Base: 1 << 40, Cap: maxDuration, Factor: 1.000001}
	prev := time.Duration(0)
	for n := 15_000_000; n < 15_020_000; n++ {
		d := p.Delay(n, 0, 0)
		if d <= prev {
			t.Fatalf("failure %d: %d after %d", n, d, prev)
		}
		prev = d
	}
}

func TestB048_FactorTooCloseToOneDoesNotGrow(t *testing.T) {
	for _, factor := range []float64{1, math.Nextafter(1, 2), 1.0000009} {
		p := retry.Policy{Kind: retry.Exponential, Base: 1<<53 + 1, Cap: maxDuration, Factor: factor}
		require.NoError(t, p.Validate())
		for _, n := range []int{1, 2, 3, 1000, math.MaxInt} {
			assert.Equal(t, p.Base, p.Delay(n, 0, 0), "factor %v, failure %d", factor, n)
		}
	}
}

// Jitter stays in [0, cap] even where it is as large as the wait, and no jitter
// is exact.
func TestB049_JitterStaysInBounds(t *testing.T) {
	policies := map[string]retry.Policy{
		"delay of 100 ms": {Base: 100 * time.Millisecond, Cap: 200 * time.Millisecond},
		"cap of 1 ns":     {Base: 1, Cap: 1},
		"no delay":        {Base: -1, Cap: -1}, // what an unvalidated policy comes to
		"largest":         {Base: maxDuration, Cap: maxDuration},
		"wide":            {Base: 1, Cap: maxDuration},
		"defaults":        {},
	}
	for name, p := range policies {
		for _, kind := range []retry.Kind{retry.Constant, retry.Exponential, 200} {
			for _, jitter := range []retry.Jitter{retry.NoJitter, retry.Full, retry.Equal, retry.Decorrelated, 200} {
				p.Kind, p.Jitter = kind, jitter
				t.Run(fmt.Sprintf("%s/%v/%v", name, kind, jitter), func(t *testing.T) { checkDraws(t, p) })
			}
		}
	}
}

func checkDraws(t *testing.T, p retry.Policy) {
	t.Helper()
	limit := max(p.WithDefaults().Cap, 0)
	rnd := rand.New(rand.NewPCG(1, 2))
	prev := time.Duration(0)
	for i := range 100_000 {
		n := i%70 + 1
		d := p.Delay(n, prev, rnd.Uint64())
		if d < 0 || d > limit {
			t.Fatalf("failure %d: wait %d, cap %d", n, d, limit)
		}
		if p.Jitter == retry.NoJitter && d != p.Delay(n, 0, 0) {
			t.Fatalf("failure %d: wait %d depends on chance without jitter", n, d)
		}
		prev = d
	}
}

func TestB049_JitterCoversItsRange(t *testing.T) {
	const base, limit = 100 * time.Millisecond, 10 * time.Second
	tests := []struct {
		name     string
		jitter   retry.Jitter
		kind     retry.Kind
		failures int
		prev     time.Duration
		lo, hi   time.Duration
	}{
		{"none", retry.NoJitter, retry.Exponential, 3, 0, 4 * base, 4 * base},
		{"full", retry.Full, retry.Exponential, 3, 0, 0, 4 * base},
		{"full, constant", retry.Full, retry.Constant, 3, 0, 0, base},
		{"equal", retry.Equal, retry.Exponential, 3, 0, 2 * base, 4 * base},
		{"equal, odd", retry.Equal, retry.Exponential, 8, 0, limit / 2, limit},
		{"decorrelated, first", retry.Decorrelated, retry.Exponential, 1, limit, base, 3 * base},
		{"decorrelated, later", retry.Decorrelated, retry.Exponential, 2, time.Second, base, 3 * time.Second},
		{"decorrelated, capped", retry.Decorrelated, retry.Exponential, 9, 9 * time.Second, base, limit},
		{"decorrelated, previous too small", retry.Decorrelated, retry.Exponential, 9, -5, base, 3 * base},
		{"decorrelated, previous too large", retry.Decorrelated, retry.Exponential, 9, maxDuration, base, limit},
		{"decorrelated, constant is unfit", retry.Decorrelated, retry.Constant, 9, limit, base, base},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := retry.Policy{Kind: tt.kind, Base: base, Cap: limit, Jitter: tt.jitter}
			assert.Equal(t, tt.lo, p.Delay(tt.failures, tt.prev, 0), "smallest")
			assert.Equal(t, tt.hi, p.Delay(tt.failures, tt.prev, math.MaxUint64), "largest")
			middle := p.Delay(tt.failures, tt.prev, 1<<63)
			assert.InDelta(t, float64(tt.lo+tt.hi)/2, float64(middle), 1, "middle")
		})
	}
}

func TestB050_FirstDelayIsBase(t *testing.T) {
	p := retry.Policy{MaxAttempts: 4, Kind: retry.Exponential, Base: 100 * time.Millisecond, Factor: 2}
	require.NoError(t, p.Validate())
	var waits []time.Duration
	for failures := 1; failures < p.MaxAttempts; failures++ { // one call, three retries
		waits = append(waits, p.Delay(failures, 0, 0))
	}
	assert.Equal(t, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}, waits)
}

func TestB050_SeriesIsExact(t *testing.T) {
	tests := []struct {
		name string
		p    retry.Policy
		want []time.Duration
	}{
		{"immediate", retry.Policy{}, []time.Duration{0, 0, 0}},
		{"constant", retry.Policy{Kind: retry.Constant, Base: 7}, []time.Duration{7, 7, 7}},
		{"constant, cap default", retry.Policy{Kind: retry.Constant, Base: time.Hour}, []time.Duration{time.Hour, time.Hour}},
		{"one and a half", retry.Policy{Kind: retry.Exponential, Base: 100, Factor: 1.5}, []time.Duration{100, 150, 225, 337}},
		{"ten, capped", retry.Policy{Kind: retry.Exponential, Base: 3, Cap: 200, Factor: 10}, []time.Duration{3, 30, 200, 200}},
		{"defaults", retry.Policy{Kind: retry.Exponential}, []time.Duration{1e8, 2e8, 4e8, 8e8, 16e8}},
		{"cap below the default base", retry.Policy{Kind: retry.Exponential, Cap: time.Millisecond}, []time.Duration{1e6, 1e6}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.NoError(t, tt.p.Validate())
			for i, want := range tt.want {
				assert.Equal(t, want, tt.p.Delay(i+1, 0, 0), "failure %d", i+1)
			}
		})
	}
	p := retry.Policy{Kind: retry.Exponential, Base: time.Second, Cap: maxDuration}
	for n := range 33 {
		assert.Equal(t, time.Second<<n, p.Delay(n+1, 0, 0))
	}
}

// Nothing of the failures before a success may show in the waits after it, with
// any jitter.
func TestB052_FirstDelayAfterSuccessIsBaseAgain(t *testing.T) {
	for _, jitter := range []retry.Jitter{retry.NoJitter, retry.Full, retry.Equal, retry.Decorrelated} {
		t.Run(jitter.String(), func(t *testing.T) {
			p := retry.Policy{Kind: retry.Exponential, Base: time.Second, Cap: time.Hour, Jitter: jitter}
			prev := time.Duration(0)
			for round := range 100 {
				for failures := 1; failures <= 10; failures++ {
					rnd := uint64(failures) * (math.MaxUint64 / 11)
					d := p.Delay(failures, prev, rnd)
					require.Equal(t, p.Delay(failures, freshPrev(p, failures), rnd), d, "round %d, failure %d", round, failures)
					prev = d
				}
			}
		})
	}
}

// freshPrev returns the wait before failure number failures of a first series.
func freshPrev(p retry.Policy, failures int) time.Duration {
	prev := time.Duration(0)
	for n := 1; n < failures; n++ {
		prev = p.Delay(n, prev, uint64(n)*(math.MaxUint64/11))
	}
	return prev
}

func TestDelayWithoutFailure(t *testing.T) {
	p := retry.Policy{Kind: retry.Constant, Base: time.Second, Jitter: retry.Equal}
	for _, n := range []int{0, -1, math.MinInt} {
		assert.Zero(t, p.Delay(n, time.Hour, math.MaxUint64))
	}
}

func TestDelayOfUnvalidatedPolicies(t *testing.T) {
	tests := []struct {
		name string
		p    retry.Policy
		n    int
		want time.Duration
	}{
		{"negative base", retry.Policy{Kind: retry.Exponential, Base: -5, Factor: math.Inf(1)}, 9, 0},
		{"negative cap", retry.Policy{Kind: retry.Exponential, Base: 5, Cap: -5}, 9, 0},
		{"base above cap", retry.Policy{Kind: retry.Constant, Base: 50, Cap: 5}, 1, 5},
		{"factor NaN", retry.Policy{Kind: retry.Exponential, Base: 5, Factor: math.NaN()}, 9, 5},
		{"factor infinite", retry.Policy{Kind: retry.Exponential, Base: 5, Cap: 50, Factor: math.Inf(1)}, 2, 50},
		{"factor infinite, first", retry.Policy{Kind: retry.Exponential, Base: 5, Cap: 50, Factor: math.Inf(1)}, 1, 5},
		{"factor below one", retry.Policy{Kind: retry.Exponential, Base: 5, Factor: 0.1}, 9, 5},
		{"factor negative", retry.Policy{Kind: retry.Exponential, Base: 5, Factor: -2}, 9, 5},
		{"unknown kind", retry.Policy{Kind: 99, Base: 5}, 3, 20},
		{"unknown jitter", retry.Policy{Kind: retry.Exponential, Base: 5, Jitter: 99}, 3, 20},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, tt.p.Delay(tt.n, 0, 0))
		})
	}
}

func TestWithDefaults(t *testing.T) {
	tests := []struct {
		name     string
		in, want retry.Policy
	}{
		{"zero", retry.Policy{}, retry.Policy{MaxAttempts: 1}},
		{"constant", retry.Policy{Kind: retry.Constant}, retry.Policy{MaxAttempts: 1, Kind: retry.Constant, Base: 1e8, Cap: 6e10}},
		{
			"exponential",
			retry.Policy{MaxAttempts: 3, Kind: retry.Exponential},
			retry.Policy{MaxAttempts: 3, Kind: retry.Exponential, Base: 1e8, Cap: 6e10, Factor: 2},
		},
		{
			"base above the default cap",
			retry.Policy{Kind: retry.Exponential, Base: time.Hour, Factor: 3},
			retry.Policy{MaxAttempts: 1, Kind: retry.Exponential, Base: time.Hour, Cap: time.Hour, Factor: 3},
		},
		{
			"cap below the default base",
			retry.Policy{Kind: retry.Constant, Cap: time.Millisecond},
			retry.Policy{MaxAttempts: 1, Kind: retry.Constant, Base: time.Millisecond, Cap: time.Millisecond},
		},
		{
			"faults are kept",
			retry.Policy{MaxAttempts: -1, Kind: retry.Constant, Base: -1, Cap: -2},
			retry.Policy{MaxAttempts: -1, Kind: retry.Constant, Base: -1, Cap: -2},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Budget = retry.DefaultBudget
			got := tt.in.WithDefaults()
			assert.Equal(t, tt.want, got)
			assert.Equal(t, got, got.WithDefaults(), "defaults must be a fixed point")
		})
	}
}

func TestDelayAllocatesNothing(t *testing.T) {
	p := retry.Policy{Kind: retry.Exponential, Jitter: retry.Decorrelated}
	assert.Zero(t, testing.AllocsPerRun(100, func() { p.Delay(7, time.Second, 1<<60) }))
}

func BenchmarkDelay(b *testing.B) {
	p := retry.Policy{Kind: retry.Exponential, Base: time.Second, Jitter: retry.Equal}
	for n := 0; b.Loop(); n++ {
		p.Delay(n&63+1, time.Second, uint64(n))
	}
}
