//go:build faults

package bus_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	faults "github.com/sedabus/seda/internal/fault"
)

// creditReds says which test of credits fails when a fault is on.
var creditReds = []struct {
	test  string
	fault faults.Name
}{
	{"TestCreditClassShares", faults.CreditClassless},
	{"TestCreditFairShares", faults.CreditBiased},
	{"TestCreditWeightedShares", faults.CreditBiased},
	{"TestCreditRing", faults.CreditRingFull},
	{"TestCreditModel", faults.CreditDoubled},
	{"TestCreditBooksFollowLanes", faults.LaneUnbooked},
}

// TestCreditPromisesTurnRed runs each of them in a process of its own that has the
// fault on.
func TestCreditPromisesTurnRed(t *testing.T) {
	if name := os.Getenv("SEDA_FAULT"); name != "" {
		t.Skipf("the fault %s is on", name)
	}
	for _, r := range creditReds {
		t.Run(r.test+"/"+string(r.fault), func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+r.test+"$", "-test.timeout=1m")
			cmd.Env = append(os.Environ(), "SEDA_FAULT="+string(r.fault))
			out, err := cmd.CombinedOutput()
			if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
				t.Fatal(err)
			}
			switch text := string(out); {
			case err == nil:
				t.Errorf("it passes with the fault on:\n%s", text)
			case !strings.Contains(text, "--- FAIL: "+r.test) || strings.Contains(text, "panic: "):
				t.Errorf("it ends by a crash or a time-out:\n%s", text)
			}
		})
	}
}
