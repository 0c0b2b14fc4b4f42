// Package bench measures the bus beside hand-written channels.
//
// The table with ratios and intervals is made by
//
//	go run ./cmd/table
//
// and ordinary benchmarks of the same workloads run with go test -bench. The
// module is its own so that nothing that only a comparison needs gets into the
// requirements of the bus; it uses the bus's public API alone.
//
// # Workloads
//
// A message is 64 bytes, each stage holds 1024, a producer waits while a stage
// is full, and the time runs from the first send until all is handled and the
// system is closed.
//
//	W1     1 stage, 1 producer, no-op handler
//	W2     1 stage, 8 producers, concurrency 2
//	W3     3 stages, 8 producers, concurrency 2 each
//	W3mix  W3 with a choice of three stages for the second visit, 1 % of the
//	       messages failing once, two headers and a completion callback
//	W4     1 producer, 4 subscribers: a message is 4 deliveries
//	W5     64 keys, each in order, 8 producers, 1 µs of CPU in the handler
//	W5n    W5 with a no-op handler
//	W6     32 producers, concurrency 256, the handler sleeps 1 ms
//
// # Systems
//
//	chan      buffered channels of 64-byte values, a goroutine for each consumer
//	chan-b32  channels of recycled slices of 32 messages
//	publish   Stage.Publish
//	handle    Producer.Publish, a handle for each producer
//	batch     Producer.Begin(32) and Batch.Publish
//	*-exact   the three forms with exact timing and a deadline on each envelope
//
// # What is compared with what
//
// Channels copy the 64 bytes in and out. The bus moves an envelope whose
// payload points to 64 bytes in a ring of the producer, so it moves these bytes
// and its envelope. To know when a place of the ring is free costs the bus's
// side of the comparison an atomic exchange for each message where consumers
// run in parallel, and next to nothing where there is one; the channels' side
// counts in plain variables. Both sides prove that each message was handled
// once and, with keys, in order; the bus's account must balance as well.
//
// # How to read it
//
// A ratio is taken between two measurements of the same round, and the median
// over the rounds is shown with its bootstrap interval. Absolute rates differ
// from hour to hour on shared machines by more than a fifth; ratios much less.
// Only the word of the verdict looks at the whole interval: superior from 1.3,
// non-inferior from 0.95.
package bench
