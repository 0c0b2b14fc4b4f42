package main

import (
	"slices"

	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bench/internal/report"
)

// cost is the workload of one publish while there is room.
const cost = "cost"

// plan is what is measured: rows of Credit with Block as their base, by part,
// and rows of a ring with the pipeline of as many visits as their base.
type plan struct {
	report.Plan

	rate, wait, ring, round, cost []report.Row
}

// apis are the two ways to publish.
func apis() []string { return []string{"publish", "handle"} }

func newPlan(only []string) plan {
	var p plan
	beside := func(workload, sys, base string) report.Row {
		return report.Row{
			Cell: report.Cell{Workload: workload, System: sys},
			Base: report.Cell{Workload: workload, System: base},
		}
	}
	if wants(only, "rate") {
		for _, w := range []string{"W1", "W2", "W3"} {
			for _, api := range apis() {
				p.rate = append(p.rate, beside(w, "credit-"+api, "block-"+api), beside(w, "credit-max-"+api, "block-"+api))
			}
		}
	}
	if wants(only, "wait") {
		for _, producers := range []int{8, 64} {
			for _, api := range apis() {
				for _, capacity := range load.Capacities() {
					p.wait = append(p.wait, beside(load.Saturated(producers, capacity), "credit-"+api, "block-"+api))
				}
			}
		}
	}
	if wants(only, "ring") {
		for _, suffix := range []string{"", "s"} {
			for _, w := range []string{"L24", "R3", "R8"} {
				p.ring = append(p.ring, beside(w+suffix, "credit-publish", "block-publish"))
				if w != "L24" {
					p.round = append(p.round, report.Row{
						Cell: report.Cell{Workload: w + suffix, System: "credit-publish"},
						Base: report.Cell{Workload: "L24" + suffix, System: "credit-publish"},
					})
				}
			}
		}
	}
	if wants(only, "cost") {
		for _, api := range apis() {
			p.cost = append(p.cost, beside(cost, "credit-max-"+api, "block-"+api))
		}
	}
	p.Rows = slices.Concat(p.rate, p.wait, p.ring, p.round, p.cost)
	p.group()
	return p
}

// group puts the cells of each workload into one group of rounds, and those of
// rings with those of the pipeline that they are compared with.
func (p *plan) group() {
	index := map[string]int{}
	for _, r := range p.Rows {
		lead := r.Base.Workload
		if slices.Contains(p.ring, r) {
			lead = "L24"
			if spec, err := load.Lookup(r.Workload); err == nil && spec.Work != load.Noop {
				lead = "L24s"
			}
		}
		g, ok := index[lead]
		if !ok {
			g = len(p.Groups)
			index[lead] = g
			p.Groups = append(p.Groups, nil)
		}
		for _, c := range []report.Cell{r.Base, r.Cell} {
			if !slices.Contains(p.Groups[g], c) {
				p.Groups[g] = append(p.Groups[g], c)
			}
		}
	}
}
