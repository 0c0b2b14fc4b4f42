package fault_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/sedabus/seda/internal/fault"
)

func TestFaultsAreOffByThemselves(t *testing.T) {
	if fault.On(fault.ExecutorStays) {
		t.Error("a fault is on although nobody has named it")
	}
}

// TestShippedCodeHasNoTrace reads what the compiler makes of the bus: no call
// of this package and none of the names may be left.
func TestShippedCodeHasNoTrace(t *testing.T) {
	asm := compile(t)
	if !strings.Contains(asm, "bus.(*Stage).Publish") {
		t.Fatal("the compiler's listing does not show the bus: the check would pass on nothing")
	}
	for line := range strings.Lines(asm) {
		if strings.Contains(line, "internal/fault.") || strings.Contains(line, string(fault.ExecutorStays)) {
			t.Errorf("a trace of faults in shipped code: %s", strings.TrimSpace(line))
		}
	}
}

// TestFaultsLeaveATrace shows that the check above can fail.
func TestFaultsLeaveATrace(t *testing.T) {
	if asm := compile(t, "-tags", "faults"); !strings.Contains(asm, "internal/fault.") {
		t.Error("no trace of faults with the tag faults")
	}
}

// compile returns the compiler's listing of package bus.
func compile(t *testing.T, flags ...string) string {
	t.Helper()
	args := append([]string{"build", "-gcflags=-S -dwarf=false"}, flags...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, "../../bus")...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, out.Bytes()[:min(out.Len(), 2000)])
	}
	return out.String()
}
