// Package report runs the scenarios with the laws, sums up the seeds, and
// writes the table, the figures and the verdict of the gates.
package report
