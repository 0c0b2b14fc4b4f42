package bus

import (
	"github.com/sedabus/seda/internal/queue"
	"github.com/sedabus/seda/shedder"
)

// lanes are the priority classes of a stage, highest first, guarded by
// Stage.mu. The highest class that has work is served, unless a lower one is
// owed its minimum share: every envelope served earns each waiting class its
// share of one, and a class that has earned a whole one comes first.
type lanes struct {
	classes []Class
	q       []fifo
	owed    []int // hundredths of an envelope
	n       int
}

// wholeOne is what a class has to be owed to come first; owedAtMost bounds the
// burst that a class may catch up with.
const (
	wholeOne   = 100
	owedAtMost = 16 * wholeOne
)

func newLanes(classes []Class) *lanes {
	return &lanes{classes: classes, q: make([]fifo, len(classes)), owed: make([]int, len(classes))}
}

// classOf returns the index of e's class; the last one for an unknown name.
func (l *lanes) classOf(e *Envelope) int {
	if e.Meta != nil && e.Meta.Class != "" {
		for i := range l.classes {
			if l.classes[i].Name == e.Meta.Class {
				return i
			}
		}
	}
	return len(l.classes) - 1
}

func (l *lanes) push(p *queue.Pool[Envelope], e *Envelope) {
	*l.place(p, e) = *e
}

// place returns the place for e, counted as queued.
func (l *lanes) place(p *queue.Pool[Envelope], e *Envelope) *Envelope {
	slot, _ := l.q[l.classOf(e)].Slot(p)
	l.n++
	return slot
}

// choose returns the class to serve next, or -1.
func (l *lanes) choose(skip uint32) int {
	best, highest := -1, -1
	for i := range l.q {
		if l.q[i].Len() == 0 || skip&(1<<i) != 0 {
			continue
		}
		if highest < 0 {
			highest = i
		}
		if l.owed[i] >= wholeOne && (best < 0 || l.owed[i] > l.owed[best]) {
			best = i
		}
	}
	if best >= 0 {
		return best
	}
	return highest
}

// claim makes ex's claim from the class whose turn it is.
func (l *lanes) claim(s *Stage, ex *executor, force bool) bool {
	var skip uint32
	for {
		i := l.choose(skip)
		if i < 0 {
			return false
		}
		limit := s.shareLocked()
		if l.owed[i] >= wholeOne {
			limit = min(limit, l.owed[i]/wholeOne)
		}
		before := l.q[i].Len()
		ok := s.claimFrom(ex, &l.q[i], limit, force)
		l.n -= before - l.q[i].Len()
		if ok {
			l.served(i, ex.c.Size())
			return true
		}
		skip |= 1 << i
	}
}

// served books n envelopes of class i.
func (l *lanes) served(i, n int) {
	for j := range l.q {
		if l.q[j].Len() == 0 {
			l.owed[j] = 0 // a share is not saved up while there is no work
			continue
		}
		owed := l.owed[j] + n*l.classes[j].MinShare // its own starts count as well
		if j == i {
			owed -= n * wholeOne
		}
		l.owed[j] = min(max(0, owed), owedAtMost)
	}
}

// evict takes the oldest envelope of the lowest class.
func (l *lanes) evict(p *queue.Pool[Envelope], victim *Envelope) bool {
	for i := len(l.q) - 1; i >= 0; i-- {
		if l.q[i].Len() > 0 {
			l.q[i].Pop(p, victim)
			l.n--
			return true
		}
	}
	return false
}

// removeNewest takes the newest envelope of the lowest class below class that
// was published to the stage and never started. Classes that sh exempts stay.
func (l *lanes) removeNewest(p *queue.Pool[Envelope], class int, sh *shedder.Shedder, victim *Envelope) bool {
	for i := len(l.q) - 1; i > class; i-- {
		if sh.Exempts(i) {
			continue
		}
		if l.q[i].RemoveLast(p, victim, func(e *Envelope) bool { return e.flags&(flagHopped|flagRequeued|flagLetter|flagRedriven) == 0 }) {
			l.n--
			return true
		}
	}
	return false
}

// putBack returns unstarted envelopes to the front of their class; a claim is
// of one class.
func (l *lanes) putBack(p *queue.Pool[Envelope], c *chunk, a, b int) {
	l.q[l.classOf(&c.Items[a])].PushFrontRange(p, c, a, b)
	l.n += b - a
}

func (l *lanes) drain(p *queue.Pool[Envelope], f func(*Envelope)) {
	for i := range l.q {
		drainFIFO(&l.q[i], p, f)
	}
	l.n = 0
}
