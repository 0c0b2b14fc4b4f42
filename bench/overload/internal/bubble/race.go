//go:build race

package bubble

// Race says that the race detector is on, which makes simulations an order of
// magnitude slower and finds nothing in a single goroutine.
const Race = true
