package cpu_test

import (
	"os"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/internal/cpu"
)

func files(of map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range of {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

const stat = "cpu  100 10 50 9999 777 5 6 7 40 30\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\n"

func TestRead(t *testing.T) {
	machine := cpu.Sample{Used: 1780 * time.Millisecond, Quota: 2, Source: "machine"}
	for name, c := range map[string]struct {
		files map[string]string
		want  cpu.Sample
		fault string
	}{
		"version 2": {files: map[string]string{
			"proc/self/cgroup":      "0::/\n",
			"sys/fs/cgroup/cpu.max": "400000 100000\n", "sys/fs/cgroup/cpu.stat": "usage_usec 1500000\nuser_usec 1\n",
		}, want: cpu.Sample{Used: 1500 * time.Millisecond, Quota: 4, Source: "cgroup v2"}},
		"version 2, the tightest level counts, with its use": {files: map[string]string{
			"proc/self/cgroup":              "0::/pod/box\n",
			"sys/fs/cgroup/pod/box/cpu.max": "300000 100000\n", "sys/fs/cgroup/pod/box/cpu.stat": "usage_usec 1\n",
			"sys/fs/cgroup/pod/cpu.max": "150000 100000\n", "sys/fs/cgroup/pod/cpu.stat": "usage_usec 2\n",
		}, want: cpu.Sample{Used: 2 * time.Microsecond, Quota: 1.5, Source: "cgroup v2"}},
		"version 2, the path is the host's": {files: map[string]string{
			"proc/self/cgroup":      "0::/../../kubepods/box\n",
			"sys/fs/cgroup/cpu.max": "10000 100000\n", "sys/fs/cgroup/cpu.stat": "usage_usec 7\n",
		}, want: cpu.Sample{Used: 7 * time.Microsecond, Quota: 0.1, Source: "cgroup v2"}},
		"a quota above the machine is none": {files: map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/devices/system/cpu/online": "0-1,4,6-7\n",
			"sys/fs/cgroup/cpu.max": "9900000 100000\n", "sys/fs/cgroup/cpu.stat": "usage_usec 7\n",
		}, want: cpu.Sample{Used: 7 * time.Microsecond, Quota: 5, Source: "cgroup v2"}},
		"version 1": {files: map[string]string{
			"proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/box\n0::/\n",
			"sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "250000\n", "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/cpu,cpuacct/box/cpuacct.usage": "123\n",
		}, want: cpu.Sample{Used: 123, Quota: 2.5, Source: "cgroup v1"}},
		"version 1, mounted apart, the path is the host's": {files: map[string]string{
			"proc/self/cgroup":                   "4:cpu:/docker/1\n3:cpuacct:/docker/1\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
			"sys/fs/cgroup/cpuacct/cpuacct.usage": "99",
		}, want: cpu.Sample{Used: 99, Quota: 0.5, Source: "cgroup v1"}},
		"both, without a quota in version 1": {files: map[string]string{
			"proc/self/cgroup":                           "4:cpu,cpuacct:/\n0::/\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
			"sys/fs/cgroup/cpu.max":                      "100000 100000\n", "sys/fs/cgroup/cpu.stat": "usage_usec 3\n",
		}, want: cpu.Sample{Used: 3 * time.Microsecond, Quota: 1, Source: "cgroup v2"}},
		"no quota": {files: map[string]string{
			"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.stat": "usage_usec 3\n",
			"proc/stat": stat,
		}, want: machine},
		"no control groups": {files: map[string]string{"proc/stat": stat}, want: machine},
		"a quota that makes no sense": {files: map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "0 0\n", "sys/fs/cgroup/cpu.stat": "usage_usec 3\n", "proc/stat": stat,
		}, want: machine},
		"a use that makes no sense": {files: map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 100000\n", "sys/fs/cgroup/cpu.stat": "usage_usec -3\n", "proc/stat": stat,
		}, want: machine},
		"a use beyond counting": {files: map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 100000\n", "sys/fs/cgroup/cpu.stat": "usage_usec 9223372036854775807\n",
		}, fault: "proc/stat"},
		"no lines that we know": {files: map[string]string{"proc/self/cgroup": "\n::\nx\n", "proc/stat": "intr 5\n"}, fault: "makes no sense"},
		"no number":             {files: map[string]string{"proc/stat": "cpu x\n"}, fault: `a use of "x"`},
		"nothing":               {fault: "proc/stat"},
	} {
		t.Run(name, func(t *testing.T) {
			r := cpu.New(files(c.files))
			for range 2 {
				got, err := r.Read()
				require.Equal(t, c.want, got)
				if c.fault == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, cpu.ErrUnknown)
				require.ErrorContains(t, err, c.fault)
			}
		})
	}
}

func TestReadWithoutFiles(t *testing.T) {
	_, _, _, err := cpu.New(nil).CPU()
	require.ErrorIs(t, err, cpu.ErrUnknown)
}

func TestReadFollowsChanges(t *testing.T) {
	fs := files(map[string]string{
		"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 100000\n", "sys/fs/cgroup/cpu.stat": "usage_usec 3\n", "proc/stat": stat,
	})
	r := cpu.New(fs)
	read := func() (cpu.Sample, error) { return r.Read() }
	s, err := read()
	require.NoError(t, err)
	require.Equal(t, 1.0, s.Quota)
	fs["sys/fs/cgroup/cpu.max"].Data = []byte("200000 100000\n")
	s, err = read()
	require.NoError(t, err)
	require.Equal(t, 2.0, s.Quota, "a quota that was changed counts at once")

	delete(fs, "sys/fs/cgroup/cpu.stat")
	_, err = read()
	require.ErrorIs(t, err, cpu.ErrUnknown)
	s, err = read()
	require.NoError(t, err)
	require.Equal(t, "machine", s.Source, "the files are looked for anew")

	fs["sys/fs/cgroup/cpu.stat"] = &fstest.MapFile{Data: []byte("usage_usec 3\n")}
	for range 64 {
		s, err = read()
		require.NoError(t, err)
	}
	require.Equal(t, "cgroup v2", s.Source, "now and then they are looked for without need")
}

func TestReadThisSystem(t *testing.T) {
	r := cpu.New(os.DirFS("/"))
	s, err := r.Read()
	if err != nil {
		t.Skip(err) // not Linux
	}
	require.Positive(t, s.Quota)
	again, err := r.Read()
	require.NoError(t, err)
	require.GreaterOrEqual(t, again.Used, s.Used)
	t.Logf("%+v", again)
}

func FuzzRead(f *testing.F) {
	f.Add("0::/a\n", "100000 100000", "usage_usec 5\n", stat, "0-3")
	f.Add("4:cpu:/..\n", "max", "", "cpu", "1-")
	f.Fuzz(func(t *testing.T, group, most, used, machine, online string) {
		of := map[string]string{
			"proc/self/cgroup": group, "proc/stat": machine, "sys/devices/system/cpu/online": online,
			"sys/fs/cgroup/cpu.max": most, "sys/fs/cgroup/cpu.stat": used,
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": most, "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
			"sys/fs/cgroup/cpuacct/cpuacct.usage": used,
		}
		s, err := cpu.New(files(of)).Read()
		if err == nil && (s.Used < 0 || !(s.Quota > 0)) {
			t.Fatalf("%+v", s)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	r := cpu.New(os.DirFS("/"))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = r.Read()
	}
}
