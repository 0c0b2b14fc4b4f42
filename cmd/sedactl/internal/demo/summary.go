package demo

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sedabus/seda/cmd/sedactl/internal/table"
	"github.com/sedabus/seda/reason"
)

// End is how a run ended.
type End string

// Ends.
const (
	EndComplete End = "complete" // all phases ran
	EndDrained  End = "drained"  // stopped by the user, then drained
	EndCut      End = "cut"      // cut by the user before it was drained
)

// Summary is the result of a run, in the form of its JSON output. Times are in
// milliseconds, rates per second.
type Summary struct {
	Settings Settings `json:"settings"`
	End      End      `json:"end"`
	Capacity float64  `json:"measured_capacity,omitempty"` // of the bottleneck; 0 for a trace
	Trace    *Replay  `json:"trace,omitempty"`
	Sides    []Result `json:"pipelines"`
}

// Result is what came of one pipeline.
type Result struct {
	Shedding bool      `json:"shedding"`
	Phases   []Outcome `json:"phases"`
	Account  Account   `json:"account"`
}

// Balanced reports whether the accounts of all pipelines balance.
func (s *Summary) Balanced() bool {
	for i := range s.Sides {
		if !s.Sides[i].Account.Balanced {
			return false
		}
	}
	return true
}

// Settings repeats what was asked for.
type Settings struct {
	Policy      string  `json:"policy"`
	Capacity    int     `json:"capacity"`
	Concurrency int     `json:"concurrency"`
	ServiceMS   float64 `json:"service_ms"`
	Seed        uint64  `json:"seed"`
	Budget      float64 `json:"budget"` // in mean service times
	BudgetMS    float64 `json:"budget_ms"`
	Deadlines   bool    `json:"deadlines"` // the budget is each arrival's deadline
}

// Replay says how a trace was played.
type Replay struct {
	File       string  `json:"file"`
	Rows       int     `json:"rows"`
	Skipped    int     `json:"skipped_lines"`
	Speed      float64 `json:"speed"`
	Load       float64 `json:"load"`
	PerTokenMS float64 `json:"per_token_ms"`
	SpanMS     float64 `json:"span_ms"` // at that speed
}

// Counts is how many, by reason.
type Counts map[string]uint64

// Total returns the sum.
func (c Counts) Total() uint64 {
	var n uint64
	for _, v := range c {
		n += v
	}
	return n
}

// String returns the reasons in alphabetical order with their counts, or a
// dash.
func (c Counts) String() string { return c.join(cmp.Compare[string]) }

// Largest is String with the greatest count first.
func (c Counts) Largest() string {
	return c.join(func(a, b string) int { return cmp.Or(cmp.Compare(c[b], c[a]), cmp.Compare(a, b)) })
}

// join writes the reasons in the order of compare.
func (c Counts) join(compare func(a, b string) int) string {
	if c.Total() == 0 {
		return "-"
	}
	s := ""
	for _, name := range slices.SortedFunc(maps.Keys(c), compare) {
		if s != "" {
			s += ", "
		}
		s += name + " " + table.Count(c[name])
	}
	return s
}

// countsOf leaves out what did not happen.
func countsOf(byReason *[reason.Count]uint64) Counts {
	c := Counts{}
	for r, n := range byReason {
		if n > 0 {
			c[reason.Reason(r).String()] = n
		}
	}
	return c
}

// Outcome is what a load phase came to, after all that it brought had ended.
type Outcome struct {
	Name         string  `json:"name"`
	Rate         float64 `json:"rate"`      // meant, per second
	Offered      uint64  `json:"offered"`   // accepted and refused
	Accepted     uint64  `json:"accepted"`  // the bus owes each of them an end
	Refused      Counts  `json:"refused"`   // by reason
	Shed         Counts  `json:"shed"`      // of refused: by the stage whose shedder refused, and its rule
	Completed    uint64  `json:"completed"` // went through all stages
	Dropped      Counts  `json:"dropped"`   // accepted, then dropped, by reason
	DeadLettered uint64  `json:"dead_lettered"`
	Abandoned    uint64  `json:"abandoned"`
	InTime       uint64  `json:"in_time"`     // completed within the budget, from the time the arrival was meant
	Late         uint64  `json:"late"`        // completed after it
	Goodput      float64 `json:"goodput"`     // in time per second of ElapsedMS
	OfPossible   float64 `json:"of_possible"` // in time of the least of what was offered and of the capacity, if known
	ElapsedMS    float64 `json:"elapsed_ms"`  // from the start to the end of the arrivals, or to a later end in time
	WaitP50MS    float64 `json:"wait_p50_ms"` // from the time an arrival was meant to its start in the bottleneck
	WaitP99MS    float64 `json:"wait_p99_ms"`
	Depth        int     `json:"depth"`      // that waited in all stages when the last had arrived
	BacklogMS    float64 `json:"backlog_ms"` // from then until the last end
	MaxLagMS     float64 `json:"max_lag_ms"` // the latest that the generator sent an arrival
	Whole        bool    `json:"whole"`      // false: stopped before its end
}

// Account is the bus's account of the whole run, the calibration included.
type Account struct {
	Accepted     uint64 `json:"accepted"`
	Completed    uint64 `json:"completed"`
	DeadLettered uint64 `json:"dead_lettered"`
	Dropped      Counts `json:"dropped"`
	Abandoned    uint64 `json:"abandoned"`
	Pending      uint64 `json:"pending"`
	Refused      Counts `json:"refused"`
	// Published is what the demo counted itself: the publishes that were accepted.
	Published uint64 `json:"published"`
	Balanced  bool   `json:"balanced"`
}

// balances reports whether everything accepted is accounted for, and whether
// the bus accepted what the demo was told that it did.
func (a *Account) balances() bool {
	ended := a.Completed + a.DeadLettered + a.Dropped.Total() + a.Abandoned + a.Pending
	return a.Accepted == ended && a.Accepted == a.Published
}

// ms returns d in milliseconds, to the microsecond.
func ms(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// perSecond keeps a rate to three decimals.
func perSecond(v float64) float64 { return math.Round(v*1000) / 1000 }

// unMS is the inverse of ms.
func unMS(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
