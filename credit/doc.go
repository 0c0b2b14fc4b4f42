// Package credit gives producers their admissions in advance: a stage grants
// each of them a bounded number of credits, a producer spends one with each
// unit of work, and so it knows before it sends whether there is room.
//
// [Ledger] is the sequential core: who holds how many credits, who is next,
// and when unused credits lapse. It has no goroutine, clock or lock, takes the
// time as an argument, and is what a stage of the bus keeps under its lock.
//
// Every credit that was granted is in exactly one place: spent, returned,
// expired, or outstanding in a producer's hand. [Ledger.Check] proves it.
package credit
