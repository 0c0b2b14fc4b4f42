// Package shard is a thread-per-core runtime: work is split over shards by key,
// and each shard handles its items one after the other, in order, so that what
// belongs to a shard needs no locks. It can be used without the bus.
//
//	rt, err := shard.New(shard.Config[Order]{
//		Handle: func(s *shard.Shard[Order], o *Order) { books[s.Index()].Enter(o) },
//	})
//	...
//	p := rt.Producer() // one for each goroutine that pushes
//	err = p.Push(ctx, shard.Hash(order.Customer), order)
//	...
//	report, err := rt.Close(ctx)
//
// What it promises:
//
//   - Every accepted item is handled once, or stands in the report of Close. An
//     item whose handler panics, or ends its goroutine, is handled; the next one
//     follows.
//   - Items that one producer, one goroutine with [Runtime.Push], or one handler
//     gives with one key are handled in that order, also over changes of the number
//     of shards ([Runtime.Resize]).
//   - A handler never waits for another shard. [Shard.Send] appends, to the shard
//     itself or to a chunk that is handed over when it is full or the turn ends.
//     What handlers sent is bounded by holding back what comes from outside, so two
//     full shards that send to each other both go on.
//   - A parked shard costs no processor time, and no wake-up is lost.
//   - A handler that blocks stops its shard only: [Config].OnStall names it, Resize
//     returns an error in its time, and Close reports it.
//
// Items are values, copied once on their way in and once at each Send; a large one
// is better passed as a pointer. Slow or blocking work belongs on goroutines of its
// own.
package shard
