//go:build race || invariants

package invariant

// Enabled says whether the costly checks run. It is a constant, so that the
// compiler removes what it guards.
const Enabled = true
