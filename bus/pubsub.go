package bus

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sedabus/seda/reason"
)

// topic is what a pub/sub stage has instead of a handler. Its queue is worked
// off by the stage's executor, which copies each envelope to every subscriber.
// A subscriber is a stage of its own: it has its own queue, concurrency,
// retries, dead letters and statistics.
//
// The fan-out waits for no slow subscriber, so that one delays no other: it only
// lets one of fast handlers catch up, which takes less than a millisecond or
// two; one that does not is slow from then on. Copies for
// which a subscriber with LagWait has no room wait parked at it and hold places
// of the topic, so that its publishers are held back in the end.
type topic struct {
	joining sync.Mutex                      // one Subscribe at a time; before Bus.mu and Stage.mu
	made    map[*Stage]bool                 // stages made by Subscribe; guarded by joining
	subs    atomic.Pointer[[]*subscription] // replaced, never changed
	held    bool                            // waits for a subscriber to make room; guarded by Stage.mu
	lagging int                             // parked copies; guarded by Stage.mu
	out     int                             // publishes whose copies have not all ended; guarded by Stage.mu
}

// subscription binds a subscriber to a pub/sub stage.
type subscription struct {
	from *Stage
	to   *Stage
	lag  Lag
	own  bool // the stage was made for the subscription
}

func newTopic(*Stage) *topic {
	t := &topic{made: map[*Stage]bool{}}
	t.subs.Store(&[]*subscription{})
	return t
}

// Subscribe adds a subscriber with settings of its own to a pub/sub stage, as
// a stage named "<stage>.<name>". It gets a copy of every envelope published
// from then on: its own headers, and the payload shared unless that is a
// Cloner. lag says what happens when the subscriber's queue is full. A
// subscriber's envelopes end there: one that pushes hops is dead-lettered. The
// published envelope travels on when every copy has ended well.
//
// h is the subscriber's handler, wrapped in mw as by Handle; it must be nil if
// c has Pull, and then the subscriber's own Receive hands the copies out, or if
// c is pub/sub itself.
//
// A name whose subscriber was unsubscribed or detached can be subscribed again:
// its stage is taken up with what it has still queued, its account goes on, and
// h and lag replace the earlier ones. c must equal the settings in force there.
// A name that is subscribed, a stage of that name from elsewhere, and other
// settings are ErrConflict, and change nothing.
func (s *Stage) Subscribe(name string, c StageConfig, lag Lag, h Handler, mw ...Middleware) (*Stage, error) {
	if err := s.checkSubscribe(lag); err != nil {
		return nil, err
	}
	if h == nil && !c.Pull {
		return nil, fault(s.where(), "handler", "nil", "must not be nil, unless the subscriber has Pull")
	}
	if h != nil { // all that could fail later, so that nothing is half done
		if c.Pull || c.Delivery == PubSub {
			return nil, fault(s.where(), "handler", "given", "must be nil for a subscriber with Pull or PubSub")
		}
		var err error
		if h, err = s.compose(h, mw); err != nil {
			return nil, err
		}
	}
	t := s.mu.topic
	t.joining.Lock()
	defer t.joining.Unlock()
	full := s.name + "." + name
	if old := s.bus.lookup(full); old != nil && (!t.made[old] || s.feeds(old)) {
		return nil, fmt.Errorf("%w: there is a %s already", ErrConflict, old.where())
	}
	to, err := s.bus.Stage(full, c) // the old one if the settings are the same
	if err != nil {
		return nil, err
	}
	if h != nil {
		if err := to.replaceHandler(h); err != nil {
			return nil, err
		}
	}
	t.made[to] = true
	return to, s.subscribe(&subscription{from: s, to: to, lag: lag, own: true})
}

// SubscribeStage makes an existing stage of the bus a subscriber.
func (s *Stage) SubscribeStage(to *Stage, lag Lag) error {
	if err := s.checkSubscribe(lag); err != nil {
		return err
	}
	if to == nil || to.bus != s.bus || to == s {
		return fault(s.where(), "subscriber", "nil, itself or a stage of another bus", "must be another stage of the bus")
	}
	if to.leadsTo(s) {
		return fmt.Errorf("%w: %s already gets what %q is given", ErrConflict, s.where(), to.name)
	}
	s.mu.topic.joining.Lock()
	defer s.mu.topic.joining.Unlock()
	return s.subscribe(&subscription{from: s, to: to, lag: lag})
}

func (s *Stage) checkSubscribe(lag Lag) error {
	if s.mu.topic == nil {
		return fault(s.where(), "Delivery", PointToPoint, "must be pub/sub to have subscribers")
	}
	if err := checkEnum(s.where(), "lag", lag, LagDetach); err != nil {
		return err
	}
	if s.bus.state() >= stateDraining {
		return s.refusal(reason.Closed, nil)
	}
	return nil
}

// leadsTo says whether what s gets is fanned out to to.
func (s *Stage) leadsTo(to *Stage) bool {
	if s.mu.topic == nil {
		return false
	}
	for _, sub := range *s.mu.topic.subs.Load() {
		if sub.to == to || sub.to.leadsTo(to) {
			return true
		}
	}
	return false
}

// feeds says whether to is a subscriber of s itself.
func (s *Stage) feeds(to *Stage) bool {
	return slices.ContainsFunc(*s.mu.topic.subs.Load(), func(sub *subscription) bool { return sub.to == to })
}

func (s *Stage) subscribe(sub *subscription) error {
	if err := s.ofParts(func(p *Stage) error {
		return p.subscribe(&subscription{from: p, to: p.sibling(sub.to), lag: sub.lag, own: sub.own})
	}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.unlockAndStart() // it may have held what was published
	if s.feeds(sub.to) {
		return fmt.Errorf("%w: %q is a subscriber of %s already", ErrConflict, sub.to.name, s.where())
	}
	next := append(slices.Clone(*s.mu.topic.subs.Load()), sub)
	s.mu.topic.subs.Store(&next)
	s.setGateLocked(gateNoHandler, false)
	return nil
}

// Unsubscribe removes the subscriber of that name: the one given to Subscribe,
// or a stage's. Copies made from then on do not include it; what it has queued
// it still handles. Its stage stays, so that Subscribe can take it up again. An
// unknown name is ErrNoStage.
func (s *Stage) Unsubscribe(name string) error {
	if s.mu.topic == nil {
		return s.checkSubscribe(LagWait)
	}
	gone := s.removeSubscription(func(sub *subscription) bool {
		return sub.to.name == name || (sub.own && sub.to.name == s.name+"."+name)
	})
	if !gone {
		return fmt.Errorf("%w: %s has no subscriber %q", ErrNoStage, s.where(), name)
	}
	return nil
}

// removeSubscription removes the first subscription for which f holds.
func (s *Stage) removeSubscription(f func(*subscription) bool) bool {
	for _, sub := range *s.mu.topic.subs.Load() {
		if f(sub) {
			s.eachPart(func(p *Stage) {
				p.removeSubscription(func(o *subscription) bool { return o.to == p.sibling(sub.to) })
			})
			break
		}
	}
	s.mu.Lock()
	defer s.unlockAndStart()
	old := *s.mu.topic.subs.Load()
	i := slices.IndexFunc(old, f)
	if i < 0 {
		return false
	}
	next := slices.Delete(slices.Clone(old), i, i+1)
	s.mu.topic.subs.Store(&next)
	s.mu.topic.held = false // it may have waited for that one
	if len(next) == 0 {
		s.setGateLocked(gateNoHandler, s.mu.cfg.NoHandler != NoHandlerHold)
	}
	return true
}

// Subscribers names the stages that get copies, in the order of subscription.
func (s *Stage) Subscribers() []string {
	if s.mu.topic == nil {
		return nil
	}
	var out []string
	for _, sub := range *s.mu.topic.subs.Load() {
		out = append(out, sub.to.name)
	}
	return out
}
