package archtest

import (
	"go/ast"
	"strings"
	"testing"
)

// hotMark starts the comment line of a function that must not allocate.
const hotMark = "// hot:"

// checkHot pairs every hot function with an allocation test in its directory:
// a test whose name starts with TestAllocs and holds the function's name. The
// directory's tests must also measure, which means to use testing.AllocsPerRun.
func checkHot(tr *tree) findings {
	tests := make(map[string][]string)
	measures := make(map[string]bool)
	for _, f := range tr.goFiles() {
		if !f.test() {
			continue
		}
		measures[f.dir()] = measures[f.dir()] || strings.Contains(f.text, "AllocsPerRun(")
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "TestAllocs") {
				tests[f.dir()] = append(tests[f.dir()], strings.ToLower(fn.Name.Name))
			}
		}
	}
	var out findings
	for _, f := range tr.goFiles() {
		if f.test() {
			continue
		}
		owners := hotFunctions(f)
		for _, group := range f.syntax.Comments {
			for _, c := range group.List {
				if !strings.HasPrefix(c.Text, hotMark) {
					continue
				}
				name, ok := owners[group]
				switch {
				case !ok:
					out.addf("%s:%d: a hot mark that belongs to no function", f.path, tr.line(c))
				case !hasTest(tests[f.dir()], name):
					out.addf("%s:%d: hot function %s has no TestAllocs_%s", f.path, tr.line(c), name, name)
				case !measures[f.dir()]:
					out.addf("%s:%d: no test beside %s uses testing.AllocsPerRun", f.path, tr.line(c), name)
				}
			}
		}
	}
	return out
}

// hotFunctions maps each doc comment of a file to the function it documents.
func hotFunctions(f file) map[*ast.CommentGroup]string {
	owners := make(map[*ast.CommentGroup]string)
	for _, decl := range f.syntax.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Doc != nil {
			owners[fn.Doc] = fn.Name.Name
		}
	}
	return owners
}

func hasTest(tests []string, name string) bool {
	for _, test := range tests {
		if strings.Contains(strings.TrimPrefix(test, "testallocs"), strings.ToLower(name)) {
			return true
		}
	}
	return false
}

func TestHotFunctionsHaveAllocationTests(t *testing.T) {
	out := checkHot(repository(t))
	out.report(t)
}

func TestHotFindsPlantedFaults(t *testing.T) {
	const measured = "package p\nimport \"testing\"\nfunc TestAllocs_Push(t *testing.T) { testing.AllocsPerRun(1, nil) }\n"
	tr := plant(t, map[string]string{
		"a/a.go":      "package p\n\n// Push adds.\n//\n// hot: 0 allocs\nfunc (q *Q) Push() {}\n\n// Pop takes.\n// hot: 0 allocs\nfunc Pop() {}\n",
		"a/a_test.go": measured,
		"b/b.go":      "package p\n\n// hot: 0 allocs\nfunc push() {}\n",
		"b/b_test.go": "package p\nfunc TestAllocs_push(t *testing.T) {}\n",
		"c/c.go":      "package p\n\n// hot: 0 allocs\n\nfunc Push() {}\n",
		"c/c_test.go": measured,
		"d/d.go":      "package p\n\n// hot: 0 allocs\nfunc Push() {}\n",
		"e/e_test.go": measured,
	})
	expect(t, checkHot(tr),
		"a/a.go:9: hot function Pop has no TestAllocs_Pop",
		"b/b.go:3: no test beside push uses testing.AllocsPerRun",
		"c/c.go:3: a hot mark that belongs to no function",
		"d/d.go:3: hot function Push has no TestAllocs_Push",
	)
}
