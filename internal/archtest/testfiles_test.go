package archtest

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testKits are the public packages that exist to be imported by tests.
var testKits = []string{"bustest", "conformance"}

func inTestKit(name string) bool {
	return slices.ContainsFunc(testKits, func(dir string) bool { return under(name, dir) })
}

// nearlyTest matches names that look like test files. The go command takes
// only names that end in _test.go; all others are compiled into users' programs.
var nearlyTest = regexp.MustCompile(`(?i)_tests?([^a-z]|$)`)

// checkTestFiles keeps test code out of shipped packages and sleeping out of
// test code, except inside a bubble whose clock is virtual.
func checkTestFiles(tr *tree) findings {
	var out findings
	for _, f := range tr.goFiles() {
		if !f.test() {
			if nearlyTest.MatchString(strings.TrimSuffix(path.Base(f.path), ".go")) {
				out.addf("%s: looks like a test but does not end in _test.go", f.path)
			}
			if slices.Contains(f.imports(), "testing") && !inTestKit(f.path) && !testOnly(f.path) && !measures(tr, f.path) {
				out.addf("%s: imports testing in shipped code", f.path)
			}
		}
		if !f.test() && !inTestKit(f.path) || bubbles(f) {
			continue
		}
		for _, n := range uses(f.syntax, "time", "Sleep") {
			out.addf("%s:%d: sleeps in a file that has no bubble of testing/synctest", f.path, tr.line(n))
		}
	}
	return out
}

// testOnly tells whether a file lies in an internal package for tests: its
// directory ends in "test". That no shipped package links one is checked by weight.
func testOnly(name string) bool {
	dir := path.Dir(name)
	return strings.Contains("/"+dir+"/", "/internal/") && strings.HasSuffix(dir, "test")
}

// measures tells whether a file belongs to a module of benchmarks: its programs
// may run in bubbles and take figures with the means of package testing.
func measures(tr *tree, name string) bool { return under(tr.moduleOf(name), "bench") }

// bubbles tells whether a file runs code in a bubble: with testing/synctest
// itself or with the test kit's Run.
func bubbles(f file) bool {
	return slices.Contains(f.imports(), "testing/synctest") ||
		len(uses(f.syntax, module+"/bustest", "Run")) > 0
}

// uses finds the uses of an exported name of an imported package, called or
// passed on.
func uses(syntax *ast.File, pkg, name string) []ast.Node {
	local := ""
	for _, spec := range syntax.Imports {
		if spec.Path.Value == `"`+pkg+`"` {
			local = path.Base(pkg)
			if spec.Name != nil {
				local = spec.Name.Name
			}
		}
	}
	var out []ast.Node
	ast.Inspect(syntax, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != name {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && local != "" && x.Name == local {
			out = append(out, sel)
		}
		return true
	})
	return out
}

func TestTestFiles(t *testing.T) {
	out := checkTestFiles(repository(t))
	out.report(t)
}

func TestTestFilesFindsPlantedFaults(t *testing.T) {
	tr := plant(t, map[string]string{
		"a/issue_test_2.go":        "package p\n",
		"a/a_test_linux.go":        "package p\n",
		"a/latest.go":              "package p\n",
		"a/a_testing.go":           "package p\nimport _ \"testing\"\n",
		"bustest/a.go":             "package p\nimport (\n\"testing\"\n\"time\"\n)\nvar _ testing.TB\nfunc f() { time.Sleep(1) }\n",
		"internal/ledgertest/a.go": "package p\nimport _ \"testing\"\n",
		"internal/queue/a.go":      "package p\nimport _ \"testing\"\n",
		"go.mod":                   "module " + module,
		"bench/load/go.mod":        "module " + module + "/bench/load",
		"bench/load/main.go":       "package p\nimport _ \"testing\"\n",
		"b/plain_test.go":          "package p\nimport \"time\"\nfunc f() { time.Sleep(1) }\n",
		"b/renamed_test.go":        "package p\nimport clk \"time\"\nvar f = clk.Sleep\n",
		"b/bubble_test.go":         "package p\nimport (\n_ \"testing/synctest\"\n\"time\"\n)\nfunc f() { time.Sleep(1) }\n",
		"b/kit_test.go":            "package p\nimport (\n\"time\"\n\"github.com/sedabus/seda/bustest\"\n)\nfunc f() { bustest.Run(func() { time.Sleep(1) }) }\n",
		"b/kitless_test.go":        "package p\nimport (\n\"time\"\n\"github.com/sedabus/seda/bustest\"\n)\nfunc f() { bustest.New(); time.Sleep(1) }\n",
		"b/other_test.go":          "package p\nfunc f() { bed.Sleep(1) }\n",
		"b/shipped.go":             "package p\nimport \"time\"\nfunc f() { time.Sleep(1) }\n",
	})
	expect(t, checkTestFiles(tr),
		"a/issue_test_2.go: looks like a test",
		"a/a_test_linux.go: looks like a test",
		"a/a_testing.go: imports testing",
		"internal/queue/a.go: imports testing",
		"bustest/a.go:7: sleeps",
		"b/kitless_test.go:6: sleeps",
		"b/plain_test.go:3: sleeps",
		"b/renamed_test.go:3: sleeps",
	)
}
