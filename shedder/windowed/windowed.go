// Package windowed is the classic admission rule of adaptive shedders as a
// [shedder.Policy]: over a rolling window, take the largest number of
// completions in a bucket and the smallest response time; their product is how
// much was in flight when most got done (Little's law), and what comes on top
// of that is shed. go-zero's core/load, Kratos' aegis/ratelimit/bbr and
// Sentinel's system rules are forms of it. shedder.Adaptive does better in most
// respects; this one is for those who know the rule, and for comparison.
//
// It differs from those forms where they are known to fail:
//
//   - Times are nanoseconds, not milliseconds rounded up, which for a handler of
//     20 µs gave fifty times the right limit.
//   - Service time is measured apart from wait. With the wait in it, a backlog
//     raises the limit that should have ended the backlog.
//   - There is no gate on the processor's use, which a stage that waits for
//     others never opens and a neighbour can open; see [Config.Gate].
//   - It holds no state of being overloaded: each decision follows from what is
//     in flight and what was measured, so it recovers by itself.
//   - Both factors are of the same moments: a service time only counts if it is
//     from a bucket in which at least half as much was done as in the best one,
//     so that neither a lucky moment nor a health check sets the limit
//     (go-kratos/aegis#16).
//   - No decision is made on few samples, and a free worker is never kept from
//     work.
//
// # The rule
//
// With R the largest completions a second of a bucket, S the mean service time
// as above, W the concurrency:
//
//	product = min(W, R·S)
//	queue   = min(max(0, Factor·product − W) + Slack, MaxWait·W)
//	refuse where in flight ≥ W + queue
//
// So with the defaults and in overload about W + 64 wait, but never more than
// 12 service times' worth. At 0.9 of the capacity, with random arrivals and
// service times, that sheds about one in 10,000 by mistake where W is 4 or
// more, and a few in a hundred where W is 1: to shed less, raise MaxWait and
// Slack and accept the wait.
//
// Work in flight is what is in service, what waits ahead of the request, and
// what is on its way here by a hop. A request refused although lower classes
// wait pushes the newest of them out.
//
// # What importing it does
//
// The window is the RollingWindow of go-zero's core/collection. To import that
// package, and so this one, sets GOMAXPROCS from the CPU quota of the container
// (go.uber.org/automaxprocs, from an init function; Go 1.25 and later do that
// by themselves and follow the quota when it changes, which setting it ends),
// and links a logger and OpenTelemetry's tracing API: about
// thirty packages. It starts no goroutine and installs no signal handler.
// Package shedder, and what else the bus links, does not import it.
//
// The RollingWindow reads the time of day for the age of its buckets, while all
// else follows the times given to the policy. Setting the clock empties the
// window at worst: the policy is cold for a moment and then learns anew. In a
// bubble of testing/synctest make the policy inside the bubble.
package windowed

import (
	"errors"
	"fmt"
	"time"

	"github.com/zeromicro/go-zero/core/collection"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// RuleWindow is the rule of a refusal by this policy, where no guard rail
// decided.
const RuleWindow shedder.Rule = "window"

// Defaults of a Config.
const (
	DefaultWindow  = 5 * time.Second
	DefaultBuckets = 50
	DefaultFactor  = 2.0
	DefaultSlack   = 64
	DefaultMaxWait = 12.0
	// DefaultWarm is what is added to the concurrency for Config.Samples.
	DefaultWarm = 8
)

// Config configures a Policy. The zero value is valid and stands for the
// defaults.
type Config struct {
	// Window is how far back is looked, 10 ms to an hour; 0 is DefaultWindow. A
	// stage that was idle for as long is cold again.
	Window time.Duration
	// Buckets is the number of parts of the window, 2 to 1000, of at least 1 ms
	// each; 0 is DefaultBuckets.
	Buckets int
	// Factor is how many times the product may be in flight: 1 to 1000; 0 is
	// DefaultFactor.
	Factor float64
	// Slack is how many may wait on top of that, for arrivals that come close
	// together by chance: at most 1<<20; 0 is DefaultSlack.
	Slack int
	// MaxWait bounds the expected wait, in service times: above 0 and at most
	// 10,000; 0 is DefaultMaxWait.
	MaxWait float64
	// Samples is how many completions the window must hold before anything is
	// shed, at most 1<<20; 0 is the concurrency and DefaultWarm.
	Samples int
	// Gate, if set, is asked before anything is shed, and nothing is unless it
	// returns true: "the processors are used up", say. It runs under the lock
	// of the shedder, so it must be quick and must not block or call the
	// shedder. now is the time of the request.
	Gate func(now time.Duration) bool
}

func (c Config) withDefaults() Config {
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.Buckets == 0 {
		c.Buckets = DefaultBuckets
	}
	if c.Factor == 0 {
		c.Factor = DefaultFactor
	}
	if c.Slack == 0 {
		c.Slack = DefaultSlack
	}
	if c.MaxWait == 0 {
		c.MaxWait = DefaultMaxWait
	}
	return c
}

// validate checks a Config with its defaults in.
func (c Config) validate() error {
	var errs []error
	check := func(ok bool, format string, v ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("windowed: "+format, v...))
		}
	}
	check(c.Window >= 10*time.Millisecond && c.Window <= time.Hour, "Window %v: must be from 10ms to 1h, or 0 (default)", c.Window)
	check(c.Buckets >= 2 && c.Buckets <= 1000, "Buckets %d: must be from 2 to 1000, or 0 (default)", c.Buckets)
	if c.Buckets > 0 && c.Window > 0 {
		check(c.Window/time.Duration(c.Buckets) >= time.Millisecond,
			"Window %v in %d Buckets: a bucket must be 1ms or more", c.Window, c.Buckets)
	}
	check(c.Factor >= 1 && c.Factor <= 1000, "Factor %v: must be from 1 to 1000, or 0 (default)", c.Factor)
	check(c.Slack >= 0 && c.Slack <= 1<<20, "Slack %d: must be from 0 (default) to %d", c.Slack, 1<<20)
	check(c.MaxWait > 0 && c.MaxWait <= 10_000, "MaxWait %v: must be above 0, at most 10000, or 0 (default)", c.MaxWait)
	check(c.Samples >= 0 && c.Samples <= 1<<20, "Samples %d: must be from 0 (default) to %d", c.Samples, 1<<20)
	return errors.Join(errs...)
}

// Policy is the windowed rule. It is called by one goroutine at a time, as a
// shedder.Shedder does, and must not be shared.
type Policy struct {
	cfg      Config // with defaults
	interval time.Duration
	window   *collection.RollingWindow[int64, *bucket]
	sample   sample // what the window's Add adds
	reduce   func(*bucket)
	scan     scan

	known    figures
	lookedAt time.Duration
	looked   bool
	workers  int             // as last seen
	guards   *shedder.Guards // as well
}

var _ shedder.Policy = (*Policy)(nil)

// New returns a Policy. All faults of the Config are returned at once.
func New(c Config) (*Policy, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	p := &Policy{cfg: c, interval: c.Window / time.Duration(c.Buckets), workers: 1}
	p.window = collection.NewRollingWindow[int64, *bucket](func() *bucket { return &bucket{in: &p.sample} }, c.Buckets, p.interval)
	p.scan.buckets = make([]*bucket, 0, c.Buckets)
	p.reduce = p.scan.visit
	return p, nil
}

// Config returns the settings, defaults filled in.
func (p *Policy) Config() Config { return p.cfg }

// Admit refuses what is above the limit.
//
// hot: 0 allocs
func (p *Policy) Admit(r *shedder.Request) shedder.Verdict {
	p.workers, p.guards = max(1, r.Concurrency), r.Guards
	p.look(r.Now, r.Waiting+r.Busy)
	if !p.known.warm {
		return shedder.Verdict{}
	}
	q := p.queue()
	w := float64(p.workers)
	ahead := max(0, r.Busy) + max(0, r.Ahead) + max(0, r.Inbound)
	v := shedder.Verdict{Service: q.service, Wait: times(q.service, (float64(ahead)-w+1)/w)}
	limit := p.workers + q.places
	switch {
	case ahead >= limit:
		v.Action = shedder.Refuse
	case r.Evictable > 0 && ahead+max(0, r.Waiting-r.Ahead) >= limit:
		v.Action = shedder.PushOut
	default:
		return v
	}
	if p.cfg.Gate != nil && !p.cfg.Gate(r.Now) {
		v.Action = shedder.Admit
		return v
	}
	v.Rule, v.Limit, v.Value = q.rule, float64(limit), float64(ahead)
	if v.Action == shedder.Refuse {
		v.Reason = reason.Shed
		v.RetryAfter = max(1, times(q.service, (float64(ahead)-float64(limit)+1)/w))
	}
	return v
}

// queue is how many may wait, and why.
type queue struct {
	places  int
	service time.Duration
	rule    shedder.Rule
}

func (p *Policy) queue() queue {
	g := p.guards
	w := float64(p.workers)
	q := queue{service: time.Duration(p.known.service), rule: RuleWindow}
	if g != nil && g.Baseline > 0 {
		q.service, q.rule = g.Baseline, shedder.RuleBaseline
	}
	product := min(w, p.known.rate*q.service.Seconds())
	places := min(max(0, p.cfg.Factor*product-w)+float64(p.cfg.Slack), p.cfg.MaxWait*w)
	if g != nil && g.MaxTarget > 0 && q.service > 0 {
		if most := w * float64(g.MaxTarget) / float64(q.service); most < places {
			places, q.rule = most, shedder.RuleTarget
		}
	}
	q.places = max(1, int(places))
	return q
}

// times is d·x, between 0 and a year.
func times(d time.Duration, x float64) time.Duration {
	const most = 365 * 24 * time.Hour
	if ns := float64(d) * x; ns < float64(most) {
		return time.Duration(max(0, ns))
	}
	return most
}

// Undo does nothing: the policy counts nothing when it admits.
func (*Policy) Undo(*shedder.Request) {}

// Done adds completions to the window; work that failed took its time as well.
//
// hot: 0 allocs
func (p *Policy) Done(d *shedder.Done) {
	p.workers, p.guards = max(1, d.Concurrency), d.Guards
	if d.N <= 0 {
		return
	}
	p.sample = sample{now: d.Now, n: int64(d.N), service: max(0, float64(d.Service))}
	p.window.Add(int64(d.N))
	p.look(d.Now, d.Waiting+d.Busy)
}

// Bound is how many may wait by the figures of late; 0 while it is cold, and
// where a Gate decides whether there is a bound.
func (p *Policy) Bound() int {
	if !p.known.warm || p.cfg.Gate != nil {
		return 0
	}
	return p.queue().places
}

// Inspect fills in the measurements.
func (p *Policy) Inspect(_ time.Duration, st *shedder.State) {
	st.Policy = "windowed"
	st.Warm = p.known.warm
	if !p.known.warm {
		return
	}
	q := p.queue()
	st.DrainRate, st.Service, st.Bound = p.known.rate, q.service, q.places
	st.Target = times(q.service, float64(q.places)/float64(p.workers))
}
