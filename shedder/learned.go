package shedder

import (
	"math"
	"time"
)

const (
	leastUnit = 10 * time.Millisecond
	unitMeans = 10 // mean service times in a unit
	learnSpan = 64 // units of work over which the mean moves
	spans     = 8  // units of time for which a short service time is remembered
)

// learned is what the shell itself knows of service times: for Doomed and Unit,
// whatever the policy measures.
type learned struct {
	mean  float64 // ns; 0 is unknown
	units int     // that the mean is made of, up to learnSpan
	unit  time.Duration

	// The shortest in each of the last units of time; the current one is at cur,
	// since at; others is the shortest of the rest.
	least  [spans]time.Duration
	others time.Duration
	cur    int
	at     time.Duration
}

const unseen = time.Duration(math.MaxInt64)

func (l *learned) reset() {
	*l = learned{others: unseen, unit: leastUnit}
	for i := range l.least {
		l.least[i] = unseen
	}
}

// add takes in what ended.
func (l *learned) add(d *Done) {
	l.advance(d.Now)
	l.least[l.cur] = min(l.least[l.cur], max(0, d.Shortest))
	if d.Service < 0 {
		return
	}
	if d.N == 1 && l.units == learnSpan { // the common case, without a division
		l.mean += (float64(d.Service) - l.mean) * (1. / learnSpan)
	} else {
		l.units = min(learnSpan, l.units+min(d.N, learnSpan))
		l.mean += (float64(d.Service)/float64(d.N) - l.mean) * min(1, float64(d.N)/float64(l.units))
	}
	// Ten means, but at most an hour.
	l.unit = max(leastUnit, time.Duration(min(unitMeans*l.mean, float64(time.Hour))))
}

// advance makes the current span that of now.
func (l *learned) advance(now time.Duration) {
	passed := now - l.at
	if passed < 0 { // the clock jumped
		l.at = now
		return
	}
	if passed < l.unit {
		return
	}
	l.at += passed - passed%l.unit
	for range min(passed/l.unit, spans) {
		l.cur = (l.cur + 1) % spans
		l.least[l.cur] = unseen
	}
	l.others = unseen
	for i, d := range l.least {
		if i != l.cur {
			l.others = min(l.others, d)
		}
	}
}

// shortest is 0 while nothing was seen.
func (l *learned) shortest() time.Duration {
	d := min(l.least[l.cur], l.others)
	if d == unseen {
		return 0
	}
	return d
}
