package names_test

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/internal/names"
)

func TestCheckAccepts(t *testing.T) {
	for _, name := range []string{
		"a", "Z", "0", "orders", "orders.eu-west_1", "3com", "a.b.c", "a-", "a_", "a--b", "a__b",
		"CONSOLE", "COM", "COM10", "comx", "LPT", "nul1", "a.con", "con-1",
		strings.Repeat("x", names.MaxLen),
	} {
		assert.NoError(t, names.Check(name), name)
	}
}

func TestB070_CheckRefusesNamesThatBecomePaths(t *testing.T) {
	tests := []struct {
		name string
		want string
	}{
		{"../x", `name "../x": byte '.' at 0: a name starts with a letter or digit`},
		{"a/b", `name "a/b": byte '/' at 1: only ASCII letters, digits, '_', '-' and '.' are allowed`},
		{`a\b`, `name "a\\b": byte '\\' at 1: only ASCII`},
		{"", `name "": is empty; 1 to 128 bytes are allowed`},
		{".", `name ".": byte '.' at 0: a name starts with`},
		{"..", `name "..": byte '.' at 0: a name starts with`},
		{"x\x00y", `name "x\x00y": byte '\x00' at 1: only ASCII`},
		{strings.Repeat("x", 300), `name "` + strings.Repeat("x", 40) + `"...: has 300 bytes; at most 128 are allowed`},
		{strings.Repeat("x", 129), `: has 129 bytes; at most 128 are allowed`},
		{"CON", `name "CON": "CON" at 0: a device name of Windows`},
		{"con", `name "con": "con" at 0: a device name of Windows`},
		{"nUl.txt", `name "nUl.txt": "nUl" at 0: a device name of Windows`},
		{"PRN", "device name"},
		{"aux.a.b", "device name"},
		{"COM1", "device name"},
		{"com0.log", "device name"},
		{"Lpt9", "device name"},
		{"a😀", `name "a😀": byte 0xf0 at 1: only ASCII`},
		{"a ", `name "a ": byte ' ' at 1: only ASCII`},
		{" a", `name " a": byte ' ' at 0: only ASCII`},
		{"a..b", `name "a..b": byte '.' at 2: ".." is not allowed`},
		{"a..", `byte '.' at 2: ".." is not allowed`},
		{"a.", `name "a.": byte '.' at 1: a name does not end with '.'`},
		{"-a", `byte '-' at 0: a name starts with`},
		{"_a", `byte '_' at 0: a name starts with`},
		{".hidden", `byte '.' at 0: a name starts with`},
		{"a%2fb", `byte '%' at 1: only ASCII`},
		{"a:b", `byte ':' at 1: only ASCII`},
		{"ａ", `byte 0xef at 0: only ASCII`},
		{"a\n", `byte '\n' at 1: only ASCII`},
		{"a\xff", `name "a\xff": byte 0xff at 1: only ASCII`},
		{strings.Repeat("y", 60) + "/", `name "` + strings.Repeat("y", 40) + `"...: byte '/' at 60: only ASCII`},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			require.ErrorContains(t, names.Check(tt.name), tt.want)
		})
	}
}

func TestErrorsAreShort(t *testing.T) {
	for _, name := range []string{strings.Repeat("\x00", 1<<20), strings.Repeat("😀", 30), strings.Repeat("\"", 128)} {
		err := names.Check(name)
		require.Error(t, err)
		assert.Less(t, len(err.Error()), 300)
		assert.NotContains(t, err.Error(), "\x00")
	}
}

func TestCheckOfGoodNamesAllocatesLittle(t *testing.T) {
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { _ = names.Check("orders.eu-west_1") }), 1.0)
}

func FuzzCheck(f *testing.F) {
	for _, name := range []string{"a", "a.b", "CON", "con.x", "../x", "a..b", "a/b", `a\b`, "", ".", "x\x00y", "a ", "😀", "com7"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if names.Check(name) != nil {
			return
		}
		if url.PathEscape(name) != name || filepath.Base(name) != name || !filepath.IsLocal(name) {
			t.Fatalf("%q is accepted but not safe", name)
		}
		if len(name) == 0 || len(name) > names.MaxLen || strings.ToValidUTF8(name, "") != name {
			t.Fatalf("%q is accepted", name)
		}
		for _, device := range []string{"con", "prn", "aux", "nul"} {
			if stem, _, _ := strings.Cut(name, "."); strings.EqualFold(stem, device) {
				t.Fatalf("%q is a device", name)
			}
		}
	})
}
