package shedder_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shedder"
)

// Whatever the settings are, they are refused with an error that says so, or
// the shedder works.
func FuzzConfig(f *testing.F) {
	f.Add("api", uint8(0), 4, 2, 10.0, int64(1000), 0.5, int64(1000), 1, 2.0, 8, 0.5)
	f.Add("a b", uint8(3), -1, -1, math.NaN(), int64(-1), math.Inf(1), int64(-1), 8, math.NaN(), -1, -1.0)
	f.Add("", uint8(1), 1<<20, math.MaxInt, math.MaxFloat64, int64(math.MaxInt64), 1e-300, int64(1), 7, 1000.0, 1000000, 1000.0)
	f.Fuzz(func(t *testing.T, name string, mode uint8, concurrency, floor int, rate float64, target int64, share float64,
		baseline int64, exempt int, factor float64, jobs int, spend float64,
	) {
		c := shedder.Config{
			Name: name, Mode: shedder.Mode(mode), Concurrency: concurrency,
			Adaptive: shedder.AdaptiveConfig{TargetFactor: factor, FloorJobs: jobs, Spend: spend},
			Guards: shedder.Guards{
				FloorInFlight: floor, FloorRate: rate, MaxTarget: time.Duration(target), MaxShare: share,
				Baseline: time.Duration(baseline), Exempt: []int{exempt},
			},
		}
		s, err := shedder.New(c)
		if err != nil {
			require.ErrorIs(t, err, shedder.ErrInvalid)
			require.Nil(t, s)
			s = newShedder(t, shedder.Config{})
			before := s.Config()
			require.Error(t, s.Tune(func(now *shedder.Config) { *now = c }))
			require.Equal(t, before, s.Config())
			return
		}
		require.Equal(t, c, s.Config())
		l := shedder.Load{Waiting: 3, Ahead: 3, Busy: 1, Concurrency: 1}
		for i, now := range []time.Duration{0, 1, time.Second, time.Hour, -1, math.MaxInt64, math.MinInt64, 5} {
			s.Done(&shedder.Done{Now: now, N: 1 + i*10, Service: time.Duration(i) << (6 * i), Shortest: now, Longest: now, Wait: now, Load: l})
			r := &shedder.Request{Now: now, Deadline: -now, Share: rate, Class: exempt, Load: l}
			if s.Decide(r).Action != shedder.Refuse {
				s.Undo(r)
			}
			s.Overloaded(now)
			s.Doomed(now, -now)
			require.GreaterOrEqual(t, s.Bound(), 0)
			require.GreaterOrEqual(t, s.Unit(), 10*milli)
		}
		st := s.State(math.MinInt64)
		requireAccount(t, st)
		require.Zero(t, st.Panics, "%s", st.LastPanic)
		p, err := s.AllowRequest(shedder.Request{Class: exempt, Classes: jobs, Share: share})
		if err == nil {
			p.Pass()
		} else {
			require.NotEmpty(t, err.Error())
		}
		requireAccount(t, s.State(s.Now()))
	})
}

// Each byte is a call. A plain count of what is out is the model.
func FuzzSequence(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	f.Add([]byte{0, 0, 0, 0, 16, 16, 1, 17, 1, 1, 33, 0, 49, 50, 2, 2, 3, 3, 1, 1, 1})
	f.Add([]byte{7, 23, 0, 39, 0, 6, 6, 4, 5, 0, 20, 36, 52, 1, 1})
	f.Fuzz(func(t *testing.T, calls []byte) {
		fixed, err := shedder.NewFixed(6)
		require.NoError(t, err)
		s := newShedder(t, shedder.Config{Policy: fixed, Concurrency: 2})
		var open, closed []shedder.Promise
		var twice, settled, shed uint64
		over, cancel := context.WithCancel(context.Background())
		cancel()
		for _, c := range calls[:min(len(calls), 500)] {
			arg := int(c >> 3)
			switch c & 7 {
			case 0:
				p, err := s.AllowRequest(shedder.Request{Class: arg % 8, Classes: 8})
				if err == nil {
					open = append(open, p)
				} else {
					require.ErrorIs(t, err, shedder.ErrShed)
					shed++
				}
			case 1, 2, 3:
				if len(open) > 0 {
					i := arg % len(open)
					[]func(shedder.Promise){shedder.Promise.Pass, shedder.Promise.Fail, shedder.Promise.Drop}[c&7-1](open[i])
					closed = append(closed, open[i])
					open = append(open[:i], open[i+1:]...)
					settled++
				}
			case 4:
				if len(closed) > 0 {
					closed[arg%len(closed)].Done(nil)
					twice++
				}
			case 5:
				require.NoError(t, s.Tune(func(c *shedder.Config) { c.Concurrency = 1 + arg%5 }))
			case 6:
				_, err := s.Acquire(over, shedder.Request{})
				require.ErrorIs(t, err, context.Canceled)
			case 7:
				// Its deadline passes before or while it waits, if it has to.
				p, err := s.Acquire(context.Background(), shedder.Request{Deadline: s.Now() + 1000})
				switch {
				case err == nil:
					open = append(open, p)
				case errors.Is(err, shedder.ErrShed):
					shed++
				default:
					require.ErrorIs(t, err, shedder.ErrDeadline)
				}
			}
			require.NoError(t, s.CheckSlots())
		}
		st := s.State(s.Now())
		requireAccount(t, st)
		require.Len(t, open, st.Promises.Outstanding)
		require.Equal(t, twice, st.Promises.Twice)
		require.Equal(t, settled, st.Promises.Settled)
		require.Equal(t, shed, st.Shed)
		require.LessOrEqual(t, st.Promises.Outstanding, 6)
	})
}
