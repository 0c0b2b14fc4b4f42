// Package fault breaks the bus on purpose, one promise at a time, so that the
// conformance suite can be seen to fail.
//
// A place in the code asks [On] whether it is to misbehave. In a normal build
// the answer is the constant false, and the compiler removes the question and
// what hangs on it. Under the build tag faults the environment variable
// SEDA_FAULT names the one fault that is on. Importers call the package faults.
package fault

// Name is the name of a fault, as SEDA_FAULT gives it.
type Name string

// Faults, each with what the bus does wrong while it is on.
const (
	BlockRefuses      Name = "block-refuses"       // a full stage with Block refuses at once
	LateWaiter        Name = "late-waiter"         // a publish that gave up is entered all the same
	LastComeFirst     Name = "last-come-first"     // of the publishers that wait, the last one gets the first place
	RefusalUncounted  Name = "refusal-uncounted"   // refusals are not counted
	NewestAccepted    Name = "newest-accepted"     // DropNewest tells the publisher that it was accepted
	NoEviction        Name = "no-eviction"         // DropOldest enters the newcomer beside the oldest
	AttemptTooFew     Name = "attempt-too-few"     // the last allowed attempt is not made
	AttemptTooMany    Name = "attempt-too-many"    // one attempt too many is made
	LetterLost        Name = "letter-lost"         // a dead letter does not get into the store
	UnhandledWaits    Name = "unhandled-waits"     // without a handler nothing is dead-lettered at publish
	PanicLosesRest    Name = "panic-loses-rest"    // a panic takes the rest of the claim along
	GoexitLosesWorker Name = "goexit-loses-worker" // no goroutine goes on after a Goexit
	CallbackDies      Name = "callback-dies"       // no goroutine goes on after a callback's Goexit
	HookDies          Name = "hook-dies"           // no goroutine goes on after a drop hook's Goexit
	HookInline        Name = "hook-inline"         // a hook's Goexit ends the bus's own goroutine
	DrainGivesUp      Name = "drain-gives-up"      // a shutdown does not wait
	WaitsForLate      Name = "waits-for-late"      // a shutdown waits for what is due after its deadline
	AbandonUncounted  Name = "abandon-uncounted"   // what a shutdown gives up is not counted
	LateHops          Name = "late-hops"           // a handler that returns after the end settles its envelope
	ConfigUnchecked   Name = "config-unchecked"    // settings are not validated
	ConflictIgnored   Name = "conflict-ignored"    // a second registration with other settings does nothing
	ExecutorStays     Name = "executor-stays"      // an executor's goroutine does not end
	ReportAgain       Name = "report-again"        // a second shutdown gets no report
	DeliverTwice      Name = "deliver-twice"       // now and then a handler gets an envelope twice
	KeysMixed         Name = "keys-mixed"          // envelopes of one key run at the same time
	HopIsPublish      Name = "hop-is-publish"      // a hop is lost when admission is closed or paused
	LetterKeepsSlip   Name = "letter-keeps-slip"   // a dead letter goes on with its old slip
	AckSilent         Name = "ack-silent"          // an envelope that completes gets no Result
	VictimSilent      Name = "victim-silent"       // a dropped envelope gets no Result
	ResultTwice       Name = "result-twice"        // a dead letter gets two Results
	RetryToTail       Name = "retry-to-tail"       // an immediate retry goes to the end of the queue
	FollowersPass     Name = "followers-pass"      // a retry does not hold its key
	EvictsRetries     Name = "evicts-retries"      // DropOldest takes retries first
	WatchdogBlind     Name = "watchdog-blind"      // a held-up handler keeps the rest of its claim
	WaitersForgotten  Name = "waiters-forgotten"   // blocked publishers are not woken at the end
	ReceiversAsleep   Name = "receivers-asleep"    // blocked receivers are not woken at the end
	InsideWaits       Name = "inside-waits"        // a publish from inside waits without a limit
	PermitLost        Name = "permit-lost"         // a permit given back wakes no stage
	NoShare           Name = "no-share"            // stages keep no reserved share of the permits
	NoDefault         Name = "no-default"          // the capacity has no default
	HeadersShared     Name = "headers-shared"      // subscribers share one array of headers
	CopyFailureLost   Name = "copy-failure-lost"   // a publish completes although a copy failed
	DeadlineIgnored   Name = "deadline-ignored"    // no deadline ever passes
	ResizeIgnored     Name = "resize-ignored"      // a lower concurrency does not take effect
	ShrinkDrops       Name = "shrink-drops"        // a lower capacity throws the surplus away
	ShedSticks        Name = "shed-sticks"         // a stage that has shed once sheds for ever
	ShedsHops         Name = "sheds-hops"          // the shedder is asked about hops
	EndsUntold        Name = "ends-untold"         // the shedder hears of nothing that has ended
	CreditCancelKeeps Name = "credit-cancel-keeps" // a wait for a credit that is given up costs one
	CreditFailKeeps   Name = "credit-fail-keeps"   // an envelope that fails costs a credit
	CreditCloseKeeps  Name = "credit-close-keeps"  // a producer that is closed keeps its credits
	CreditOrphanKeeps Name = "credit-orphan-keeps" // one that was collected does
	CreditNeverLapses Name = "credit-never-lapses" // leases do not end
	CreditHoldKeeps   Name = "credit-hold-keeps"   // credits stay in hand while a stage is suspended or the bus is paused
	CreditShrinkKeeps Name = "credit-shrink-keeps" // a smaller window costs a credit
	CreditWindowStays Name = "credit-window-stays" // the window does not change
	CreditWaits       Name = "credit-waits"        // who waits is not served as long as handlers run
	CreditInParts     Name = "credit-in-parts"     // who waits for several holds some of them meanwhile
	CreditBiased      Name = "credit-biased"       // weights depend on who came first
	CreditClassless   Name = "credit-classless"    // classes do not count
	CreditRingFull    Name = "credit-ring-full"    // a ring filled to its last credit does not move
	CreditDoubled     Name = "credit-doubled"      // a returned credit is there twice
	LaneUnbooked      Name = "lane-unbooked"       // what lanes have published is not in the books of credits
	KillIgnored       Name = "kill-ignored"        // the kill switch does nothing

	CreditUnbooked   Name = "credit-unbooked"    // credits that are called back are not booked as returned
	CreditBeyond     Name = "credit-beyond"      // a window does not shrink
	CreditKept       Name = "credit-kept"        // a closed account keeps its credits
	CreditOvertaken  Name = "credit-overtaken"   // small wants overtake a large one
	CreditUnfair     Name = "credit-unfair"      // who was granted most comes first
	CreditForever    Name = "credit-forever"     // leases do not end
	CreditHoarded    Name = "credit-hoarded"     // what was granted ahead is not called back
	CreditAsleep     Name = "credit-asleep"      // a wait that is given up wakes none of those behind
	CreditPauseKeeps Name = "credit-pause-keeps" // a pause leaves producers their credits
	CreditShareless  Name = "credit-shareless"   // classes have no minimum share
	CreditStretched  Name = "credit-stretched"   // who waits for more than there is goes on waiting
	SizerDeaf        Name = "sizer-deaf"         // starving workers do not enlarge the window
)
