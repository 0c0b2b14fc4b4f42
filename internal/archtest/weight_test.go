package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// listed is what `go list -json` says of a package.
type listed struct {
	ImportPath string   `json:"ImportPath"`
	Standard   bool     `json:"Standard"`
	Imports    []string `json:"Imports"`
	Deps       []string `json:"Deps"`
}

// allowedThirdParty is what the core may link besides the standard library.
const allowedThirdParty = "go.uber.org/atomic"

// core are the packages that every user of the bus links.
func core(importPath string) bool {
	rel, ok := strings.CutPrefix(importPath, module+"/")
	if !ok {
		return false
	}
	return under(rel, "bus") || under(rel, "reason") || under(rel, "retry") || under(rel, "internal")
}

// checkWeight looks at what the core packages among pkgs link. Direct imports
// of heavy packages are faults; so is testing anywhere below. encoding/json is
// banned only as a direct import, because log/slog links it anyhow.
func checkWeight(pkgs []listed) findings {
	standard := make(map[string]bool)
	for _, p := range pkgs {
		standard[p.ImportPath] = p.Standard
	}
	heavy := []string{"net/http", "testing", "expvar", "encoding/json"}
	var out findings
	for _, p := range pkgs {
		if !core(p.ImportPath) {
			continue
		}
		for _, imp := range p.Imports {
			if slices.Contains(heavy, imp) {
				out.addf("%s imports %s", p.ImportPath, imp)
			}
		}
		for _, dep := range p.Deps {
			switch {
			case standard[dep]:
				if dep != "encoding/json" && slices.Contains(heavy, dep) && !slices.Contains(p.Imports, dep) {
					out.addf("%s links %s through another package", p.ImportPath, dep)
				}
			case !under(dep, allowedThirdParty) && !under(dep, module):
				out.addf("%s links %s, which is neither standard nor %s", p.ImportPath, dep, allowedThirdParty)
			}
		}
	}
	return out
}

func TestWeight(t *testing.T) {
	pkgs := list(t, "-deps", "./...")
	seen := 0
	for _, p := range pkgs {
		if core(p.ImportPath) {
			seen++
		}
	}
	if seen == 0 {
		t.Fatal("go list names no core package: the check would pass on nothing")
	}
	out := checkWeight(pkgs)
	out.report(t)
}

func TestWeightFindsPlantedFaults(t *testing.T) {
	third := "example.com/heavy"
	pkgs := []listed{
		{ImportPath: "net/http", Standard: true},
		{ImportPath: "testing", Standard: true},
		{ImportPath: "encoding/json", Standard: true},
		{ImportPath: "log/slog", Standard: true},
		{ImportPath: third},
		{ImportPath: allowedThirdParty},
		{ImportPath: module + "/reason", Imports: []string{"encoding/json"}, Deps: []string{"encoding/json"}},
		{ImportPath: module + "/retry", Imports: []string{"log/slog"}, Deps: []string{"log/slog", "encoding/json"}},
		{ImportPath: module + "/internal/queue", Imports: []string{third}, Deps: []string{third, "testing"}},
		{ImportPath: module + "/bus", Imports: []string{"net/http", allowedThirdParty}, Deps: []string{"net/http", allowedThirdParty}},
		{ImportPath: module + "/cmd/x", Imports: []string{"net/http"}, Deps: []string{"net/http"}},
	}
	expect(t, checkWeight(pkgs),
		"reason imports encoding/json",
		"internal/queue links example.com/heavy",
		"internal/queue links testing through another package",
		"bus imports net/http",
	)
}

// list runs `go list -json` in the root of the repository.
func list(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Standard,Imports,Deps"}, args...)...)
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var pkgs []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}
