// Package arrivals makes open-loop load: arrivals whose times are fixed before
// the run and do not wait for the system under load to keep up.
//
// A schedule is pure data, computed from a rate and a seed or from a recorded
// trace. [Send] plays one against the clock.
package arrivals

import (
	"context"
	"iter"
	"math"
	"math/rand/v2"
	"time"

	"github.com/sedabus/seda/cmd/sedactl/internal/trace"
)

// Arrival is one piece of work that arrives.
type Arrival struct {
	At   time.Duration // since the start of the schedule
	Work time.Duration // how long serving it takes, 0 or more
}

// Schedule yields arrivals in the order of their times. It can be ranged over
// more than once and yields the same each time.
type Schedule = iter.Seq[Arrival]

// Poisson returns a schedule of independent arrivals: exponential gaps of mean
// 1/rate, for the length given. The service times are drawn evenly from half of
// mean to one and a half times mean. The same seed gives the same schedule. A
// rate (per second) or length that is not above zero gives an empty schedule.
func Poisson(rate float64, length, mean time.Duration, seed uint64) Schedule {
	return func(yield func(Arrival) bool) {
		if !(rate > 0) || length <= 0 {
			return
		}
		gaps, works := source(seed, 1), source(seed, 2)
		end := length.Seconds()
		for at := gaps.ExpFloat64() / rate; at < end; at += gaps.ExpFloat64() / rate {
			a := Arrival{At: time.Duration(at * float64(time.Second)), Work: even(works, mean)}
			if !yield(a) {
				return
			}
		}
	}
}

// Works yields service times without end, drawn as [Poisson] draws them.
func Works(mean time.Duration, seed uint64) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for r := source(seed, 2); yield(even(r, mean)); {
		}
	}
}

// source returns the stream of random numbers of that name: gaps and service
// times come from streams of their own, so that neither moves the other.
func source(seed, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, stream))
}

// even keeps the mean and, unlike an exponential draw, little variance: a short
// calibration then finds the capacity to about one per cent.
func even(r *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration((0.5 + r.Float64()) * float64(mean))
}

// Recorded returns the schedule of a trace's rows, speed times faster than it
// was recorded, beginning with the first row at 0. Each generated token takes
// perToken to serve, which must not be above [MaxPerToken]. Rows must be sorted
// by time. A speed that is not above zero counts as 1.
func Recorded(rows []trace.Row, speed float64, perToken time.Duration) Schedule {
	if !(speed > 0) {
		speed = 1
	}
	return func(yield func(Arrival) bool) {
		for i := range rows {
			since := rows[i].At.Sub(rows[0].At)
			a := Arrival{
				At:   bounded(float64(since)/speed, math.MaxInt64),
				Work: time.Duration(rows[i].Generated) * perToken,
			}
			if !yield(a) {
				return
			}
		}
	}
}

// PerToken returns the service time of one token with which a trace, played
// speed times faster, loads servers handlers by load: 1 is as much work as they
// can do in the time the trace takes. It is at most [MaxPerToken], and 0 when
// the trace has no length or no tokens.
func PerToken(t *trace.Trace, speed, load float64, servers int) time.Duration {
	tokens := t.Generated()
	if tokens == 0 {
		return 0
	}
	per := load * float64(servers) * float64(t.Span()) / speed / float64(tokens)
	return bounded(per, MaxPerToken)
}

// MaxPerToken bounds the service time of a token, so that the time of a row
// cannot overflow: 9.2 s.
const MaxPerToken = math.MaxInt64 / trace.MaxTokens * time.Nanosecond

// bounded converts ns, which is not negative, and cuts it at most.
func bounded(ns float64, most time.Duration) time.Duration {
	if ns >= float64(most) {
		return most
	}
	return time.Duration(ns)
}

// Sent is what [Send] did.
type Sent struct {
	Count  int
	MaxLag time.Duration // the latest that an arrival was sent after its time
}

// Send plays a schedule that begins at start: it calls send for each arrival,
// on the calling goroutine, not before its time. Timers cannot pace gaps much
// below a millisecond, so each wake-up sends everything that is due; due, the
// time at which the arrival was meant, is the one to count latency from. send
// must not wait. Send returns when the schedule is over or ctx ends.
func Send(ctx context.Context, s Schedule, start time.Time, send func(a Arrival, due time.Time)) Sent {
	var sent Sent
	now := time.Since(start)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for a := range s {
		// The clock is read only when the last reading does not say that the
		// arrival is due: a burst costs one reading.
		if now < a.At {
			now = time.Since(start)
		}
		for now < a.At {
			timer.Reset(a.At - now)
			select {
			case <-ctx.Done():
				return sent
			case <-timer.C:
			}
			now = time.Since(start)
		}
		// A generator that cannot keep up never waits above, so it must look here.
		if sent.Count&63 == 0 && ctx.Err() != nil {
			return sent
		}
		sent.MaxLag = max(sent.MaxLag, now-a.At)
		send(a, start.Add(a.At))
		sent.Count++
	}
	return sent
}

// Until returns the part of a schedule before end.
func Until(s Schedule, end time.Duration) Schedule {
	return func(yield func(Arrival) bool) {
		for a := range s {
			if a.At >= end || !yield(a) {
				return
			}
		}
	}
}
