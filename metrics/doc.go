// Package metrics exports the statistics of a bus to Prometheus.
//
// A [Collector] reads a bus when it is scraped ([bus.Bus.ReadStats], into memory
// that is used again) and not otherwise: it costs nothing where envelopes flow.
// Counters are those of the bus's account, so that a scrape balances as
// [bus.Stats.Check] says when nothing is moving.
//
// Names begin with seda_bus_ or seda_stage_, durations are in seconds. Labels are
// bus, stage and reason, and nothing else: their values come from the
// configuration and from package reason, never from envelopes. A series of each
// reason for which the bus refuses or drops is there, with 0, from registration
// on, and so is every other series of a stage once the stage is added.
//
// The label bus is part of the descriptors, so that buses of different names
// share one registry, each with a collector of its own; [Register] does that.
package metrics
