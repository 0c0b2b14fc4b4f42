package tune

import (
	"math"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/tune/api"
)

// mark is what advice needs of an earlier reading.
type mark struct {
	at                       time.Time
	offered, delivered, done uint64
	busy                     time.Duration
}

func markOf(s *bus.StageStats) mark {
	m := mark{at: s.At, offered: s.Entered, delivered: s.Delivered, done: s.Service.Count(), busy: s.Service.Sum()}
	for _, n := range s.Refused {
		m.offered += n
	}
	return m
}

// adviceWindow is the least time that advice looks back once there is so much.
const adviceWindow = 10 * time.Second

// window are the two latest marks, so that frequent readers do not shorten what
// the figures rest on.
type window struct{ old, young mark }

// since returns the mark to compare s with and moves on.
func (w *window) since(m mark) mark {
	switch {
	case w.old.at.IsZero():
		w.old, w.young = m, m
	case m.at.Sub(w.young.at) >= adviceWindow:
		w.old, w.young = w.young, m
	}
	return w.old
}

// advise compares a reading with an earlier one.
func advise(s *bus.StageStats, from mark, rule shedder.Rule) api.Advice {
	now := markOf(s)
	out := api.Advice{
		Stage: s.Name, Concurrency: s.Concurrency, LastRefused: string(rule),
		Service: "0s", WaitP99: s.Wait.Quantile(.99).String(),
	}
	secs := now.at.Sub(from.at).Seconds()
	if secs <= 0 || now.done == from.done {
		out.Why = "no handler call has ended since the last look: ask again in a few seconds"
		return out
	}
	mean := (now.busy - from.busy).Seconds() / float64(now.done-from.done)
	out.Service = time.Duration(mean * float64(time.Second)).String()
	out.Offered = finite(float64(now.offered-from.offered) / secs)
	out.Drain = finite(float64(now.delivered-from.delivered) / secs)
	out.Utilisation = finite(min(1, out.Drain*mean/float64(max(1, s.Concurrency))))
	if need := math.Ceil(out.Offered * mean / 0.8); need < math.MaxInt32 {
		out.For80 = max(1, int(need))
	}
	out.Why = "rates and service time of the last " + now.at.Sub(from.at).Round(time.Millisecond).String()
	return out
}
