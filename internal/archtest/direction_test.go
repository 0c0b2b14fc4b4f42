package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// row says what the shipped code below one directory of the root module may
// import of the repository. Entries name directories; "internal" is all of it.
type row struct {
	dir string
	may []string
}

// directions is the order of the house, from the ground up. A package without
// a row is a finding: adding one is a decision.
var directions = []row{
	{dir: "reason"},
	{dir: "internal", may: []string{"internal"}},
	{dir: "retry", may: []string{"reason", "internal"}},
	{dir: "shard", may: []string{"internal"}},
	{dir: "shedder/rate", may: []string{"shedder", "reason"}},
	{dir: "shedder/windowed", may: []string{"shedder", "reason"}},
	{dir: "shedder/gozero", may: []string{"shedder", "reason", "internal"}},
	{dir: "shedder/shedhttp", may: []string{"shedder", "reason", "internal"}},
	{dir: "shedder", may: []string{"reason", "internal"}},
	{dir: "credit", may: []string{"reason", "internal"}},
	{dir: "store", may: []string{"store", "reason", "internal"}},
	{dir: "bus", may: []string{"bus", "reason", "retry", "shedder", "credit", "store", "internal"}},
	{dir: "tune/api", may: nil},
	{dir: "tune", may: []string{"tune", "bus", "reason", "retry", "shedder", "internal"}},
	{dir: "metrics", may: []string{"bus", "reason"}},
	{dir: "bustest", may: []string{"bustest", "bus", "reason", "retry", "shedder", "internal"}},
	{dir: "conformance", may: []string{"conformance", "bustest", "bus", "reason", "retry", "shedder", "internal"}},
	{dir: "calibrate", may: []string{"bus", "reason", "retry", "internal"}},
	{dir: "cmd", may: []string{"cmd", "bus", "reason", "retry", "tune", "metrics", "calibrate", "shedder", "credit", "store", "shard", "internal"}},
	{dir: "examples", may: []string{"examples", "bus", "bustest", "reason", "retry", "tune", "metrics", "shedder", "credit", "store", "shard"}},
}

// checkDirections holds shipped code to its row. Test code may reach further,
// but never into a command, and a module of its own never into internal/.
func checkDirections(tr *tree) findings {
	var out findings
	for _, f := range tr.goFiles() {
		mod := tr.moduleOf(f.path)
		var r *row
		if mod == "." && !f.test() && f.dir() != "." {
			i := slices.IndexFunc(directions, func(r row) bool { return under(f.path, r.dir) })
			if i < 0 {
				out.addf("%s: package without a row in the table of directions", f.path)
				continue
			}
			r = &directions[i]
		}
		for _, imp := range f.imports() {
			rel, ours := strings.CutPrefix(imp, module+"/")
			if ours {
				checkImport(&out, f, mod, r, rel)
			}
		}
	}
	return out
}

func checkImport(out *findings, f file, mod string, r *row, rel string) {
	switch {
	case mod != "." && under(rel, "internal"):
		out.addf("%s: a module of its own imports %s", f.path, rel)
	case under(rel, "cmd") && (mod != "." || !under(f.path, "cmd")):
		out.addf("%s: imports the command %s", f.path, rel)
	case r != nil && !slices.ContainsFunc(r.may, func(dir string) bool { return under(rel, dir) }):
		out.addf("%s: %s may not import %s", f.path, r.dir, rel)
	}
}

func TestDirections(t *testing.T) {
	out := checkDirections(repository(t))
	out.report(t)
}

func TestDirectionsFindsPlantedFaults(t *testing.T) {
	imp := func(rels ...string) string {
		var text strings.Builder
		text.WriteString("package p\n")
		for _, rel := range rels {
			fmt.Fprintf(&text, "import _ %q\n", module+"/"+rel)
		}
		return text.String()
	}
	tr := plant(t, map[string]string{
		"go.mod":                   "module " + module,
		"bench/go.mod":             "module " + module + "/bench",
		"bus/a.go":                 imp("reason", "internal/queue", "tune"),
		"bus/a_test.go":            imp("bustest", "cmd/x"),
		"reason/a.go":              imp("internal/queue"),
		"internal/queue/a.go":      imp("internal/clock", "retry"),
		"internal/queue/a_test.go": imp("retry"),
		"examples/e/main.go":       imp("bus", "internal/queue"),
		"cmd/x/main.go":            imp("cmd/x/internal/cli", "bus"),
		"bench/b.go":               imp("bus", "internal/queue", "bench/internal/load"),
		"bench/b_test.go":          imp("internal/clock"),
		"novel/a.go":               imp("bus"),
		"shedder/a.go":             imp("reason", "shedder/rate"),
		"shedder/rate/a.go":        imp("shedder", "internal/clock"),
		"busy/a.go":                imp("bus"),
	})
	expect(t, checkDirections(tr),
		"bus/a.go: bus may not import tune",
		"bus/a_test.go: imports the command",
		"reason/a.go: reason may not import internal/queue",
		"internal/queue/a.go: internal may not import retry",
		"examples/e/main.go: examples may not import internal/queue",
		"bench/b.go: a module of its own imports internal/queue",
		"bench/b_test.go: a module of its own imports internal/clock",
		"novel/a.go: package without a row",
		"shedder/a.go: shedder may not import shedder/rate",
		"shedder/rate/a.go: shedder/rate may not import internal/clock",
		"busy/a.go: package without a row",
	)
}
