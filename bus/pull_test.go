package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
)

// pullBus runs f with a started bus that has one stage for pulling.
func pullBus(t *testing.T, c bus.StageConfig, f func(t *testing.T, b *bus.Bus, s *bus.Stage)) {
	t.Helper()
	c.Pull = true
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "pull", c, nil)
		bustest.Start(t, b)
		f(t, b, s)
	})
}

// put publishes an envelope for each payload.
func put(t *testing.T, s *bus.Stage, payloads ...any) {
	t.Helper()
	for _, p := range payloads {
		require.NoError(t, s.TryPublish(&bus.Envelope{Payload: p}))
	}
}

// take receives an envelope, which must be there.
func take(t *testing.T, s *bus.Stage) *bus.Lease {
	t.Helper()
	l, err := s.TryReceive()
	require.NoError(t, err)
	return l
}

func noneLeft(t *testing.T, s *bus.Stage) {
	t.Helper()
	_, err := s.TryReceive()
	require.ErrorIs(t, err, bus.ErrEmpty)
}

func TestPullHandsOutInOrder(t *testing.T) {
	pullBus(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
		noneLeft(t, s)
		put(t, s, 0, 1, 2, 3, 4)
		first := take(t, s)
		require.Equal(t, 0, first.Envelope().Payload)
		require.Equal(t, 1, first.Envelope().Attempt())
		require.False(t, first.Envelope().Redelivered())
		second, err := s.Receive(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, second.Envelope().Payload)
		rest := make([]*bus.Lease, 10)
		n, err := s.ReceiveBatch(t.Context(), rest)
		require.NoError(t, err)
		require.Equal(t, 3, n, "what is there, without waiting for more")
		st := bustest.RequireBalanced(t, b).Stages[0]
		require.Equal(t, 5, st.InFlight)
		require.Zero(t, st.Depth)
		for _, l := range append(rest[:n], second, first) { // in any order
			require.NoError(t, l.Ack())
		}
		noneLeft(t, s)
		require.EqualValues(t, 5, bustest.Drain(t, b).Stats.Completed)
	})
}

func TestPullSettlements(t *testing.T) {
	cause := errors.New("no")
	for name, c := range map[string]struct {
		settle   func(*bus.Lease) error
		end      bus.End
		why      reason.Reason
		attempts int
		nacked   uint64
	}{
		"ack":                {(*bus.Lease).Ack, bus.Completed, reason.None, 1, 0},
		"nack":               {func(l *bus.Lease) error { return l.Nack(cause) }, bus.DeadLettered, reason.Attempts, 3, 3},
		"nack without error": {func(l *bus.Lease) error { return l.Nack(nil) }, bus.DeadLettered, reason.Attempts, 3, 3},
		"dead letter":        {func(l *bus.Lease) error { return l.DeadLetter("poison") }, bus.DeadLettered, reason.Handler, 1, 1},
		"nack dead letter": {
			func(l *bus.Lease) error { return l.Nack(fmt.Errorf("%w: %w", cause, bus.DeadLetter("poison"))) },
			bus.DeadLettered, reason.Handler, 1, 1,
		},
		"nack discard": {func(l *bus.Lease) error { return l.Nack(bus.Discard("old")) }, bus.Dropped, reason.Discarded, 1, 0},
		"retry after, then ack": {func(l *bus.Lease) error {
			if l.Envelope().Attempt() < 6 { // no failures, whatever their number
				return l.RetryAfter(time.Minute)
			}
			return l.Ack()
		}, bus.Completed, reason.None, 6, 0},
		"nack retry now": {func(l *bus.Lease) error {
			if l.Envelope().Attempt() == 1 {
				return l.Nack(bus.RetryNow())
			}
			return l.Ack()
		}, bus.Completed, reason.None, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			pullBus(t, bus.StageConfig{Retry: retry.Policy{MaxAttempts: 3}}, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
				var ends []bus.Result
				require.NoError(t, s.TryPublish(&bus.Envelope{OnDone: func(r bus.Result) { ends = append(ends, r) }}))
				for i := 1; i <= c.attempts; i++ {
					l, err := s.Receive(t.Context())
					require.NoError(t, err)
					require.Equal(t, i, l.Envelope().Attempt())
					require.NoError(t, c.settle(l))
					require.ErrorIs(t, c.settle(l), bus.ErrSettled)
				}
				synctest.Wait()
				require.Len(t, ends, 1)
				require.Equal(t, c.end, ends[0].End)
				require.Equal(t, c.why, ends[0].Reason)
				require.Equal(t, c.attempts, ends[0].Attempts)
				st := bustest.RequireBalanced(t, b).Stages[0]
				require.Equal(t, c.nacked, st.Nacked)
				require.EqualValues(t, c.attempts, st.Delivered)
				require.EqualValues(t, c.attempts-1, st.Retried)
				require.Zero(t, st.Late)
			})
		})
	}
}

func TestLapsedLeaseCostsAnAttemptAndComesBack(t *testing.T) {
	c := bus.StageConfig{Lease: time.Minute, Retry: retry.Policy{MaxAttempts: 3}}
	pullBus(t, c, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
		put(t, s, "work")
		for i := 1; i <= 3; i++ {
			l := take(t, s)
			require.Equal(t, i, l.Envelope().Attempt())
			require.Equal(t, i > 1, l.Envelope().Redelivered())
			noneLeft(t, s)
			time.Sleep(time.Minute - 1)
			synctest.Wait()
			require.Len(t, s.InFlight(), 1)
			time.Sleep(1)
			synctest.Wait()
			require.Empty(t, s.InFlight())
			require.Equal(t, "work", l.Envelope().Payload, "the consumer may still read its own")
			require.Equal(t, i > 1, l.Envelope().Redelivered())
			require.ErrorIs(t, l.Ack(), bus.ErrLeaseExpired)
			require.ErrorIs(t, l.Nack(nil), bus.ErrLeaseExpired)
			st := bustest.RequireBalanced(t, b).Stages[0]
			require.EqualValues(t, i, st.Lapsed)
			require.EqualValues(t, i, st.Nacked)
			require.EqualValues(t, 2*i, st.Late)
		}
		noneLeft(t, s)
		letters := b.Letters().List(bus.LetterFilter{})
		require.Len(t, letters, 1)
		require.Equal(t, 3, letters[0].Attempts)
		require.Contains(t, letters[0].Error, "lease")
	})
}

// A consumer may look at its envelope while the lease lapses.
func TestLeaseMayBeReadWhileItLapses(t *testing.T) {
	pullBus(t, bus.StageConfig{Lease: time.Second}, func(t *testing.T, _ *bus.Bus, s *bus.Stage) {
		put(t, s, "work")
		l := take(t, s)
		time.Sleep(time.Second) // wakes up beside the timer
		require.False(t, l.Envelope().Redelivered())
		require.Equal(t, 1, l.Envelope().Attempt())
		require.Equal(t, "work", l.Envelope().Payload)
	})
}

func TestExtendedLease(t *testing.T) {
	pullBus(t, bus.StageConfig{Lease: time.Minute}, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
		put(t, s, 1, 2, 3)
		longer, shorter, endless := take(t, s), take(t, s), take(t, s)
		require.NoError(t, longer.Extend(time.Hour))
		require.NoError(t, shorter.Extend(time.Second))
		require.NoError(t, endless.Extend(0))
		time.Sleep(time.Second)
		synctest.Wait()
		require.ErrorIs(t, shorter.Ack(), bus.ErrLeaseExpired)
		require.ErrorIs(t, shorter.Extend(time.Hour), bus.ErrLeaseExpired)
		time.Sleep(time.Hour - time.Second - 1)
		require.NoError(t, longer.Extend(time.Hour), "from now on")
		time.Sleep(time.Hour - 1)
		synctest.Wait()
		require.NoError(t, longer.Ack())
		require.ErrorIs(t, longer.Extend(time.Hour), bus.ErrSettled)
		time.Sleep(1000 * time.Hour)
		require.NoError(t, endless.Ack())
		st := bustest.RequireBalanced(t, b).Stages[0]
		require.EqualValues(t, 2, st.Completed)
		require.EqualValues(t, 1, st.Lapsed)
	})
}

func TestLeaseLengthIsLive(t *testing.T) {
	pullBus(t, bus.StageConfig{}, func(t *testing.T, _ *bus.Bus, s *bus.Stage) {
		put(t, s, 1, 2)
		old := take(t, s)
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Lease = time.Second }))
		lapsing := take(t, s)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.ErrorIs(t, lapsing.Ack(), bus.ErrLeaseExpired)
		require.NoError(t, old.Ack())
	})
}

func TestMaxOutstandingBoundsWhatIsOut(t *testing.T) {
	pullBus(t, bus.StageConfig{MaxOutstanding: 2}, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
		put(t, s, 1, 2, 3, 4, 5, 6)
		batch := make([]*bus.Lease, 5)
		n, err := s.ReceiveBatch(t.Context(), batch)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		noneLeft(t, s)
		got := make(chan *bus.Lease, 4)
		for range 4 {
			go func() {
				if l, err := s.Receive(t.Context()); err == nil {
					got <- l
				}
			}()
		}
		synctest.Wait()
		require.Empty(t, got)
		require.NoError(t, batch[0].Ack())
		synctest.Wait()
		require.Len(t, got, 1, "a settlement wakes one receiver")
		require.NoError(t, batch[1].RetryAfter(time.Hour))
		synctest.Wait()
		require.Len(t, got, 2, "a retry that waits is not out")
		require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.MaxOutstanding = 4 }))
		synctest.Wait()
		require.Len(t, got, 4, "raising the bound wakes receivers")
		require.Equal(t, 4, bustest.RequireBalanced(t, b).Stages[0].MaxInFlight)
		close(got)
		for l := range got {
			require.NoError(t, l.Ack())
		}
		l, err := s.Receive(t.Context()) // after an hour
		require.NoError(t, err)
		require.Equal(t, 2, l.Envelope().Payload)
		require.NoError(t, l.Ack())
	})
}

func TestPullByKeyHandsOutOnePerKey(t *testing.T) {
	c := bus.StageConfig{Order: bus.ByKey, Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Minute}}
	pullBus(t, c, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
		publish := func(key string, n int) {
			require.NoError(t, s.TryPublish(&bus.Envelope{Key: key, Payload: n}))
		}
		publish("a", 1)
		publish("a", 2)
		publish("b", 3)
		publish("a", 4)
		a := take(t, s)
		require.Equal(t, 1, a.Envelope().Payload)
		other := take(t, s)
		require.Equal(t, 3, other.Envelope().Payload)
		noneLeft(t, s)
		require.NoError(t, other.Ack())
		noneLeft(t, s)
		require.NoError(t, a.Nack(nil))
		noneLeft(t, s) // the retry holds its key
		a, err := s.Receive(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, a.Envelope().Payload)
		require.Equal(t, 2, a.Envelope().Attempt())
		noneLeft(t, s)
		require.NoError(t, a.Ack())
		for _, want := range []int{2, 4} {
			a = take(t, s)
			require.Equal(t, want, a.Envelope().Payload)
			noneLeft(t, s)
			require.NoError(t, a.Ack())
		}
		require.EqualValues(t, 4, bustest.Drain(t, b).Stats.Completed)
	})
}

func TestPullInOrderHandsOutOne(t *testing.T) {
	c := bus.StageConfig{Order: bus.InOrder, Lease: time.Second, Retry: retry.Policy{MaxAttempts: 2}}
	pullBus(t, c, func(t *testing.T, _ *bus.Bus, s *bus.Stage) {
		put(t, s, 1, 2)
		late := take(t, s)
		noneLeft(t, s)
		again, err := s.Receive(t.Context()) // once the lease has lapsed
		require.NoError(t, err)
		require.Equal(t, 1, again.Envelope().Payload)
		require.True(t, again.Envelope().Redelivered())
		require.ErrorIs(t, late.Ack(), bus.ErrLeaseExpired)
		noneLeft(t, s)
		require.NoError(t, again.DeadLetter("enough"))
		l := take(t, s)
		require.Equal(t, 2, l.Envelope().Payload)
		require.NoError(t, l.Ack())
	})
}

// received starts a Receive and returns where its answer comes.
func received(ctx context.Context, s *bus.Stage) chan error {
	answer := make(chan error, 1)
	go func() {
		l, err := s.Receive(ctx)
		if err == nil {
			err = l.Ack()
		}
		answer <- err
	}()
	synctest.Wait()
	return answer
}

func TestReceiversAreWoken(t *testing.T) {
	c := bus.StageConfig{
		Lease: time.Hour, Capacity: 1, MaxOutstanding: 1,
		Retry: retry.Policy{MaxAttempts: 2, Kind: retry.Constant, Base: time.Minute},
	}
	for name, wake := range map[string]func(t *testing.T, b *bus.Bus, s *bus.Stage){
		"by a publish": func(t *testing.T, _ *bus.Bus, s *bus.Stage) { put(t, s, 1) },
		"by a hop": func(t *testing.T, b *bus.Bus, _ *bus.Stage) {
			up, _ := b.Lookup("up")
			require.NoError(t, up.TryPublish(&bus.Envelope{Slip: bus.Via("pull")}))
		},
		"by a later publish": func(t *testing.T, _ *bus.Bus, s *bus.Stage) {
			_, err := s.PublishAfter(t.Context(), time.Minute, &bus.Envelope{})
			require.NoError(t, err)
			time.Sleep(time.Minute)
		},
		"by resume": func(t *testing.T, _ *bus.Bus, s *bus.Stage) {
			s.Suspend(bus.Hold{})
			put(t, s, 1)
			synctest.Wait()
			require.Equal(t, 1, depthOf(s), "suspended: receivers wait")
			noneLeft(t, s)
			require.True(t, s.Resume(""))
		},
		"by the end of a hold": func(t *testing.T, _ *bus.Bus, s *bus.Stage) {
			s.Suspend(bus.Hold{For: time.Second})
			put(t, s, 1)
			time.Sleep(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			pullBus(t, c, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
				bustest.Stage(t, b, "up", bus.StageConfig{}, func(context.Context, *bus.Envelope) error { return nil })
				answer := received(t.Context(), s)
				require.Empty(t, answer)
				wake(t, b, s)
				synctest.Wait()
				require.Len(t, answer, 1)
				require.NoError(t, <-answer)
			})
		})
	}
	t.Run("by retries", func(t *testing.T) {
		pullBus(t, c, func(t *testing.T, _ *bus.Bus, s *bus.Stage) {
			put(t, s, 1)
			l := take(t, s)
			answer := received(t.Context(), s)
			require.NoError(t, l.Nack(nil))
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Len(t, answer, 1)
			require.NoError(t, <-answer)
		})
	})
	t.Run("by a lapsed lease", func(t *testing.T) {
		pullBus(t, c, func(t *testing.T, _ *bus.Bus, s *bus.Stage) {
			put(t, s, 1)
			take(t, s)
			answer := received(t.Context(), s)
			time.Sleep(time.Hour + time.Minute)
			synctest.Wait()
			require.Len(t, answer, 1)
			require.NoError(t, <-answer)
		})
	})
	t.Run("by start", func(t *testing.T) {
		bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
			s := bustest.Stage(t, b, "pull", bus.StageConfig{Pull: true}, nil)
			answer := received(t.Context(), s)
			require.Empty(t, answer)
			bustest.Start(t, b)
			put(t, s, 1)
			require.NoError(t, <-answer)
		})
	})
}

func depthOf(s *bus.Stage) int {
	var st bus.StageStats
	s.ReadStats(&st)
	return st.Depth
}

func TestClosingWakesReceivers(t *testing.T) {
	for name, end := range map[string]func(b *bus.Bus) error{
		"close":    (*bus.Bus).Close,
		"shutdown": func(b *bus.Bus) error { _, err := b.Shutdown(context.Background()); return err },
	} {
		t.Run(name, func(t *testing.T) {
			pullBus(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
				s.Suspend(bus.Hold{})
				var answers []chan error
				for range 5 {
					answers = append(answers, received(t.Context(), s))
				}
				require.NoError(t, end(b))
				for _, a := range answers {
					require.ErrorIs(t, <-a, bus.ErrClosed)
				}
				_, err := s.TryReceive()
				require.ErrorIs(t, err, bus.ErrClosed)
			})
		})
	}
}

// A receiver that was woken and then gives up must not take its wake along.
func TestCanceledReceiverPassesItsWakeOn(t *testing.T) {
	for range 50 {
		pullBus(t, bus.StageConfig{}, func(t *testing.T, _ *bus.Bus, s *bus.Stage) {
			ctx, cancel := context.WithCancel(t.Context())
			first := received(ctx, s)
			second := received(t.Context(), s)
			put(t, s, 1) // wakes the first
			cancel()     // before it has looked
			synctest.Wait()
			if len(first) == 1 {
				if err := <-first; err == nil {
					put(t, s, 2) // it was quicker
				} else {
					require.ErrorIs(t, err, context.Canceled)
				}
			}
			synctest.Wait()
			require.Len(t, second, 1, "the work is there and nobody gets it")
			require.NoError(t, <-second)
		})
	}
}

func TestReceiveWhoseContextEnds(t *testing.T) {
	pullBus(t, bus.StageConfig{}, func(t *testing.T, _ *bus.Bus, s *bus.Stage) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l, err := s.Receive(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Nil(t, l)
		put(t, s, 1)
		_, err = s.Receive(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded, "also when there is something")
		require.NoError(t, take(t, s).Ack())
	})
}

func TestPullHops(t *testing.T) {
	pullBus(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
		gate := bustest.NewGate()
		var got []any
		bustest.Stage(t, b, "next", bus.StageConfig{Capacity: 1, HopTimeout: time.Hour}, gate.Handler(func(_ context.Context, e *bus.Envelope) error {
			got = append(got, e.Payload)
			return nil
		}))
		for i := range 6 {
			require.NoError(t, s.TryPublish(&bus.Envelope{Payload: i, Slip: bus.Via("next")}))
		}
		require.NoError(t, s.TryPublish(&bus.Envelope{Slip: bus.Via("nowhere")}))
		acknowledgeAll := func() (n int) {
			for {
				l, err := s.TryReceive()
				if err != nil {
					return n
				}
				if l.Envelope().Payload == 5 {
					l.Envelope().Payload = "changed"
				}
				require.NoError(t, l.Ack(), "an acknowledged hop never waits")
				n++
				synctest.Wait()
			}
		}
		// One in the handler, one queued, one above capacity, one parked, and
		// the one that goes elsewhere.
		require.Equal(t, 5, acknowledgeAll())
		require.Equal(t, 1, bustest.RequireBalanced(t, b).Stages[0].Parked)
		for range 2 {
			gate.Pass(1)
			time.Sleep(5 * time.Millisecond) // for the watchdog of claims
			synctest.Wait()
			require.Equal(t, 1, acknowledgeAll())
		}
		gate.Open()
		r := bustest.Drain(t, b)
		require.Equal(t, []any{0, 1, 2, 3, 4, "changed"}, got)
		require.EqualValues(t, 6, r.Stats.Completed)
		require.EqualValues(t, 1, r.Stats.DeadLettered)
	})
}

func TestDeadlinesAtReceive(t *testing.T) {
	pullBus(t, bus.StageConfig{}, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
		var ends []bus.Result
		for range 3 {
			e := bus.Envelope{OnDone: func(r bus.Result) { ends = append(ends, r) }}
			e.SetDeadline(time.Now().Add(time.Second))
			require.NoError(t, s.TryPublish(&e))
		}
		put(t, s, "without")
		time.Sleep(time.Minute)
		l := take(t, s)
		require.Equal(t, "without", l.Envelope().Payload)
		require.NoError(t, l.Ack())
		noneLeft(t, s)
		synctest.Wait()
		require.Len(t, ends, 3)
		for _, r := range ends {
			require.Equal(t, bus.Dropped, r.End)
			require.Equal(t, reason.Expired, r.Reason)
		}
		require.EqualValues(t, 1, bustest.RequireBalanced(t, b).Stages[0].Delivered)
	})
}
