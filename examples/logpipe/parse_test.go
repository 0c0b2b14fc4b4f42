package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name string
		form form
		text string
		want record
	}{
		{"apache module", formAuto, "[Tue Mar 03 10:00:01 2026] [error] mod_x child in state 6", record{formApache, "error", "mod_x"}},
		{"apache call", formAuto, "[Tue Mar 03 10:00:01 2026] [notice] pool.init() ok", record{formApache, "notice", "pool.init()"}},
		{"apache client", formAuto, "[Tue Mar 03 10:00:01 2026] [error] [client 192.0.2.7] not found", record{formApache, "error", "client"}},
		{"apache colon", formApache, "[Tue Mar 03 10:00:01 2026] [warn] mod_y: slow", record{formApache, "warn", "mod_y"}},
		{"apache one word", formApache, "[Tue Mar 03 10:00:01 2026] [warn] mod_y", record{formApache, "warn", "mod_y"}},
		{"apache lone CR", formApache, "[Tue Mar 03 10:00:01 2026] [warn] mod_y\rslow", record{formApache, "warn", "mod_y"}},
		{"hdfs", formAuto, "260303 100001 17 INFO dfs.Node$Worker: block 1", record{formHDFS, "INFO", "dfs.Node$Worker"}},
		{"hdfs no message", formHDFS, "260303 100001 17 FATAL dfs.Node:", record{formHDFS, "FATAL", "dfs.Node"}},
		{"zookeeper", formAuto, "2026-03-03 10:00:01,123 - INFO  [main:Election@12] - vote: 3", record{formZooKeeper, "INFO", "Election"}},
		{"zookeeper thread", formAuto, "2026-03-03 10:00:01,123 - ERROR [Peer[myid=1]/0:0:0:2181:Net$Send@12] - x", record{formZooKeeper, "ERROR", "Net$Send"}},
		{"zookeeper brackets in message", formAuto, "2026-03-03 10:00:01,123 - WARN  [T(sid:2)::Prep@?] - a] - b:C@9] - d", record{formZooKeeper, "WARN", "Prep"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parse(tt.form, tt.text)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestParseMalformed(t *testing.T) {
	tests := []struct {
		form form
		text string
		want malformedError
	}{
		{formAuto, "", errEmpty},
		{formAuto, "[Tue Mar 03 10:00:01 2026] [error] mod_x\x00", errNUL},
		{formAuto, "\tat some.Class(Some.java:1)", errUnknown},
		{formAuto, "123456", errUnknown},
		{formAuto, "2026", errUnknown},
		{formApache, "260303 100001 17 INFO dfs.Node: x", "apache: no [time] [level]"},
		{formApache, "x[Tue Mar 03 10:00:01 2026] [error] m", "apache: no [time] [level]"},
		{formApache, "[Tue Mar 03 10:00:01 2026]", "apache: no [time] [level]"},
		{formApache, "[Tue Mar 33 10:00:01 2026] [error] m", "apache: bad time"},
		{formApache, "[Tue Mar 03 10:00:01.123456 2026] [error] m", "apache: bad time"},
		{formApache, "[Tue Mar 03 10:00:01 2026] [error m", "apache: unknown level"},
		{formApache, "[Tue Mar 03 10:00:01 2026] [loud] m", "apache: unknown level"},
		{formApache, "[Tue Mar 03 10:00:01 2026] [error]", "apache: no message"},
		{formApache, "[Tue Mar 03 10:00:01 2026] [error]m", "apache: no message"},
		{formApache, "[Tue Mar 03 10:00:01 2026] [error]  ", "apache: no component"},
		{formApache, "[Tue Mar 03 10:00:01 2026] [error] : x", "apache: no component"},
		{formHDFS, "260303 100001", "hdfs: bad time"},
		{formHDFS, "261303 100001 17 INFO dfs.Node: x", "hdfs: bad time"},
		{formHDFS, "260303 100001 17", "hdfs: bad thread number"},
		{formHDFS, "260303 100001 x7 INFO dfs.Node: x", "hdfs: bad thread number"},
		{formHDFS, "260303 100001 17 INFO", "hdfs: unknown level"},
		{formHDFS, "260303 100001 17 info dfs.Node: x", "hdfs: unknown level"},
		{formHDFS, "260303 100001 17 INFO dfs.Node x", "hdfs: no logger"},
		{formHDFS, "260303 100001 17 INFO : x", "hdfs: no logger"},
		{formHDFS, "260303 100001 17 INFO two words: x", "hdfs: no logger"},
		{formZooKeeper, "2026-03-03 10:00:01", "zookeeper: bad time"},
		{formZooKeeper, "2026-03-03 10:00:61,123 - INFO  [m:C@1] - x", "zookeeper: bad time"},
		{formZooKeeper, "2026-03-03 10:00:01,123 INFO  [m:C@1] - x", "zookeeper: no dash after the time"},
		{formZooKeeper, "2026-03-03 10:00:01,123 - NOTE  [m:C@1] - x", "zookeeper: unknown level"},
		{formZooKeeper, "2026-03-03 10:00:01,123 - INFO  m:C@1 - x", "zookeeper: no [thread:class@line]"},
		{formZooKeeper, "2026-03-03 10:00:01,123 - INFO  [m:C@1] x", "zookeeper: [thread:class@line] does not end"},
		{formZooKeeper, "2026-03-03 10:00:01,123 - INFO  [C@1] - x", "zookeeper: no class@line"},
		{formZooKeeper, "2026-03-03 10:00:01,123 - INFO  [m:C] - x", "zookeeper: no class@line"},
		{formZooKeeper, "2026-03-03 10:00:01,123 - INFO  [m:C@x] - x", "zookeeper: no class@line"},
		{formZooKeeper, "2026-03-03 10:00:01,123 - INFO  [m:@1] - x", "zookeeper: no class@line"},
	}
	for _, tt := range tests {
		t.Run(string(tt.form)+"/"+tt.text, func(t *testing.T) {
			_, err := parse(tt.form, tt.text)
			require.Equal(t, tt.want, err)
		})
	}
}

// FuzzParse checks what holds for every line: a record or a reason, never
// both; a component that is a part of the line; and the same answer from the
// form that was detected.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"[Tue Mar 03 10:00:01 2026] [error] mod_x child in state 6",
		"[Tue Mar 03 10:00:01 2026] [error] [client 192.0.2.7] not found",
		"260303 100001 17 INFO dfs.Node$Worker: block 1",
		"2026-03-03 10:00:01,123 - ERROR [Peer[myid=1]/0:0:0:2181:Net$Send@12] - x",
		"2026-03-03 10:00:01,123 - WARN  [@:A@1] - a] - b:C@9] - d",
		"", "\x00", "[", "] [", "[]", "\xff\xfe", "000000 ", "0000-",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parse(formAuto, text)
		if err != nil {
			var why malformedError
			require.ErrorAs(t, err, &why)
			require.NotEmpty(t, string(why))
			require.Zero(t, got)
			return
		}
		require.NotEmpty(t, got.component)
		require.Contains(t, text, got.component)
		require.Contains(t, text, got.level)
		require.False(t, strings.ContainsAny(got.component, " \t\r"), "component %q", got.component)
		again, err := parse(got.form, text)
		require.NoError(t, err)
		require.Equal(t, got, again)
		for _, other := range []form{formApache, formHDFS, formZooKeeper} {
			if other != got.form {
				_, err := parse(other, text)
				require.Error(t, err, "a line has one form at most")
			}
		}
	})
}
