package shedder_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/shedder"
)

func newCPU(t *testing.T, c shedder.CPUConfig) *shedder.CPU {
	t.Helper()
	p, err := shedder.NewCPU(c)
	require.NoError(t, err)
	return p
}

// groupFiles are the files of a control group.
type groupFiles struct {
	fs fstest.MapFS
	v1 bool
}

func newGroup(v1 bool, quota float64) *groupFiles {
	g := &groupFiles{fs: fstest.MapFS{}, v1: v1}
	us := fmt.Sprint(int(quota * 100_000))
	if v1 {
		g.set("proc/self/cgroup", "4:cpu,cpuacct:/box\n")
		g.set("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", us)
		g.set("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000")
	} else {
		g.set("proc/self/cgroup", "0::/\n")
		g.set("sys/fs/cgroup/cpu.max", us+" 100000")
	}
	return g
}

func (g *groupFiles) set(name, text string) { g.fs[name] = &fstest.MapFile{Data: []byte(text)} }

func (g *groupFiles) use(d time.Duration) {
	if g.v1 {
		g.set("sys/fs/cgroup/cpu,cpuacct/box/cpuacct.usage", fmt.Sprint(int64(d)))
		return
	}
	g.set("sys/fs/cgroup/cpu.stat", fmt.Sprintf("usage_usec %d\n", d.Microseconds()))
}

// A quota of 4 processors and a threshold of 0.9: users could not tell what
// their threshold was relative to, and work was refused far from the limit.
func TestB037_ThresholdIsRelativeToTheQuota(t *testing.T) {
	for name, v1 := range map[string]bool{"version 1": true, "version 2": false} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(v1, 4)
			s := newShedder(t, shedder.Config{Policy: newCPU(t, shedder.CPUConfig{Files: g.fs, Threshold: 0.9})})
			var now, used time.Duration
			run := func(processors float64, load shedder.Load) (v shedder.Verdict) {
				for range 20 {
					now += 100 * milli
					used += time.Duration(processors * float64(100*milli))
					g.use(used)
					v = s.Decide(&shedder.Request{Now: now, Load: load})
				}
				return v
			}
			busy := shedder.Load{Waiting: 100, Busy: 8, Concurrency: 8}
			require.Equal(t, shedder.Admit, run(1, busy).Action)
			st := s.State(now)
			require.Zero(t, st.Shed, "a quarter of the quota is used")
			require.True(t, st.CPU.Known)
			require.InDelta(t, 1, st.CPU.Usage, 0.01)
			require.Equal(t, 4.0, st.CPU.Quota)
			require.InDelta(t, 3.6, st.CPU.Threshold, 1e-9)

			require.Equal(t, shedder.Admit, run(3.9, shedder.Load{Busy: 2, Concurrency: 8}).Action, "little is in hand")
			v := run(3.9, busy)
			require.Equal(t, shedder.Refuse, v.Action)
			require.Equal(t, shedder.RuleCPU, v.Rule)
			require.Equal(t, reason.Shed, v.Reason)
			require.InDelta(t, 2*8*0.25, v.Limit, 0.1, "a quarter of what is above the threshold is left")
			require.Equal(t, 108.0, v.Value)
			require.InDelta(t, 3.9, s.State(now).CPU.Usage, 0.01)

			run(0.5, busy)
			require.Equal(t, shedder.Admit, run(0.5, busy).Action, "it recovers by itself")
		})
	}
}

// The use is above the quota where throttling is late, by a factor of hundreds
// with a small quota on a large machine: nothing may overflow or stop for good.
func TestCPUUseOverTheQuotaLetsSomethingIn(t *testing.T) {
	g := newGroup(false, 0.1)
	c := newCPU(t, shedder.CPUConfig{Files: g.fs})
	var now, used time.Duration
	for range 20 {
		now += 100 * milli
		used += 48 * 100 * milli
		g.use(used)
		require.Equal(t, shedder.Admit, c.Admit(&shedder.Request{Now: now, Load: shedder.Load{Concurrency: 4}}).Action)
	}
	v := c.Admit(&shedder.Request{Now: now, Load: shedder.Load{Busy: 4, Concurrency: 4}})
	require.Equal(t, shedder.Refuse, v.Action)
	require.Equal(t, 1.0, v.Limit)
}

// Systems without control groups, with files that make no sense, or with none.
func TestCPUUnknownNeverSheds(t *testing.T) {
	busy := shedder.Load{Waiting: 1000, Busy: 8, Concurrency: 8}
	for name, change := range map[string]func(*groupFiles){
		"no files":     func(g *groupFiles) { clear(g.fs) },
		"no quota":     func(g *groupFiles) { g.set("sys/fs/cgroup/cpu.max", "max 100000") },
		"zero quota":   func(g *groupFiles) { g.set("sys/fs/cgroup/cpu.max", "0 100000") },
		"no use":       func(g *groupFiles) { delete(g.fs, "sys/fs/cgroup/cpu.stat") },
		"stuck at 0":   func(g *groupFiles) { g.use(0) },
		"goes back":    func(g *groupFiles) { g.use(time.Duration(1e9 - len(g.fs["sys/fs/cgroup/cpu.stat"].Data))) },
		"not a number": func(g *groupFiles) { g.set("sys/fs/cgroup/cpu.stat", "usage_usec NaN") },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(false, 1)
			c := newCPU(t, shedder.CPUConfig{Files: g.fs})
			for i := range 30 {
				g.use(time.Hour)
				change(g)
				require.Equal(t, shedder.Admit, c.Admit(&shedder.Request{Now: time.Duration(i) * 100 * milli, Load: busy}).Action)
			}
		})
	}
}

// source is a CPUSource that the test sets.
type source struct {
	used  time.Duration
	quota float64
	err   error
	asked int
	panic bool
}

func (s *source) CPU() (time.Duration, float64, string, error) {
	s.asked++
	if s.panic {
		panic("source")
	}
	return s.used, s.quota, "test", s.err
}

func TestCPUSamplesAtMostEvery100ms(t *testing.T) {
	src := &source{quota: 1}
	c := newCPU(t, shedder.CPUConfig{Source: src})
	for i := range 1000 {
		c.Admit(&shedder.Request{Now: time.Duration(i) * milli})
	}
	require.Equal(t, 10, src.asked)
	for range 1000 {
		c.Admit(&shedder.Request{Now: 999 * milli}) // the clock stands
	}
	require.Equal(t, 10, src.asked)
}

func TestCPUBadInput(t *testing.T) {
	for _, threshold := range []float64{-1, 1, 95, math.NaN(), math.Inf(1)} {
		_, err := shedder.NewCPU(shedder.CPUConfig{Threshold: threshold})
		require.ErrorIs(t, err, shedder.ErrInvalid)
		require.ErrorContains(t, err, "Threshold")
	}
	src := &source{quota: 1, used: 10 * time.Hour}
	c := newCPU(t, shedder.CPUConfig{Source: src})
	busy := shedder.Load{Waiting: 1000, Busy: 8, Concurrency: 8}
	now := time.Duration(0)
	admit := func(passed, used time.Duration) shedder.Action {
		now += passed
		src.used += used
		return c.Admit(&shedder.Request{Now: now, Load: busy}).Action
	}
	full := func() {
		for range 20 {
			admit(100*milli, 100*milli)
		}
		require.Equal(t, shedder.Refuse, admit(milli, milli))
	}
	full()
	require.Equal(t, shedder.Admit, admit(-time.Hour, milli), "a clock that jumped back: not known any more")
	full()
	for _, quota := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		src.quota = quota
		require.Equal(t, shedder.Admit, admit(100*milli, 100*milli), "quota %v", quota)
		src.quota = 1
		full()
	}
	src.err = errors.New("broken")
	require.Equal(t, shedder.Admit, admit(100*milli, 100*milli))
	var st shedder.State
	c.Inspect(now, &st)
	require.Equal(t, shedder.CPUState{Fault: "broken"}, st.CPU)
	src.err = nil
	full()
	require.Equal(t, shedder.Admit, admit(100*milli, -time.Hour), "another group's count")
	full()

	s := newShedder(t, shedder.Config{Policy: c})
	src.panic = true
	for range 10 {
		require.Equal(t, shedder.Admit, s.Decide(&shedder.Request{Now: now + 100*milli, Load: busy}).Action)
	}
	require.EqualValues(t, 1, s.State(now).Panics, "the next sample is not due")
}

func TestCPUInAChain(t *testing.T) {
	src := &source{quota: 2}
	first := &script{}
	s := newShedder(t, shedder.Config{Policy: newChain(t, first, newCPU(t, shedder.CPUConfig{Source: src}))})
	r := &shedder.Request{Load: shedder.Load{Waiting: 30, Busy: 2, Concurrency: 2}}
	for range 30 {
		r.Now += 100 * milli
		src.used += 200 * milli
		s.Decide(r)
	}
	require.Equal(t, "chain(script,cpu)", s.State(r.Now).Policy)
	require.Equal(t, shedder.RuleCPU, s.State(r.Now).Last.Rule)
	require.EqualValues(t, first.undone, s.State(r.Now).Shed)
	require.Positive(t, first.undone)
}
