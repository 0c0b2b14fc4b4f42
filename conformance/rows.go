package conformance

import (
	"context"
	"slices"
	"testing"

	"github.com/sedabus/seda/bus"
)

// Kit says how the buses under test are made.
type Kit struct {
	// New returns a bus that is not started and fails the test if it cannot.
	// It is called inside a synctest bubble, except by rows that need real
	// concurrency, and must not start goroutines that outlive a shutdown of
	// the bus. Required.
	New func(t testing.TB, c bus.Config) *bus.Bus
	// Shards is how many shards the buses of New have; 0 is a bus without
	// shards. With shards, rows of scope Shard put one key on all that they
	// publish, so that it meets in one shard.
	Shards int
}

// Scope says over what a row's promise holds.
type Scope uint8

// Scopes.
const (
	Stage Scope = iota // over the whole stage, in every mode
	Shard              // over one shard: with shards, for envelopes of one key
)

// String returns the scope's name.
func (s Scope) String() string {
	if s == Shard {
		return "shard"
	}
	return "stage"
}

// Row is one promise of the suite.
type Row struct {
	// ID is the row's stable number, such as "C01", and Name says what it is
	// about; together they are the name of the row's subtest, "C01_BackPressure".
	ID, Name string
	// Scope is over what the promise holds.
	Scope Scope
	// Promise is one sentence.
	Promise string
	// NotYet says why the row has no cases; it is skipped with that reason.
	NotYet string

	cases []check
}

// Test returns the name of the row's subtest.
func (r *Row) Test() string { return r.ID + "_" + r.Name }

// Cases returns the names of the row's subtests.
func (r *Row) Cases() []string {
	out := make([]string, 0, len(r.cases))
	for i := range r.cases {
		out = append(out, r.cases[i].name)
	}
	return out
}

// check is one case of a row: run gets a bed in a bubble, real runs outside.
type check struct {
	name string
	cfg  bus.Config
	run  func(d *bed)
	real func(t *testing.T, d *bed)
}

// Rows returns all rows in order.
func Rows() []Row { return slices.Concat(firstRows(), furtherRows()) }

// firstRows are about what any bus of this kind owes.
func firstRows() []Row {
	return []Row{
		{
			ID: "C01", Name: "BackPressure", Scope: Stage, cases: backPressure(),
			Promise: "A full stage does what its policy says, never holds more than its capacity, and tells every publisher the truth.",
		},
		{
			ID: "C02", Name: "RetryAndDeadLetter", Scope: Stage, cases: retryAndDeadLetter(),
			Promise: "An envelope is tried exactly as often as allowed, then dead-lettered once and never handled there again.",
		},
		{
			ID: "C03", Name: "Isolation", Scope: Stage, cases: isolation(),
			Promise: "A panic or Goexit in a handler, callback or hook costs nobody else anything.",
		},
		{
			ID: "C04", Name: "ShutdownAccounting", Scope: Stage, cases: shutdownAccounting(),
			Promise: "A shutdown that says drained has ended everything well; one that ran out of time accounts for all it gave up.",
		},
		{
			ID: "C05", Name: "Config", Scope: Stage, cases: config(),
			Promise: "Settings out of their bounds are refused at registration, by name and all at once.",
		},
		{
			ID: "C06", Name: "Lifecycle", Scope: Stage, cases: lifecycle(),
			Promise: "Buses made, used and closed leave no goroutine behind; ending twice is ending once.",
		},
		{
			ID: "C07", Name: "Contention", Scope: Stage, cases: contention(),
			Promise: "Under contention every envelope is handled exactly once.",
		},
	}
}

// furtherRows are about where buses of this kind are known to have failed.
func furtherRows() []Row {
	return []Row{
		{
			ID: "C08", Name: "ItineraryUnderPauseAndShutdown", Scope: Stage, cases: itinerary(),
			Promise: "Pause and shutdown let the itineraries under way finish.",
		},
		{
			ID: "C09", Name: "DeadLetterSlip", Scope: Stage, cases: deadLetterSlip(),
			Promise: "A dead letter never resumes its slip by itself; a redrive does.",
		},
		{
			ID: "C10", Name: "OneOutcome", Scope: Stage, cases: oneOutcome(),
			Promise: "Every accepted envelope gets exactly one Result, whatever its end.",
		},
		{
			ID: "C11", Name: "RetryOrder", Scope: Shard, cases: retryOrder(),
			Promise: "An immediate retry comes before the rest; in an ordered stage followers wait for a retry and others pass.",
		},
		{
			ID: "C12", Name: "RetryNotEvicted", Scope: Stage, cases: retryNotEvicted(),
			Promise: "DropOldest never evicts what was started once.",
		},
		{
			ID: "C13", Name: "WedgedConsumer", Scope: Stage, cases: wedgedConsumer(),
			Promise: "A handler that does not return keeps nothing but its own envelope.",
		},
		{
			ID: "C14", Name: "CloseWakesProducers", Scope: Stage, cases: closeWakes(),
			Promise: "Nobody who waits stays blocked when the bus ends or pauses.",
		},
		{
			ID: "C15", Name: "PublishIntoOwnStage", Scope: Stage, cases: ownStage(),
			Promise: "A publish from inside a handler into its own full stage cannot deadlock.",
		},
		{
			ID: "C16", Name: "BusWideLimit", Scope: Stage, cases: busWideLimit(),
			Promise: "With fewer permits than stages no wake-up is lost, one worker makes progress, and no stage is starved.",
		},
		{
			ID: "C17", Name: "ZeroConfig", Scope: Stage, cases: zeroConfig(),
			Promise: "The zero configuration works, with the documented defaults.",
		},
		{
			ID: "C18", Name: "PubSub", Scope: Stage, cases: pubSub(),
			Promise: "Every subscriber has its own copy, its own settlement and its own retries.",
		},
		{
			ID: "C19", Name: "CreditLeak", Scope: Stage, cases: creditLeak(),
			Promise: "Every credit comes back, whatever becomes of who holds it or of the window; who holds one is not refused, and nobody is forgotten.",
		},
		{
			ID: "C20", Name: "ShedderRecovers", Scope: Stage, cases: shedderRecovers(),
			Promise: "The shedder admits again after an overload, at no traffic, and when everything was dropped; work under way is not shed.",
		},
		{
			ID: "C21", Name: "CrossShard", Scope: Stage, cases: crossShard(),
			Promise: "Two full shards that send to each other move on.",
		},
		{
			ID: "C22", Name: "DeadlineAtDequeue", Scope: Stage, cases: deadlines(),
			Promise: "Expired work is never handled, wherever its deadline passes.",
		},
		{
			ID: "C23", Name: "ResizeWhileBusy", Scope: Stage, cases: resize(),
			Promise: "A change of size while busy takes effect at once, cancels nothing and loses nothing.",
		},
	}
}

// Run runs every row as a subtest of t.
func Run(t *testing.T, k Kit) {
	t.Helper()
	if k.New == nil {
		t.Fatal("conformance: Kit.New is nil")
	}
	rows := Rows()
	for i := range rows {
		r := &rows[i]
		t.Run(r.Test(), func(t *testing.T) {
			if r.NotYet != "" {
				t.Skip("not applicable yet: " + r.NotYet)
			}
			for _, c := range r.cases {
				t.Run(c.name, func(t *testing.T) { c.start(t, k, r) })
			}
		})
	}
}

func (c *check) start(t *testing.T, k Kit, r *Row) {
	t.Helper()
	if c.run != nil {
		inBubble(t, k, r, c)
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.real(t, &bed{T: t, kit: k, row: r, ctx: ctx})
}
