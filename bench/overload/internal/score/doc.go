// Package score makes figures of a run: goodput, waits, false sheds, and how
// fast and how smoothly a law gets to its steady state.
package score
