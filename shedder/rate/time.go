package rate

import (
	"math"
	"time"
)

const (
	// maxStep bounds how far one step of the given clock counts, 13 days. A
	// bucket that takes longer to fill fills slower across a longer pause.
	maxStep = time.Duration(1 << 50)
	// lastTime leaves room for a step; a clock that gets there starts again.
	lastTime = time.Duration(math.MaxInt64) - 2*maxStep
)

// steps is a clock that only goes forward, made of one that may do anything: it
// adds up the forward steps. Token buckets that are told of an earlier time
// would count the way back to the later one twice.
type steps struct {
	given   time.Duration // as told last
	sum     time.Duration
	started bool
}

// step goes on to now, and says whether the clock had to start again.
func (s *steps) step(now time.Duration) (restarted bool) {
	if s.started && now > s.given {
		d := now - s.given
		if d < 0 || d > maxStep { // below 0: too far for a Duration
			d = maxStep
		}
		s.sum += d
	}
	s.given, s.started = now, true
	if s.sum > lastTime {
		s.sum = 0
		return true
	}
	return false
}

// at returns the time as the token buckets take it.
func (s *steps) at() time.Time { return time.Unix(0, int64(s.sum)) }

// meter estimates events a second: those of the current second, and the part of
// those of the second before that lies within one second from now.
type meter struct {
	start       int64 // of the current second, in nanoseconds
	count, last uint32
}

func (m *meter) add(now time.Time) {
	m.move(now)
	if m.count < math.MaxUint32 {
		m.count++
	}
}

func (m *meter) move(now time.Time) {
	switch d := now.UnixNano() - m.start; {
	case d < 0 || d >= int64(2*time.Second):
		*m = meter{start: now.UnixNano()}
	case d >= int64(time.Second):
		*m = meter{start: m.start + int64(time.Second), last: m.count}
	}
}

func (m *meter) perSecond(now time.Time) float64 {
	m.move(now)
	part := float64(now.UnixNano()-m.start) / float64(time.Second)
	return float64(m.count) + float64(m.last)*(1-part)
}
