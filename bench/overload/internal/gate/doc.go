// Package gate has what the module's own law has to show in each scenario, and
// the formulas of finite queues that say what can be shown at all.
package gate
