// Package shape has the scenarios of the bench: what arrives, how long it takes
// and what goes wrong, for stages of six scales.
package shape
