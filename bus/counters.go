package bus

import "github.com/sedabus/seda/reason"

// counters are a stage's monotonic counts, guarded by Stage.mu.
type counters struct {
	accepted  uint64 // new envelopes of the bus's account, by publish
	letters   uint64 // of it: dead letters that entered as a dead-letter stage
	redriven  uint64 // of it: redrives
	entered   uint64 // everything that entered: publishes, hops, copies
	copies    uint64 // of it: copies of a pub/sub stage
	hopped    uint64 // left to the next stage
	delivered uint64 // handler calls started and deliveries handed out
	nacked    uint64 // handler errors
	retried   uint64 // deliveries after the first, scheduled
	late      uint64 // settlements after the end
	panics    uint64
	detached  uint64 // subscribers detached for lag
	lapsed    uint64 // leases that lapsed
	end       [2]ends
}

// ends counts how envelopes ended here: own ones, and copies.
type ends struct {
	completed    uint64
	deadLettered uint64
	abandoned    uint64
	dropped      [reason.Count]uint64
}

func (e *ends) total() uint64 {
	n := e.completed + e.deadLettered + e.abandoned
	for _, d := range e.dropped {
		n += d
	}
	return n
}

// left is how many envelopes have left the stage.
func (c *counters) left() uint64 { return c.hopped + c.end[0].total() + c.end[1].total() }

func copyIndex(e *Envelope) int {
	if e.flags&flagCopy != 0 {
		return 1
	}
	return 0
}

// endLocked counts the end of e at s.
func (s *Stage) endLocked(e *Envelope, end End, why reason.Reason) {
	c := &s.mu.count.end[copyIndex(e)]
	switch end {
	case Completed:
		c.completed++
	case DeadLettered:
		c.deadLettered++
	case Dropped:
		c.dropped[why]++
	case Abandoned:
		c.abandoned++
	}
}
