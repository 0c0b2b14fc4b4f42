package bus_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/retry"
)

var errFails = errors.New("it fails")

// fails is a handler that always refuses.
func fails(context.Context, *bus.Envelope) error { return errFails }

// callTimes records when a handler was called, since the start of the bubble.
type callTimes struct {
	start time.Time
	at    []time.Duration
}

func (c *callTimes) handler(result func() error) bus.Handler {
	return func(context.Context, *bus.Envelope) error {
		c.at = append(c.at, time.Since(c.start))
		return result()
	}
}

// waits are the distances between the calls.
func (c *callTimes) waits() (out []time.Duration) {
	for i := 1; i < len(c.at); i++ {
		out = append(out, c.at[i]-c.at[i-1])
	}
	return out
}

func TestB048_BackoffNeverOverflows(t *testing.T) {
	most := scaled(10_000, 100_000)
	for _, p := range []retry.Policy{
		{Kind: retry.Exponential, Base: time.Second, Factor: 2, Cap: time.Minute},
		{Kind: retry.Exponential, Base: time.Second, Factor: 1.5, Cap: time.Minute},
		{Kind: retry.Exponential, Base: time.Second, Factor: 10, Cap: time.Minute},
		{Kind: retry.Exponential, Base: 1, Factor: 2, Cap: time.Minute},
		{Kind: retry.Exponential, Base: math.MaxInt64, Cap: math.MaxInt64},
	} {
		require.NoError(t, p.Validate())
		last := time.Duration(0)
		for attempt := 1; attempt <= most; attempt++ {
			d := p.Delay(attempt, last, 0)
			if d < last || d > p.Cap {
				t.Fatalf("%+v: the wait after failure %d is %v, after one of %v", p, attempt, d, last)
			}
			last = d
		}
		require.Equal(t, p.Cap, last)
	}
}

// TestB048_AttemptsSaturate drives one envelope through more attempts than its
// counter can hold.
func TestB048_AttemptsSaturate(t *testing.T) {
	const attempts = math.MaxUint16 + 100
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		calls, highest := 0, 0
		s := bustest.Stage(t, b, "s", bus.StageConfig{Retry: retry.Policy{MaxAttempts: math.MaxInt}}, func(_ context.Context, e *bus.Envelope) error {
			calls++
			if e.Attempt() < highest {
				t.Errorf("attempt %d after %d", e.Attempt(), highest)
			}
			highest = e.Attempt()
			if calls == attempts {
				return nil
			}
			return errFails
		})
		bustest.Start(t, b)
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		synctest.Wait()
		require.Equal(t, attempts, calls)
		require.Equal(t, math.MaxUint16, highest)
		synctest.Wait()
		require.EqualValues(t, 1, bustest.RequireBalanced(t, b).Completed)
	})
}

func TestB049_JitterStaysInBounds(t *testing.T) {
	for _, jitter := range []retry.Jitter{retry.NoJitter, retry.Full, retry.Equal, retry.Decorrelated} {
		for _, p := range []retry.Policy{
			{Kind: retry.Exponential, Base: 100 * time.Millisecond, Cap: 200 * time.Millisecond, Jitter: jitter},
			{Kind: retry.Exponential, Base: 1, Cap: 1, Jitter: jitter},
			{Kind: retry.Exponential, Cap: 1, Jitter: jitter},
			{Kind: retry.Exponential, Base: math.MaxInt64, Cap: math.MaxInt64, Jitter: jitter},
		} {
			require.NoError(t, p.Validate())
			last := time.Duration(0)
			for i := range 10_000 {
				d := p.Delay(1+i%70, last, uint64(i)*0x9e3779b97f4a7c15)
				if d < 0 || d > p.Cap {
					t.Fatalf("%+v: wait %v", p, d)
				}
				last = d
			}
		}
	}
	b := newBus(t, bus.Config{})
	for _, p := range []retry.Policy{
		{Kind: retry.Constant, Jitter: retry.Decorrelated},
		{Jitter: retry.Full},
		{Kind: retry.Constant, Jitter: 9},
		{Kind: retry.Constant, Base: time.Hour, Cap: time.Second},
	} {
		_, err := b.Stage("s", bus.StageConfig{Retry: p})
		require.ErrorIs(t, err, bus.ErrInvalid)
		require.ErrorContains(t, err, "Retry")
	}
	finish(t, b)
}

func TestB050_FirstWaitIsTheBase(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		calls := callTimes{start: time.Now()}
		s := bustest.Stage(t, b, "s", bus.StageConfig{Retry: retry.Policy{
			MaxAttempts: 4, Kind: retry.Exponential, Base: 100 * time.Millisecond,
		}}, calls.handler(func() error { return errFails }))
		bustest.Start(t, b)
		r, err := s.Call(t.Context(), &bus.Envelope{})
		require.NoError(t, err)
		require.Equal(t, bus.DeadLettered, r.End)
		require.Equal(t, 4, r.Attempts, "one call and three retries")
		require.Equal(t, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}, calls.waits())
		synctest.Wait()
		st := bustest.RequireBalanced(t, b).Stages[0]
		require.EqualValues(t, 4, st.Delivered)
		require.EqualValues(t, 4, st.Nacked)
		require.EqualValues(t, 3, st.Retried)
	})
}

// TestB052_SuccessStartsTheWaitsAnew alternates failures and successes, over
// envelopes of one stage and over redrives of one envelope.
func TestB052_SuccessStartsTheWaitsAnew(t *testing.T) {
	const base = 10 * time.Millisecond
	policy := retry.Policy{MaxAttempts: 11, Kind: retry.Exponential, Base: base, Cap: time.Hour}
	t.Run("stage", func(t *testing.T) {
		bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
			left := 0
			calls := callTimes{start: time.Now()}
			s := bustest.Stage(t, b, "s", bus.StageConfig{Retry: policy}, calls.handler(func() error {
				if left--; left >= 0 {
					return errFails
				}
				return nil
			}))
			bustest.Start(t, b)
			for range 100 {
				left, calls.at = 10, nil
				r, err := s.Call(t.Context(), &bus.Envelope{})
				require.NoError(t, err)
				require.Equal(t, bus.Completed, r.End)
				waits := calls.waits()
				require.Len(t, waits, 10)
				require.Equal(t, base, waits[0])
				require.Equal(t, base<<9, waits[9])
			}
			synctest.Wait()
			bustest.RequireBalanced(t, b)
		})
	})
	t.Run("redrive", func(t *testing.T) {
		bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
			calls := callTimes{start: time.Now()}
			s := bustest.Stage(t, b, "s", bus.StageConfig{Retry: policy}, calls.handler(func() error { return errFails }))
			bustest.Start(t, b)
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
			for i := range 20 {
				time.Sleep(time.Hour)
				synctest.Wait()
				waits := calls.waits()
				require.Len(t, waits, 10)
				require.Equal(t, base, waits[0])
				letters := b.Letters().List(bus.LetterFilter{})
				require.Len(t, letters, 1)
				require.Equal(t, i, letters[0].Redrives)
				require.Equal(t, 11, letters[0].Attempts)
				calls.at = nil
				rep, err := b.Letters().Redrive(t.Context(), bus.RedriveOptions{})
				require.NoError(t, err)
				require.Equal(t, 1, rep.Redriven)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			st := bustest.RequireBalanced(t, b)
			require.EqualValues(t, 21, st.Accepted)
			require.EqualValues(t, 20, st.Stages[0].FromRedrive)
		})
	})
}
