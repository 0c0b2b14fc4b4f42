// Package load drives one workload through one system and checks the outcome.
//
// A system is opened for one Run. Its Instance pulls messages from a Source for
// each producer and hands them to consumers, which report every delivery to
// the Run. Time is taken from the first send until Close returned, so that all
// messages are handled inside the measured interval, and the Run proves
// afterwards that nothing was lost, doubled or, where keys are used, reordered.
package load

import (
	"fmt"
	"strings"
)

// Work is what the last handler does with a message.
type Work uint8

// The kinds of work.
const (
	// Noop counts the message and returns.
	Noop Work = iota
	// Spin burns about a microsecond of CPU.
	Spin
	// Sleep blocks for a millisecond.
	Sleep
	// Spin10 burns about ten microseconds of CPU.
	Spin10
)

// Spec describes a workload. It is a value and is never changed after Lookup.
type Spec struct {
	// Name is what the command line calls the workload.
	Name string
	// Note says in a few words what the workload is.
	Note string
	// Stages is how many stages a message visits, at least 1.
	Stages int
	// Subscribers is how many consumers receive a copy of every message; 1
	// means that the consumers share one queue.
	Subscribers int
	// Producers is the number of goroutines that publish.
	Producers int
	// Concurrency is the number of handlers at once, for each stage.
	Concurrency int
	// Capacity bounds the queue of each stage, in messages.
	Capacity int
	// Keys is the number of keys, a power of two; 0 means no keys and no order.
	Keys int
	// Work is what the last stage does with each message.
	Work Work
	// Laps is how often a message goes round the stages; 0 and 1 are once. With
	// Laps set every visit does the Work, not the last alone.
	Laps int
	// Mixed turns on the second form of W3: a choice of three stages for the
	// second visit, failing handlers, headers and completion callbacks.
	Mixed bool
}

// InOrder tells whether each consumer sees every message of a lone producer in
// the order of publication. The way in which messages are reused depends on it.
func (s Spec) InOrder() bool {
	return s.Producers == 1 && s.Concurrency == 1 && s.Stages == 1 && s.Laps <= 1 && !s.Mixed
}

// Visits is how many handlers a message meets.
func (s Spec) Visits() int { return s.Stages * max(1, s.Laps) }

// All returns the workloads in the order of the table.
func All() []Spec {
	base := Spec{Stages: 1, Subscribers: 1, Producers: 8, Concurrency: 1, Capacity: 1024}
	mk := func(name, note string, set func(*Spec)) Spec {
		s := base
		s.Name, s.Note = name, note
		set(&s)
		return s
	}
	return []Spec{
		mk("W1", "1 stage, 1 producer, no-op handler", func(s *Spec) { s.Producers = 1 }),
		mk("W2", "1 stage, 8 producers, concurrency 2", func(s *Spec) { s.Concurrency = 2 }),
		mk("W3", "3 stages, 8 producers, concurrency 2 each", func(s *Spec) { s.Stages, s.Concurrency = 3, 2 }),
		mk("W3mix", "W3 with a choice of three middle stages, 1 % nacks, headers, callbacks", func(s *Spec) {
			s.Stages, s.Concurrency, s.Mixed = 3, 2, true
		}),
		mk("W4", "1 producer, 4 subscribers, a message is 4 deliveries", func(s *Spec) { s.Producers, s.Subscribers = 1, 4 }),
		mk("W5", "64 keys in order, 8 producers, 1 µs of CPU", func(s *Spec) { s.Keys, s.Concurrency, s.Work = 64, 2, Spin }),
		mk("W5n", "W5 with a no-op handler", func(s *Spec) { s.Keys, s.Concurrency = 64, 2 }),
		mk("W6", "32 producers, concurrency 256, a handler that sleeps 1 ms", func(s *Spec) {
			s.Producers, s.Concurrency, s.Work = 32, 256, Sleep
		}),
	}
}

// Capacities are those of the workloads S8 and S64.
func Capacities() []int { return []int{64, 1024, 16384} }

// Saturated is the name of the workload in which producers saturate a stage of
// 16 handlers that sleep 1 ms.
func Saturated(producers, capacity int) string { return fmt.Sprintf("S%dc%d", producers, capacity) }

// Policies returns the workloads on which the full policies are compared, beside
// W1 to W3.
func Policies() []Spec {
	var all []Spec
	for _, producers := range []int{8, 64} {
		for _, capacity := range Capacities() {
			all = append(all, Spec{
				Name:   Saturated(producers, capacity),
				Note:   fmt.Sprintf("%d producers, concurrency 16, 1 ms of sleep, capacity %d", producers, capacity),
				Stages: 1, Subscribers: 1, Producers: producers, Concurrency: 16, Capacity: capacity, Work: Sleep,
			})
		}
	}
	ring := func(name, note string, stages, laps int, work Work) {
		all = append(all, Spec{
			Name: name, Note: note, Stages: stages, Laps: laps, Work: work,
			Subscribers: 1, Producers: 8, Concurrency: 2, Capacity: 1024,
		})
	}
	ring("L24", "24 stages, no-op handlers", 24, 1, Noop)
	ring("R3", "ring of 3 stages, 8 laps, no-op handlers", 3, 8, Noop)
	ring("R8", "ring of 8 stages, 3 laps, no-op handlers", 8, 3, Noop)
	ring("L24s", "24 stages, 10 µs of CPU each", 24, 1, Spin10)
	ring("R3s", "ring of 3 stages, 8 laps, 10 µs of CPU at each visit", 3, 8, Spin10)
	ring("R8s", "ring of 8 stages, 3 laps, 10 µs of CPU at each visit", 8, 3, Spin10)
	return all
}

// Lookup finds a workload by its name, in any case.
func Lookup(name string) (Spec, error) {
	for _, s := range append(All(), Policies()...) {
		if strings.EqualFold(s.Name, name) {
			return s, nil
		}
	}
	return Spec{}, fmt.Errorf("load: no workload %q", name)
}
