package report

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sedabus/seda/bench/internal/load"
)

// Measurer takes one measurement.
type Measurer func(ctx context.Context, c Cell) (load.Sample, error)

// Data is the samples of every cell, one for each round. A cell that failed has
// an error and the samples up to it.
type Data struct {
	Samples map[Cell][]load.Sample
	Errs    map[Cell]error
}

// Collect measures all groups of the plan in rounds. A round takes each cell of
// the group once; every other round goes backwards, so that a drift of the
// machine falls on both sides of a ratio. A cell that fails is left out of the
// rounds that follow. It ends early, with what there is, when ctx ends. It says
// how far it is through say.
func Collect(ctx context.Context, p Plan, rounds int, m Measurer, say func(string)) (Data, error) {
	d := Data{Samples: map[Cell][]load.Sample{}, Errs: map[Cell]error{}}
	for _, group := range p.Groups {
		for round := range rounds {
			order := slices.Clone(group)
			if round%2 == 1 {
				slices.Reverse(order)
			}
			for _, c := range order {
				if d.Errs[c] != nil {
					continue
				}
				s, err := m(ctx, c)
				if ctx.Err() != nil {
					return d, context.Cause(ctx)
				}
				if err != nil {
					d.Errs[c] = err
					say(fmt.Sprintf("%s %s: %v", c.Workload, c.System, err))
					continue
				}
				d.Samples[c] = append(d.Samples[c], s)
			}
		}
		say("measured " + names(group))
	}
	return d, nil
}

// Broken returns the faults of all cells, without those that only have no form
// in their system.
func (d Data) Broken() error {
	var errs []error
	for _, err := range d.Errs {
		if !errors.Is(err, load.ErrUnsupported) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// pair is the two sides of a ratio in one round.
type pair struct {
	cell, base load.Sample
}

func (p pair) others() float64 { return max(p.cell.Others, p.base.Others) }

// Pairs returns the two sides of a row in each of the rounds to count.
func (d Data) Pairs(r Row) (cells, bases []load.Sample) {
	use, _ := d.pairs(r)
	for _, p := range use {
		cells, bases = append(cells, p.cell), append(bases, p.base)
	}
	return cells, bases
}

// pairs returns the pairs of the rounds to count, and how many there are in
// all. Rounds in which others took too much of the machine are left out as long
// as half of the rounds stay; otherwise all count, and the row says so.
func (d Data) pairs(r Row) (use []pair, all int) {
	a, b := d.Samples[r.Cell], d.Samples[r.Base]
	var every []pair
	for i := range min(len(a), len(b)) {
		p := pair{a[i], b[i]}
		every = append(every, p)
		if p.others() <= noisyFrom {
			use = append(use, p)
		}
	}
	if 2*len(use) < len(every) {
		use = every
	}
	return use, len(every)
}

func names(cells []Cell) string {
	var s []string
	for _, c := range cells {
		s = append(s, c.Workload+"/"+c.System)
	}
	return strings.Join(s, " ")
}
