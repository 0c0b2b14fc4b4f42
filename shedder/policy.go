package shedder

import (
	"time"

	"github.com/sedabus/seda/reason"
)

// Policy is an admission law: a sequential core. It is called by one goroutine
// at a time, must neither block nor call runtime.Goexit, and takes all times from its arguments: they are
// on one monotonic clock of the caller's, and may stand still but never mean
// anything when they go back. [Passive] is a base for policies that need no
// feedback.
type Policy interface {
	// Admit decides about one unit of work.
	Admit(r *Request) Verdict
	// Undo takes an admission back that came to nothing: another rule, or the
	// queue itself, refused r.
	Undo(r *Request)
	// Done tells of work that ended.
	Done(d *Done)
	// Bound returns how many may wait before work of the lowest class is
	// refused, for those who admit without asking, such as hops; 0 is no bound.
	Bound() int
	// Inspect fills in what the policy knows of st.
	Inspect(now time.Duration, st *State)
}

// Load is what a stage has in hand at the moment.
type Load struct {
	// Waiting is the number of accepted units that have not started, without
	// those that are delayed on purpose.
	Waiting int
	// Ahead is how many of Waiting start before this one: its own class and the
	// higher ones. Without classes it equals Waiting.
	Ahead int
	// Evictable is how many of Waiting are of a lower class and can be pushed
	// out.
	Evictable int
	// Inbound is the number of units accepted elsewhere that are expected to
	// arrive here before this one.
	Inbound int
	// Busy is the number of units in service.
	Busy int
	// Concurrency is how many can be in service at once; at least 1.
	Concurrency int
	// Capacity bounds Waiting; 0 is no bound.
	Capacity int
	// Held says that nothing is started at present because somebody wants it
	// so: the stage is suspended, or has no handler. What waits says nothing
	// about overload then.
	Held bool
}

// Request is one unit of work at the door.
type Request struct {
	// Now is the time of the decision.
	Now time.Duration
	// Deadline is when the work has to be done, on the same clock; 0 is none.
	Deadline time.Duration
	// Transit is how long the work needs to get here: waits and service of the
	// stages before this one on its itinerary. 0 at the first stage.
	Transit time.Duration
	// Later says that this is not the first stage of the itinerary: the work
	// does not arrive now, it is asked whether it will find room.
	Later bool
	// Class is the priority class, 0 the highest, of Classes.
	Class, Classes int
	// Share is the part of the starts, 0 to 1, that the class gets at least; 0
	// is none.
	Share float64
	// Sender and Key are for policies that are fair to, or limit, each of them.
	Sender, Key string
	// Guards are the guard rails in force; the shedder sets it.
	Guards *Guards

	asked bool // the policy admitted it, so that it has to hear of an Undo

	Load
}

// Action is what a policy wants done with a request.
type Action uint8

// Actions.
const (
	Admit   Action = iota // let it in
	PushOut               // admit it in place of the newest of the lowest class that waits
	Refuse                // do not let it in
)

// String returns the action's name.
func (a Action) String() string {
	switch a {
	case Admit:
		return "admit"
	case PushOut:
		return "push_out"
	case Refuse:
		return "refuse"
	}
	return "unknown"
}

// Rule names the rule that decided, for people and for counters. Values are
// constants: a policy does not build them.
type Rule string

// Rules of this package.
const (
	RuleNone      Rule = ""
	RuleBound     Rule = "bound"      // more waits than the drain rate allows for
	RuleDeadline  Rule = "deadline"   // the deadline would be missed
	RuleFair      Rule = "fair_share" // the sender has more than its share
	RuleFixed     Rule = "fixed"      // the fixed limit is reached
	RuleCPU       Rule = "cpu"        // the processors are used up
	RulePushedOut Rule = "pushed_out" // a higher class took the place
	RuleTarget    Rule = "max_target" // the bound is that of Guards.MaxTarget
	RuleBaseline  Rule = "baseline"   // the bound follows from Guards.Baseline
	RuleFloor     Rule = "floor"      // admitted: below Guards.FloorInFlight or FloorRate
	RuleShare     Rule = "max_share"  // admitted: Guards.MaxShare was shed already
	RuleExempt    Rule = "exempt"     // admitted: the class is exempt
	RulePanic     Rule = "panic"      // admitted: the policy panicked
)

// Verdict is a policy's answer. The zero value admits.
type Verdict struct {
	Action Action
	// Rule is what decided.
	Rule Rule
	// Reason says why it was refused; None with Refuse counts as Shed.
	Reason reason.Reason
	// Limit and Value are the limit that decided and what stood against it.
	Limit, Value float64
	// Wait is how long the work is expected to wait here if admitted, and
	// Service how long its service takes; 0 where the policy does not know.
	Wait, Service time.Duration
	// RetryAfter is after what time another try may do better; 0 is unknown.
	RetryAfter time.Duration
}

// Done tells a policy of units of work that ended. Those that were cancelled or
// whose caller went away are not told: they must not teach anything.
type Done struct {
	Now time.Duration
	// N is how many ended, of which Failed failed.
	N, Failed int
	// Service is the sum of their service times, Squares that of the squares,
	// in square nanoseconds. Service is apart from the wait.
	Service time.Duration
	Squares float64
	// Shortest and Longest are the extremes of the service times.
	Shortest, Longest time.Duration
	// Wait is the shortest of their waits.
	Wait time.Duration
	// Guards are the guard rails in force.
	Guards *Guards

	Load // after they ended
}

// State is what a shedder knows and why it refuses, at one moment. Fields that
// a policy has no notion of are 0.
type State struct {
	Policy string // the policy's name
	Mode   Mode
	Killed bool // by the kill switch

	DrainRate    float64       // units a second that the stage gets done when it has work
	Service      time.Duration // mean service time
	ServiceDev   time.Duration // and its standard deviation
	ServiceRatio float64       // recent mean against the long-term one: above 1 what is behind got slow
	Target       time.Duration // wait that the bound is made for
	Bound        int           // how many may wait
	Burst        float64       // part of the burst budget that is left, 0 to 1
	Warm         bool          // enough has ended to know the service time

	Load Load // as last seen

	Asked     uint64 // decisions: Admitted plus Shed
	Shed      uint64 // refused, or in Observe what would have been
	Admitted  uint64
	Undone    uint64 // of Admitted: taken back, because something else refused
	PushedOut uint64 // of Admitted: took the place of one of a lower class
	Rails     uint64 // of Admitted: by a guard rail although the policy refused
	Panics    uint64 // of the policy; a decision that ends so admits
	LastPanic string // text or type of the latest panic

	Last   Verdict       // the latest refusal
	At     time.Duration // when that was
	Recent []Refusal     // Last and up to 7 before it, the newest first: of the same rule one a millisecond

	CPU      CPUState // of [CPU]
	Promises Promises // use without the bus
}

// Refusal is a refusal and its time.
type Refusal struct {
	At time.Duration
	Verdict
}

// Promises is the account of use without the bus. Admitted is Settled,
// PushedOut, Canceled, Doomed and Outstanding together.
type Promises struct {
	Outstanding int           // promises that are not settled and calls that wait for one
	Oldest      time.Duration // how long the oldest of them has been out; see [Shedder.Leaks]
	Admitted    uint64        // let in
	Settled     uint64        // passed, failed or dropped
	PushedOut   uint64        // waited in Acquire until a higher class took the place
	Canceled    uint64        // waited in Acquire until the context or the deadline ended
	Doomed      uint64        // waited in Acquire; at its turn the deadline could not be met
	Expired     uint64        // refused without being asked: the deadline or the context was over
	Twice       uint64        // settled again; that was ignored, but the caller has a fault
}

// Passive is embedded by policies that need no feedback and give no bound.
type Passive struct{}

// Undo does nothing.
func (Passive) Undo(*Request) {}

// Done does nothing.
func (Passive) Done(*Done) {}

// Bound returns 0.
func (Passive) Bound() int { return 0 }

// Inspect does nothing.
func (Passive) Inspect(time.Duration, *State) {}
