// Package gozero connects to the adaptive shedder of go-zero
// (github.com/zeromicro/go-zero/core/load) both ways: [New] makes the real one a
// policy of a shedder.Shedder, and [Wrap] puts a shedder.Shedder behind its
// interface, so that a service that uses go-zero can change over, or back.
//
// # What importing it does
//
// Do not import this package for a look. core/load links go-zero's core/stat and
// core/proc, whose init functions change the process:
//
//   - A handler for SIGTERM and SIGINT is installed on Linux, macOS and FreeBSD.
//     After such a signal listeners registered with core/proc are called, and
//     after 5.5 s the process sends itself the same signal without a handler of
//     go-zero: that ends it, or, where the program handles the signal as well,
//     reaches it a second time. proc.SetTimeToForceQuit sets another time.
//   - SIGUSR1 writes all stacks to a file in the temporary directory, SIGUSR2
//     profiles for a minute.
//   - Goroutines run from the start: one waits for signals, one samples the
//     processor's use every 250 ms, reads memory statistics every minute, and
//     logs them.
//   - GOMAXPROCS is set from the CPU quota of the container.
//   - net/http, a logger and OpenTelemetry's tracing API are linked.
//
// Without [Silence], go-zero logs to the standard output and error: statistics
// each minute and a line with a formatted message for each refusal, which makes
// refusals the expensive part.
//
// # What to expect of its law
//
// It refuses only while the processor's use, smoothed over about 5 s, is above
// the threshold, or was within the last second: a stage that waits for others
// is never protected. Response times include the wait, in milliseconds rounded
// up. Where no use can be read it never refuses. Package windowed has the same
// rule without these.
package gozero

import (
	"errors"
	"fmt"
	"time"

	"github.com/zeromicro/go-zero/core/load"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stat"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

// RuleGoZero is the rule of a refusal by go-zero's shedder.
const RuleGoZero shedder.Rule = "gozero"

// coolOff is for how long go-zero's shedder stays hot; it gives no better hint.
const coolOff = time.Second

// Config configures a Policy. The zero value stands for go-zero's defaults.
type Config struct {
	// Window is how far back is looked, 10 ms to an hour; 0 is 5 s.
	Window time.Duration
	// Buckets is the number of parts of the window, 2 to 1000, of 1 ms to 1 s
	// each; 0 is 50.
	Buckets int
	// CPUThreshold is the use of the processor, in thousandths, from which on
	// something is refused: 1 to 999; 0 is 900. -1 is always, which shows the
	// bare rule.
	CPUThreshold int
}

func (c Config) withDefaults() Config {
	if c.Window == 0 {
		c.Window = 5 * time.Second
	}
	if c.Buckets == 0 {
		c.Buckets = 50
	}
	if c.CPUThreshold == 0 {
		c.CPUThreshold = 900
	}
	return c
}

// validate checks a Config with its defaults in.
func (c Config) validate() error {
	var errs []error
	check := func(ok bool, format string, v ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("gozero: "+format, v...))
		}
	}
	check(c.Window >= 10*time.Millisecond && c.Window <= time.Hour, "Window %v: must be from 10ms to 1h, or 0 (default)", c.Window)
	check(c.Buckets >= 2 && c.Buckets <= 1000, "Buckets %d: must be from 2 to 1000, or 0 (default)", c.Buckets)
	if c.Window > 0 && c.Buckets > 0 {
		each := c.Window / time.Duration(c.Buckets)
		check(each >= time.Millisecond && each <= time.Second,
			"Window %v in %d Buckets: a bucket must be from 1ms to 1s", c.Window, c.Buckets)
	}
	check(c.CPUThreshold >= -1 && c.CPUThreshold <= 999, "CPUThreshold %d: must be from 1 to 999, 0 (default) or -1 (always)", c.CPUThreshold)
	return errors.Join(errs...)
}

// Policy is go-zero's adaptive shedder as a shedder.Policy. It is called by one
// goroutine at a time and must not be shared. It reads go-zero's own clock, the
// time of day; in a bubble of testing/synctest make it inside the bubble. It
// allocates for each unit of work, and does not know classes or deadlines.
//
// go-zero takes a response to be from being let in to the end, wait included,
// and so does this: work is told of at its end without a name, and counts as
// the one that was let in the longest ago. What was cancelled is not told of;
// it is found by what the stage still has in hand, and counts as failed, which
// go-zero does not learn from.
type Policy struct {
	law load.Shedder
	out promises
}

var _ shedder.Policy = (*Policy)(nil)

// New returns a Policy. All faults of the Config are returned at once. After
// load.Disable of go-zero it lets everything in.
func New(c Config) (*Policy, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Policy{law: load.NewAdaptiveShedder(
		load.WithWindow(c.Window), load.WithBuckets(c.Buckets), load.WithCpuThreshold(int64(c.CPUThreshold)),
	)}, nil
}

// Admit asks go-zero. Value is what it has let in and not seen the end of.
func (p *Policy) Admit(r *shedder.Request) shedder.Verdict {
	p.forget(r.Load)
	promise, err := p.law.Allow()
	if err != nil {
		return shedder.Verdict{
			Action: shedder.Refuse, Rule: RuleGoZero, Reason: reason.Shed,
			Value: float64(p.out.len()), RetryAfter: coolOff,
		}
	}
	p.out.push(promise)
	return shedder.Verdict{}
}

// Undo tells go-zero that the latest admission failed.
func (p *Policy) Undo(*shedder.Request) {
	if p.out.len() > 0 {
		p.out.popNewest().Fail()
	}
}

// Done tells go-zero of the oldest.
func (p *Policy) Done(d *shedder.Done) {
	for i := 0; i < d.N && p.out.len() > 0; i++ {
		if promise := p.out.popOldest(); i < d.Failed {
			promise.Fail()
		} else {
			promise.Pass()
		}
	}
	p.forget(d.Load)
}

// forget drops what is no longer in hand and was never told of.
func (p *Policy) forget(l shedder.Load) {
	inHand := max(0, l.Waiting) + max(0, l.Busy) + max(0, l.Inbound)
	for p.out.len() > max(0, inHand) {
		p.out.popOldest().Fail()
	}
}

// Bound returns 0: go-zero bounds nothing but what it is asked for.
func (*Policy) Bound() int { return 0 }

// Inspect sets the policy's name; go-zero shows nothing else.
func (*Policy) Inspect(_ time.Duration, st *shedder.State) { st.Policy = "gozero" }

// Silence switches off what go-zero logs and reports, for the whole process: it
// calls logx.Disable, load.DisableLog, stat.DisableLog and stat.SetReporter(nil).
func Silence() {
	logx.Disable()
	load.DisableLog()
	stat.DisableLog()
	stat.SetReporter(nil)
}
