package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bench/internal/report"
	"github.com/sedabus/seda/bench/internal/stat"
)

// book is what was measured.
type book struct {
	data report.Data
	seed uint64
	plan plan
}

const resamples = 10_000

// estimate is the median of a figure over the rounds, with its interval.
func (b *book) estimate(r report.Row, of func(cell, base load.Sample) float64) stat.Estimate {
	cells, bases := b.data.Pairs(r)
	var xs []float64
	for i := range cells {
		xs = append(xs, of(cells[i], bases[i]))
	}
	return stat.MedianInterval(xs, resamples, b.seed)
}

// median is that of a figure of one side.
func (b *book) median(c report.Cell, of func(load.Sample) float64) float64 {
	var xs []float64
	for _, s := range b.data.Samples[c] {
		xs = append(xs, of(s))
	}
	return stat.Median(xs)
}

func rateRatio(cell, base load.Sample) float64 { return cell.Rate() / base.Rate() }

func cpuRatio(cell, base load.Sample) float64 { return cell.CPUNanos() / base.CPUNanos() }

// waitRatio compares wake-ups. A thousandth of one for a message is nothing.
func waitRatio(cell, base load.Sample) float64 {
	const nothing = 0.001
	return (cell.Waits + nothing) / (base.Waits + nothing)
}

func waitsOf(s load.Sample) float64 { return s.Waits }

func turnsOf(s load.Sample) float64 { return s.Turns }

func p50Of(s load.Sample) float64 { return s.Inside.WaitP50 }

func p99Of(s load.Sample) float64 { return s.Inside.WaitP99 }

func depthOf(s load.Sample) float64 { return s.Inside.Depth }

func windowOf(s load.Sample) float64 { return s.Inside.Window }

func span(e stat.Estimate) string { return fmt.Sprintf("%.2f [%.2f, %.2f]", e.Mid, e.Low, e.High) }

func word(e stat.Estimate) string {
	switch {
	case e.Low >= 1:
		return "better"
	case e.Low >= nonInferior:
		return "non-inferior"
	case e.High < nonInferior:
		return "inferior"
	default:
		return "open"
	}
}

// short writes seconds as a duration with three digits.
func short(s float64) string {
	d := time.Duration(s * 1e9)
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d >= time.Microsecond:
		return d.Round(10 * time.Nanosecond).String()
	default:
		return d.String()
	}
}

func (b *book) tables(w io.Writer) error {
	var errs []error
	print := func(title string, rows [][]string) {
		if len(rows) < 2 {
			return
		}
		_, err := io.WriteString(w, "\n"+title+"\n\n")
		errs = append(errs, err, report.Markdown(w, rows))
	}
	print("Credit beside Block: throughput of no-op handlers.", b.rateTable())
	print("A stage of 16 handlers that sleep 1 ms, saturated by 8 and by 64 producers.", b.waitTable())
	print("24 visits, round a ring and along a pipeline.", b.ringTable())
	print("One publish while there is room.", b.costTable())
	return errors.Join(errs...)
}

func (b *book) rateTable() [][]string {
	rows := [][]string{{"workload", "form", "window", "M msg/s", "Block's", "ratio [95 %]", "", "CPU ratio", "wake-ups", "Block's", "turns", "Block's"}}
	for _, r := range b.plan.rate {
		rows = append(rows, []string{
			r.Workload, api(r.System), b.window(r), mega(b.median(r.Cell, load.Sample.Rate)), mega(b.median(r.Base, load.Sample.Rate)),
			span(b.estimate(r, rateRatio)), word(b.estimate(r, rateRatio)), span(b.estimate(r, cpuRatio)),
			fmt.Sprintf("%.4f", b.median(r.Cell, waitsOf)), fmt.Sprintf("%.4f", b.median(r.Base, waitsOf)),
			fmt.Sprintf("%.3f", b.median(r.Cell, turnsOf)), fmt.Sprintf("%.3f", b.median(r.Base, turnsOf)),
		})
	}
	return rows
}

func (b *book) window(r report.Row) string {
	n := fmt.Sprintf("%.0f", b.median(r.Cell, windowOf))
	if strings.Contains(r.System, "max") {
		return n + ", fixed"
	}
	return n + ", adapts"
}

func api(system string) string {
	if strings.HasSuffix(system, "handle") {
		return "handle"
	}
	return "publish"
}

func mega(rate float64) string { return fmt.Sprintf("%.2f", rate/1e6) }

func (b *book) waitTable() [][]string {
	rows := [][]string{{
		"producers", "form", "capacity", "ratio of rates [95 %]", "", "window", "wait p50", "p99", "depth",
		"Block's p50", "p99", "depth", "wake-ups", "Block's", "ratio [95 %]", "turns", "Block's",
	}}
	for _, r := range b.plan.wait {
		spec, err := load.Lookup(r.Workload)
		if err != nil {
			continue
		}
		rows = append(rows, []string{
			strconv.Itoa(spec.Producers), api(r.System), strconv.Itoa(spec.Capacity),
			span(b.estimate(r, rateRatio)), word(b.estimate(r, rateRatio)), fmt.Sprintf("%.0f", b.median(r.Cell, windowOf)),
			short(b.median(r.Cell, p50Of)), short(b.median(r.Cell, p99Of)), fmt.Sprintf("%.0f", b.median(r.Cell, depthOf)),
			short(b.median(r.Base, p50Of)), short(b.median(r.Base, p99Of)), fmt.Sprintf("%.0f", b.median(r.Base, depthOf)),
			fmt.Sprintf("%.2f", b.median(r.Cell, waitsOf)), fmt.Sprintf("%.2f", b.median(r.Base, waitsOf)), span(b.estimate(r, waitRatio)),
			fmt.Sprintf("%.2f", b.median(r.Cell, turnsOf)), fmt.Sprintf("%.2f", b.median(r.Base, turnsOf)),
		})
	}
	return rows
}

func (b *book) ringTable() [][]string {
	rows := [][]string{{"stages", "handler", "Credit, M visits/s", "of its pipeline [95 %]", "", "Block, M visits/s", "Credit to Block [95 %]", ""}}
	for _, r := range b.plan.ring {
		spec, err := load.Lookup(r.Workload)
		if err != nil {
			continue
		}
		what, handler := fmt.Sprintf("ring of %d", spec.Stages), "no-op"
		if spec.Laps == 1 {
			what = fmt.Sprintf("pipeline of %d", spec.Stages)
		}
		if spec.Work != load.Noop {
			handler = "10 µs"
		}
		share, verdict := "–", ""
		for _, round := range b.plan.round {
			if round.Cell == r.Cell {
				e := b.estimate(round, rateRatio)
				share, verdict = span(e), word(e)
			}
		}
		visits := func(s load.Sample) float64 { return s.Rate() * float64(spec.Visits()) }
		rows = append(rows, []string{
			what, handler, mega(b.median(r.Cell, visits)), share, verdict, mega(b.median(r.Base, visits)),
			span(b.estimate(r, rateRatio)), word(b.estimate(r, rateRatio)),
		})
	}
	return rows
}

func nanosOver(cell, base load.Sample) float64 { return cell.WallNanos() - base.WallNanos() }

func (b *book) costTable() [][]string {
	rows := [][]string{{"form", "Credit, ns", "Block, ns", "more, ns [95 %]", "allocations"}}
	for _, r := range b.plan.cost {
		e := b.estimate(r, nanosOver)
		rows = append(rows, []string{
			api(r.System), fmt.Sprintf("%.1f", b.median(r.Cell, load.Sample.WallNanos)), fmt.Sprintf("%.1f", b.median(r.Base, load.Sample.WallNanos)),
			fmt.Sprintf("%.1f [%.1f, %.1f]", e.Mid, e.Low, e.High),
			fmt.Sprintf("%.3f", b.median(r.Cell, func(s load.Sample) float64 { return s.Allocs })),
		})
	}
	return rows
}
