package bus_test

import (
	"context"
	"errors"
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
	"github.com/sedabus/seda/shedder"
)

// Publishers that wait for room in the first stage are not at the door of the
// stages behind it.
func TestWhoWaitsForRoomIsNotAtTheDoorOfLaterStages(t *testing.T) {
	for _, journal := range []bool{false, true} {
		c := bus.Config{}
		if journal {
			c.Journal = &logbook{}
		}
		bustest.Run(t, c, func(t *testing.T, b *bus.Bus) {
			gate := bustest.NewGate()
			policy := &asked{}
			a := bustest.Stage(t, b, "a", bus.StageConfig{Capacity: 1}, gate.Handler(nil))
			s := bustest.Stage(t, b, "s", bus.StageConfig{Shedder: shell(t, policy)}, acknowledge)
			bustest.Start(t, b)
			for range 12 {
				go func() { _ = a.Publish(context.Background(), &bus.Envelope{Slip: bus.Via("s")}) }()
				synctest.Wait()
			}
			require.Equal(t, 10, readStage(a).Waiters)
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
			last := policy.asks[len(policy.asks)-1]
			require.Zero(t, last.Waiting, "s is idle, and will be for as long as a stands still")
			gate.Open()
			synctest.Wait()
			require.Zero(t, policy.undone)
			require.EqualValues(t, 13, bustest.RequireBalanced(t, b).Completed)
		})
	}
}

// A shedder that only observes, or is killed, changes nothing.
func TestObserveLeavesRetriesAlone(t *testing.T) {
	for name, off := range map[string]func(*bus.Bus, *shedder.Shedder) error{
		"observe": func(_ *bus.Bus, s *shedder.Shedder) error {
			return s.Tune(func(c *shedder.Config) { c.Mode = shedder.Observe })
		},
		"off": func(_ *bus.Bus, s *shedder.Shedder) error {
			return s.Tune(func(c *shedder.Config) { c.Mode = shedder.Off })
		},
		"killed": func(b *bus.Bus, _ *shedder.Shedder) error { b.SetShedding(false); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				c := bus.StageConfig{Shedder: shedder.Default(""), Retry: retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: time.Second}}
				s := bustest.Stage(t, b, "s", c, func(_ context.Context, e *bus.Envelope) error {
					time.Sleep(time.Millisecond)
					if e.Attempt() == 1 {
						return errFails
					}
					return nil
				})
				require.NoError(t, off(b, s.Shedder()))
				bustest.Start(t, b)
				for range 50 {
					require.NoError(t, s.TryPublish(&bus.Envelope{}))
				}
				time.Sleep(time.Minute)
				st := bustest.RequireBalanced(t, b)
				require.EqualValues(t, 50, st.Completed, "letters: %d", st.DeadLettered)
			})
		})
	}
}

// Room that comes back by other ways than a start does not let more hops in
// than the bound allows.
func TestHopsStopAtTheBoundWhenOtherRoomComes(t *testing.T) {
	const bound, delayed = 5, 30
	ways := map[string]func(t *testing.T, c *bus.Stage){
		"delayed work is cancelled": func(_ *testing.T, c *bus.Stage) {
			for _, d := range c.Delayed() {
				c.CancelDelayed(d.ID)
			}
		},
		"the capacity grows": func(t *testing.T, c *bus.Stage) {
			t.Helper()
			require.NoError(t, c.Tune(func(s *bus.StageConfig) { s.Capacity *= 2 }))
		},
		"the capacity shrinks": func(t *testing.T, c *bus.Stage) {
			t.Helper()
			require.NoError(t, c.Tune(func(s *bus.StageConfig) { s.Capacity = 2 * delayed }))
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
				gate := bustest.NewGate()
				next := waitsAtMost(1 << 20)
				next.bound = bound
				a := bustest.Stage(t, b, "a", bus.StageConfig{Concurrency: 64}, acknowledge)
				c := bustest.Stage(t, b, "c", bus.StageConfig{Shedder: shell(t, next)}, gate.Handler(nil))
				bustest.Start(t, b)
				for range delayed {
					_, err := c.PublishAfter(t.Context(), time.Hour, &bus.Envelope{})
					require.NoError(t, err)
				}
				for range 60 {
					require.NoError(t, a.TryPublish(&bus.Envelope{Slip: bus.Via("c")}))
				}
				synctest.Wait()
				before := readStage(c)
				require.LessOrEqual(t, before.Depth-before.Delayed, bound+1)
				way(t, c)
				synctest.Wait()
				st := readStage(c)
				require.LessOrEqual(t, st.Depth-st.Delayed, bound+1, "the bound, and the place above it")
				gate.Open()
				time.Sleep(2 * time.Hour)
				require.Zero(t, bustest.RequireBalanced(t, b).Pending)
			})
		})
	}
}

// Envelopes of a stage that were parked elsewhere give their places back
// without letting more hops in than the bound allows.
func TestHopsStopAtTheBoundWhenParkedOnesLeave(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		const bound, parked = 5, 30
		next := waitsAtMost(1 << 20)
		next.bound = bound
		a := bustest.Stage(t, b, "a", bus.StageConfig{Concurrency: 64}, acknowledge)
		c := bustest.Stage(t, b, "c", bus.StageConfig{Shedder: shell(t, next), Concurrency: 1, EgressCap: parked}, acknowledge)
		last := bustest.Stage(t, b, "last", bus.StageConfig{Capacity: 1}, acknowledge)
		bustest.Start(t, b)
		last.Suspend(bus.Hold{})
		for range 80 {
			require.NoError(t, a.TryPublish(&bus.Envelope{Slip: bus.Via("c", "last")}))
		}
		synctest.Wait()
		st := readStage(c)
		require.GreaterOrEqual(t, st.Parked, parked-2)
		require.LessOrEqual(t, st.Depth-st.Parked, bound+1)
		require.NoError(t, c.Tune(func(s *bus.StageConfig) { s.EgressCap = 1 }))
		require.NoError(t, last.Tune(func(s *bus.StageConfig) { s.Capacity = parked - 5 }))
		synctest.Wait()
		st = readStage(c)
		require.LessOrEqual(t, st.Depth-st.Parked, bound+1, "the bound, and the place above it")
		last.Resume("")
		synctest.Wait()
		require.Zero(t, bustest.RequireBalanced(t, b).Pending)
	})
}

// What waits in a suspended stage says nothing about overload: hops go in up to
// the capacity.
func TestHopsGoIntoASuspendedStage(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		next := waitsAtMost(1 << 20)
		next.bound = 5
		a := bustest.Stage(t, b, "a", bus.StageConfig{}, acknowledge)
		c := bustest.Stage(t, b, "c", bus.StageConfig{Shedder: shell(t, next)}, acknowledge)
		bustest.Start(t, b)
		c.Suspend(bus.Hold{})
		for range 40 {
			require.NoError(t, a.TryPublish(&bus.Envelope{Slip: bus.Via("c")}))
		}
		time.Sleep(time.Minute)
		require.Equal(t, 40, readStage(c).Depth)
		c.Resume("")
		synctest.Wait()
		require.EqualValues(t, 40, bustest.RequireBalanced(t, b).Completed)
	})
}

// The kill switch lets hops that wait at a bound in before it returns.
func TestTheKillSwitchLetsParkedHopsIn(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		next := waitsAtMost(1 << 20)
		next.bound = 5
		a := bustest.Stage(t, b, "a", bus.StageConfig{}, acknowledge)
		bustest.Stage(t, b, "c", bus.StageConfig{Shedder: shell(t, next)}, gate.Handler(nil))
		bustest.Start(t, b)
		for range 40 {
			require.NoError(t, a.TryPublish(&bus.Envelope{Slip: bus.Via("c")}))
		}
		synctest.Wait()
		require.Positive(t, readStage(a).Depth)
		b.SetShedding(false)
		synctest.Wait()
		require.Zero(t, readStage(a).Depth, "the handler of c has not returned meanwhile")
		gate.Open()
	})
}

// Classes that are exempt from shedding are not pushed out.
func TestExemptClassesAreNotPushedOut(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		gate := bustest.NewGate()
		sh, err := shedder.New(shedder.Config{Policy: waitsAtMost(2), Guards: shedder.Guards{Exempt: []int{2}}})
		require.NoError(t, err)
		classes := []bus.Class{{Name: "high"}, {Name: "mid"}, {Name: "low"}}
		s := bustest.Stage(t, b, "s", bus.StageConfig{Classes: classes, Shedder: sh}, gate.Handler(nil))
		bustest.Start(t, b)
		var ends endLog
		put := func(class string, n int) error {
			return s.TryPublish(&bus.Envelope{Payload: n, OnDone: ends.done, Meta: &bus.Meta{Class: class}})
		}
		require.NoError(t, put("low", 0)) // goes into the handler
		synctest.Wait()
		require.NoError(t, put("mid", 1))
		require.NoError(t, put("low", 2))
		require.NoError(t, put("high", 3), "takes the place of 1, not of 2")
		require.ErrorIs(t, put("high", 4), bus.ErrShed, "nothing can be pushed out any more")
		synctest.Wait()
		st := readStage(s)
		require.EqualValues(t, 1, st.Dropped[reason.PushedOut])
		gate.Open()
		synctest.Wait()
		require.EqualValues(t, 3, bustest.RequireBalanced(t, b).Completed)
	})
}

// An itinerary that comes to a stage twice is not in its own way.
func TestAnItineraryDoesNotCountItself(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Shedder: shell(t, waitsAtMost(1))}, acknowledge)
		bustest.Start(t, b)
		require.NoError(t, s.TryPublish(&bus.Envelope{Slip: bus.Via("s", "s")}))
		synctest.Wait()
		require.EqualValues(t, 1, bustest.RequireBalanced(t, b).Completed)
	})
}

// A refusal says what to do, and shows no figures that it does not have.
func TestShedErrorsSayWhatToDo(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		a := &asked{}
		s := bustest.Stage(t, b, "s", bus.StageConfig{Shedder: shell(t, a)}, acknowledge)
		bustest.Start(t, b)
		a.verdict = shedder.Verdict{Action: shedder.Refuse, Rule: "mine"}
		require.EqualError(t, s.TryPublish(&bus.Envelope{}), `bus: stage "s" refused (shed) by rule "mine"; publish less or raise Concurrency, see Stage.ShedderState`)
		a.verdict = shedder.Verdict{Action: shedder.Refuse, Rule: "late", Reason: reason.ShedDeadline, Limit: 10, Value: 20, RetryAfter: time.Second}
		require.EqualError(t, s.TryPublish(&bus.Envelope{}),
			`bus: stage "s" refused (shed_deadline) by rule "late": 20 against the limit 10, retry after 1s; allow more time, publish less or raise Concurrency, see Stage.ShedderState`)
		a.verdict = shedder.Verdict{Action: shedder.Refuse, Rule: "other", Reason: reason.NoCredit, Limit: 10, Value: 20}
		var r *bus.RejectedError
		err := s.TryPublish(&bus.Envelope{})
		require.True(t, errors.As(err, &r))
		require.Contains(t, err.Error(), `rule "other": 20 against the limit 10`)
	})
}

// Predictions without sense do not break the sum along the way.
func TestAbsurdPredictionsStayInBounds(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		first, last := &asked{}, &asked{}
		s := bustest.Stage(t, b, "s", bus.StageConfig{Shedder: shell(t, first)}, acknowledge)
		bustest.Stage(t, b, "t", bus.StageConfig{Shedder: shell(t, last)}, acknowledge)
		bustest.Start(t, b)
		for _, d := range []time.Duration{1<<63 - 1, 1 << 62, -1 << 63, -1} {
			first.verdict = shedder.Verdict{Wait: d, Service: d}
			require.NoError(t, s.TryPublish(&bus.Envelope{Slip: bus.Via("s", "s", "t")}))
			require.GreaterOrEqual(t, last.asks[len(last.asks)-1].Transit, time.Duration(0), "%d", d)
		}
		first.verdict = shedder.Verdict{}
		require.NoError(t, s.TryPublish(&bus.Envelope{Slip: bus.Via("t")}))
		r := last.asks[len(last.asks)-1]
		require.LessOrEqual(t, r.Inbound, 2)
	})
}

// quitter is a policy that ends the goroutine that asks it.
type quitter struct {
	shedder.Passive

	admit, done atomic.Bool
}

func (q *quitter) Admit(*shedder.Request) shedder.Verdict {
	if q.admit.Load() {
		runtime.Goexit()
	}
	return shedder.Verdict{}
}

func (q *quitter) Done(*shedder.Done) {
	if q.done.Load() {
		runtime.Goexit()
	}
}

// A policy that calls Goexit ends the publisher's goroutine, but leaves nothing
// behind at the doors.
func TestAPolicyThatCallsGoexitLeavesNothingAtTheDoors(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		first, last := &asked{}, &quitter{}
		s := bustest.Stage(t, b, "s", bus.StageConfig{Shedder: shell(t, first)}, acknowledge)
		bustest.Stage(t, b, "t", bus.StageConfig{Shedder: shell(t, last)}, acknowledge)
		bustest.Start(t, b)
		last.admit.Store(true)
		for range 5 {
			go func() { _ = s.TryPublish(&bus.Envelope{Slip: bus.Via("t")}) }()
			synctest.Wait()
		}
		last.admit.Store(false)
		require.NoError(t, s.TryPublish(&bus.Envelope{Slip: bus.Via("t")}))
		require.Zero(t, first.asks[5].Waiting)
		require.Equal(t, 5, first.undone)
	})
}

// A policy that calls Goexit when it is told of ended work does not keep the
// stage busy with that, and loses no work.
func TestAPolicyThatCallsGoexitWhenToldLosesNoWork(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		q := &quitter{}
		s := bustest.Stage(t, b, "s", bus.StageConfig{Shedder: shell(t, q)}, acknowledge)
		bustest.Start(t, b)
		q.done.Store(true)
		for range 20 {
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
		}
		synctest.Wait()
		require.EqualValues(t, 20, bustest.RequireBalanced(t, b).Completed)
	})
}

// Work that was dropped at its start did not fail.
func TestDoomedWorkDoesNotCountAsFailed(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		a := &asked{}
		s := bustest.Stage(t, b, "s", bus.StageConfig{Shedder: shell(t, a), Batch: 8}, acknowledge)
		bustest.Start(t, b)
		s.Suspend(bus.Hold{})
		for i := range 8 {
			e := &bus.Envelope{}
			if i%2 == 0 {
				e.SetDeadline(time.Now().Add(time.Second))
			}
			require.NoError(t, s.TryPublish(e))
		}
		time.Sleep(2 * time.Second)
		s.Resume("")
		synctest.Wait()
		n := 0
		for _, d := range a.done {
			n += d.N
			require.Zero(t, d.Failed)
		}
		require.Equal(t, 4, n)
	})
}

// A failure that is not retried asks nobody for leave.
func TestShedInsideIsNotAskedForTheLastFailure(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		a := &asked{}
		c := bus.StageConfig{Shedder: shell(t, a), ShedInside: true, Retry: retry.Policy{MaxAttempts: 3}}
		s := bustest.Stage(t, b, "s", c, func(context.Context, *bus.Envelope) error { return errFails })
		bustest.Start(t, b)
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		synctest.Wait()
		require.Len(t, a.asks, 3, "at the door and for two retries")
		require.EqualValues(t, 1, bustest.RequireBalanced(t, b).DeadLettered)
	})
}

// Starting the high-water marks anew does not tell the shedder that fewer
// consume.
func TestResetMarksDoesNotReachTheShedder(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		a := &asked{}
		s := bustest.Stage(t, b, "s", bus.StageConfig{Shedder: shell(t, a), Pull: true}, nil)
		bustest.Start(t, b)
		for range 4 {
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
		}
		var out [4]*bus.Lease
		n, err := s.ReceiveBatch(t.Context(), out[:])
		require.NoError(t, err)
		require.Equal(t, 4, n)
		for _, l := range out {
			require.NoError(t, l.Ack())
		}
		s.ResetMarks()
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		require.Equal(t, 4, a.asks[4].Concurrency)
		l, err := s.TryReceive()
		require.NoError(t, err)
		require.NoError(t, l.Ack())
	})
}

// What follows a retry of its key waits for that, not for a handler: it does not
// keep other keys out.
func TestFollowersOfARetryDoNotCountAsWaiting(t *testing.T) {
	for _, pull := range []bool{false, true} {
		bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
			a := &asked{}
			c := bus.StageConfig{
				Shedder: shell(t, a), Order: bus.ByKey, Pull: pull, Concurrency: 4,
				Retry: retry.Policy{MaxAttempts: 3, Kind: retry.Constant, Base: time.Hour, Budget: 1000},
			}
			h := func(_ context.Context, e *bus.Envelope) error {
				if e.Key == "bad" && e.Attempt() == 1 {
					return errFails
				}
				return nil
			}
			if pull {
				h = nil
			}
			s := bustest.Stage(t, b, "s", c, h)
			bustest.Start(t, b)
			work := func() {
				for pull {
					l, err := s.TryReceive()
					if err != nil {
						break
					}
					if e := l.Envelope(); e.Key == "bad" && e.Attempt() == 1 {
						require.NoError(t, l.Nack(nil))
					} else {
						require.NoError(t, l.Ack())
					}
				}
				synctest.Wait()
			}
			for range 20 {
				require.NoError(t, s.TryPublish(&bus.Envelope{Key: "bad"}))
				work()
			}
			require.NoError(t, s.TryPublish(&bus.Envelope{Key: "good"}))
			work()
			require.Zero(t, a.asks[20].Waiting)
			require.EqualValues(t, 1, readStage(s).Completed)
			for range 21 { // each of them fails once and waits an hour
				time.Sleep(2 * time.Hour)
				work()
				require.NoError(t, s.TryPublish(&bus.Envelope{Key: "good"}))
				require.Zero(t, a.asks[len(a.asks)-1].Waiting)
				work()
			}
			require.EqualValues(t, 42, bustest.RequireBalanced(t, b).Completed)
		})
	}
}

// The bus's limit of handlers bounds what a stage can do, too.
func TestShedderIsToldOfTheBusLimit(t *testing.T) {
	bustest.Run(t, bus.Config{MaxHandlers: 4}, func(t *testing.T, b *bus.Bus) {
		a := &asked{}
		s := bustest.Stage(t, b, "s", bus.StageConfig{Shedder: shell(t, a), Concurrency: 64}, acknowledge)
		bustest.Start(t, b)
		for i, limit := range []int{4, 100, 2, 0} {
			if i > 0 {
				require.NoError(t, b.Tune(func(c *bus.Config) { c.MaxHandlers = limit }))
			}
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
			require.Equal(t, map[int]int{4: 4, 100: 64, 2: 2, 0: 64}[limit], a.asks[i].Concurrency)
		}
	})
}
