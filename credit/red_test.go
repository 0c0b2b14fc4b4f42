//go:build faults

package credit_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	faults "github.com/sedabus/seda/internal/fault"
)

// reds says which test fails when a fault is on, and what it then says. Each
// promise of the package is there at least once.
var reds = []struct {
	test  string
	fault faults.Name
	says  string
}{
	{"TestCreditsAreInOnePlace", faults.CreditUnbooked, "Returned: (uint64)"},
	{"TestLedgerModel", faults.CreditUnbooked, "Not equal"},
	{"TestLedgerModel", faults.CreditBeyond, "Not equal"},
	{"TestB031LoweredCreditTakesEffect", faults.CreditBeyond, "Not equal"},
	{"TestLedgerModel", faults.CreditKept, "Not equal"},
	{"TestCloseWakesEverybody", faults.CreditKept, "it goes on waiting"},
	{"TestWantIsAllOrNothing", faults.CreditOvertaken, "the small want does not overtake"},
	{"TestDemandsOfOneToAHundred", faults.CreditUnfair, "is not greater than or equal to"},
	{"TestWeightsOfOneToThree", faults.CreditUnfair, "Max difference"},
	{"TestLeases", faults.CreditForever, "Not equal"},
	{"TestHoarderCostsOneLease", faults.CreditForever, "context deadline exceeded"},
	{"TestWhatWasGrantedAheadIsCalledBack", faults.CreditHoarded, "no credit"},
	{"TestCancelledWaitHoldsNobodyUp", faults.CreditAsleep, "it goes on waiting"},
	{"TestGateModel", faults.CreditAsleep, "there is enough for each of those that wait"},
	{"TestPauseHandsBack", faults.CreditPauseKeeps, "Should be zero"},
	{"TestMinimumShareOfUnequalWants", faults.CreditShareless, "Max difference"},
	{"TestWindowShrinksBelowAWait", faults.CreditStretched, "it goes on waiting"},
	{"TestSizerAnswersStarvation", faults.SizerDeaf, "once an interval"},
	{"TestSizerKeepsWorkersBusy", faults.SizerDeaf, "is not greater than"},
}

// TestPromisesTurnRed runs each of the tests in a process of its own that has
// the fault on, and wants it to fail and to say why.
func TestPromisesTurnRed(t *testing.T) {
	if name := os.Getenv("SEDA_FAULT"); name != "" {
		t.Skipf("the fault %s is on", name)
	}
	for _, r := range reds {
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
			case !strings.Contains(text, "--- FAIL: "+r.test):
				t.Errorf("it ends by a crash or a time-out:\n%s", text)
			case !strings.Contains(text, r.says):
				t.Errorf("it fails for another reason than %q:\n%s", r.says, text)
			}
		})
	}
}
