package sim

import (
	"math"
	"time"
)

// Streams of random numbers of a job; the number of the stage and attempt is
// added to the last.
const (
	streamClass = iota + 1
	streamSender
	streamTight
	streamArrival
	streamRetry
	streamService = 1 << 32
)

// mix is the finaliser of the splitmix64 generator (Steele, Lea and Flood,
// "Fast splittable pseudorandom number generators", 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unit returns a number from the open interval (0, 1) that depends on the seed,
// the stream and the job only.
func unit(seed, stream uint64, id int) float64 {
	x := mix(mix(mix(seed)+stream) + uint64(id))
	return (float64(x>>11) + .5) / (1 << 53)
}

// arrivals walks through a schedule.
type arrivals struct {
	spec  *Spec
	seed  uint64
	rate  float64 // at load 1
	at    time.Duration
	from  time.Duration // of the current piece
	piece int
	n     int // jobs so far
	left  int // of the batch
}

func newArrivals(s *Spec, seed uint64) *arrivals {
	return &arrivals{spec: s, seed: seed, rate: s.Bottleneck()}
}

// next returns when the next job arrives; false at the end of the schedule.
func (a *arrivals) next() (time.Duration, bool) {
	if a.spec.Times != nil {
		if a.n == len(a.spec.Times) {
			return 0, false
		}
		a.n++
		return a.spec.Times[a.n-1], true
	}
	if a.left > 0 {
		a.left--
		a.n++
		return a.at, true
	}
	batch := max(1, a.spec.Batch)
	if !a.advance(-math.Log(unit(a.seed, streamArrival, a.n)) * float64(batch)) {
		return 0, false
	}
	a.left = batch - 1
	a.n++
	return a.at, true
}

// advance moves on until need jobs were due by the schedule.
func (a *arrivals) advance(need float64) bool {
	for ; a.piece < len(a.spec.Load); a.piece++ {
		p := &a.spec.Load[a.piece]
		slope := (p.To - p.From) * a.rate / (p.Until - a.from).Seconds()
		now := p.From*a.rate + slope*(a.at-a.from).Seconds()
		end := p.To * a.rate
		if due := (now + end) / 2 * (p.Until - a.at).Seconds(); need > due {
			need -= due
			a.at, a.from = p.Until, p.Until
			continue
		}
		var dt float64
		if math.Abs(slope) < 1e-9*a.rate {
			dt = need / now
		} else {
			dt = (math.Sqrt(now*now+2*slope*need) - now) / slope
		}
		a.at = min(p.Until, a.at+time.Duration(dt*1e9))
		return true
	}
	return false
}
