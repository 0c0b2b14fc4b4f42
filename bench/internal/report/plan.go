// Package report runs the measurements of the table, each in a process of its
// own, and renders what came out.
package report

import (
	"slices"

	"github.com/sedabus/seda/bench/internal/load"
)

// Cell is one thing to measure.
type Cell struct {
	Workload, System string
}

// Row is a cell and the cell its ratio is taken against.
type Row struct {
	Cell

	Base Cell
}

// plain is the system that the others are compared with.
const plain = "chan"

// mixed is the workload that has no hand-written form: it is compared with
// mixedBase in the same system.
const (
	mixed     = "W3mix"
	mixedBase = "W3"
)

// batched pairs are also compared with the hand-written batches.
const (
	batched      = "batch"
	plainBatched = "chan-b32"
)

// Plan is what the table shows: rows in order, and the cells to measure for
// them in groups. All cells of a group are measured in every round, so that the
// two cells of a row are never far apart in time.
type Plan struct {
	Rows   []Row
	Groups [][]Cell
}

// NewPlan makes the plan for the workloads and systems, both in the order of
// the table. The cells that others are compared with are added where they are
// not among the systems.
func NewPlan(workloads []load.Spec, systems []string) Plan {
	var p Plan
	index := map[string]int{} // group by the workload that leads it
	for _, w := range workloads {
		lead := w.Name
		if w.Name == mixed {
			lead = mixedBase
		}
		g, ok := index[lead]
		if !ok {
			g = len(p.Groups)
			index[lead] = g
			p.Groups = append(p.Groups, nil)
		}
		for _, row := range rowsOf(w, systems) {
			p.Rows = append(p.Rows, row)
			for _, c := range []Cell{row.Base, row.Cell} {
				if !slices.Contains(p.Groups[g], c) {
					p.Groups[g] = append(p.Groups[g], c)
				}
			}
		}
	}
	return p
}

// Count is the number of cells.
func (p Plan) Count() (n int) {
	for _, g := range p.Groups {
		n += len(g)
	}
	return n
}

func rowsOf(w load.Spec, systems []string) []Row {
	var rows []Row
	for _, s := range systems {
		c := Cell{Workload: w.Name, System: s}
		switch {
		case w.Mixed && (s == plain || s == plainBatched):
		case w.Mixed:
			rows = append(rows, Row{Cell: c, Base: Cell{Workload: mixedBase, System: s}})
		default:
			if w.Work == load.Sleep && s == plainBatched {
				continue
			}
			rows = append(rows, Row{Cell: c, Base: Cell{Workload: w.Name, System: plain}})
			if s == batched && w.Work != load.Sleep && slices.Contains(systems, plainBatched) {
				rows = append(rows, Row{Cell: c, Base: Cell{Workload: w.Name, System: plainBatched}})
			}
		}
	}
	return rows
}
