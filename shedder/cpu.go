package shedder

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"time"

	"github.com/sedabus/seda/internal/cpu"
)

// CPUConfig configures [CPU]. The zero value is valid.
type CPUConfig struct {
	// Threshold is the part of the quota above which the brake acts: above 0 and
	// below 1; 0 is the default, 0.9.
	Threshold float64
	// Files is where the system's files are, /proc and /sys below its root; nil
	// is the root of this system. Where they are missing, as on systems other
	// than Linux, the use is unknown.
	Files fs.FS
	// Source is asked instead of the files, if it is not nil.
	Source CPUSource
}

// CPUSource tells of processor use.
type CPUSource interface {
	// CPU returns the processor time used since some moment in the past, how
	// many processors may be used at once, and a word for where this is from.
	// It is called by one goroutine at a time and must not block.
	CPU() (used time.Duration, quota float64, source string, err error)
}

// CPUState is what [CPU] knows. Usage, Quota and Threshold are in processors:
// of a quota of 4 processors, 3.6 is the threshold 0.9.
type CPUState struct {
	Known                   bool
	Usage, Quota, Threshold float64
	Source                  string // "cgroup v2", "cgroup v1", "machine", or that of a CPUSource
	Fault                   string // why it is not known
}

const (
	cpuEvery  = 100 * time.Millisecond // between samples
	cpuSmooth = 300 * time.Millisecond // over which samples are averaged
	cpuLeast  = 0.05                   // part of the limit that is left at full use
)

// CPU is a second brake, to be used in a [Chain] after another policy: where the
// processors that the control group allows are nearly used up, it limits how
// much is in service and waits. At the threshold the limit is twice the
// concurrency, and it falls with the part that is left of the quota. At least
// one unit is always let in.
//
// Use that is not known never sheds: no control groups, no files, files that
// make no sense, the first sample. With no quota the machine's processors are
// the quota, and the use of all of them the use.
//
// It takes a sample with a decision, at most every 100 ms, and averages over
// 300 ms. The sample reads two small files, or /proc/stat where there is no
// quota: some tens of microseconds during which the shedder's other callers wait.
type CPU struct {
	Passive

	source    CPUSource
	threshold float64

	sampled time.Duration // when the last one was taken
	taken   bool          // one was
	used    time.Duration
	valid   bool // used can be compared with
	st      CPUState
}

// NewCPU returns a CPU, or all faults of c at once.
func NewCPU(c CPUConfig) (*CPU, error) {
	if c.Threshold == 0 {
		c.Threshold = 0.9
	}
	if !(c.Threshold > 0 && c.Threshold < 1) {
		return nil, fmt.Errorf("%w: CPUConfig.Threshold is %v: a part of the quota, above 0 and below 1", ErrInvalid, c.Threshold)
	}
	if c.Source == nil {
		if c.Files == nil {
			c.Files = os.DirFS("/")
		}
		c.Source = cpu.New(c.Files)
	}
	return &CPU{source: c.Source, threshold: c.Threshold}, nil
}

// Admit refuses what is over the limit that the processors leave.
func (c *CPU) Admit(r *Request) Verdict {
	if !c.taken || r.Now-c.sampled >= cpuEvery || r.Now < c.sampled {
		c.sample(r.Now)
	}
	if !c.st.Known || c.st.Usage <= c.st.Threshold {
		return Verdict{}
	}
	part := (c.st.Quota - c.st.Usage) / (c.st.Quota - c.st.Threshold)
	limit := max(1, 2*float64(max(1, r.Concurrency))*max(cpuLeast, part))
	n := float64(max(0, r.Waiting)) + float64(max(0, r.Busy))
	if n < limit {
		return Verdict{}
	}
	return Verdict{Action: Refuse, Rule: RuleCPU, Limit: limit, Value: n, RetryAfter: cpuEvery}
}

// sample asks the source. What it sets first holds even if the source panics.
func (c *CPU) sample(now time.Duration) {
	passed := now - c.sampled
	before, valid := c.used, c.valid && passed > 0
	known := c.st.Known
	c.taken, c.sampled, c.valid, c.st.Known = true, now, false, false
	used, quota, source, err := c.source.CPU()
	if err == nil && (used < 0 || !(quota > 0) || math.IsInf(quota, 1)) {
		err = fmt.Errorf("used %v of a quota of %v processors makes no sense", used, quota)
	}
	if err != nil {
		c.st = CPUState{Fault: err.Error()}
		return
	}
	c.used, c.valid = used, true
	if !valid || used < before {
		c.st = CPUState{Fault: "there was one sample so far"}
		return
	}
	usage := float64(used-before) / float64(passed)
	if known {
		usage = c.st.Usage + (usage-c.st.Usage)*(1-math.Exp(-float64(passed)/float64(cpuSmooth)))
	}
	c.st = CPUState{Known: true, Usage: usage, Quota: quota, Threshold: c.threshold * quota, Source: source}
}

// Inspect fills in what is known of the processors.
func (c *CPU) Inspect(_ time.Duration, st *State) {
	st.Policy = "cpu"
	st.CPU = c.st
}
