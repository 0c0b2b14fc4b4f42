package bus_test

import (
	"context"
	"runtime"
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

// goroutineID tells goroutines apart.
func goroutineID() string {
	buf := make([]byte, 64)
	buf = buf[:runtime.Stack(buf, false)]
	for i := len("goroutine "); i < len(buf); i++ {
		if buf[i] == ' ' {
			return string(buf[:i])
		}
	}
	return string(buf)
}

// ended is what the callbacks of a test have been told.
type ended struct{ results []bus.Result }

func (r *ended) add(res bus.Result) { r.results = append(r.results, res) }

func TestCallbackSaysHowItEnded(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Retry: retry.Policy{MaxAttempts: 2}}, func(_ context.Context, e *bus.Envelope) error {
			switch e.Payload {
			case "fail":
				return errFails
			case "discard":
				return bus.Discard("old")
			}
			return nil
		})
		bustest.Stage(t, b, "next", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		for _, c := range []struct {
			payload string
			want    bus.Result
		}{
			{"fine", bus.Result{End: bus.Completed, Stage: "next", Attempts: 1}},
			{"fail", bus.Result{End: bus.DeadLettered, Reason: reason.Attempts, Stage: "s", Err: errFails, Attempts: 2}},
			{"discard", bus.Result{End: bus.Dropped, Reason: reason.Discarded, Stage: "s", Attempts: 1}},
		} {
			var got ended
			require.NoError(t, s.TryPublish(&bus.Envelope{
				Payload: c.payload, Slip: bus.Via("next"), Meta: &bus.Meta{ID: "text"}, OnDone: got.add,
			}))
			synctest.Wait()
			require.Len(t, got.results, 1, c.payload)
			r := got.results[0]
			require.NotZero(t, r.ID)
			c.want.ID, c.want.TextID = r.ID, "text"
			require.Equal(t, c.want, r)
			if c.want.End == bus.Completed {
				require.NoError(t, r.Error())
				continue
			}
			require.ErrorContains(t, r.Error(), c.want.End.String())
			require.ErrorContains(t, r.Error(), c.want.Reason.String())
			if c.want.Err != nil {
				require.ErrorIs(t, r.Error(), errFails)
			}
		}
	})
}

func TestRefusedPublishesHaveNoCallback(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1, Full: bus.Reject, NoHandler: bus.NoHandlerHold}, nil)
		var got ended
		require.Error(t, s.TryPublish(&bus.Envelope{OnDone: got.add}))
		bustest.Start(t, b)
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		require.Error(t, s.TryPublish(&bus.Envelope{OnDone: got.add}))
		require.Error(t, b.Close())
		require.Error(t, s.TryPublish(&bus.Envelope{OnDone: got.add}))
		synctest.Wait()
		require.Empty(t, got.results)
	})
}

// A callback runs on none of the goroutines that publish, evict or handle.
func TestCallbacksRunElsewhere(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1, Full: bus.DropOldest, NoHandler: bus.NoHandlerHold}, nil)
		bustest.Start(t, b)
		here, there := goroutineID(), ""
		release := make(chan struct{})
		require.NoError(t, s.TryPublish(&bus.Envelope{OnDone: func(r bus.Result) {
			there = goroutineID()
			<-release
		}}))
		require.NoError(t, s.TryPublish(&bus.Envelope{}), "evicting is not held up by the victim's callback")
		synctest.Wait()
		require.NotEmpty(t, there)
		require.NotEqual(t, here, there)
		handler := ""
		require.NoError(t, s.Handle(func(context.Context, *bus.Envelope) error { handler = goroutineID(); return nil }))
		synctest.Wait()
		require.NotEmpty(t, handler, "a callback that takes long holds up no handler")
		require.NotEqual(t, handler, there)
		close(release)
	})
}

func TestCallbackMayPublish(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		rounds := 0
		var again func(bus.Result)
		again = func(bus.Result) {
			if rounds++; rounds < 1000 {
				if err := s.Publish(context.Background(), &bus.Envelope{OnDone: again}); err != nil {
					t.Error(err)
				}
			}
		}
		require.NoError(t, s.TryPublish(&bus.Envelope{OnDone: again}))
		synctest.Wait()
		require.Equal(t, 1000, rounds)
		st := bustest.RequireBalanced(t, b)
		require.EqualValues(t, 1000, st.Completed)
		require.Zero(t, st.CallbacksPending)
	})
}

func TestPanicsInCallbacksAreContained(t *testing.T) {
	for name, misdeed := range misdeeds {
		t.Run(name, func(t *testing.T) {
			var panics atomic.Int64
			hooks := bus.Hooks{Panic: func(i bus.PanicInfo) {
				if i.Where == "callback" && i.Stage == "s" && i.ID != 0 && i.Err != nil {
					panics.Add(1)
				}
			}}
			bustest.Run(t, bus.Config{Hooks: hooks}, func(t *testing.T, b *bus.Bus) {
				s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
				bustest.Start(t, b)
				called := 0
				for i := range 20 {
					require.NoError(t, s.TryPublish(&bus.Envelope{OnDone: func(bus.Result) {
						called++
						if i%2 == 0 {
							misdeed()
						}
					}}))
				}
				synctest.Wait()
				require.Equal(t, 20, called)
				require.EqualValues(t, 10, panics.Load())
				st := bustest.RequireBalanced(t, b)
				require.EqualValues(t, 20, st.Completed)
				require.EqualValues(t, 10, st.Panics)
				require.Zero(t, st.CallbacksPending)
			})
		})
	}
}

func TestShutdownWaitsForCallbacks(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		called := 0
		for range 3 {
			require.NoError(t, s.TryPublish(&bus.Envelope{OnDone: func(bus.Result) {
				time.Sleep(time.Second)
				called++
			}}))
		}
		r := bustest.Drain(t, b)
		require.Equal(t, 3, called)
		require.Equal(t, 3*time.Second, r.Took)
		require.Zero(t, r.Callbacks)
	})
}

// stuckCallbacks starts a bus with one callback that does not return and four
// behind it.
func stuckCallbacks(t *testing.T, b *bus.Bus) (release func()) {
	t.Helper()
	s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
	bustest.Start(t, b)
	first, second := make(chan struct{}), make(chan struct{})
	for i := range 6 {
		require.NoError(t, s.TryPublish(&bus.Envelope{OnDone: func(bus.Result) {
			switch i {
			case 0:
				<-first
			case 1:
				<-second
			}
		}}))
		synctest.Wait()
	}
	close(first) // so that the others are taken together
	synctest.Wait()
	return func() { close(second) }
}

func TestStuckCallbackIsReported(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		release := stuckCallbacks(t, b)
		require.Equal(t, 4, bustest.RequireBalanced(t, b).CallbacksPending)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := b.Shutdown(ctx)
		require.ErrorIs(t, err, bus.ErrNotDrained)
		require.Equal(t, time.Minute, time.Since(began))
		require.False(t, r.Drained)
		require.Equal(t, 4, r.Callbacks)
		require.EqualValues(t, 6, r.Stats.Completed)
		release()
		synctest.Wait()
		require.Zero(t, bustest.RequireBalanced(t, b).CallbacksPending, "they come all the same")
	})
}

// One callback that does not return is enough not to be drained.
func TestRunningCallbackIsNotDrained(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		release := make(chan struct{})
		require.NoError(t, s.TryPublish(&bus.Envelope{OnDone: func(bus.Result) { <-release }}))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := b.Shutdown(ctx)
		require.ErrorIs(t, err, bus.ErrNotDrained)
		require.False(t, r.Drained)
		require.Zero(t, r.Callbacks, "it had begun")
		close(release)
	})
}

// Whoever has less time ends the wait for callbacks as well.
func TestCloseDoesNotWaitForCallbacks(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		release := stuckCallbacks(t, b)
		first := make(chan error, 1)
		go func() {
			_, err := b.Shutdown(context.Background())
			first <- err
		}()
		synctest.Wait()
		require.Empty(t, first)
		require.ErrorIs(t, b.Close(), bus.ErrNotDrained)
		require.ErrorIs(t, <-first, bus.ErrNotDrained)
		release()
	})
}

func TestCallbackOfACanceledPublisher(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{NoHandler: bus.NoHandlerHold}, nil)
		bustest.Start(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		var got ended
		require.NoError(t, s.Publish(ctx, &bus.Envelope{OnDone: got.add}))
		cancel()
		synctest.Wait()
		require.Empty(t, got.results, "accepted work does not depend on its publisher")
		require.NoError(t, s.Handle(acknowledge))
		synctest.Wait()
		require.Len(t, got.results, 1)
		require.Equal(t, bus.Completed, got.results[0].End)
	})
}
