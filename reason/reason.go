// Package reason holds the one vocabulary in which seda says why: why a
// publish was refused, why accepted work was dropped, dead-lettered or
// abandoned. Errors, counters, metric labels, hooks, HTTP bodies and the
// command line all use these words.
//
// Values are stable: a Reason keeps its name, and names are never reused. The
// numeric values are an index into arrays of size [Count] and may change
// between releases; store and send the name.
package reason

// Reason says why. The zero value, None, means that there was none.
type Reason uint8

// Reasons for which a publish is refused: the bus owes nothing. Some of them
// also end work that was accepted, such as Expired, Canceled, NoStage and Type.
const (
	None         Reason = iota
	Invalid             // a nil or malformed argument
	Closed              // the bus shuts down or is closed
	NoStage             // no stage of that name
	Type                // the stage does not take this payload type
	Canceled            // the context was over, or the envelope was cancelled by id
	NotStarted          // the bus was not started
	Paused              // admission is paused
	Expired             // the deadline has passed
	Duplicate           // the idempotency key was seen before
	Shed                // refused by the shedder although there was room
	ShedDeadline        // the shedder predicts that the deadline would be missed
	Rate                // above a rate limit
	NoCredit            // the producer holds no credit
	Full                // the stage is full
	Newest              // the stage is full and drops the newest
	Store               // the journal could not take it

	// Reasons for which accepted work ends without completion.

	Evicted   // dropped: it was the oldest in a full stage
	PushedOut // dropped: a higher class took its place
	Discarded // dropped: its handler discarded it
	Doomed    // dropped: it could not meet its deadline any more when it was to start
	Lag       // dropped: the subscriber lagged behind

	// Reasons for which work is dead-lettered.

	Attempts    // every allowed attempt failed
	RetryTime   // the time for retries is over
	RetryBudget // an overloaded stage has used up what it may retry
	Handler     // the handler asked for it
	NoHandler   // the stage has no handler
	HopTimeout  // the next stage had no room in time

	// Reason for which work is abandoned.

	Shutdown // the bus ended first

	// Count is the number of reasons, for arrays indexed by Reason.
	Count = int(iota)
)

var names = [Count]string{ //nolint:gochecknoglobals // the table of names
	"none", "invalid", "closed", "no_stage", "type", "canceled", "not_started", "paused", "expired", "duplicate",
	"shed", "shed_deadline", "shed_rate", "no_credit", "full", "newest", "store",
	"evicted", "pushed_out", "discarded", "doomed", "lag",
	"attempts", "retry_time", "retry_budget", "handler", "no_handler", "hop_timeout", "shutdown",
}

// String returns the stable name, or "unknown" for a value that is not one of
// this package's.
func (r Reason) String() string {
	if int(r) < Count {
		return names[r]
	}
	return "unknown"
}

// Parse returns the Reason of a name as String gives it.
func Parse(name string) (Reason, bool) {
	for i, n := range names {
		if n == name {
			return Reason(i), true
		}
	}
	return None, false
}
