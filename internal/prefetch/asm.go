//go:build (amd64 || arm64) && !race

package prefetch

// Enabled says whether Read does anything. It does not under the race detector:
// what leads to the address may be read while others write it.
const Enabled = true

// Read asks for the cache line of address p.
//
//go:noescape
func Read(p uintptr)
