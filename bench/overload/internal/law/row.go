package law

import (
	"github.com/sedabus/seda/bench/overload/internal/sim"
)

// Kind is what sort of law a row shows.
type Kind string

// Kinds.
const (
	Ours    Kind = "ours"
	Oracle  Kind = "oracle"
	Plain   Kind = "plain"
	Rival   Kind = "rival"
	Formula Kind = "formula row"
	Broken  Kind = "broken on purpose"
)

// Row is a law in the table.
type Row struct {
	Name string
	Kind Kind
	// Clock says that the law reads the time itself, and so has to run in a
	// bubble.
	Clock bool
	New   func(*sim.Spec) sim.Control
	// Run, if not nil, runs the scenario itself, inside the bubble.
	Run func(*sim.Spec, uint64) *sim.Result
	// Grid, if not nil, are laws of which the best in hindsight is shown.
	Grid []func(*sim.Spec) sim.Control
}

// BoundName is the row of the best constant bound on the number waiting, chosen
// for each run by its outcome: what whoever does not know the services to come
// can hardly surpass.
const BoundName = "best-bound"

// OracleName is the row that goodput, convergence and recovery are measured by.
const OracleName = "oracle"

// All returns the rows in the order of the table.
func All() []Row {
	rows := ours()
	rows = append(rows, plain()...)
	rows = append(rows, rivals()...)
	return append(rows, formulas()...)
}

func plain() []Row {
	capped := func(n int) func(*sim.Spec) sim.Control {
		return func(*sim.Spec) sim.Control { return capacity{n: n} }
	}
	return []Row{
		{Name: OracleName, Kind: Oracle, New: func(s *sim.Spec) sim.Control { return newOracle(s, 0) }},
		{Name: "oracle-3t", Kind: Oracle, New: func(s *sim.Spec) sim.Control { return newOracle(s, 3*s.Target()) }},
		{Name: BoundName, Kind: Oracle, Grid: grid()},
		{Name: "none", Kind: Plain, New: func(*sim.Spec) sim.Control { return none{} }},
		{Name: "cap64", Kind: Plain, New: capped(64)},
		{Name: "cap1024", Kind: Plain, New: capped(1024)},
	}
}

// grid are bounds from one to some hundreds.
func grid() []func(*sim.Spec) sim.Control {
	var out []func(*sim.Spec) sim.Control
	for _, n := range []int{1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024} {
		out = append(out, func(*sim.Spec) sim.Control { return capacity{n: n} })
	}
	return out
}

// BrokenRows are laws that must miss gates.
func BrokenRows() []Row {
	return []Row{
		{Name: "sheds-all", Kind: Broken, New: func(*sim.Spec) sim.Control { return part{n: 1} }},
		{Name: "sheds-none", Kind: Broken, New: func(*sim.Spec) sim.Control { return none{} }},
		{Name: "sheds-1pc", Kind: Broken, New: func(*sim.Spec) sim.Control { return part{n: 100} }},
	}
}
