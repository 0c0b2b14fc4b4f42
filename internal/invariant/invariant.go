// Package invariant is the one place in which seda panics, and it does so only
// for a fault of seda itself: a state that the code around it proves to be
// impossible. Bad input, a full queue or a failing handler never come here.
//
// The costly checks run when the race detector is on or the build tag
// invariants is set; without either they cost nothing.
package invariant

import "fmt"

// Violated panics with a text that starts with "seda: broken invariant: " and
// goes on with the formatted message. It panics in every build; guard what is
// costly to find out with [Enabled].
func Violated(format string, args ...any) {
	panic("seda: broken invariant: " + fmt.Sprintf(format, args...))
}

// Check calls [Violated] if ok is false and the checks are enabled, else it
// does nothing. Arguments are evaluated in either case: where that costs
// something, write "if invariant.Enabled" around the call.
func Check(ok bool, format string, args ...any) {
	if Enabled && !ok {
		Violated(format, args...)
	}
}
