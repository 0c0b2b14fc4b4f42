//go:build !faults

package fault

// Enabled says whether faults can be switched on at all. It is a constant, so
// that the compiler removes what it guards.
const Enabled = false

// On reports whether the fault is on: never in this build.
func On(Name) bool { return Enabled }
