package bus

import (
	"math"
	"math/rand/v2"
	"time"

	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/reason"
)

// refuseLocked settles e, the envelope in ex's handler, which returned err or
// was cancelled by id. It unlocks s.mu. again says that e, whose attempt was
// counted up, is to be handled once more at once.
func (s *Stage) refuseLocked(ex *executor, e *Envelope, err error, o outcome, canceled bool) (again bool) {
	v := s.judgeLocked(e, err, o, canceled)
	switch v.do {
	case judgeAgain:
		if faults.On(faults.RetryToTail) {
			s.free.Add(-1)
			s.enqueueLocked(&Envelope{Payload: e.Payload, OnDone: e.OnDone, id: e.id, attempt: e.attempt + 1})
			e.disp = dispGone
			s.unlockAndStart()
			return false
		}
		if s.runnableLocked() {
			e.attempt = saturate(e.attempt)
			s.mu.Unlock()
			return true
		}
		s.requeueLocked(ex, e) // suspended meanwhile: it comes first afterwards
		e.disp = dispGone
		s.unlockAndStart()
	case judgeLater:
		s.postponeRetryLocked(ex, e, v.delay)
		e.disp = dispGone
		s.unlockAndStart()
		s.journalDelay(e, v.delay)
	case judgeDrop:
		s.endLocked(e, Dropped, v.why)
		end := *e
		e.disp = dispGone
		s.unlockAndStart()
		s.dropped(&end, v.why)
	case judgeLetter:
		end := *e
		e.disp = dispGone
		s.unlockAndStart()
		s.toLetter(&end, letterCause{why: v.why, stage: s.name, err: err})
	}
	return false
}

type judgement struct {
	do    judgeDo
	why   reason.Reason
	delay time.Duration
}

type judgeDo uint8

const (
	judgeAgain judgeDo = iota
	judgeLater
	judgeDrop
	judgeLetter
)

// judgeLocked decides what a handler's error, which asks for o, means and
// counts it.
func (s *Stage) judgeLocked(e *Envelope, err error, o outcome, canceled bool) judgement {
	m := &s.mu
	if canceled {
		return judgement{do: judgeDrop, why: reason.Canceled}
	}
	if j, ok := judgeKnown(err); ok {
		if j.do == judgeLetter {
			m.count.nacked++
		}
		return j
	}
	switch o.kind {
	case outDiscard:
		return judgement{do: judgeDrop, why: reason.Discarded}
	case outLetter:
		m.count.nacked++
		return judgement{do: judgeLetter, why: reason.Handler}
	case outRetry:
		if o.shed {
			return judgement{do: judgeLetter, why: reason.Shed}
		}
		return s.retryLocked(e, o.delay)
	case outNack:
	}
	m.count.nacked++
	if e.failures < math.MaxUint16 {
		e.failures++
	}
	p := &m.cfg.Retry
	allowed := p.MaxAttempts
	if faults.On(faults.AttemptTooFew) {
		allowed--
	}
	if faults.On(faults.AttemptTooMany) {
		allowed++
	}
	if int(e.failures) >= allowed {
		return judgement{do: judgeLetter, why: reason.Attempts}
	}
	if o.shed {
		return judgement{do: judgeLetter, why: reason.Shed}
	}
	if !s.mayRetryLocked(s.bus.clock.Coarse()) {
		return judgement{do: judgeLetter, why: reason.RetryBudget}
	}
	delay := p.Delay(int(e.failures), s.lastDelay(e), s.randomFor(e))
	return s.retryLocked(e, delay)
}

// retryLocked decides between a retry after delay and the end of the time for
// retries.
func (s *Stage) retryLocked(e *Envelope, delay time.Duration) judgement {
	now := s.bus.clock.Now()
	if limit := s.mu.cfg.Retry.MaxElapsed; limit > 0 {
		if spent := time.Duration(now - e.entered); spent > limit || delay > limit-spent {
			return judgement{do: judgeLetter, why: reason.RetryTime}
		}
	}
	delay = min(delay, maxDuration)
	if e.deadline != 0 && s.bus.expired(e.deadline, now+int64(delay)) {
		return judgement{do: judgeDrop, why: reason.Expired}
	}
	s.mu.count.retried++
	if delay <= 0 {
		return judgement{do: judgeAgain}
	}
	return judgement{do: judgeLater, delay: delay}
}

// lastDelay is the wait before this attempt, for decorrelated jitter: the
// policy's own without jitter, since it is not stored.
func (s *Stage) lastDelay(e *Envelope) time.Duration {
	p := s.mu.cfg.Retry
	if e.failures <= 1 {
		return p.Base
	}
	p.Jitter = 0
	return p.Delay(int(e.failures)-1, 0, 0)
}

// randomFor returns the random bits of one wait; with a seed they depend on
// nothing but the seed, the envelope and the attempt.
func (s *Stage) randomFor(e *Envelope) uint64 {
	seed := s.mu.cfg.Retry.Seed
	if seed == 0 {
		return rand.Uint64()
	}
	return rand.NewPCG(seed, e.id<<16|uint64(e.failures)).Uint64()
}

func saturate(attempt uint16) uint16 {
	if attempt == math.MaxUint16 {
		return attempt
	}
	return attempt + 1
}

// requeueLocked puts e at the head of what starts next. A requeue cannot fail:
// it may exceed the capacity.
func (s *Stage) requeueLocked(ex *executor, e *Envelope) {
	r := *e
	r.attempt = saturate(r.attempt)
	r.flags |= flagRequeued
	r.disp = dispAck
	s.holdKeyLocked(ex, e)
	s.keepPlaceLocked(ex)
	s.mu.due.Push(&s.mu.pool, &r)
}

// keepPlaceLocked takes the place of an envelope that is in ex's handler and
// will wait again: the one that the claim still has for it, or one more.
func (s *Stage) keepPlaceLocked(ex *executor) {
	if ex != nil && ex.keeps {
		ex.released++
		return
	}
	s.free.Add(-1)
}

// holdKeyLocked leaves e's key held while e waits for its retry, and gives the
// rest of the claim back, so that its followers cannot overtake it.
func (s *Stage) holdKeyLocked(ex *executor, e *Envelope) {
	if s.mu.keyed == nil || ex == nil || faults.On(faults.FollowersPass) {
		return
	}
	w := ex.claim.Load()
	if cur, lim := claimCur(w), claimLim(w); cur < lim {
		s.putBackLocked(ex, cur, lim)
		ex.claim.Store(claimOf(claimSettled(w), cur, cur))
	}
	s.mu.keyed.holdForRetry(ex, e.Key)
}

// postponeRetryLocked lets e wait for its retry without holding anything but
// its place, and its key in an ordered stage.
func (s *Stage) postponeRetryLocked(ex *executor, e *Envelope, delay time.Duration) {
	r := *e
	r.attempt = saturate(r.attempt)
	r.flags |= flagRequeued
	r.disp = dispAck
	s.holdKeyLocked(ex, e)
	if s.mu.keyed != nil {
		s.mu.keyed.delay(e.Key, true)
	}
	s.keepPlaceLocked(ex)
	s.mu.delayed++
	d := &delayedEnvelope{stage: s, env: r, retry: true}
	s.bus.timers.push(s.bus.clock.Now()+int64(delay), d)
}

// rememberKey makes ex the holder of the key that its retry has kept.
func (s *Stage) rememberKey(ex *executor) {
	if s.mu.keyed == nil {
		return
	}
	ex.key = s.mu.keyed.orderKey(ex.c.Items[0].Key)
	ex.slot = s.mu.keyed.slotOf(ex.c.Items[0].Key)
	ex.holding = true
	ex.slot.hold(ex.key)
}
