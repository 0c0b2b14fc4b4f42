// Package conformance is the suite that every way of building a bus has to
// pass: the promises of package bus, one row each, checked through its public
// API alone.
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Kit{New: bustest.New})
//	}
//
// Rows run in virtual time inside testing/synctest bubbles, but for those that
// need real concurrency. None waits for a time to pass on a real clock, so a
// slow machine cannot make one fail. Each row is also run against a bus with
// one fault planted, to see that it can fail; the build tag faults does that.
//
// It imports testing and is for tests only.
package conformance
