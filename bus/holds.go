package bus

import (
	"slices"
	"time"

	"github.com/sedabus/seda/internal/timer"
	"github.com/sedabus/seda/reason"
)

// Hold keeps a bus's admission paused or a stage suspended. Holds of different
// holders are kept apart: it stays until every holder has lifted its own.
type Hold struct {
	// By names the holder; default "operator". A second hold by the same one
	// replaces the first.
	By string
	// Why is shown to people.
	Why string
	// For ends the hold by itself after that time; 0 is until Resume. A negative
	// one, such as a remaining time that is over, ends it at once.
	For time.Duration
	// Since and Until are set by the bus; Until is zero without For.
	Since, Until time.Time
}

const defaultHolder = "operator"

type holds struct {
	list []hold
}

type hold struct {
	Hold
	end *timer.Item[task]
}

func (h *holds) any() bool { return len(h.list) > 0 }

// set adds or replaces a hold.
func (h *holds) set(b *Bus, v Hold, lift func(*holdEnd)) {
	if v.By == "" {
		v.By = defaultHolder
	}
	h.lift(b, v.By)
	now := b.clock.Now()
	v.Since, v.Until = b.clock.Wall(now), time.Time{}
	entry := hold{Hold: v}
	if v.For != 0 {
		until := now + int64(min(max(1, v.For), maxDuration))
		entry.Until = b.clock.Wall(until)
		entry.end = b.timers.push(until, &holdEnd{by: v.By, lift: lift, until: entry.Until})
	}
	h.list = append(h.list, entry)
}

// lift removes by's hold and reports whether there was one.
func (h *holds) lift(b *Bus, by string) bool {
	for i := range h.list {
		if h.list[i].By == by {
			b.timers.remove(h.list[i].end)
			h.list = slices.Delete(h.list, i, i+1)
			return true
		}
	}
	return false
}

func (h *holds) all() []Hold {
	out := make([]Hold, 0, len(h.list))
	for i := range h.list {
		out = append(out, h.list[i].Hold)
	}
	return out
}

// ends removes the hold that t belongs to, if it is still that one.
func (h *holds) ends(t *holdEnd) bool {
	for i := range h.list {
		if h.list[i].By == t.by && h.list[i].Until.Equal(t.until) {
			h.list = slices.Delete(h.list, i, i+1)
			return true
		}
	}
	return false
}

// holdEnd lifts a hold when its time is over.
type holdEnd struct {
	by    string
	until time.Time
	lift  func(*holdEnd)
}

func (t *holdEnd) fire(int64) { t.lift(t) }

func holderOf(by string) string {
	if by == "" {
		return defaultHolder
	}
	return by
}

// Pause stops admission: publishes from outside are refused with ErrPaused,
// and those that wait for room as well; what was accepted goes on.
func (b *Bus) Pause(h Hold) {
	b.mu.Lock()
	was := b.mu.holds.any()
	b.mu.holds.set(b, h, b.endHold)
	b.setGates(gatePaused, true)
	b.mu.Unlock()
	for _, s := range b.stagesNow() {
		s.mu.Lock()
		s.answerOutsideLocked(reason.Paused)
		s.answerPathsLocked(reason.Paused, true)
		s.handBackLocked()
		s.unlockAndStart()
	}
	if !was {
		b.fireState(StateInfo{State: "paused", By: holderOf(h.By), Why: h.Why})
	}
}

// Resume lifts the hold of that holder ("" is "operator") and reports whether
// there was one. Admission goes on when no holder is left.
func (b *Bus) Resume(by string) bool {
	return b.liftPause(holderOf(by), func(h *holds) bool { return h.lift(b, holderOf(by)) })
}

func (b *Bus) endHold(t *holdEnd) {
	b.liftPause(t.by, func(h *holds) bool { return h.ends(t) })
}

func (b *Bus) liftPause(by string, lift func(*holds) bool) bool {
	b.mu.Lock()
	ok := lift(&b.mu.holds)
	open := ok && !b.mu.holds.any()
	if open {
		b.setGates(gatePaused, false)
	}
	b.mu.Unlock()
	if open {
		b.fireState(StateInfo{State: "resumed", By: by})
	}
	return ok
}

// Holds lists who keeps admission paused, and until when.
func (b *Bus) Holds() []Hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.holds.all()
}

// Suspend keeps the stage's handlers from starting; those that run go on, its
// queue stays, and publishes are accepted as long as there is room. A stage with
// Credit takes the credits back that its producers have not spent, and grants
// none until Resume.
func (s *Stage) Suspend(h Hold) {
	if s.parts != nil {
		s.eachPart(func(p *Stage) { p.Suspend(h) })
		return
	}
	s.mu.Lock()
	was := s.mu.holds.any()
	s.mu.holds.set(s.bus, h, s.endHold)
	jobs := s.stopLocked()
	s.handBackLocked()
	s.unlockAndStart()
	s.runJobs(jobs)
	if !was && s.leads() {
		s.bus.fireState(StateInfo{Stage: s.name, State: "suspended", By: holderOf(h.By), Why: h.Why})
	}
}

// Resume lifts the hold of that holder ("" is "operator") and reports whether
// there was one. Handlers start again when no holder is left.
func (s *Stage) Resume(by string) (lifted bool) {
	if s.parts != nil {
		s.eachPart(func(p *Stage) { lifted = p.Resume(by) || lifted })
		return lifted
	}
	return s.liftHold(holderOf(by), func(h *holds) bool { return h.lift(s.bus, holderOf(by)) })
}

func (s *Stage) endHold(t *holdEnd) {
	s.liftHold(t.by, func(h *holds) bool { return h.ends(t) })
}

func (s *Stage) liftHold(by string, lift func(*holds) bool) bool {
	s.mu.Lock()
	ok := lift(&s.mu.holds)
	open := ok && !s.mu.holds.any()
	s.unlockAndStart()
	if open && s.leads() {
		s.bus.fireState(StateInfo{Stage: s.name, State: "resumed", By: by})
	}
	return ok
}

// Holds lists who keeps the stage suspended, and until when.
func (s *Stage) Holds() []Hold {
	if s.parts != nil {
		return s.parts[0].Holds()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.holds.all()
}
