package main

import (
	"fmt"
	"io"
	"time"

	"github.com/sedabus/seda/bench/overload/internal/report"
)

// aJob is about what a job takes of a processor; laws differ by the factor of
// ten.
const aJob = 1500 * time.Nanosecond

// sayEvery is how often progress is told.
const sayEvery = 5 * time.Second

// progress tells what is going on; it is not worth an error.
type progress struct {
	w           io.Writer
	verbose     bool
	runs, done  int
	began, last time.Time
}

// announce says how much work there is.
func (p *progress) announce(o *options) {
	runs, jobs := o.plan.Size()
	p.runs = runs
	takes := time.Duration(jobs * float64(aJob) / float64(max(1, o.plan.Workers)))
	_, _ = fmt.Fprintf(p.w, "%d scenarios at %d scales, %d laws, %d seeds: %d runs of %.0f million jobs, about %v with %d at a time on a quiet machine\n",
		len(o.plan.Shapes), len(o.plan.Scales), len(o.plan.Laws), o.plan.Seeds, runs, jobs/1e6, takes.Round(time.Second), o.plan.Workers)
	if o.svg != "" {
		_, _ = fmt.Fprintln(p.w, "and the charts after that")
	}
}

// finished is told of each run that is over, one at a time.
func (p *progress) finished(k report.Key, seed int, d time.Duration) {
	p.done++
	if p.verbose {
		_, _ = fmt.Fprintf(p.w, "%s %s %s seed %d: %v\n", k.Shape, k.Scale, k.Law, seed, d.Round(time.Millisecond))
		return
	}
	if now := time.Now(); now.Sub(p.last) >= sayEvery {
		p.last = now
		_, _ = fmt.Fprintf(p.w, "%d of %d runs after %v; at %s, %s\n", p.done, p.runs, now.Sub(p.began).Round(time.Second), k.Shape, k.Scale)
	}
}

func (p *progress) end() {
	_, _ = fmt.Fprintf(p.w, "%d runs in %v\n", p.done, time.Since(p.began).Round(time.Second))
}
