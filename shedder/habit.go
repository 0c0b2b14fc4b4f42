package shedder

import "time"

// habit is how much is usually asked for, over a memory much longer than that
// of the demand and of idle times too: a long queue is chance where the stage is
// busy most of the time, and news where it is not.
type habit struct {
	asked float64 // decayed: requests since from
	from  time.Duration
}

// habitPrior is how many units that could be done and were not asked for are
// taken as seen.
const habitPrior = 100

// load returns the part of supply, in units a nanosecond, that was asked for.
func (h *habit) load(now time.Duration, supply float64) float64 {
	return h.asked / (float64(max(now-h.from, 0))*supply + habitPrior)
}

// forget shortens the memory to the time in which memory units could be done.
func (h *habit) forget(now time.Duration, supply, memory float64) {
	if gone := float64(now-h.from) * supply; gone > memory {
		h.asked *= memory / gone
		h.from = now - toDuration(memory/supply)
	}
}

// restart begins with no memory, for when the clock jumped.
func (h *habit) restart(now time.Duration) { h.asked, h.from = 0, now }
