// Package law has the admission laws that the bench compares: the module's own,
// oracles that know what nobody can know, rivals that are libraries, and
// formula rows, which are laws written down from their published formulas
// because the original is not to be had as a module.
package law
