//go:build race || invariants

package invariant_test

const wantEnabled = true
