package main

import (
	"fmt"
	"io"

	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bench/internal/report"
)

const (
	nonInferior = 0.95 // least lower end of the interval of a ratio of rates
	mostWakes   = 1.05 // greatest upper end of that of wake-ups
	mostNanos   = 30   // that a publish with credit in hand may cost over Block's
	mostAllocs  = 0.001
	mostGrowth  = 1.25 // of the wait between the least and the greatest capacity
	targets     = 2    // the wait that a window aims at, in service times
	mostP50     = targets * 1.1
	mostP99     = targets * 2.0
)

// gates writes which bounds are met and returns how many are not.
func (b *book) gates(w io.Writer) (missed int, err error) {
	rows := [][]string{{"what", "where", "bound", "measured", "outcome"}}
	judge := func(what, where, bound, measured string, met bool) {
		outcome := "met"
		if !met {
			outcome = "**missed**"
			missed++
		}
		rows = append(rows, []string{what, where, bound, measured, outcome})
	}
	for _, r := range append(b.plan.rate, b.plan.wait...) {
		e := b.estimate(r, rateRatio)
		judge("throughput beside Block", where(r), "lower end at least 0.95", span(e), e.Low >= nonInferior)
	}
	for _, r := range b.plan.round {
		e := b.estimate(r, rateRatio)
		judge("ring beside its pipeline", where(r), "lower end at least 0.95", span(e), e.Low >= nonInferior)
	}
	for _, r := range append(b.plan.rate, b.plan.wait...) {
		e := b.estimate(r, waitRatio)
		judge("wake-ups a message beside Block", where(r), "upper end at most 1.05", span(e), e.High <= mostWakes)
	}
	b.waitGates(judge)
	for _, r := range b.plan.cost {
		e := b.estimate(r, nanosOver)
		allocs := b.median(r.Cell, func(s load.Sample) float64 { return s.Allocs })
		judge("a publish over Block's", where(r), "upper end at most 30 ns", fmt.Sprintf("%.1f [%.1f, %.1f] ns", e.Mid, e.Low, e.High), e.High <= mostNanos)
		judge("its allocations", where(r), "0", fmt.Sprintf("%.4f", allocs), allocs <= mostAllocs)
	}
	if len(rows) == 1 {
		return 0, nil
	}
	if _, err := io.WriteString(w, "\nBounds.\n\n"); err != nil {
		return missed, err
	}
	if err := report.Markdown(w, rows); err != nil {
		return missed, err
	}
	_, err = fmt.Fprintf(w, "\n%d of %d missed.\n", missed, len(rows)-1)
	return missed, err
}

func where(r report.Row) string { return r.Workload + " " + r.System }

// waitGates judges the waiting in the stage: bounded by the target, and the same
// at every capacity.
func (b *book) waitGates(judge func(what, where, bound, measured string, met bool)) {
	served := func(of func(load.Sample) float64) func(load.Sample) float64 {
		return func(s load.Sample) float64 { return of(s) / s.Inside.Service }
	}
	for i, r := range b.plan.wait {
		p50, p99 := b.median(r.Cell, served(p50Of)), b.median(r.Cell, served(p99Of))
		judge("wait p50, in service times", where(r), fmt.Sprintf("at most %.1f", mostP50), fmt.Sprintf("%.2f", p50), p50 <= mostP50)
		judge("wait p99, in service times", where(r), fmt.Sprintf("at most %.1f", mostP99), fmt.Sprintf("%.2f", p99), p99 <= mostP99)
		if n := len(load.Capacities()); i%n == n-1 {
			least := b.plan.wait[i-n+1]
			growth := b.median(r.Cell, p99Of) / b.median(least.Cell, p99Of)
			blocks := b.median(r.Base, p99Of) / b.median(least.Base, p99Of)
			judge("growth of the wait p99 with the capacity", fmt.Sprintf("%s to %s", where(least), r.Workload),
				fmt.Sprintf("at most %.2f", mostGrowth), fmt.Sprintf("%.2f, Block's %.0f", growth, blocks), growth <= mostGrowth)
		}
	}
}
