package bus

import (
	"slices"
	"time"
)

// Header is a name and a value that travel with an envelope.
type Header struct {
	Name, Value string
}

// Meta holds an envelope's rarely used properties. Envelopes may share one
// Meta: the bus never changes it.
type Meta struct {
	// ID is the user's own identity of the envelope, beside the bus's number.
	ID string
	// Sender names who published it.
	Sender string
	// Class names a priority class of the stage. Empty, or a name that a stage
	// does not know, means its last class.
	Class string
	// Idempotency is the key by which a stage with a DedupWindow recognises an
	// envelope that it has seen.
	Idempotency string
	// Values, if set, answers the handler context's Value for keys that the bus
	// does not know; set it to a context's Value method to pass its values on.
	Values func(key any) any

	rekey *string // key for the next hop
}

// Envelope is one unit of work. The caller fills the exported fields and
// publishes it; the bus copies it, so the caller may reuse it at once.
//
// A handler gets the bus's own copy, which is valid only until the handler
// returns: use Clone to keep it. What a handler writes to Payload, Headers and
// Slip travels on to the next stage, and stays for a retry. Key must not be
// written by a handler: use Rekey.
type Envelope struct {
	// Payload is the work. A pointer costs nothing; another value is boxed once.
	Payload any
	// Key orders envelopes in a stage with Order ByKey.
	Key string
	// Headers travel along. The bus never changes the elements.
	Headers []Header
	// Slip names the stages to visit after this one.
	Slip Slip
	// OnDone is called exactly once with the envelope's end if it was accepted,
	// on a goroutine of the bus that serves all callbacks: keep it short.
	OnDone func(Result)
	// Meta holds what is rarely used; nil is valid.
	Meta *Meta

	par      *parent // who waits for the end: a call or a pub/sub group
	id       uint64
	deadline int64 // Unix nanoseconds as the user gave them; once accepted, the bus clock's; 0 is none
	entered  int64 // bus clock, when the envelope entered the stage
	attempt  uint16
	failures uint16
	flags    flags
	member   uint8 // index in the pub/sub group
	disp     disp  // what to do at the end of the chunk
	redrives uint8 // how often it came back from the dead-letter store
}

type flags uint8

const (
	flagCopy      flags = 1 << iota // a subscriber's copy: not part of the bus's own account
	flagTimed                       // start and end need the clock: a deadline or a handler timeout
	flagRequeued                    // was started once: not evictable, not refused
	flagRedelive                    // redelivered after a lapsed lease
	flagRedriven                    // came back from the dead-letter store
	flagLetter                      // is a dead letter in a dead-letter stage
	flagRecovered                   // replayed from a journal
	flagHopped                      // came from another stage
)

type disp uint8

const (
	dispAck  disp = iota // acknowledged: hop on or complete
	dispGone             // settled already
)

// keepFlags are the flags that survive a hop.
const keepFlags = flagCopy | flagRedriven | flagLetter | flagRecovered

// ID returns the number that the bus gave to the envelope at publish: unique
// in the life of a bus and never 0. It is 0 before.
func (e *Envelope) ID() uint64 { return e.id }

// TextID returns the user's own identity, or "".
func (e *Envelope) TextID() string {
	if e.Meta == nil {
		return ""
	}
	return e.Meta.ID
}

// Attempt returns which delivery at this stage it is: 1 for the first. It
// starts anew at each hop and saturates at 65,535.
func (e *Envelope) Attempt() int { return int(e.attempt) }

// Redelivered reports whether the envelope may have been handled before
// without a settlement: a lease lapsed, it came from the dead-letter store, or
// from a journal.
func (e *Envelope) Redelivered() bool {
	return e.flags&(flagRedelive|flagRedriven|flagRecovered) != 0
}

// SetDeadline sets the time after which the envelope need not be handled any
// more: publishing it is refused then, and while it waits it is dropped. The
// zero time removes the deadline. Call it before publishing; in a handler it
// counts from the next hop on.
func (e *Envelope) SetDeadline(t time.Time) {
	switch {
	case t.IsZero():
		e.deadline = 0
	case t.Year() > maxYear:
		e.deadline = 0 // beyond what nanoseconds can say, and beyond any wait
	case t.Year() < minYear:
		e.deadline = 1
	default:
		e.deadline = max(1, t.UnixNano())
	}
}

// Years whose instants fit into Unix nanoseconds.
const (
	minYear = 1971
	maxYear = 2261
)

// Deadline returns the deadline and whether there is one.
func (e *Envelope) Deadline() (t time.Time, ok bool) {
	if e.deadline == 0 {
		return time.Time{}, false
	}
	return time.Unix(0, e.deadline), true
}

// Header returns the value of the first header of that name.
func (e *Envelope) Header(name string) (value string, ok bool) {
	for _, h := range e.Headers {
		if h.Name == name {
			return h.Value, true
		}
	}
	return "", false
}

// SetHeader sets the first header of that name or adds it. It never writes to
// an array that another envelope may share.
func (e *Envelope) SetHeader(name, value string) {
	hs := slices.Clone(e.Headers)
	for i := range hs {
		if hs[i].Name == name {
			hs[i].Value = value
			e.Headers = hs
			return
		}
	}
	e.Headers = append(hs, Header{name, value})
}

// Push puts stages before the rest of the slip, in the order given: the first
// one is visited next.
func (e *Envelope) Push(stages ...string) { e.Slip = e.Slip.push(stages) }

// Reply sets the value that a waiting Call returns at the end of the
// itinerary. The last one set counts; without a Call it does nothing.
func (e *Envelope) Reply(v any) {
	if e.par != nil && e.par.call != nil {
		e.par.call.reply = v
	}
}

// Rekey sets the key that the envelope has from the next hop on.
func (e *Envelope) Rekey(key string) {
	m := Meta{}
	if e.Meta != nil {
		m = *e.Meta
	}
	m.rekey = &key
	e.Meta = &m
}

// Clone returns a copy that stays valid after the handler has returned. It has
// its own headers and no completion callback, and is a new envelope when
// published. The payload is shared.
func (e *Envelope) Clone() Envelope {
	return Envelope{
		Payload: e.Payload, Key: e.Key, Headers: slices.Clone(e.Headers),
		Slip: e.Slip, Meta: e.Meta, id: e.id, deadline: e.deadline,
		attempt: e.attempt, flags: e.flags &^ (flagCopy | flagRequeued | flagTimed),
	}
}

// Cloner is implemented by payloads that must not be shared between the
// subscribers of a pub/sub stage: each gets what ClonePayload returns. It is
// called once a subscriber, and may run concurrently with handlers.
type Cloner interface {
	ClonePayload() any
}

// timedFlag says whether e's calls need a look at the clock or a context of
// their own.
func timedFlag(e *Envelope) flags {
	if e.deadline != 0 || (e.Meta != nil && e.Meta.Values != nil) {
		return flagTimed
	}
	return 0
}

// hop prepares the envelope for the next stage.
func (e *Envelope) hop() {
	e.Slip = e.Slip.rest()
	e.attempt, e.failures = 0, 0
	e.flags = e.flags&keepFlags | flagHopped
	if e.Meta != nil && e.Meta.rekey != nil {
		m := *e.Meta
		e.Key, m.rekey = *m.rekey, nil
		e.Meta = &m
	}
}
