package shedder

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sedabus/seda/internal/drain"
)

// AdaptiveConfig configures [Adaptive]. The zero value is valid and needs no
// change for any service time or concurrency; 0 in a field is its default. The
// defaults come from the sweep in docs/shedder-sweep.md.
type AdaptiveConfig struct {
	// TargetFactor is the wait in standing overload, in mean service times;
	// 0.25 to 1000, default 2.
	TargetFactor float64
	// FloorJobs is how many may wait in standing overload of twice the capacity
	// however few the target allows for, so that a stage of few workers does not
	// run out of work between two arrivals: with seven, one worker idles 0.3 %
	// of the time. It follows the measured load, because the queue of M/M/1 that
	// holds k waiting is empty for (load-1)/(load^(k+2)-1) of the time, and the
	// variance of the service times, and stays within seven service times of
	// wait. 1 to 1,000,000, default 7.
	FloorJobs int
	// BurstFactor is the wait in a burst, in mean service times: those of late
	// or the long-term ones, whichever are shorter. 1 to 1000, default 16; a
	// burst may have twice the bound of standing overload in any case.
	BurstFactor float64
	// BurstJobs is how many may wait in a burst at least: one that comes within
	// half a service time while a worker is idle, or that chance explains. What
	// goes on for longer and is overload may wait in the part of BurstFactor that
	// chance leaves. 1 to 1,000,000, default 20.
	BurstJobs int
	// MinTarget is the least wait in standing overload, for service times of
	// microseconds: a processor may be away for this long. 1 ns to an hour,
	// default 1 ms.
	MinTarget time.Duration
	// Spend is how many units of burst room one refusal costs while more is
	// asked for than can be done, beyond what chance explains; 0.001 to 1000,
	// default 2.
	Spend float64
	// Budget is the time that work may spend here in all. The wait in standing
	// overload stays below a quarter and the wait in a burst below half of it.
	// 0, the default, is none.
	Budget time.Duration
	// Deviations is the margin of the deadline test while the queue is at the
	// bound of standing overload, in standard deviations of the predicted time.
	// It shrinks with the queue, to a third where nothing waits: an idle stage
	// has nothing better to do than to try. 0 is the default 3, at most 10;
	// negative is no margin.
	Deviations float64
	// Warm is how many units must have ended, beyond the concurrency, before
	// the measurements are used; 1 to 1,000,000, default 8.
	Warm int
	// Senders is how many senders are told apart for fairness; the rest share
	// one place. 1 to 1,000,000, default 1024.
	Senders int
}

// constants are the constants that are no settings, for the sweep.
type constants struct {
	window, windowFloor       float64 // completions of the service time: a worker, at least
	satWindow, satWindowFloor float64 // the same of the saturated departure rate
	outlier                   float64 // longest believed interval, in expected ones
	interval                  float64 // of the burst budget, in targets
	standing                  float64 // part of the bound above which a queue stands
	shrink, regain            float64 // of the burst budget in an interval
	regainAt                  float64 // deviations above capacity up to which it is given back
	regainIdle                float64 // of it, by one request at an idle worker
	floorLeast, floorMost     float64 // range of the factor by the variance
	epochJobs, epochTargets   float64 // length of an epoch of the rate counters
	standingJobs              float64 // least that counts as a standing queue
	intervalJobs              float64 // least length of an interval, in jobs
	fairShort                 float64 // part of the bound below which a queue is short
	fairOver                  float64 // part of the drain rate that the fairness lets pass beyond it
	noise                     float64 // standard deviations of a mean that are taken for chance
	floorTime                 float64 // most of the floor, in service times
	demandJobs, prior         float64 // memory of the demand, and what is taken as seen
	spendAt                   float64 // deviations above capacity from which refusals spend
	standingAt                float64 // deviations above capacity from which a queue stands
	standingHigh              float64 // part of the burst bound above which a queue stands
	grace                     float64 // service times for which a worker has just been idle
	firmAt, firmOver          float64 // deviations above capacity from which a burst is overload, and until it is for sure
	firmSigma                 float64 // deviations of a wait that are taken for chance
	unusual                   float64 // deviations that an overload needs less where a worker is usually idle
	habitLow, habitHigh       float64 // the load from which one seldom is, and below which usually
	habitJobs                 float64 // memory of the usual load
	supplyNoise               float64 // deviations of a mean that are taken for chance where demand is compared
	young                     float64 // windows of completions after which the mean is known
}

func (c AdaptiveConfig) withDefaults() AdaptiveConfig {
	def(&c.TargetFactor, 2)
	def(&c.FloorJobs, 7)
	def(&c.BurstFactor, 16)
	def(&c.BurstJobs, 20)
	def(&c.MinTarget, time.Millisecond)
	def(&c.Spend, 2)
	def(&c.Deviations, 3)
	c.Deviations = max(c.Deviations, 0)
	def(&c.Warm, drain.Warm)
	def(&c.Senders, 1024)
	return c
}

func sweptConstants() constants {
	return constants{
		window: drain.ServiceWindow, windowFloor: drain.ServiceFloor,
		satWindow: drain.DepartureWindow, satWindowFloor: drain.DepartureFloor,
		outlier:  drain.Outlier,
		interval: 5, standing: 0.8, shrink: 0.6, regain: 0.3, regainAt: 1, regainIdle: 0.05,
		floorLeast: 0.5, floorMost: 4,
		epochJobs: 128, epochTargets: 4,
		standingJobs: 48, intervalJobs: 160,
		fairOver: 0.4, fairShort: 0.5, noise: drain.Chance, floorTime: 7, demandJobs: 1024, prior: 50, spendAt: 4, standingAt: 2, standingHigh: 0.75,
		grace: 0.5, firmAt: 3.5, firmOver: 1, firmSigma: 2,
		unusual: 3, habitLow: 0.7, habitHigh: 0.85, habitJobs: 2048,
		supplyNoise: 3, young: 2,
	}
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// validate returns all faults of c at once.
func (c AdaptiveConfig) validate() error {
	var errs []error
	ranges := func(field string, v, lo, hi float64) {
		if v != 0 && !(v >= lo && v <= hi) {
			errs = append(errs, fmt.Errorf("shedder: AdaptiveConfig.%s: %v is not within %v and %v", field, v, lo, hi))
		}
	}
	const many = 1e6
	ranges("TargetFactor", c.TargetFactor, 0.25, 1000)
	ranges("FloorJobs", float64(c.FloorJobs), 1, many)
	ranges("BurstFactor", c.BurstFactor, 1, 1000)
	ranges("BurstJobs", float64(c.BurstJobs), 1, many)
	ranges("Spend", c.Spend, 0.001, 1000)
	ranges("Deviations", c.Deviations, math.Inf(-1), 10)
	ranges("Warm", float64(c.Warm), 1, many)
	ranges("Senders", float64(c.Senders), 1, many)
	if c.MinTarget < 0 || c.MinTarget > time.Hour {
		errs = append(errs, fmt.Errorf("shedder: AdaptiveConfig.MinTarget: %v is not within 1ns and 1h", c.MinTarget))
	}
	if c.Budget < 0 {
		errs = append(errs, fmt.Errorf("shedder: AdaptiveConfig.Budget: %v is negative", c.Budget))
	}
	return errors.Join(errs...)
}
