package demo

import "time"

// Phase states.
const (
	stateWaits = "waits"
	stateRuns  = "runs"
	stateDrain = "drains"
	stateDone  = "done"
	stateStop  = "stopped"
)

// Progress is how far a phase is.
type Progress struct {
	Name  string
	Rate  float64 // offered per second as meant; 0 is not known yet
	Part  float64 // 0 to 1
	State string
}

// StageRow is a stage now.
type StageRow struct {
	Name                  string
	Depth, Capacity       int
	InFlight, Concurrency int
	Rate                  float64       // left the stage, per second
	P50, P99              time.Duration // time in the queue, over the last second or so
}

// Side is one of the pipelines now.
type Side struct {
	Sheds       bool
	Stages      []StageRow
	Depth, Room int           // of all stages: what waits, and what can
	InTime      float64       // done within the budget, per second, over the last second or so
	Possible    float64       // the least of what arrived and of the capacity, per second
	P50, P99    time.Duration // from the time an arrival was meant to its start in the bottleneck, over the last second or so
	Refused     Counts        // since the start, by reason; what was shed by stage and rule
	Dropped     Counts        // since the start, by reason
	Account     Account
}

// Frame is one picture of a run.
type Frame struct {
	Settings Settings
	Replay   *Replay       // nil without a trace
	At       time.Duration // since the start
	Measured float64       // capacity; 0 while it is not known
	Phases   []Progress
	Sides    []Side
	Note     string // what goes on beyond the phases; "" is nothing
}
