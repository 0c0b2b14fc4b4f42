//go:build faults

package fault

import "os"

// Enabled says whether faults can be switched on at all. It is a constant, so
// that the compiler removes what it guards.
const Enabled = true

var active = Name(os.Getenv("SEDA_FAULT")) //nolint:gochecknoglobals // read once, never written

// On reports whether the fault is the one that SEDA_FAULT names.
func On(f Name) bool { return f == active }
