// Package bus is an in-process bus of stages: named bounded queues, each with
// handlers and a limit on how many of them run at once.
//
// A program makes a [Bus], registers stages with [Bus.Stage] and handlers with
// [Stage.Handle], starts it, and publishes envelopes. A nil error from a
// publish means accepted: from then on the bus owes the envelope exactly one
// [Result]. Any other answer means refused, and the error says why and where.
//
// # The account
//
// Nothing is lost silently. Whenever nothing is moving,
//
//	accepted = completed + dead-lettered + dropped + abandoned + pending
//
// holds on the bus, and the same by stage; see [Stats.Check].
//
// # Timing
//
// One coarse clock stamps entry, start and end, read once a chunk of
// envelopes. A stage whose handlers take less than about 20 µs is handled in
// chunks of up to 64 envelopes: the recorded wait is that of the chunk's first
// envelope and the recorded service time the chunk's mean, so p50 and p99 are
// those of chunks, with an error of at most the time of one chunk (below
// 1.3 ms). Slower stages are timed envelope by envelope. Either way the
// histogram's buckets add at most 3.2 %. StageConfig.ExactTiming reads the
// clock for every envelope.
//
// # Concurrency
//
// Every method of Bus and Stage is safe for concurrent use, also from inside
// handlers, hooks and callbacks. A [Producer] and a [Batch] belong to one
// goroutine at a time. No hook or callback is called with a lock held.
package bus
