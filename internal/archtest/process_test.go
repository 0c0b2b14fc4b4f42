package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// effects are what importing packages does to a process.
type effects struct {
	Procs      int  `json:"procs"`      // GOMAXPROCS
	Goroutines int  `json:"goroutines"` // that run
	Deaf       bool `json:"-"`          // SIGTERM does not end it
}

// quota is a CPU quota that no machine has by itself.
func quota() int { return runtime.NumCPU() + 3 }

// probe builds a program that imports the packages, with the go.mod of
// injectQuota, and runs it.
func probe(t *testing.T, modfile string, imports ...string) effects {
	t.Helper()
	dir := t.TempDir()
	var text strings.Builder
	text.WriteString("package main\n")
	for _, imp := range imports {
		fmt.Fprintf(&text, "import _ %q\n", imp)
	}
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	program := filepath.Join(dir, "probe")
	goOutput(t, "build", "-modfile", modfile, "-ldflags=-s -w", "-o", program,
		write("main.go", read(t, "testdata", "probe", "main.go")), write("imports.go", text.String()))

	cmd := exec.CommandContext(t.Context(), program)
	cmd.Dir = dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GOMAXPROCS=") { // it would rule
			cmd.Env = append(cmd.Env, v)
		}
	}
	out, err := cmd.Output()
	var e effects
	// Its report comes first; what it imports may log to the same output later,
	// when the signal comes.
	if bad := json.NewDecoder(bytes.NewReader(out)).Decode(&e); bad != nil {
		t.Fatalf("the probe says %q: %v, %v", out, bad, err)
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatalf("the probe ended with %v", err)
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled() && status.Signal() == syscall.SIGTERM:
	case exit.ExitCode() == 42:
		e.Deaf = true
	default:
		t.Fatalf("the probe ended with %v", err)
	}
	return e
}

// injectQuota copies the library that looks for a CPU quota, lets it find one,
// and returns a go.mod in which the copy takes its place.
func injectQuota(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	const library = "go.uber.org/automaxprocs"
	where := filepath.Join(dir, "automaxprocs")
	if err := os.CopyFS(where, os.DirFS(goOutput(t, "list", "-m", "-f", "{{.Dir}}", library))); err != nil {
		t.Fatal(err)
	}
	mod := filepath.Join(dir, "go.mod")
	for file, text := range map[string]string{
		filepath.Join(where, "internal", "runtime", "cpu_quota_linux.go"): strings.ReplaceAll(read(t, "testdata", "quota.txt"), "QUOTA", strconv.Itoa(quota())),
		mod:                          read(t, "..", "..", "go.mod") + fmt.Sprintf("\nreplace %s => %s\n", library, where),
		filepath.Join(dir, "go.sum"): read(t, "..", "..", "go.sum"),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return mod
}

func read(t *testing.T, elem ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// goOutput runs the go command in the root of the repository.
func goOutput(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go %v: %v\n%s", args, err, exit.Stderr)
		}
		t.Fatalf("go %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// TestImportChangesNothing: importing what every user of the bus links leaves
// GOMAXPROCS, the goroutines and the signals of the process alone, in a
// container with a CPU quota too. The packages that bring go-zero do not, as
// their documentation says, which shows that the probe would notice.
func TestImportChangesNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("quotas and signals are those of Linux")
	}
	modfile := injectQuota(t)
	plain := probe(t, modfile)
	if plain.Procs == quota() || plain.Goroutines != 1 || plain.Deaf {
		t.Fatalf("a program that imports nothing: %+v", plain)
	}
	ours := func(names ...string) (imports []string) {
		for _, name := range names {
			imports = append(imports, module+"/"+name)
		}
		return imports
	}
	if got := probe(t, modfile, ours("bus", "reason", "retry", "shedder", "shedder/rate", "shedder/shedhttp")...); got != plain {
		t.Errorf("the bus and its like: %+v, where a program that imports nothing has %+v", got, plain)
	}
	if got, want := probe(t, modfile, ours("shedder/windowed")...), (effects{Procs: quota(), Goroutines: 1}); got != want {
		t.Errorf("shedder/windowed: %+v, want %+v", got, want)
	}
	// It is what shedder/gozero imports.
	const load = "github.com/zeromicro/go-zero/core/load"
	if got := probe(t, modfile, load); got.Procs != quota() || got.Goroutines <= 1 || !got.Deaf {
		t.Errorf("%s: %+v: the probe does not notice", load, got)
	}
}
