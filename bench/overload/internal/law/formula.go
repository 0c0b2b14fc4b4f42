package law

import "github.com/sedabus/seda/bench/overload/internal/sim"

// formulas are laws written from their published formulas with their published
// constants. They are not their authors' programs, and where a constant depends
// on the service (Breakwater, SEDA) they are told what ours has to find out.
func formulas() []Row {
	row := func(name string, f func(*sim.Spec) sim.Control) Row {
		return Row{Name: name, Kind: Formula, New: f}
	}
	return []Row{
		row("codel-folly", func(*sim.Spec) sim.Control { return newCodel() }),
		row("lifo-fb", func(*sim.Spec) sim.Control { return &lifo{} }),
		row("vegas", func(*sim.Spec) sim.Control { return newLimit(&vegas{}, 20) }),
		row("gradient2", func(*sim.Spec) sim.Control { return newLimit(&gradient2{}, 20) }),
		row("aimd", func(*sim.Spec) sim.Control { return newLimit(aimd{}, 20) }),
		row("envoy-gradient", func(*sim.Spec) sim.Control { return newEnvoy() }),
		row("sentinel-open", func(*sim.Spec) sim.Control { return &sentinel{} }),
		row("breakwater", func(s *sim.Spec) sim.Control { return newBreakwater(s) }),
		row("dagor", func(*sim.Spec) sim.Control { return &dagor{level: 1} }),
		row("seda", func(s *sim.Spec) sim.Control { return newSeda(s) }),
		row("cinnamon", func(*sim.Spec) sim.Control { return &cinnamon{} }),
	}
}

// flight counts the jobs that were let in and have not left.
type flight struct {
	sim.Base

	n int
}

// Blind says that nothing looks at deadlines.
func (*flight) Blind() {}

// Gone counts down.
func (f *flight) Gone(*sim.World, *sim.Job) { f.n-- }

// enter lets a job in or not.
func (f *flight) enter(yes bool) sim.Action {
	if !yes {
		return sim.Refuse
	}
	f.n++
	return sim.Admit
}
