package report

import (
	"sync"
	"testing"
	"time"

	"github.com/sedabus/seda/bench/overload/internal/bubble"
	"github.com/sedabus/seda/bench/overload/internal/law"
	"github.com/sedabus/seda/bench/overload/internal/score"
	"github.com/sedabus/seda/bench/overload/internal/shape"
	"github.com/sedabus/seda/bench/overload/internal/sim"
)

// Key names a cell of the table.
type Key struct{ Shape, Scale, Law string }

// Plan says what to run.
type Plan struct {
	Shapes []shape.Shape
	Scales []sim.Scale
	Laws   []law.Row
	Seeds  int
	// Visible gives every job its budget as a deadline that laws can see.
	Visible bool
	// Workers is how many runs go on at a time.
	Workers int
}

// Data are the scores of every cell, one a seed.
type Data map[Key][]*score.Score

// task is one run.
type task struct {
	key  Key
	spec *sim.Spec
	row  law.Row
	seed int
}

// Run runs the plan. said, if not nil, is told of each finished run.
func (p *Plan) Run(t *testing.T, said func(Key, int, time.Duration)) Data {
	t.Helper()
	tasks := p.tasks()
	data := Data{}
	for _, x := range tasks {
		data[x.key] = make([]*score.Score, p.Seeds)
	}
	todo := make(chan task)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range max(1, p.Workers) {
		wg.Go(func() {
			for x := range todo {
				began := time.Now()
				s := scoreOf(t, x.spec, x.row, uint64(x.seed))
				mu.Lock()
				data[x.key][x.seed] = s
				if said != nil {
					said(x.key, x.seed, time.Since(began))
				}
				mu.Unlock()
			}
		})
	}
	for _, x := range tasks {
		todo <- x
	}
	close(todo)
	wg.Wait()
	return data
}

// Size is how many runs there are, and how many jobs they have together.
func (p *Plan) Size() (runs int, jobs float64) {
	for _, x := range p.tasks() {
		runs++
		jobs += x.spec.Expected() * float64(max(1, len(x.row.Grid)))
	}
	return runs, jobs
}

func (p *Plan) tasks() []task {
	var out []task
	for _, sh := range p.Shapes {
		for _, sc := range sh.Over(p.Scales) {
			for _, row := range p.Laws {
				for seed := range p.Seeds {
					spec := sh.Make(sc)
					if p.Visible && spec.LooseIn == 0 {
						spec.LooseIn = spec.Budget()
					}
					out = append(out, task{Key{sh.Name, sc.Name, row.Name}, spec, row, seed})
				}
			}
		}
	}
	return out
}

// scoreOf scores a law, or the best of several.
func scoreOf(t *testing.T, spec *sim.Spec, row law.Row, seed uint64) *score.Score {
	t.Helper()
	if row.Grid == nil {
		return score.Of(Simulate(t, spec, row, seed))
	}
	var best *score.Score
	for _, fresh := range row.Grid {
		if s := score.Of(sim.Run(spec, seed, fresh(spec), nil)); best == nil || s.Good > best.Good {
			best = s
		}
	}
	return best
}

// Simulate runs a law, in a bubble if it reads the clock.
func Simulate(t *testing.T, spec *sim.Spec, row law.Row, seed uint64) (r *sim.Result) {
	t.Helper()
	if !row.Clock {
		return sim.Run(spec, seed, row.New(spec), nil)
	}
	bubble.Run(t, func() {
		if row.Run != nil {
			r = row.Run(spec, seed)
			return
		}
		r = sim.Run(spec, seed, row.New(spec), time.Sleep)
	})
	return r
}
