package shard

import (
	"slices"
	"time"
)

// Counters are what a shard has done; they never go down.
type Counters struct {
	Handled uint64        // calls of Handle that ended, panics included
	Panics  uint64        // calls of Handle or Turn that panicked
	Exits   uint64        // calls of Handle or Turn that ended their goroutine
	Kept    uint64        // items sent to the shard itself
	Sent    uint64        // items sent to other shards
	Fired   uint64        // items of After that fell due
	Turns   uint64        // of the loop, in which something was done
	Parks   uint64        // times that the loop went to sleep
	Brakes  uint64        // turns in which items from outside were left waiting, see Config.Transit
	Stalls  uint64        // runs longer than Config.Stall that have ended
	Longest time.Duration // the longest run: 1 item, or up to 64 fast ones
}

// Snapshot is the state of one shard.
type Snapshot struct {
	Counters
	// Outside is how many items from outside wait in it, as of its last turn.
	Outside int
	// Busy is how long it has been in the run of handlers of this moment.
	Busy time.Duration
	// Note is what a handler last passed to [Shard.Note].
	Note int64
	// Parked says that its loop sleeps.
	Parked bool
}

// Stats is what [Runtime.ReadStats] fills in.
type Stats struct {
	Shards  []Snapshot // those of this moment; a number keeps its counters
	Total   Counters   // of all, those that are no more included; Longest is the largest
	Pending int        // accepted and not handled; exact when nothing moves
	Inside  int        // of these, sent by handlers, or taken along by a resize
	Resizes uint64     // changes of the number of shards
	Hottest int        // the shard that has handled most
	Share   float64    // its share of what the present shards have handled, 0 to 1
}

func (c *Counters) add(o *Counters) {
	c.Handled += o.Handled
	c.Panics += o.Panics
	c.Exits += o.Exits
	c.Kept += o.Kept
	c.Sent += o.Sent
	c.Fired += o.Fired
	c.Turns += o.Turns
	c.Parks += o.Parks
	c.Brakes += o.Brakes
	c.Stalls += o.Stalls
	c.Longest = max(c.Longest, o.Longest)
}

// ReadStats fills dst and reuses its memory. A shard's figures are those of the
// end of its last turn.
func (rt *Runtime[T]) ReadStats(dst *Stats) {
	rt.totals.Lock()
	defer rt.totals.Unlock()
	w, now := rt.cur.Load(), rt.clk.Now()
	*dst = Stats{Shards: slices.Grow(dst.Shards[:0], len(w.shards)), Total: rt.totals.gone, Resizes: rt.totals.resizes}
	var handled uint64
	for i, s := range w.shards {
		st := Snapshot{Outside: s.outside(), Note: s.note.Load(), Parked: s.state.Load() == parked}
		if since := s.busy.Load(); since != 0 {
			st.Busy = time.Duration(max(now-since, 0))
		}
		s.published.Lock()
		st.Counters = s.published.Counters
		s.published.Unlock()
		handled += st.Handled
		if i == 0 || st.Handled > dst.Shards[dst.Hottest].Handled {
			dst.Hottest = i
		}
		dst.Total.add(&st.Counters)
		dst.Pending += st.Outside
		dst.Shards = append(dst.Shards, st)
	}
	dst.Inside = int(max(rt.inside.Load(), 0))
	dst.Pending += dst.Inside
	if handled > 0 {
		dst.Share = float64(dst.Shards[dst.Hottest].Handled) / float64(handled)
	}
}

// lookForStalls is the watch's round.
func (rt *Runtime[T]) lookForStalls() {
	select {
	case <-rt.done:
		return
	default:
	}
	now := rt.clk.Now()
	for _, s := range rt.cur.Load().shards {
		since := s.busy.Load()
		if since != s.stall.since {
			s.stall.since, s.stall.told = since, 0
		}
		age := now - since
		if since == 0 || age < int64(rt.cfg.Stall) || age < 2*s.stall.told {
			continue
		}
		s.stall.told = age
		rt.tellStall(Stall{Shard: s.index, For: time.Duration(age), Note: s.note.Load()})
	}
	rt.watch.arm(rt.cfg.Stall/2, rt.lookForStalls)
}

func (rt *Runtime[T]) tellStall(st Stall) {
	defer func() { _ = recover() }() // a hook's fault is not the shards'
	if rt.cfg.OnStall != nil {
		rt.cfg.OnStall(st)
	}
}
