package bus

import (
	"fmt"
	"reflect"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/reason"
)

// Tune changes live settings: change gets a copy of those in force and writes
// to it. All of it takes effect before Tune returns, or nothing does: values
// out of their bounds are ErrInvalid, all at once, and changes of settings that
// are not live ErrConflict, all at once. Raising the concurrency starts waiting
// work at once; lowering it or the capacity cancels nothing and throws nothing
// away. A change of the full policy answers the publishers that wait under the
// old one. change must not call into the bus.
func (s *Stage) Tune(change func(*StageConfig)) error {
	if change == nil {
		return fault(s.where(), "change", "nil", "must not be nil")
	}
	diff, err := s.tune(change)
	if len(diff) > 0 {
		s.bus.fireState(StateInfo{Stage: s.name, State: "tuned", Why: fmt.Sprint(diff)})
		s.tellClamped()
	}
	return err
}

// tune changes settings and names those that it changed.
func (s *Stage) tune(change func(*StageConfig)) (diff []string, err error) {
	s.bus.tuning.Lock() // one at a time, so that change runs without s.mu
	defer s.bus.tuning.Unlock()
	old := s.Config()
	next, err := s.planTune(&old, change)
	if err != nil {
		return nil, err
	}
	if diff = liveDiff(&old, &next); len(diff) > 0 && s.parts != nil {
		s.applyToParts(&old, &next)
	} else if len(diff) > 0 {
		s.apply(&old, &next)
	}
	return diff, nil
}

// apply puts settings into force.
func (s *Stage) apply(old, next *StageConfig) {
	s.mu.Lock()
	m := &s.mu
	m.cfg = *next
	if next.Full == DropOldest {
		s.closeLanesLocked()
	}
	s.info.Store(&stageInfo{full: next.Full, capacity: next.Capacity, concurrency: next.Concurrency})
	if next.Batch > 0 {
		m.batch = next.Batch
	} else if old.Batch > 0 {
		m.batch = 1
	}
	if next.Full != old.Full {
		s.answerPolicyLocked(next.Full)
	}
	if next.Full != old.Full || next.Credit != old.Credit {
		s.tuneCreditLocked()
	}
	jobs := []job(nil)
	if next.Concurrency != old.Concurrency || next.EgressCap != old.EgressCap {
		jobs = s.takeBackLocked() // shared anew
		if m.keyed != nil {
			m.keyed.offerAll()
		}
	}
	s.changeCapacityLocked(next.Capacity - old.Capacity)
	if m.desk != nil {
		s.setWindowLocked() // it follows capacity and concurrency
	}
	m.minFree = s.free.Load()
	if m.waiters.n > 0 {
		s.feedWaitersLocked()
	}
	s.startManyLocked()
	s.runJobs(jobs)
}

// changeCapacityLocked adds grow places, or takes some away below 0.
func (s *Stage) changeCapacityLocked(grow int) {
	m := &s.mu
	if grow > 0 {
		if m.desk != nil { // the window stays what it is for now
			s.beyond.Add(int64(grow))
			s.slack.Add(int64(grow))
			m.shut += int64(grow)
		}
		s.releaseBesideLocked(grow)
		return
	}
	for _, l := range m.lanes {
		l.revokeLocked() // what nobody uses is not above the new capacity
	}
	free := s.free.Add(int64(grow)) - int64(grow)
	m.excess += max(0, -grow-max(0, int(free)))
	for v := (Envelope{}); faults.On(faults.ShrinkDrops) && s.free.Load() < 0 && s.evictLocked(&v); {
		s.free.Add(1)
	}
}

// startManyLocked starts as many executors as the work that waits is worth,
// and unlocks s.mu.
func (s *Stage) startManyLocked() {
	var start []*executor
	for {
		ex := s.wantLocked()
		if ex == nil || len(start) >= s.queuedLocked()+s.mu.due.Len()+s.heldLocked() {
			if ex != nil {
				start = append(start, ex)
			}
			break
		}
		start = append(start, ex)
	}
	s.unlockAndStart()
	for _, ex := range start {
		go ex.loop()
	}
}

// answerPolicyLocked answers publishers that wait under Block when that is no
// longer the policy.
func (s *Stage) answerPolicyLocked(p FullPolicy) {
	switch p {
	case Reject, DropOldest:
		s.answerWaitersLocked(reason.Full)
	case DropNewest:
		s.answerWaitersLocked(reason.Newest)
	case Block, Credit:
	}
}

// Tune changes the bus's live settings, MaxHandlers and DeadLetters, in the
// way of Stage.Tune.
func (b *Bus) Tune(change func(*Config)) error {
	if change == nil {
		return fault("config", "change", "nil", "must not be nil")
	}
	if err := b.tune(change); err != nil {
		return err
	}
	b.fireState(StateInfo{State: "tuned"})
	return nil
}

func (b *Bus) tune(change func(*Config)) error {
	b.tuning.Lock()
	defer b.tuning.Unlock()
	next, err := b.planTune(change)
	if err != nil {
		return err
	}
	b.live.Store(&liveConfig{maxHandlers: next.MaxHandlers, letters: next.DeadLetters})
	b.letters.setBounds(next.DeadLetters)
	for _, s := range b.permits.setLimit(next.MaxHandlers) {
		settleGrants([]grant{{s, &b.permits}}, false)
	}
	return nil
}

// Config returns the settings in force.
func (b *Bus) Config() Config {
	c := b.cfg
	if l := b.live.Load(); l != nil {
		c.MaxHandlers, c.DeadLetters = l.maxHandlers, l.letters
	}
	return c
}

// liveConfig is the part of the configuration that can change.
type liveConfig struct {
	maxHandlers int
	letters     LetterBounds
}

// same says whether h and o are the same functions, as far as can be told.
func (h *Hooks) same(o *Hooks) bool {
	return sameFunc(h.Drop, o.Drop) && sameFunc(h.DeadLetter, o.DeadLetter) && sameFunc(h.Panic, o.Panic) && sameFunc(h.State, o.State)
}

func sameFunc(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }
