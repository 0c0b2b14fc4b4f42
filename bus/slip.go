package bus

import (
	"slices"
	"strings"
	"sync/atomic"
)

// Slip is a routing slip: the stages still to visit, in visiting order. The
// zero value is empty. Slips are immutable and may be shared; make one once
// and use it for every envelope of the same itinerary.
type Slip struct {
	route *route
	at    int
}

// route is an immutable list of names with the stages they were last resolved
// to, so that a hop needs no lookup.
type route struct {
	names  []string
	stages []atomic.Pointer[Stage]
}

// Via returns the slip that visits stages in the order given. Names are looked
// up when the envelope gets there: one that is unknown then, or empty, is
// dead-lettered at once with the reason no_stage.
func Via(stages ...string) Slip {
	if len(stages) == 0 {
		return Slip{}
	}
	return Slip{route: newRoute(slices.Clone(stages))}
}

func newRoute(names []string) *route {
	return &route{names: names, stages: make([]atomic.Pointer[Stage], len(names))}
}

// Len returns the number of stages still to visit.
func (s Slip) Len() int {
	if s.route == nil {
		return 0
	}
	return len(s.route.names) - s.at
}

// Stages returns the names of the stages still to visit.
func (s Slip) Stages() []string {
	if s.Len() == 0 {
		return nil
	}
	return slices.Clone(s.route.names[s.at:])
}

// String returns the names joined by " > ".
func (s Slip) String() string { return strings.Join(s.Stages(), " > ") }

// next returns the next stage's name, or "" at the end.
func (s Slip) next() string {
	if s.Len() == 0 {
		return ""
	}
	return s.route.names[s.at]
}

// rest returns the slip without its first stage.
func (s Slip) rest() Slip {
	if s.Len() <= 1 {
		return Slip{}
	}
	return Slip{s.route, s.at + 1}
}

// push returns the slip with stages before the rest.
func (s Slip) push(stages []string) Slip {
	if len(stages) == 0 {
		return s
	}
	names := make([]string, 0, len(stages)+s.Len())
	names = append(names, stages...)
	if s.route != nil {
		names = append(names, s.route.names[s.at:]...)
	}
	return Slip{route: newRoute(names)}
}

// resolve returns the next stage on b, or nil when there is none of that name.
func (s Slip) resolve(b *Bus) *Stage {
	cell := &s.route.stages[s.at]
	if st := cell.Load(); st != nil && st.bus == b && !st.removed.Load() {
		return st
	}
	st := b.lookup(s.route.names[s.at])
	if st != nil {
		cell.Store(st)
	}
	return st
}
