package metrics

import (
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/reason"
)

// figure is one series: its name behind the prefix, its help and its value.
type figure[T any] struct {
	name, help string
	value      func(*T) float64
}

func number[T int | uint64](n T) float64 { return float64(n) }

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

func seconds(d time.Duration) float64 { return d.Seconds() }

//nolint:gochecknoglobals // the table of a stage's counters
var stageCounters = []figure[bus.StageStats]{
	{"accepted_total", "Publishes, dead letters and redrives taken in.", func(s *bus.StageStats) float64 { return number(s.Accepted) }},
	{"from_letters_total", "Dead letters of other stages taken in.", func(s *bus.StageStats) float64 { return number(s.FromLetters) }},
	{"from_redrive_total", "Redriven dead letters taken in.", func(s *bus.StageStats) float64 { return number(s.FromRedrive) }},
	{"entered_total", "All envelopes that came in: accepted, hops and copies.", func(s *bus.StageStats) float64 { return number(s.Entered) }},
	{"copies_total", "Copies that entered for subscribers.", func(s *bus.StageStats) float64 { return number(s.CopiesMade) }},
	{"hopped_total", "Envelopes acknowledged and gone to the next stage.", func(s *bus.StageStats) float64 { return number(s.Hopped) }},
	{"completed_total", "Envelopes acknowledged here at the end of their way.", func(s *bus.StageStats) float64 { return number(s.Completed) }},
	{"dead_lettered_total", "Envelopes that became dead letters.", func(s *bus.StageStats) float64 { return number(s.DeadLettered) }},
	{"abandoned_total", "Envelopes left when the bus ended.", func(s *bus.StageStats) float64 { return number(s.Abandoned) }},
	{"delivered_total", "Handler calls and deliveries handed out.", func(s *bus.StageStats) float64 { return number(s.Delivered) }},
	{"nacked_total", "Failed deliveries.", func(s *bus.StageStats) float64 { return number(s.Nacked) }},
	{"retried_total", "Deliveries that are tried again.", func(s *bus.StageStats) float64 { return number(s.Retried) }},
	{"late_total", "Settlements after the end.", func(s *bus.StageStats) float64 { return number(s.Late) }},
	{"panics_total", "Handler panics that were contained.", func(s *bus.StageStats) float64 { return number(s.Panics) }},
	{"lapsed_total", "Leases of pull consumers that lapsed.", func(s *bus.StageStats) float64 { return number(s.Lapsed) }},
	{"detached_total", "Subscribers that were detached.", func(s *bus.StageStats) float64 { return number(s.Detached) }},
}

//nolint:gochecknoglobals // the table of a stage's gauges
var stageGauges = []figure[bus.StageStats]{
	{"depth", "Envelopes that wait: queued, delayed or parked.", func(s *bus.StageStats) float64 { return number(s.Depth) }},
	{"in_flight", "Envelopes in handlers, with pull consumers or copied and not ended.", func(s *bus.StageStats) float64 { return number(s.InFlight) }},
	{"delayed", "Of the depth: retries and later publishes that wait for their time.", func(s *bus.StageStats) float64 { return number(s.Delayed) }},
	{"parked", "Of the depth: acknowledged, without room at the next stage.", func(s *bus.StageStats) float64 { return number(s.Parked) }},
	{"lagging", "Copies parked for slow subscribers.", func(s *bus.StageStats) float64 { return number(s.Lagging) }},
	{"waiters", "Publishers that wait for room.", func(s *bus.StageStats) float64 { return number(s.Waiters) }},
	{"stuck", "Of those in flight: over their time limit and not returned.", func(s *bus.StageStats) float64 { return number(s.Stuck) }},
	{"executors", "Executors at work.", func(s *bus.StageStats) float64 { return number(s.Executors) }},
	{"depth_high_water", "The greatest depth since the marks were reset.", func(s *bus.StageStats) float64 { return number(s.MaxDepth) }},
	{"in_flight_high_water", "The most in flight since the marks were reset.", func(s *bus.StageStats) float64 { return number(s.MaxInFlight) }},
	{"oldest_waiting_seconds", "Age of the oldest envelope that waits; 0 is none.", func(s *bus.StageStats) float64 { return seconds(s.OldestWaiting) }},
	{"oldest_in_flight_seconds", "Time of the longest delivery under way; 0 is none.", func(s *bus.StageStats) float64 { return seconds(s.OldestInFlight) }},
	{"capacity", "Capacity in force, in envelopes.", func(s *bus.StageStats) float64 { return number(s.Capacity) }},
	{"concurrency", "Concurrency in force, in handlers.", func(s *bus.StageStats) float64 { return number(s.Concurrency) }},
	{"batch", "Claim size in force, in envelopes.", func(s *bus.StageStats) float64 { return number(s.Batch) }},
	{"suspended", "1 while the stage is suspended.", func(s *bus.StageStats) float64 { return flag(s.Suspended) }},
}

//nolint:gochecknoglobals // the table of the bus's counters
var busCounters = []figure[bus.Stats]{
	{"accepted_total", "Envelopes accepted.", func(s *bus.Stats) float64 { return number(s.Accepted) }},
	{"completed_total", "Envelopes completed; copies are not counted.", func(s *bus.Stats) float64 { return number(s.Completed) }},
	{"dead_lettered_total", "Envelopes that became dead letters; copies are not counted.", func(s *bus.Stats) float64 { return number(s.DeadLettered) }},
	{"abandoned_total", "Envelopes left when the bus ended; copies are not counted.", func(s *bus.Stats) float64 { return number(s.Abandoned) }},
	{"panics_total", "Panics contained in callbacks, hooks and seams.", func(s *bus.Stats) float64 { return number(s.Panics) }},
	{"journal_errors_total", "Entries that the journal refused after the accept.", func(s *bus.Stats) float64 { return number(s.JournalErrors) }},
	{"letters_added_total", "Dead letters stored.", func(s *bus.Stats) float64 { return number(s.Letters.Added) }},
	{"letters_evicted_total", "Dead letters evicted by a bound of the store.", func(s *bus.Stats) float64 { return number(s.Letters.Evicted) }},
	{"letters_purged_total", "Dead letters purged.", func(s *bus.Stats) float64 { return number(s.Letters.Purged) }},
}

//nolint:gochecknoglobals // the table of the bus's gauges
var busGauges = []figure[bus.Stats]{
	{"pending", "Envelopes accepted and not ended; copies are not counted.", func(s *bus.Stats) float64 { return number(s.Pending) }},
	{"handlers", "Executors at work over all stages.", func(s *bus.Stats) float64 { return number(s.Handlers) }},
	{"max_handlers", "Limit of the executors at work; 0 is none.", func(s *bus.Stats) float64 { return number(s.MaxHandlers) }},
	{"callbacks_pending", "Completion callbacks that wait to be called.", func(s *bus.Stats) float64 { return number(s.CallbacksPending) }},
	{"letters", "Dead letters in the store.", func(s *bus.Stats) float64 { return number(s.Letters.Count) }},
	{"letters_bytes", "Size of the dead letters in the store.", func(s *bus.Stats) float64 { return float64(s.Letters.Bytes) }},
	{"letters_oldest_seconds", "Age of the oldest dead letter; 0 is none.", func(s *bus.Stats) float64 { return seconds(s.Letters.Oldest) }},
}

// always says whether the series of a reason is there although its count is 0.
// One that is not expected appears with its first count.
func alwaysRefused(r reason.Reason) bool { return r > reason.None && r <= reason.Store }

func alwaysDropped(r reason.Reason) bool {
	switch r {
	case reason.Expired, reason.Canceled, reason.NoStage, reason.Type,
		reason.Evicted, reason.PushedOut, reason.Discarded, reason.Doomed, reason.Lag:
		return true
	default:
		return false
	}
}
