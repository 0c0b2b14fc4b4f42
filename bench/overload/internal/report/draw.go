package report

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sedabus/seda/bench/overload/internal/law"
	"github.com/sedabus/seda/bench/overload/internal/plot"
	"github.com/sedabus/seda/bench/overload/internal/score"
	"github.com/sedabus/seda/bench/overload/internal/shape"
	"github.com/sedabus/seda/bench/overload/internal/sim"
)

// loads are the offered loads of the first chart.
func loads() []float64 { return []float64{.5, .7, .8, .9, 1, 1.1, 1.25, 1.5, 2, 3, 4, 6, 8, 10} }

// drawn are the laws that have a line.
func (p *Plan) drawn() []law.Row {
	return slices.DeleteFunc(slices.Clone(p.Laws), func(r law.Row) bool { return r.Grid != nil })
}

// each runs f for every law that is drawn, some at a time.
func (p *Plan) each(f func(i int, row law.Row)) {
	laws := p.drawn()
	todo := make(chan int)
	done := make(chan struct{})
	for range max(1, p.Workers) {
		go func() { // ends when todo is closed
			for i := range todo {
				f(i, laws[i])
			}
			done <- struct{}{}
		}()
	}
	for i := range laws {
		todo <- i
	}
	close(todo)
	for range max(1, p.Workers) {
		<-done
	}
}

// GoodputChart draws goodput against offered load, one line a law: the part of
// the workers' time that goes into jobs that end in time, in steady load.
func (p *Plan) GoodputChart(t *testing.T, sc sim.Scale) *plot.Chart {
	t.Helper()
	xs := loads()
	lines := make([]plot.Line, len(p.drawn()))
	p.each(func(i int, row law.Row) {
		ys := make([]float64, len(xs))
		for k, load := range xs {
			sh := shape.Level(load)
			spec := sh.Make(sc)
			for seed := range p.Seeds {
				s := score.Of(Simulate(t, spec, row, uint64(seed)))
				ys[k] += 100 * s.Good / (float64(sc.Workers) * spec.Len().Seconds()) / float64(p.Seeds)
			}
		}
		lines[i] = line(row, xs, ys)
	})
	return &plot.Chart{
		Title:    "Goodput against offered load",
		Subtitle: fmt.Sprintf("%s; a job is good if it ends within %s of its arrival; %s", describe(sc), spaced(sc.Budget()), p.over()),
		X: plot.Axis{
			Title: "offered load, as a multiple of the capacity (logarithmic)", Min: .5, Max: 10, Log: true,
			Ticks: []float64{.5, .7, 1, 1.5, 2, 3, 4, 6, 10}, Label: func(x float64) string { return fmt.Sprintf("%g×", x) },
		},
		Y: plot.Axis{
			Title: "workers' time that went into good jobs, in percent", Min: 0, Max: 105,
			Ticks: []float64{0, 20, 40, 60, 80, 100}, Label: func(y float64) string { return fmt.Sprintf("%g %%", y) },
		},
		Lines: lines,
	}
}

// line gives a law its style.
func line(row law.Row, xs, ys []float64) plot.Line {
	style := plot.Thin
	switch row.Kind {
	case law.Ours:
		style = plot.Bold
	case law.Oracle:
		style = plot.Dashed
	case law.Formula:
		style = plot.Dotted
	case law.Plain, law.Rival, law.Broken:
	}
	return plot.Line{Name: row.Name, X: xs, Y: ys, Style: style}
}

func describe(sc sim.Scale) string {
	if sc.Workers == 1 {
		return "1 worker, exponential service of mean " + spaced(sc.Service)
	}
	return fmt.Sprintf("%d workers, exponential service of mean %s", sc.Workers, spaced(sc.Service))
}

// FlashChart draws the p99 of the time from arrival to end through the flash
// crowd, one line a law.
func (p *Plan) FlashChart(t *testing.T, sc sim.Scale) *plot.Chart {
	t.Helper()
	sh := shape.All()[slices.IndexFunc(shape.All(), func(s shape.Shape) bool { return s.Name == "flash" })]
	spec := sh.Make(sc)
	unit := sc.Unit()
	from, to := spec.From-20*unit, spec.To+60*unit
	bins := int((to - from) / (2 * unit))
	lines := make([]plot.Line, len(p.drawn()))
	p.each(func(i int, row law.Row) {
		totals := make([][]float64, bins)
		for seed := range p.Seeds {
			r := Simulate(t, sh.Make(sc), row, uint64(seed))
			for k := range r.Jobs {
				j := &r.Jobs[k]
				if b := int((j.At - from) / (2 * unit)); j.At >= from && b < bins && j.Fate == sim.Completed {
					totals[b] = append(totals[b], (j.End-j.At).Seconds()*1e3)
				}
			}
		}
		xs, ys := make([]float64, bins), make([]float64, bins)
		for b := range totals {
			xs[b] = (float64(b)*2 + 1 - 20) * unit.Seconds()
			ys[b] = math.NaN()
			if n := len(totals[b]); n >= 5 {
				slices.Sort(totals[b])
				ys[b] = totals[b][int(math.Ceil(.99*float64(n)))-1]
			}
		}
		lines[i] = line(row, xs, ys)
	})
	return &plot.Chart{
		Title:    "Latency through a flash crowd of 10 times the capacity",
		Subtitle: fmt.Sprintf("%s; p99 from arrival to end, by the time of arrival; %s", describe(sc), p.over()),
		X: plot.Axis{
			Title: "time since the crowd came, in seconds", Min: -20 * unit.Seconds(), Max: (spec.Len() + 60*unit).Seconds(),
			Ticks: evenly(-20*unit.Seconds(), (spec.Len() + 60*unit).Seconds()),
		},
		Y: plot.Axis{
			Title: "p99 of the time from arrival to end (logarithmic)", Min: .6 * sc.Service.Seconds() * 1e3, Max: 1e4 * sc.Service.Seconds() * 1e3, Log: true,
			Ticks: decades(.6*sc.Service.Seconds()*1e3, 1e4*sc.Service.Seconds()*1e3), Label: milliseconds,
		},
		Bands: []plot.Band{{From: 0, To: spec.Len().Seconds(), Name: "10×"}},
		Lines: lines,
	}
}

func milliseconds(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%g s", x/1000)
	}
	return fmt.Sprintf("%g ms", x)
}

// spaced puts a space between a time and its unit.
func spaced(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%g ms", float64(d)/1e6)
	default:
		return fmt.Sprintf("%g µs", float64(d)/1e3)
	}
}

// over says how many seeds there are.
func (p *Plan) over() string {
	if p.Seeds == 1 {
		return "one seed"
	}
	return fmt.Sprintf("%d seeds", p.Seeds)
}

// decades are 1, 10, 100 and so on between two values.
func decades(lo, hi float64) []float64 {
	var out []float64
	for x := math.Pow(10, math.Ceil(math.Log10(lo))); x <= hi*1.0001; x *= 10 {
		out = append(out, x)
	}
	return out
}

// evenly are round values between two, about eight of them.
func evenly(lo, hi float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/8)))
	for _, k := range []float64{1, 2, 5, 10} {
		if (hi-lo)/(step*k) <= 9 {
			step *= k
			break
		}
	}
	var out []float64
	for i := math.Ceil(lo / step); i*step <= hi; i++ {
		out = append(out, i*step)
	}
	return out
}
