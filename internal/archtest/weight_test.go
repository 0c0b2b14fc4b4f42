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

// allowedThirdParty is what the core may link besides the standard library:
// package shard, which the bus does not link, binds threads to processors with x/sys.
const allowedThirdParty, allowedSystem = "go.uber.org/atomic", "golang.org/x/sys/unix"

// core are the packages that every user of the bus links.
func core(importPath string) bool {
	rel, ok := strings.CutPrefix(importPath, module+"/")
	if !ok {
		return false
	}
	if rel == "shedder" { // what lies below it is linked by those who ask for it
		return true
	}
	return slices.ContainsFunc([]string{"bus", "reason", "retry", "credit", "shard", "internal"}, func(dir string) bool { return under(rel, dir) })
}

// goZero is what comes with the rolling window of go-zero. Its packages core/load,
// core/proc and core/stat are not part of that: they take the process over.
var goZero = []string{
	"github.com/zeromicro/go-zero", "github.com/cespare/xxhash/v2", "github.com/fatih/color", "github.com/mattn",
	"github.com/spaolacci/murmur3", "go.opentelemetry.io/otel", "go.uber.org/automaxprocs", "golang.org/x/sys",
}

// satellite says what a package may link.
type satellite struct {
	dir   string
	links []string // besides the standard library and this module
	not   []string // of those, and of the standard library
}

// satellites are packages that stay out of the core because of what they bring.
// A package below shedder without a row is a finding.
var satellites = []satellite{
	{"shedder/rate", []string{"golang.org/x/time/rate"}, []string{"net/http", "testing", "expvar", "encoding/json"}},
	{"shedder/windowed", goZero, []string{
		"net/http", "testing", "expvar", "os/signal",
		"github.com/zeromicro/go-zero/core/load", "github.com/zeromicro/go-zero/core/proc", "github.com/zeromicro/go-zero/core/stat",
	}},
	{"shedder/gozero", goZero, []string{"testing", "expvar"}}, // core/load links net/http
	{"shedder/shedhttp", nil, []string{"testing", "expvar"}},
}

// checkSatellites holds the packages below shedder to their rows, and lets none
// but shedhttp import net/http.
func checkSatellites(pkgs []listed) findings {
	standard := make(map[string]bool)
	for _, p := range pkgs {
		standard[p.ImportPath] = p.Standard
	}
	var out findings
	for _, p := range pkgs {
		rel, ok := strings.CutPrefix(p.ImportPath, module+"/")
		if !ok || !strings.HasPrefix(rel, "shedder/") {
			continue
		}
		i := slices.IndexFunc(satellites, func(s satellite) bool { return under(rel, s.dir) })
		if i < 0 {
			out.addf("%s: package below shedder without a row in the table of satellites", p.ImportPath)
			continue
		}
		row := satellites[i]
		if row.dir != "shedder/shedhttp" && slices.Contains(p.Imports, "net/http") {
			out.addf("%s imports net/http", p.ImportPath)
		}
		for _, dep := range p.Deps {
			switch {
			case slices.Contains(row.not, dep):
				out.addf("%s links %s", p.ImportPath, dep)
			case standard[dep], under(dep, module), slices.ContainsFunc(row.links, func(l string) bool { return under(dep, l) }):
			default:
				out.addf("%s links %s, which its row does not name", p.ImportPath, dep)
			}
		}
	}
	return out
}

func TestSatellites(t *testing.T) {
	pkgs := list(t, "-deps", "./...")
	for _, row := range satellites {
		if !slices.ContainsFunc(pkgs, func(p listed) bool { return p.ImportPath == module+"/"+row.dir }) {
			t.Errorf("%s has a row in the table of satellites and does not exist", row.dir)
		}
	}
	out := checkSatellites(pkgs)
	out.report(t)
}

func TestSatellitesFindsPlantedFaults(t *testing.T) {
	const window, load = "github.com/zeromicro/go-zero/core/collection", "github.com/zeromicro/go-zero/core/load"
	pkgs := []listed{
		{ImportPath: "net/http", Standard: true},
		{ImportPath: window},
		{ImportPath: load},
		{ImportPath: module + "/shedder", Deps: []string{"net/http"}}, // another rule's
		{ImportPath: module + "/shedder/windowed", Imports: []string{window}, Deps: []string{window, load}},
		{ImportPath: module + "/shedder/rate", Imports: []string{window}, Deps: []string{window}},
		{ImportPath: module + "/shedder/rate/sub", Imports: []string{"net/http"}, Deps: []string{"net/http"}},
		{ImportPath: module + "/shedder/gozero", Imports: []string{load}, Deps: []string{window, load, "net/http"}},
		{ImportPath: module + "/shedder/gozero/sub", Imports: []string{"net/http"}, Deps: []string{"net/http"}},
		{ImportPath: module + "/shedder/shedhttp", Imports: []string{"net/http"}, Deps: []string{"net/http"}},
		{ImportPath: module + "/shedder/novel"},
	}
	expect(t, checkSatellites(pkgs),
		"shedder/windowed links "+load,
		"shedder/rate links "+window,
		"shedder/rate/sub imports net/http",
		"shedder/rate/sub links net/http",
		"shedder/gozero/sub imports net/http",
		"shedder/novel: package below shedder without a row",
	)
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
			case !under(dep, allowedThirdParty) && (dep != allowedSystem || p.ImportPath != module+"/shard") && !under(dep, module):
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
		{ImportPath: module + "/shedder", Imports: []string{third}, Deps: []string{third}},
		{ImportPath: module + "/credit", Imports: []string{"net/http"}, Deps: []string{"net/http"}},
		{ImportPath: module + "/shedder/rate", Imports: []string{third}, Deps: []string{third}}, // another rule's
		{ImportPath: module + "/cmd/x", Imports: []string{"net/http"}, Deps: []string{"net/http"}},
	}
	expect(t, checkWeight(pkgs),
		"reason imports encoding/json",
		"internal/queue links example.com/heavy",
		"internal/queue links testing through another package",
		"bus imports net/http",
		"shedder links example.com/heavy",
		"credit imports net/http",
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
