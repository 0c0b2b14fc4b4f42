package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module is the import path of the root module.
const module = "github.com/sedabus/seda"

// maxText bounds what is read as text; larger files are data.
const maxText = 1 << 20

// file is one text file of the repository. path is relative to the root and
// slash-separated; syntax is nil unless it is a Go file.
type file struct {
	path   string
	text   string
	syntax *ast.File
}

// tree is the repository, or a planted piece of one.
type tree struct {
	fset  *token.FileSet
	files []file
	roots []string // directories that hold a go.mod, the longest first; "." is the root module
}

// findings are what a rule has to say, one line each.
type findings []string

func (f *findings) addf(format string, args ...any) {
	*f = append(*f, fmt.Sprintf(format, args...))
}

// report fails the test once for each finding.
func (f *findings) report(t *testing.T) {
	t.Helper()
	for _, line := range *f {
		t.Error(line)
	}
}

// plant builds a tree from sources held in memory.
func plant(t *testing.T, sources map[string]string) *tree {
	t.Helper()
	tr := &tree{fset: token.NewFileSet()}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		tr.add(t, name, sources[name])
	}
	tr.sortRoots()
	return tr
}

// repository reads the tree this test belongs to. It walks the directory
// rather than asking git, so that the test cache sees every file it depends on.
func repository(t *testing.T) *tree {
	t.Helper()
	root := filepath.Join("..", "..")
	tr := &tree{fset: token.NewFileSet()}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if ignored(rel) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		return tr.read(t, name, rel)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.files) == 0 {
		t.Fatal("the repository has no files: the walk is broken")
	}
	tr.sortRoots()
	return tr
}

// ignored mirrors .gitignore: what is built or measured here is not part of
// the repository.
func ignored(rel string) bool {
	switch rel {
	case ".git", "bin", ".ci/cache", "go.work", "go.work.sum":
		return true
	}
	base := path.Base(rel)
	return strings.HasPrefix(rel, "coverage") || strings.HasSuffix(base, ".test") ||
		strings.HasSuffix(base, ".out") || strings.HasSuffix(base, ".prof")
}

func (tr *tree) read(t *testing.T, name, rel string) error {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil || info.Size() > maxText {
		return err
	}
	text, err := os.ReadFile(name)
	if err != nil || bytes.IndexByte(text, 0) >= 0 {
		return err
	}
	tr.add(t, rel, string(text))
	return nil
}

func (tr *tree) add(t *testing.T, name, text string) {
	t.Helper()
	f := file{path: name, text: text}
	if path.Base(name) == "go.mod" {
		tr.roots = append(tr.roots, path.Dir(name))
	}
	if strings.HasSuffix(name, ".go") && !strings.Contains(name, "testdata/") {
		syntax, err := parser.ParseFile(tr.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("%s does not parse: %v", name, err)
		}
		f.syntax = syntax
	}
	tr.files = append(tr.files, f)
}

func (tr *tree) sortRoots() {
	slices.SortFunc(tr.roots, func(a, b string) int { return len(b) - len(a) })
}

// goFiles yields the Go files that a person wrote.
func (tr *tree) goFiles() []file {
	var out []file
	for _, f := range tr.files {
		if f.syntax != nil && !ast.IsGenerated(f.syntax) {
			out = append(out, f)
		}
	}
	return out
}

// moduleOf returns the directory of the module that a file belongs to.
func (tr *tree) moduleOf(name string) string {
	for _, root := range tr.roots {
		if root != "." && strings.HasPrefix(name, root+"/") {
			return root
		}
	}
	return "."
}

func (tr *tree) line(n ast.Node) int { return tr.fset.Position(n.Pos()).Line }

func (f file) dir() string { return path.Dir(f.path) }
func (f file) test() bool  { return strings.HasSuffix(f.path, "_test.go") }
func (f file) lines() int  { return strings.Count(f.text, "\n") }
func (f file) imports() []string {
	var out []string
	for _, spec := range f.syntax.Imports {
		out = append(out, strings.Trim(spec.Path.Value, "`\""))
	}
	return out
}

// under tells whether a slash-separated path is dir or lies below it.
func under(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, dir+"/")
}

// expect fails unless each finding holds its wanted piece, in any order, and
// there are no others.
func expect(t *testing.T, got findings, want ...string) {
	t.Helper()
	for _, w := range want {
		if !slices.ContainsFunc(got, func(g string) bool { return strings.Contains(g, w) }) {
			t.Errorf("no finding holds %q; got %q", w, got)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d findings, want %d: %q", len(got), len(want), got)
	}
}
