//go:build faults

package conformance_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestRowsTurnRed runs each case of the table in a process of its own whose bus
// has one fault on, and wants it to fail and to say why. Running out of time, a
// deadlock and a crash are the wrong reason.
func TestRowsTurnRed(t *testing.T) {
	if name := os.Getenv("SEDA_FAULT"); name != "" {
		t.Skipf("the fault %s is on", name)
	}
	for _, r := range reds {
		t.Run(r.row+"/"+r.name+"/"+string(r.fault), func(t *testing.T) {
			out, failed := runWithFault(t, r)
			switch {
			case !failed:
				t.Errorf("it passes with the fault on:\n%s", out)
			case !strings.Contains(out, "--- FAIL: TestConformance/"+r.row+"/"+r.name):
				t.Errorf("the case was not run:\n%s", out)
			case strings.Contains(out, "panic: ") || strings.Contains(out, "fatal error: "):
				t.Errorf("it ends by a crash, a deadlock or a time-out:\n%s", out)
			case !strings.Contains(out, r.says):
				t.Errorf("it fails for another reason than %q:\n%s", r.says, out)
			}
		})
	}
}

func runWithFault(t *testing.T, r red) (out string, failed bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self,
		"-test.run=^TestConformance$/^"+r.row+"$/^"+r.name+"$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), "SEDA_FAULT="+string(r.fault))
	b, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return string(b), err != nil
}
