// Package rate is an admission policy that lets in so many events a second,
// with a burst on top: for a stage as a whole, for each key or each sender, or
// both. It is built on the token buckets of golang.org/x/time/rate.
//
//	p, err := rate.New(rate.Config{Rate: 500, Burst: 50, By: rate.BySender, EachRate: 20})
//	...
//	s, err := shedder.New(shedder.Config{Policy: p})
//
// A limit in events a second is right where one is agreed upon, such as a
// quota. It knows nothing of what the stage can do: when service gets slower,
// work piles up below the limit as well. Put it in front of a policy that
// adapts, with shedder.NewChain. Work that passes several stages of a bus counts
// once at each stage that has such a policy, when it is admitted.
package rate

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	xrate "golang.org/x/time/rate"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// Rules of this package.
const (
	RuleRate   shedder.Rule = "rate"        // above Config.Rate
	RuleKey    shedder.Rule = "rate_key"    // its key is above Config.EachRate
	RuleSender shedder.Rule = "rate_sender" // its sender is above Config.EachRate
	RuleOthers shedder.Rule = "rate_others" // it shares a bucket, and that is above Config.EachRate
)

// Bounds and defaults of a Config.
const (
	MaxRate        = 1e9
	MaxBurst       = 1 << 30
	MaxMaxKeys     = 1 << 24
	DefaultMaxKeys = 10_000
)

// By says who has a limit of their own.
type By uint8

// What a limit can be held by.
const (
	ByNone   By = iota // nobody: only the stage has a limit
	ByKey              // each key
	BySender           // each sender
)

// String returns the name.
func (b By) String() string {
	switch b {
	case ByNone:
		return "none"
	case ByKey:
		return "key"
	case BySender:
		return "sender"
	}
	return "unknown"
}

// Config configures a Policy. The zero value is valid and limits nothing.
type Config struct {
	// Rate is how many events a second the stage lets in, above 0 and at most
	// MaxRate; it may be a fraction. 0 is no limit of the stage.
	Rate float64
	// Burst is how many may come at once after a pause, at most MaxBurst. 0 is
	// what one second brings, and at least 1.
	Burst int
	// By says who has a limit of their own, of EachRate and EachBurst.
	// Events without a key, or a sender, only count for the stage.
	By By
	// EachRate and EachBurst are as Rate and Burst, for each key or sender.
	// EachRate is above 0 if By is set, else 0.
	EachRate  float64
	EachBurst int
	// MaxKeys bounds how many keys or senders are remembered, at most
	// MaxMaxKeys; 0 is DefaultMaxKeys. One takes about 250 bytes and its name.
	// The one that was seen last the longest ago makes place for a new one, but
	// only if its burst is whole again: so nobody gets more than their rate by
	// being forgotten. As long as it is not, all new ones share one bucket of
	// EachRate and EachBurst.
	MaxKeys int
}

func (c Config) validate() error {
	var errs []error
	number := func(field string, v float64) {
		if !(v >= 0 && v <= MaxRate) { // so that NaN is a fault
			errs = append(errs, fmt.Errorf("rate: %s %v: must be from 0 to %v", field, v, float64(MaxRate)))
		}
	}
	whole := func(field string, v, most int) {
		if v < 0 || v > most {
			errs = append(errs, fmt.Errorf("rate: %s %d: must be from 0 (default) to %d", field, v, most))
		}
	}
	number("Rate", c.Rate)
	whole("Burst", c.Burst, MaxBurst)
	number("EachRate", c.EachRate)
	whole("EachBurst", c.EachBurst, MaxBurst)
	whole("MaxKeys", c.MaxKeys, MaxMaxKeys)
	switch {
	case c.By > BySender:
		errs = append(errs, fmt.Errorf("rate: By %d: must be ByNone, ByKey or BySender", c.By))
	case c.By == ByNone && c.EachRate > 0:
		errs = append(errs, fmt.Errorf("rate: EachRate %v: must be 0 where By is none", c.EachRate))
	case c.By != ByNone && c.EachRate == 0:
		errs = append(errs, fmt.Errorf("rate: EachRate 0: must be above 0 where By is %v", c.By))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	burst := func(given int, perSecond float64) int {
		if given > 0 {
			return given
		}
		return int(min(max(math.Ceil(perSecond), 1), MaxBurst))
	}
	c.Burst = burst(c.Burst, c.Rate)
	c.EachBurst = burst(c.EachBurst, c.EachRate)
	if c.MaxKeys == 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	return c
}

// Policy is a rate limit as a shedder.Policy. Beyond what that interface asks,
// all methods are safe for concurrent use. It takes all times from its
// requests. A clock that goes back stands still for the policy until it goes
// on from there; nobody gains or loses by that.
type Policy struct {
	mu struct {
		sync.Mutex

		cfg    Config // with defaults
		tuned  uint32 // counts calls of Tune
		time   steps
		stage  bucket
		others bucket // shared by those for whom the table has no place
		table  table

		othersAsked uint64
	}
}

var _ shedder.Policy = (*Policy)(nil)

// New returns a Policy. All faults of the Config are returned at once.
func New(c Config) (*Policy, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	p := &Policy{}
	p.mu.cfg = c.withDefaults()
	p.restartLocked()
	return p, nil
}

// restartLocked makes all buckets full, as at the beginning.
func (p *Policy) restartLocked() {
	c := &p.mu.cfg
	p.mu.stage = newBucket(c.Rate, c.Burst)
	p.mu.others = newBucket(c.EachRate, c.EachBurst)
	p.mu.table.clear()
}

// Config returns the settings in force, defaults filled in.
func (p *Policy) Config() Config {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.cfg
}

// Tune puts other settings into force for all later events; on a fault nothing
// changes. Tokens in hand are kept, up to the new bursts. Keys are forgotten
// when By changes, and the oldest where MaxKeys gets smaller.
func (p *Policy) Tune(c Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.mu.cfg
	p.mu.cfg = c.withDefaults()
	c = p.mu.cfg
	p.mu.tuned++
	now := p.mu.time.at()
	p.mu.stage.tune(now, c.Rate, c.Burst)
	if c.By != old.By {
		p.mu.table.clear()
		p.mu.others = newBucket(c.EachRate, c.EachBurst)
	} else {
		p.mu.others.tune(now, c.EachRate, c.EachBurst)
	}
	for p.mu.table.len() > c.MaxKeys {
		p.mu.table.evict()
	}
	return nil
}

// Admit takes a token of the request's key or sender and one of the stage, or
// refuses with reason.Rate. RetryAfter is when there will be a token again.
// Limit is the limit in events a second, Value how many were asked for in about
// the last second.
//
// hot: 0 allocs for a key that is remembered, one lock
func (p *Policy) Admit(r *shedder.Request) shedder.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.time.step(r.Now) {
		p.restartLocked()
	}
	now := p.mu.time.at()
	each, rule := p.eachLocked(r, now)
	if each != nil && !each.take(now) {
		return each.refusal(now, rule)
	}
	if p.mu.cfg.Rate > 0 && !p.mu.stage.take(now) {
		if each != nil {
			each.giveBack(now)
		}
		return p.mu.stage.refusal(now, RuleRate)
	}
	return shedder.Verdict{}
}

// eachLocked returns the bucket of the request's key or sender, and the rule
// if that refuses; nil is no bucket.
func (p *Policy) eachLocked(r *shedder.Request, now time.Time) (*bucket, shedder.Rule) {
	name, rule := p.whoLocked(r)
	if name == "" {
		return nil, rule
	}
	c := &p.mu.cfg
	if e := p.mu.table.find(name); e != nil {
		if e.tuned != p.mu.tuned {
			e.tuned = p.mu.tuned
			e.tune(now, c.EachRate, c.EachBurst)
		}
		return &e.bucket, rule
	}
	if p.mu.table.len() >= c.MaxKeys && !p.mu.table.oldest().full(now) {
		p.mu.othersAsked++
		return &p.mu.others, RuleOthers
	}
	if p.mu.table.len() >= c.MaxKeys {
		p.mu.table.evict()
	}
	e := &entry{bucket: newBucket(c.EachRate, c.EachBurst), name: strings.Clone(name), tuned: p.mu.tuned}
	p.mu.table.add(e)
	return &e.bucket, rule
}

func (p *Policy) whoLocked(r *shedder.Request) (string, shedder.Rule) {
	switch p.mu.cfg.By {
	case ByKey:
		return r.Key, RuleKey
	case BySender:
		return r.Sender, RuleSender
	default:
		return "", shedder.RuleNone
	}
}

// Undo gives back the tokens that Admit took for r.
func (p *Policy) Undo(r *shedder.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.mu.time.at()
	if p.mu.cfg.Rate > 0 {
		p.mu.stage.giveBack(now)
	}
	name, _ := p.whoLocked(r)
	if name == "" {
		return
	}
	if e := p.mu.table.find(name); e != nil {
		e.giveBack(now)
	} else {
		p.mu.others.giveBack(now)
	}
}

// Done does nothing: a rate does not depend on what becomes of the work.
func (*Policy) Done(*shedder.Done) {}

// Bound returns 0: a rate does not bound what waits.
func (*Policy) Bound() int { return 0 }

// Inspect sets the policy's name.
func (*Policy) Inspect(_ time.Duration, st *shedder.State) { st.Policy = "rate" }

// Keys says how full the table of keys or senders is.
type Keys struct {
	Remembered int    // keys or senders with a bucket of their own
	Max        int    // and how many there can be
	Others     uint64 // events so far that had to share a bucket
}

// Keys returns how full the table is. Where Others goes up, MaxKeys is too
// small for those who send at the same time.
func (p *Policy) Keys() Keys {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Keys{Remembered: p.mu.table.len(), Max: p.mu.cfg.MaxKeys, Others: p.mu.othersAsked}
}

// bucket is a token bucket and a meter of what was asked of it.
type bucket struct {
	lim   *xrate.Limiter
	asked meter
}

func newBucket(perSecond float64, burst int) bucket {
	return bucket{lim: xrate.NewLimiter(xrate.Limit(perSecond), burst)}
}

func (b *bucket) tune(now time.Time, perSecond float64, burst int) {
	b.lim.SetLimitAt(now, xrate.Limit(perSecond))
	b.lim.SetBurstAt(now, burst)
}

func (b *bucket) take(now time.Time) bool {
	b.asked.add(now)
	return b.lim.AllowN(now, 1)
}

// giveBack undoes take. A negative number of events adds tokens, which the next
// use cuts to the burst; a Reservation would do the same and allocate.
func (b *bucket) giveBack(now time.Time) { b.lim.AllowN(now, -1) }

func (b *bucket) full(now time.Time) bool {
	return b.lim.TokensAt(now) >= float64(b.lim.Burst())
}

func (b *bucket) refusal(now time.Time, rule shedder.Rule) shedder.Verdict {
	limit := float64(b.lim.Limit())
	return shedder.Verdict{
		Action: shedder.Refuse, Rule: rule, Reason: reason.Rate,
		Limit: limit, Value: b.asked.perSecond(now),
		RetryAfter: seconds((1 - b.lim.TokensAt(now)) / limit),
	}
}

// maxWait bounds what is said of the future, so that it can be added to a clock.
const maxWait = 365 * 24 * time.Hour

// seconds rounds up, so that who waits as long as told finds the token.
func seconds(s float64) time.Duration {
	if ns := s * float64(time.Second); ns < float64(maxWait) {
		return time.Duration(math.Ceil(ns))
	}
	return maxWait
}
