package law

import "github.com/sedabus/seda/bench/overload/internal/sim"

// none admits everything.
type none struct{ sim.Base }

// Blind says that nothing looks at deadlines.
func (none) Blind() {}

// capacity bounds how many wait at the first stage.
type capacity struct {
	sim.Base

	n int
}

// Blind says that nothing looks at deadlines.
func (capacity) Blind() {}

// Admit refuses when n wait.
func (c capacity) Admit(w *sim.World, _ *sim.Job) sim.Action {
	if w.At[0].Waiting >= c.n {
		return sim.Refuse
	}
	return sim.Admit
}

// Bound bounds every stage.
func (c capacity) Bound(int) int { return c.n }

// part sheds one job in n, and everything for n = 1: broken on purpose, to see
// that the gates notice.
type part struct {
	sim.Base

	n int
}

// Admit refuses every nth.
func (p part) Admit(_ *sim.World, j *sim.Job) sim.Action {
	if j.ID%p.n == 0 {
		return sim.Refuse
	}
	return sim.Admit
}
