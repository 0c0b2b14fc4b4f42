package demo

import "time"

// Phase states.
const (
	stateWaits = "waits"
	stateRuns  = "runs"
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
	Refused               Counts        // since the start
	Dropped               Counts
}

// Frame is one picture of a run.
type Frame struct {
	Settings Settings
	Replay   *Replay       // nil without a trace
	At       time.Duration // since the start
	Measured float64       // capacity; 0 while it is not known
	Phases   []Progress
	Stages   []StageRow
	Account  Account
	Note     string // what goes on beyond the phases; "" is nothing
}
