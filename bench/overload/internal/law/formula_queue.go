package law

import (
	"time"

	"github.com/sedabus/seda/bench/overload/internal/sim"
)

// Constants of "Fail at Scale" (Maurer, ACM Queue 2015) and of folly::Codel.
const (
	codelTarget   = 5 * time.Millisecond
	codelInterval = 100 * time.Millisecond
)

// codel is CoDel as folly has it: in intervals that follow one in which even
// the shortest delay was above the target, what waited longer than twice the
// target is thrown away when its turn comes.
type codel struct {
	sim.Base

	least      time.Duration
	next       time.Duration
	reset      bool
	overloaded bool
}

func newCodel() *codel { return &codel{reset: true} }

// Blind says that nothing looks at deadlines.
func (*codel) Blind() {}

// Start applies the rule.
func (c *codel) Start(w *sim.World, j *sim.Job, _ int) bool {
	delay := w.Now - j.Entered
	if w.Now > c.next && !c.reset {
		c.reset = true
		c.next = w.Now + codelInterval
		c.overloaded = c.least > codelTarget
	}
	if c.reset {
		c.reset = false
		c.least = delay
		return true
	}
	c.least = min(c.least, delay)
	return !c.overloaded || delay <= 2*codelTarget
}

// lifo is the adaptive LIFO of the same article: when the queue has not been
// empty for an interval, the newest job is next and jobs time out after the
// target; otherwise they are in order and time out after the interval.
type lifo struct {
	sim.Base

	empty time.Duration // when the queue was last seen empty
}

// Blind says that nothing looks at deadlines.
func (*lifo) Blind() {}

// Admit notes an empty queue.
func (l *lifo) Admit(w *sim.World, _ *sim.Job) sim.Action {
	l.look(w)
	return sim.Admit
}

func (l *lifo) look(w *sim.World) {
	if w.At[0].Waiting == 0 {
		l.empty = w.Now
	}
}

func (l *lifo) standing(w *sim.World) bool { return w.Now-l.empty > codelInterval }

// Newest says whether a queue stands.
func (l *lifo) Newest(w *sim.World, _ int) bool { return l.standing(w) }

// Start times out.
func (l *lifo) Start(w *sim.World, j *sim.Job, _ int) bool {
	limit := codelInterval
	if l.standing(w) {
		limit = codelTarget
	}
	l.look(w)
	return w.Now-j.Entered <= limit
}
