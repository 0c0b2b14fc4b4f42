package conformance_test

import faults "github.com/sedabus/seda/internal/fault"

// red says that a case fails when a fault is on, and what it then says.
type red struct {
	row, name string
	fault     faults.Name
	says      string
}

// reds holds every row at least once; docs/conformance.md shows it.
var reds = []red{
	{"C01_BackPressure", "Block", faults.BlockRefuses, "a publish to a full Block stage was refused"},
	{"C01_BackPressure", "BlockInOrder", faults.LastComeFirst, "order of publishers that waited"},
	{"C01_BackPressure", "BlockGivesUp", faults.LateWaiter, "was handled although its publish gave up"},
	{"C01_BackPressure", "Reject", faults.RefusalUncounted, "refused{full} after each refusal"},
	{"C01_BackPressure", "DropNewest", faults.NewestAccepted, "publish to a full DropNewest stage: got <nil>, want dropped"},
	{"C01_BackPressure", "DropOldest", faults.NoEviction, "exceeds the capacity"},
	{"C02_RetryAndDeadLetter", "LastAttemptSucceeds", faults.AttemptTooFew, "was given up before its last allowed attempt"},
	{"C02_RetryAndDeadLetter", "NeverSucceeds", faults.AttemptTooMany, "handler calls for five envelopes of three attempts: got 20"},
	{"C02_RetryAndDeadLetter", "ToTheStore", faults.LetterLost, "letters in the store: got 0"},
	{"C02_RetryAndDeadLetter", "NoHandler", faults.UnhandledWaits, "was not dead-lettered at once"},
	{"C03_Isolation", "HandlerPanics", faults.PanicLosesRest, "was not handled after the call for another one exploded"},
	{"C03_Isolation", "HandlerGoexits", faults.GoexitLosesWorker, "was not handled after the call for another one exploded"},
	{"C03_Isolation", "CallbackGoexits", faults.CallbackDies, "was not called after another one exploded"},
	{"C03_Isolation", "DropHookGoexits", faults.HookDies, "drop hooks called after one called Goexit"},
	{"C04_ShutdownAccounting", "Drained", faults.DrainGivesUp, "a shutdown without a deadline did not drain"},
	{"C04_ShutdownAccounting", "TimedOut", faults.AbandonUncounted, "abandoned: got 0, want 10"},
	{"C04_ShutdownAccounting", "Closed", faults.AbandonUncounted, "abandoned: got 0, want 10"},
	{"C04_ShutdownAccounting", "LateSettlement", faults.LateHops, "settlements counted late: got 0"},
	{"C04_ShutdownAccounting", "RetryBeyondDeadline", faults.WaitsForLate, "a shutdown waited for a retry that is due after its deadline"},
	{"C05_Config", "StageBounds", faults.ConfigUnchecked, "was registered"},
	{"C05_Config", "AllAtOnce", faults.ConfigUnchecked, "a stage with four bad settings was registered"},
	{"C06_Lifecycle", "NothingLeft", faults.ExecutorStays, "goroutines left by buses that have ended"},
	{"C06_Lifecycle", "EndsOnce", faults.ReportAgain, "shutdowns that returned before the bus was drained"},
	{"C07_Contention", "ExactlyOnce", faults.DeliverTwice, "want exactly once"},
	{"C07_Contention", "OverHops", faults.DeliverTwice, "want exactly once"},
	{"C07_Contention", "OneKeyAtATime", faults.KeysMixed, "of the same key"},
	{"C08_ItineraryUnderPauseAndShutdown", "Pause", faults.HopIsPublish, "itineraries that ended while paused: got ["},
	{"C08_ItineraryUnderPauseAndShutdown", "Shutdown", faults.HopIsPublish, "itineraries and publishes from inside that ended during the shutdown: got ["},
	{"C09_DeadLetterSlip", "InAStage", faults.LetterKeepsSlip, "dead letters that went on with their old slip"},
	{"C09_DeadLetterSlip", "InTheStore", faults.LetterLost, "redrive: {Redriven:0"},
	{"C10_OneOutcome", "AllAtOnce", faults.VictimSilent, "got no Result"},
	{"C10_OneOutcome", "Evicted", faults.VictimSilent, "got no Result"},
	{"C10_OneOutcome", "OutOfAttempts", faults.ResultTwice, "got 2 Results"},
	{"C10_OneOutcome", "Call", faults.VictimSilent, "Results of the call that ends"},
	{"C11_RetryOrder", "ImmediateFirst", faults.RetryToTail, "order with an immediate retry of 2: got [0 1 2 3"},
	{"C11_RetryOrder", "ByKeyHoldsFollowers", faults.FollowersPass, "a follower overtook the retry of its key"},
	{"C11_RetryOrder", "InOrderHoldsAll", faults.FollowersPass, "a follower overtook the retry in an ordered stage"},
	{"C12_RetryNotEvicted", "Requeued", faults.EvictsRetries, "a retry was evicted"},
	{"C13_WedgedConsumer", "InChunks", faults.WatchdogBlind, "handled, with nothing left behind the wedged handler"},
	{"C13_WedgedConsumer", "Alone", faults.WatchdogBlind, "handled, with nothing left behind the wedged handler"},
	{"C13_WedgedConsumer", "AloneByKey", faults.WatchdogBlind, "handled, with nothing left behind the wedged handler"},
	{"C13_WedgedConsumer", "RoomBehindIt", faults.WatchdogBlind, "places left free although publishers wait"},
	{"C14_CloseWakesProducers", "Close", faults.WaitersForgotten, "publishers that came back when their wait was ended: got 0"},
	{"C14_CloseWakesProducers", "Shutdown", faults.WaitersForgotten, "publishers that came back when their wait was ended: got 0"},
	{"C14_CloseWakesProducers", "Pause", faults.WaitersForgotten, "publishers that came back when their wait was ended: got 0"},
	{"C14_CloseWakesProducers", "Receivers", faults.ReceiversAsleep, "receivers that came back when the bus was closed: got 0"},
	{"C15_PublishIntoOwnStage", "Block", faults.InsideWaits, "publishes from inside that have ended a minute after their hop timeout: got 0"},
	{"C16_BusWideLimit", "MoreStagesThanPermits", faults.PermitLost, "handled with two permits for six stages"},
	{"C16_BusWideLimit", "OneWorker", faults.PermitLost, "handled by the only worker of the bus"},
	{"C16_BusWideLimit", "EveryStageKeepsAShare", faults.NoShare, "stages starved by a busy one"},
	{"C17_ZeroConfig", "Works", faults.NoDefault, "publish to a stage of the zero configuration"},
	{"C17_ZeroConfig", "Defaults", faults.NoDefault, "default capacity: got 0"},
	{"C18_PubSub", "OwnCopies", faults.HeadersShared, "a header that another subscriber wrote over"},
	{"C18_PubSub", "OwnRetries", faults.CopyFailureLost, "ended completed (none), want dead-lettered (attempts)"},
	{"C18_PubSub", "NoSubscriber", faults.UnhandledWaits, "got no Result, want dead-lettered (no_handler)"},
	{"C22_DeadlineAtDequeue", "InQueue", faults.DeadlineIgnored, "an envelope was handled after its deadline"},
	{"C22_DeadlineAtDequeue", "InChunk", faults.DeadlineIgnored, "an envelope was handled after its deadline"},
	{"C22_DeadlineAtDequeue", "AfterHop", faults.DeadlineIgnored, "want dropped (expired)"},
	{"C23_ResizeWhileBusy", "Concurrency", faults.ResizeIgnored, "more handlers than the new concurrency"},
	{"C23_ResizeWhileBusy", "Capacity", faults.ShrinkDrops, "depth after shrinking the capacity"},
}
