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
}

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
		{Name: "none", Kind: Plain, New: func(*sim.Spec) sim.Control { return none{} }},
		{Name: "cap64", Kind: Plain, New: capped(64)},
		{Name: "cap1024", Kind: Plain, New: capped(1024)},
	}
}

// BrokenRows are laws that must miss gates.
func BrokenRows() []Row {
	return []Row{
		{Name: "sheds-all", Kind: Broken, New: func(*sim.Spec) sim.Control { return part{n: 1} }},
		{Name: "sheds-none", Kind: Broken, New: func(*sim.Spec) sim.Control { return none{} }},
		{Name: "sheds-1pc", Kind: Broken, New: func(*sim.Spec) sim.Control { return part{n: 100} }},
	}
}
