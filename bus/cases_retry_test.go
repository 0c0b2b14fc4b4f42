package bus_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
)

// TestB074_RetriesComeBeforeTheDeadLetter sets retries and dead-letter stage in
// either order: the order must not matter.
func TestB074_RetriesComeBeforeTheDeadLetter(t *testing.T) {
	policy := retry.Policy{MaxAttempts: 3}
	for name, c := range map[string]struct {
		config bus.StageConfig
		tune   bool
	}{
		"at once":        {bus.StageConfig{Retry: policy, DeadLetterTo: "letters"}, false},
		"retries later":  {bus.StageConfig{DeadLetterTo: "letters"}, true},
		"in the store":   {bus.StageConfig{Retry: policy}, false},
		"store, retries": {bus.StageConfig{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				var calls, letters atomic.Int64
				bustest.Stage(t, b, "letters", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
					letters.Add(1)
					why, _ := e.Header(bus.HeaderLetterReason)
					attempts, _ := e.Header(bus.HeaderLetterAttempts)
					from, _ := e.Header(bus.HeaderLetterStage)
					require.Equal(t, []string{"attempts", "3", "s"}, []string{why, attempts, from})
					return nil
				})
				s := bustest.Stage(t, b, "s", c.config, func(context.Context, *bus.Envelope) error {
					calls.Add(1)
					return errFails
				})
				if c.tune {
					require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Retry = policy }))
				}
				bustest.Start(t, b)
				r, err := s.Call(t.Context(), &bus.Envelope{Slip: bus.Via("letters")})
				require.NoError(t, err)
				require.Equal(t, bus.DeadLettered, r.End)
				require.Equal(t, reason.Attempts, r.Reason)
				require.ErrorIs(t, r.Err, errFails)
				synctest.Wait()
				require.EqualValues(t, 3, calls.Load())
				stored := len(b.Letters().List(bus.LetterFilter{}))
				require.EqualValues(t, 1, letters.Load()+int64(stored), "exactly one letter")
				require.Equal(t, c.config.DeadLetterTo == "", stored == 1)
				synctest.Wait()
				bustest.RequireBalanced(t, b)
			})
		})
	}
}

func TestB075_DefaultsEndARefusedEnvelope(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		calls := 0
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, bus.Bool(func(context.Context, *bus.Envelope) bool {
			calls++
			return false
		}))
		bustest.Start(t, b)
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.Equal(t, 1, calls)
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 1, st.DeadLettered)
		require.Equal(t, 1, st.Letters.Count)
	})
}

// TestB075_RetriesPauseByDefault: a policy that says how to wait but not how
// long waits all the same, and ends.
func TestB075_RetriesPauseByDefault(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		calls := callTimes{start: time.Now()}
		s := bustest.Stage(t, b, "s", bus.StageConfig{
			Retry: retry.Policy{MaxAttempts: 3, Kind: retry.Exponential},
		}, calls.handler(func() error { return errFails }))
		bustest.Start(t, b)
		_, err := s.Call(t.Context(), &bus.Envelope{})
		require.NoError(t, err)
		require.Equal(t, []time.Duration{retry.DefaultBase, 2 * retry.DefaultBase}, calls.waits())
	})
}

func TestB076_RingsOfDeadLetterStagesAreRefused(t *testing.T) {
	b := newBus(t, bus.Config{})
	_, err := b.Stage("a", bus.StageConfig{DeadLetterTo: "a"})
	require.ErrorIs(t, err, bus.ErrInvalid)
	_, err = b.Stage("a", bus.StageConfig{DeadLetterTo: "b"})
	require.ErrorIs(t, err, bus.ErrInvalid)
	require.ErrorContains(t, err, "DeadLetterTo")
	addStage(t, b, "a", bus.StageConfig{}, nil)
	addStage(t, b, "b", bus.StageConfig{DeadLetterTo: "a"}, nil)
	addStage(t, b, "c", bus.StageConfig{DeadLetterTo: "b"}, nil)
	for _, to := range []string{"a", "b", "c"} { // a ring could only be closed here
		_, err = b.Stage("a", bus.StageConfig{DeadLetterTo: to})
		require.Error(t, err)
		a, _ := b.Lookup("a")
		require.ErrorIs(t, a.Tune(func(c *bus.StageConfig) { c.DeadLetterTo = to }), bus.ErrConflict)
		require.Empty(t, a.Config().DeadLetterTo)
	}
	finish(t, b)
}

// TestB076_FullDeadLetterStage: a letter never waits, is never refused for
// good, and never pushes others out, whatever the policy of its stage.
func TestB076_FullDeadLetterStage(t *testing.T) {
	for _, full := range []bus.FullPolicy{bus.Block, bus.Reject, bus.DropNewest, bus.DropOldest} {
		t.Run(full.String(), func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				letters := bustest.Stage(t, b, "letters", bus.StageConfig{Capacity: 2, Full: full, NoHandler: bus.NoHandlerHold}, nil)
				s := bustest.Stage(t, b, "s", bus.StageConfig{DeadLetterTo: "letters"}, fails)
				bustest.Start(t, b)
				for range 10 {
					require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
				}
				synctest.Wait()
				st := bustest.RequireBalanced(t, b)
				require.EqualValues(t, 10, st.Stages[1].DeadLettered)
				require.EqualValues(t, 2, st.Stages[0].FromLetters)
				require.Equal(t, 8, st.Letters.Count, "the rest is in the store")
				require.EqualValues(t, 12, st.Accepted)
				requireRefusals(t, st.Refused, nil)
				require.NoError(t, letters.Handle(acknowledge))
			})
		})
	}
}

func TestB076_FailingDeadLetterHandlerEndsInTheStore(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		bustest.Stage(t, b, "last", bus.StageConfig{}, fails)
		bustest.Stage(t, b, "letters", bus.StageConfig{DeadLetterTo: "last", Retry: retry.Policy{MaxAttempts: 2}}, fails)
		s := bustest.Stage(t, b, "s", bus.StageConfig{DeadLetterTo: "letters"}, fails)
		bustest.Start(t, b)
		for range 5 {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{Slip: bus.Via("s")}))
		}
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 15, st.Accepted, "each stage has got it once")
		require.EqualValues(t, 15, st.DeadLettered)
		require.Equal(t, 5, st.Letters.Count)
		for _, l := range b.Letters().List(bus.LetterFilter{}) {
			require.Equal(t, "last", l.Stage)
			require.Empty(t, l.Slip, "the old slip is not resumed")
		}
	})
}

// TestB077_ShutdownCostsNoAttempt: an interrupted handler has not failed.
func TestB077_ShutdownCostsNoAttempt(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		s := bustest.Stage(t, b, "s", bus.StageConfig{Concurrency: 3}, gate.Handler(nil))
		bustest.Start(t, b)
		var ends []bus.Result
		for range 5 {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{OnDone: func(r bus.Result) { ends = append(ends, r) }}))
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := b.Shutdown(ctx)
		require.ErrorIs(t, err, bus.ErrNotDrained)
		synctest.Wait() // the handlers have returned the context's error
		require.Len(t, ends, 5)
		for _, end := range ends {
			require.Equal(t, bus.Abandoned, end.End)
			require.Equal(t, reason.Shutdown, end.Reason)
		}
		require.Len(t, r.Abandoned, 5)
		require.Len(t, r.Stuck, 3)
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.Zero(t, st.DeadLettered)
		require.Zero(t, st.Letters.Added)
		require.Zero(t, st.Stages[0].Nacked)
		require.EqualValues(t, 3, st.Stages[0].Late)
	})
}

// TestB078_NobodyHandlesIt: see also TestSlipsThatLeadNowhere.
func TestB078_NobodyHandlesIt(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		calls := 0
		count := func(context.Context, *bus.Envelope) error { calls++; return nil }
		policy := retry.Policy{MaxAttempts: 1000, Kind: retry.Constant}
		s := bustest.Stage(t, b, "s", bus.StageConfig{Retry: policy}, count)
		bustest.Stage(t, b, "ints", bus.StageConfig{Accepts: bus.TypeOf[int](), Retry: policy}, acknowledge)
		typed := bustest.Stage(t, b, "typed", bus.StageConfig{Retry: policy},
			bus.Typed(func(context.Context, int, *bus.Envelope) error { return nil }))
		bustest.Start(t, b)
		requireRefused(t, b.Publish(t.Context(), "unknown", &bus.Envelope{}), "unknown", reason.NoStage, bus.ErrNoStage)

		r, err := s.Call(t.Context(), &bus.Envelope{Slip: bus.Via("unknown")})
		require.NoError(t, err)
		require.Equal(t, []any{bus.DeadLettered, reason.NoStage}, []any{r.End, r.Reason})
		require.ErrorIs(t, r.Err, bus.ErrNoStage)
		r, err = s.Call(t.Context(), &bus.Envelope{Slip: bus.Via("ints"), Payload: "text"})
		require.NoError(t, err)
		require.Equal(t, []any{bus.DeadLettered, reason.Type}, []any{r.End, r.Reason})
		require.ErrorIs(t, r.Err, bus.ErrType)
		r, err = typed.Call(t.Context(), &bus.Envelope{Payload: "text"})
		require.NoError(t, err)
		require.Equal(t, []any{bus.DeadLettered, reason.Type}, []any{r.End, r.Reason})
		require.ErrorIs(t, r.Err, bus.ErrType)
		require.Equal(t, 1, r.Attempts)

		require.Equal(t, 2, calls)
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		for _, stage := range st.Stages {
			require.Zero(t, stage.Retried, stage.Name)
		}
	})
}

func TestB079_OutageLongerThanTheRetryTime(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		n := scaled(300, 1000)
		start := time.Now()
		var handled atomic.Int64
		s := bustest.Stage(t, b, "s", bus.StageConfig{Concurrency: 4, Retry: retry.Policy{
			MaxAttempts: 1 << 20, Kind: retry.Exponential, Cap: 20 * time.Second, MaxElapsed: time.Minute,
		}}, func(context.Context, *bus.Envelope) error {
			if time.Since(start) < 5*time.Minute {
				return errors.New("outage")
			}
			handled.Add(1)
			return nil
		})
		bustest.Start(t, b)
		for range n {
			require.NoError(t, s.Publish(t.Context(), &bus.Envelope{}))
			time.Sleep(6 * time.Minute / time.Duration(n)) // over six minutes
		}
		var during bus.StageStats
		s.ReadStats(&during)
		require.Positive(t, during.DeadLettered)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		late := b.Letters().List(bus.LetterFilter{Reason: reason.RetryTime})
		require.EqualValues(t, n, handled.Load()+int64(len(late)), "none is missing")
		require.EqualValues(t, len(late), st.DeadLettered)
		for _, l := range late {
			require.LessOrEqual(t, l.Last.Sub(l.First), time.Minute)
		}
		require.Greater(t, handled.Load(), int64(n/6), "what came in the last minute of the outage survived, too")
		rep, err := b.Letters().Redrive(t.Context(), bus.RedriveOptions{})
		require.NoError(t, err)
		require.Equal(t, len(late), rep.Redriven)
		synctest.Wait()
		require.EqualValues(t, n, handled.Load())
	})
}
