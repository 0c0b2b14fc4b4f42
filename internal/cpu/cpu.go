// Package cpu reads how much processor time a process may use and has used, as
// the control groups of Linux (version 1 or 2) or, without a quota, the machine
// tell. All figures are in processors and processor time, never in parts of
// something that the reader has to guess.
package cpu

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
	"time"
)

// Sample is one reading.
type Sample struct {
	// Used is the processor time used since some moment in the past, by all who
	// share the quota.
	Used time.Duration
	// Quota is how many processors may be used at once; above 0 and finite.
	Quota float64
	// Source is "cgroup v2", "cgroup v1" or "machine".
	Source string
}

// ErrUnknown is matched by all errors of Read: nothing can be said.
var ErrUnknown = errors.New("cpu: use is not known")

// layoutReads is after how many reads the files are looked for anew, because a
// process can be moved and a quota be set at another level.
const layoutReads = 64

// maxLevels bounds how far up quotas are looked for.
const maxLevels = 128

// maxFile bounds what is read of one file.
const maxFile = 1 << 16

// Reader reads samples. It is for one goroutine at a time.
type Reader struct {
	files fs.FS
	read  func() (Sample, error) // from the files found last; nil is none
	left  int
}

// New returns a Reader of the files below the root of a Linux system.
func New(files fs.FS) *Reader { return &Reader{files: files} }

// Read takes a sample. Errors match [ErrUnknown].
func (r *Reader) Read() (Sample, error) {
	if r.read == nil || r.left == 0 {
		r.read, r.left = r.find(), layoutReads
	}
	r.left--
	s, err := r.read()
	if err == nil && (s.Quota <= 0 || s.Used < 0) {
		err = fmt.Errorf("%s: used %v of a quota of %v processors makes no sense", s.Source, s.Used, s.Quota)
	}
	if err != nil {
		r.read = nil
		return Sample{}, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return s, nil
}

// CPU is Read in the words of those who only want numbers.
func (r *Reader) CPU() (used time.Duration, quota float64, source string, err error) {
	s, err := r.Read()
	return s.Used, s.Quota, s.Source, err
}

// find looks for the tightest quota that holds for this process.
func (r *Reader) find() func() (Sample, error) {
	if r.files == nil {
		return func() (Sample, error) { return Sample{}, errors.New("no files") }
	}
	v1, v2, ok := r.groups()
	processors := r.processors()
	for _, v := range []version{versionOne(v1), versionTwo(v2)} {
		if ok && v.path != "" {
			if read := r.limited(v, processors); read != nil {
				return read
			}
		}
	}
	return r.machine
}

// groups returns the paths of this process's control groups: that of the cpu
// controller of version 1, and that of version 2; empty is none.
func (r *Reader) groups() (v1, v2 string, ok bool) {
	text, err := r.text("proc/self/cgroup")
	if err != nil {
		return "", "", false
	}
	for line := range strings.Lines(text) {
		id, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, where, found := strings.Cut(rest, ":")
		switch {
		case !found:
		case id == "0" && controllers == "":
			v2 = path.Clean("/" + where)
		default:
			for c := range strings.SplitSeq(controllers, ",") {
				if c == "cpu" {
					v1 = path.Clean("/" + where)
				}
			}
		}
	}
	return v1, v2, true
}

// version is how one version of control groups tells quota and use.
type version struct {
	name   string
	path   string   // of the group, from the root of the hierarchy
	quotas []string // where the hierarchy may be mounted
	usages []string
	quota  func(r *Reader, dir string) (quota float64, none bool, err error)
	usage  func(r *Reader, dir string) (time.Duration, error)
}

func versionTwo(group string) version {
	return version{
		name: "cgroup v2", path: group,
		quotas: []string{"sys/fs/cgroup"}, usages: []string{"sys/fs/cgroup"},
		quota: (*Reader).quotaTwo, usage: (*Reader).usageTwo,
	}
}

func versionOne(group string) version {
	return version{
		name: "cgroup v1", path: group,
		quotas: []string{"sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpu"},
		usages: []string{"sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpuacct"},
		quota:  (*Reader).quotaOne, usage: (*Reader).usageOne,
	}
}

// limited returns how to read the level with the smallest quota, from the group
// up to the root; nil if there is no quota. In a container the path may be one
// of the host that does not exist inside; the root is the container's then.
func (r *Reader) limited(v version, processors float64) func() (Sample, error) {
	least := math.Inf(1)
	var quotaAt, usageAt string
	level := v.path
	for range maxLevels {
		for i, mount := range v.quotas {
			q, none, err := v.quota(r, path.Join(mount, level))
			if err != nil || none || q >= least {
				continue
			}
			for _, usage := range []string{v.usages[i], v.usages[0]} {
				at := path.Join(usage, level)
				if _, err := v.usage(r, at); err == nil {
					least, quotaAt, usageAt = q, path.Join(mount, level), at
					break
				}
			}
		}
		if level == "/" {
			break
		}
		level = path.Dir(level)
	}
	if quotaAt == "" {
		return nil
	}
	return func() (Sample, error) {
		q, none, err := v.quota(r, quotaAt)
		if err != nil {
			return Sample{}, err
		}
		if none {
			return Sample{}, errors.New(quotaAt + ": the quota is gone")
		}
		used, err := v.usage(r, usageAt)
		if processors > 0 {
			q = min(q, processors)
		}
		return Sample{Used: used, Quota: q, Source: v.name}, err
	}
}

// quotaTwo reads "max 100000" or "400000 100000".
func (r *Reader) quotaTwo(dir string) (quota float64, none bool, err error) {
	text, err := r.text(path.Join(dir, "cpu.max"))
	if err != nil {
		return 0, false, err
	}
	most, period, _ := strings.Cut(strings.TrimSpace(text), " ")
	if most == "max" {
		return 0, true, nil
	}
	return ratio(dir, most, period)
}

func (r *Reader) usageTwo(dir string) (time.Duration, error) {
	text, err := r.text(path.Join(dir, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if n, ok := strings.CutPrefix(line, "usage_usec "); ok {
			return nanoseconds(dir, n, int64(time.Microsecond))
		}
	}
	return 0, errors.New(dir + ": cpu.stat has no usage_usec")
}

func (r *Reader) quotaOne(dir string) (quota float64, none bool, err error) {
	most, err := r.text(path.Join(dir, "cpu.cfs_quota_us"))
	if err != nil {
		return 0, false, err
	}
	most = strings.TrimSpace(most)
	if most == "-1" {
		return 0, true, nil
	}
	period, err := r.text(path.Join(dir, "cpu.cfs_period_us"))
	if err != nil {
		return 0, false, err
	}
	return ratio(dir, most, strings.TrimSpace(period))
}

func (r *Reader) usageOne(dir string) (time.Duration, error) {
	text, err := r.text(path.Join(dir, "cpuacct.usage"))
	if err != nil {
		return 0, err
	}
	return nanoseconds(dir, text, 1)
}

// ratio is a quota of both times.
func ratio(dir, most, period string) (quota float64, none bool, err error) {
	m, err1 := strconv.ParseInt(most, 10, 64)
	p, err2 := strconv.ParseInt(period, 10, 64)
	if err1 != nil || err2 != nil || m <= 0 || p <= 0 {
		return 0, false, fmt.Errorf("%s: a quota of %q in %q µs", dir, most, period)
	}
	return float64(m) / float64(p), false, nil
}

// nanoseconds is a count of units of so many nanoseconds.
func nanoseconds(dir, text string, unit int64) (time.Duration, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%s: a use of %.40q", dir, text)
	}
	return time.Duration(n * unit), nil
}

// tick is the unit of the times in /proc/stat, the same on all systems that Go
// runs on.
const tick = 10 * time.Millisecond

// machine reads the use of all processors.
func (r *Reader) machine() (Sample, error) {
	text, err := r.text("proc/stat")
	if err != nil {
		return Sample{}, err
	}
	s := Sample{Source: "machine"}
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, " ")
		switch {
		case name == "cpu":
			for i, field := range strings.Fields(rest) {
				// user, nice, system, idle, iowait, irq, softirq, steal; those
				// that follow are in user already.
				if i == 3 || i == 4 || i > 7 {
					continue
				}
				used, err := nanoseconds("proc/stat", field, int64(tick))
				if err != nil {
					return Sample{}, err
				}
				s.Used += used
			}
		case strings.HasPrefix(name, "cpu"):
			s.Quota++
		}
	}
	return s, nil
}

// processors is how many are switched on; 0 is unknown.
func (r *Reader) processors() float64 {
	text, err := r.text("sys/devices/system/cpu/online")
	if err != nil {
		return 0
	}
	n := 0
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		lo, err1 := strconv.Atoi(from)
		hi, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || lo < 0 || hi < lo || hi > 1<<20 {
			return 0
		}
		n += hi - lo + 1
	}
	return float64(n)
}

// text is a small file as a whole.
func (r *Reader) text(name string) (string, error) {
	f, err := r.files.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(b), err
}
