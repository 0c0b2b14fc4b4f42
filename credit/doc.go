// Package credit gives producers their admissions in advance: a stage grants
// each of them a bounded number of credits, a producer spends one with each
// unit of work, and so it knows before it makes any whether there is room.
//
// [Gate] is what producers wait at, with or without the bus:
//
//	g, err := credit.NewGate(credit.GateConfig{Size: credit.Sizing{Workers: 16}})
//	...
//	p, err := g.Producer(credit.AccountConfig{})
//	...
//	if err := p.Use(ctx); err != nil {
//		return err // there was no credit before ctx ended
//	}
//	queue <- job // there is room
//	...
//	g.Done(1, took) // by the worker, also of a job that failed or panicked
//
// What it promises:
//
//   - Every credit that was granted is in one place: spent, returned, expired,
//     or outstanding in a producer's hand.
//   - No more credits are out than the window, spent ones whose work has not
//     ended included; after it was lowered, no more than were out then. That
//     takes nothing back: nothing is granted until enough have come back.
//   - A call gets all that it asks for or nothing, so two that ask for the whole
//     window cannot wait for each other.
//   - Producers get credits by their weight and no more than they ask for, the
//     highest class first but for the minimum shares; the calls of one producer
//     in order.
//   - A producer that keeps credits and stops costs the others a lease at most,
//     and one that is closed or was collected nothing.
//
// [Ledger] is the sequential core: who holds how many credits, who is next,
// and when unused ones lapse. [Sizer] says how large the window should be. Both
// have no goroutine, clock or lock and take the time as an argument; they are
// what a stage of the bus keeps under its lock.
package credit
