// Package shedder decides at the door of a stage whether new work is let in,
// so that a service stays useful at any overload.
//
// An admission law is a [Policy]: a sequential core that takes the time as an
// argument and has no goroutine, clock or lock. [Adaptive] is the default and
// needs no number to be set. A [Shedder] is the thin concurrent shell around a
// policy: it adds the mode, guard rails, the kill switch, counters, and
// containment of a policy that panics.
//
// The bus gives each stage a Shedder and asks it for every new itinerary.
// Without the bus, [Shedder.Allow] gives a [Promise] for each unit of work,
// which is passed, failed or dropped at its end, or refuses:
//
//	s, err := shedder.New(shedder.Config{Concurrency: 16})
//	...
//	p, err := s.Allow()
//	if err != nil {
//		return err // matches ErrShed
//	}
//	err = work()
//	p.Done(err)
//
// [Shedder.Acquire] also holds the caller back until one of Config.Concurrency
// places is free.
package shedder
