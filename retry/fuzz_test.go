package retry_test

import (
	"math"
	"testing"
	"time"

	"github.com/sedabus/seda/retry"
)

// FuzzDelay checks the bounds of every wait, and that waits without jitter
// never shrink, for policies that were not validated.
func FuzzDelay(f *testing.F) {
	f.Add(uint8(2), uint8(0), int64(1), int64(60e9), 2.0, 64, int64(0), uint64(0))
	f.Add(uint8(2), uint8(3), int64(math.MaxInt64), int64(math.MaxInt64), 1.5, math.MaxInt, int64(math.MaxInt64), uint64(math.MaxUint64))
	f.Add(uint8(1), uint8(1), int64(-1), int64(math.MinInt64), math.NaN(), math.MinInt, int64(-1), uint64(1<<63))
	f.Add(uint8(2), uint8(0), int64(1<<53+1), int64(0), 1.0000011, 40_000_000, int64(0), uint64(0))
	f.Fuzz(func(t *testing.T, kind, jitter uint8, base, limit int64, factor float64, failures int, prev int64, rnd uint64) {
		p := retry.Policy{
			Kind: retry.Kind(kind), Jitter: retry.Jitter(jitter),
			Base: time.Duration(base), Cap: time.Duration(limit), Factor: factor,
		}
		bound := max(p.WithDefaults().Cap, 0)
		if d := p.Delay(failures, time.Duration(prev), rnd); d < 0 || d > bound {
			t.Fatalf("%+v: failure %d: wait %d out of [0, %d]", p, failures, d, bound)
		}
		p.Jitter = retry.NoJitter
		if failures == math.MaxInt {
			failures--
		}
		if a, b := p.Delay(failures, 0, 0), p.Delay(failures+1, 0, 0); a > b {
			t.Fatalf("%+v: failure %d: wait %d, then %d", p, failures, a, b)
		}
		if p.Kind == retry.Exponential && p.Validate() == nil && p.WithDefaults().Factor >= 1.000001 {
			if d := p.Delay(math.MaxInt>>1, 0, 0); d != bound {
				t.Fatalf("%+v: the series ends at %d, not at the cap %d", p, d, bound)
			}
		}
	})
}

// FuzzValidate checks that whatever Validate accepts is still accepted once the
// defaults are in, and then keeps its promises.
func FuzzValidate(f *testing.F) {
	f.Add(1, uint8(2), uint8(0), int64(1), int64(60e9), 2.0, int64(0))
	f.Add(-1, uint8(3), uint8(4), int64(-1), int64(-1), math.Inf(-1), int64(-1))
	f.Add(0, uint8(0), uint8(0), int64(0), int64(0), 0.0, int64(0))
	f.Fuzz(func(t *testing.T, attempts int, kind, jitter uint8, base, limit int64, factor float64, elapsed int64) {
		p := retry.Policy{
			MaxAttempts: attempts, Kind: retry.Kind(kind), Jitter: retry.Jitter(jitter),
			Base: time.Duration(base), Cap: time.Duration(limit), Factor: factor, MaxElapsed: time.Duration(elapsed),
		}
		if p.Validate() != nil {
			return
		}
		d := p.WithDefaults()
		if err := d.Validate(); err != nil {
			t.Fatalf("%+v is valid, with defaults it is not: %v", p, err)
		}
		if d.MaxAttempts < 1 || d.Base < 0 || d.Cap < d.Base && d.Kind != retry.Immediate {
			t.Fatalf("%+v: defaults %+v", p, d)
		}
		if d.Jitter == retry.NoJitter && d.Kind != retry.Immediate && d.Delay(1, 0, 0) != d.Base {
			t.Fatalf("%+v: the first wait is not Base", d)
		}
	})
}
