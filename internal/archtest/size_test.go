package archtest

import (
	"go/ast"
	"strings"
	"testing"
)

// Budgets of length. A function's length is what stands between its braces.
const (
	maxFileLines = 600
	maxFuncLines = 80
	longFunc     = 60
	longPerCent  = 1 // of all functions, at most
)

// checkSizes measures every file, and the functions of shipped code.
func checkSizes(tr *tree) findings {
	var out findings
	var funcs int
	var long []string
	for _, f := range tr.goFiles() {
		if n := f.lines(); n > maxFileLines {
			out.addf("%s: %d lines, at most %d", f.path, n, maxFileLines)
		}
		if f.test() {
			continue
		}
		for _, decl := range f.syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			funcs++
			n := tr.fset.Position(fn.Body.Rbrace).Line - tr.fset.Position(fn.Body.Lbrace).Line - 1
			if n > longFunc {
				long = append(long, fn.Name.Name)
			}
			if n > maxFuncLines {
				out.addf("%s:%d: %s has %d lines, at most %d", f.path, tr.line(fn), fn.Name.Name, n, maxFuncLines)
			}
		}
	}
	if len(long)*100 > funcs*longPerCent {
		out.addf("%d of %d functions are over %d lines, at most %d %%: %s",
			len(long), funcs, longFunc, longPerCent, strings.Join(long, ", "))
	}
	return out
}

func TestSizes(t *testing.T) {
	out := checkSizes(repository(t))
	out.report(t)
}

func TestSizesFindsPlantedFaults(t *testing.T) {
	body := func(n int) string { return "() {\n" + strings.Repeat("\t_ = 0\n", n) + "}\n" }
	small := func(n int) string { return "package p\n" + strings.Repeat("func _() {}\n", n) }
	for name, c := range map[string]struct {
		sources map[string]string
		want    []string
	}{
		"at the bounds": {sources: map[string]string{
			"a.go": small(maxFileLines - 1), "b.go": "package p\nfunc f" + body(maxFuncLines) + "func g" + body(longFunc),
		}},
		"file":         {map[string]string{"a.go": small(maxFileLines)}, []string{"a.go: 601 lines"}},
		"test file":    {map[string]string{"a_test.go": small(maxFileLines)}, []string{"a_test.go: 601 lines"}},
		"function":     {map[string]string{"a.go": small(200) + "func f" + body(maxFuncLines+1)}, []string{"f has 81 lines"}},
		"too many":     {map[string]string{"a.go": small(98) + "func f" + body(longFunc+1)}, []string{"1 of 99 functions"}},
		"just few":     {sources: map[string]string{"a.go": small(99) + "func f" + body(longFunc+1)}},
		"test's funcs": {sources: map[string]string{"a_test.go": "package p\nfunc f" + body(maxFuncLines+1)}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, checkSizes(plant(t, c.sources)), c.want...) })
	}
}
