package drain

import "math"

const (
	// ServiceWindow is how many completions a worker the service time is estimated
	// from, and ServiceFloor the least in all.
	ServiceWindow = 4
	// ServiceFloor see ServiceWindow.
	ServiceFloor = 32
	// DepartureWindow is the same for the saturated departure rate.
	DepartureWindow = 16
	// DepartureFloor see DepartureWindow.
	DepartureFloor = 256
	// Outlier is the longest interval between departures that is believed, in
	// expected ones: in a longer one the machine stood still.
	Outlier = 16
	// Chance is how many standard deviations of a mean are taken for chance.
	Chance = 2
	// Warm is how many units must have ended, beyond the number of workers, before
	// the estimates are used.
	Warm = 8
)

// Noise returns by what part a mean of n service times may be off by chance,
// with that many standard deviations.
func (s *Service) Noise(deviations, n float64) float64 {
	return deviations * math.Sqrt(s.Variation()/n)
}

// Usual returns the service time to count waits in: mean while it is above the
// long-term one by no more than the part that chance explains, and the further
// above it is, the more of the long-term one. Who waits is used to that, and a
// stage whose dependency got slow has no more time than before.
func (s *Service) Usual(mean, chance float64) float64 {
	return min(mean, s.Slow*max(2*(1+chance)-mean/s.Slow, 1))
}

// Drain returns how many units a nanosecond workers get done whose mean service
// time is mean ns. That is workers/mean, or what the departures show if it is
// less by more than chance, which noise is the part of, explains: processors
// that are not there lengthen no service time of a handler that waits for I/O.
func (d *Departures) Drain(workers, mean, window, noise float64) float64 {
	rate := workers / mean
	sat, ok := d.Rate(window)
	sat *= 1 + noise
	if ok && sat < rate {
		return sat
	}
	return rate
}
