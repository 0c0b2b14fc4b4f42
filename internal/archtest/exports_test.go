package archtest

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// maxExports is how many top-level names a public package may export.
const maxExports = 40

// exception allows a package more names than maxExports, and says why.
type exception struct {
	names int
	why   string
}

// exceptions of the budget. A package that shrinks below its number lowers it.
var exceptions = map[string]exception{
	"bus": {125, "about twenty sentinels, the values of its small enums, and one struct for each hook and each " +
		"row of statistics: names that a reader meets one at a time, and that stutter when they live elsewhere"},
	"shedder": {70, "the seam that policies are written against (request, verdict, what ended, state), the names of the " +
		"rules, and the policies that need nothing but the seam"},
	"tune/api": {70, "one struct for each body on the wire and one constant for each reason of a problem"},
}

// checkExports counts exported top-level constants, variables, types and
// functions of each public package; methods and fields do not count.
func checkExports(tr *tree, allowed map[string]exception) (findings, map[string]int) {
	count := make(map[string]int)
	for _, f := range tr.goFiles() {
		private := strings.Contains("/"+f.path, "/internal/") || under(f.path, "cmd") || under(f.path, "examples")
		if f.test() || private || f.syntax.Name.Name == "main" || tr.moduleOf(f.path) != "." {
			continue
		}
		for _, decl := range f.syntax.Decls {
			count[f.dir()] += exported(decl)
		}
	}
	var out findings
	for _, dir := range slices.Sorted(maps.Keys(count)) {
		limit, why := maxExports, ""
		if e, ok := allowed[dir]; ok {
			limit, why = e.names, " ("+e.why+")"
		}
		if count[dir] > limit {
			out.addf("%s exports %d top-level names, at most %d%s", dir, count[dir], limit, why)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(allowed)) {
		if count[dir] <= maxExports || allowed[dir].why == "" {
			out.addf("%s needs no exception, or gives no reason for it", dir)
		}
	}
	return out, count
}

// exported counts the exported names that a declaration adds to its package.
func exported(decl ast.Decl) int {
	n := 0
	add := func(name *ast.Ident) {
		if name.IsExported() {
			n++
		}
	}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			add(d.Name)
		}
	case *ast.GenDecl:
		if d.Tok == token.IMPORT {
			return 0
		}
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				add(s.Name)
			case *ast.ValueSpec:
				for _, name := range s.Names {
					add(name)
				}
			}
		}
	}
	return n
}

func TestExports(t *testing.T) {
	out, count := checkExports(repository(t), exceptions)
	for _, dir := range slices.Sorted(maps.Keys(count)) {
		t.Logf("%s exports %d top-level names", dir, count[dir])
	}
	out.report(t)
}

func TestExportsFindsPlantedFaults(t *testing.T) {
	sources := map[string]string{
		"big/a.go":           "package big\n" + strings.Repeat("type T struct{}\n", maxExports) + "var A, b = 1, 2\n",
		"edge/a.go":          "package edge\n" + strings.Repeat("const C = 1\n", maxExports) + "func (T) M() {}\nfunc f() {}\n",
		"known/a.go":         "package known\n" + strings.Repeat("func F() {}\n", maxExports+2),
		"grown/a.go":         "package grown\n" + strings.Repeat("func F() {}\n", maxExports+3),
		"internal/many/a.go": "package many\n" + strings.Repeat("func F() {}\n", maxExports+1),
		"edge/a_test.go":     "package edge\nfunc TestX() {}\n",
	}
	out, _ := checkExports(plant(t, sources), map[string]exception{
		"known": {maxExports + 2, "planted"},
		"grown": {maxExports + 2, "planted"},
		"edge":  {maxExports + 9, "planted"},
	})
	expect(t, out,
		"big exports 41 top-level names, at most 40",
		"grown exports 43 top-level names, at most 42 (planted)",
		"edge needs no exception",
	)
}
