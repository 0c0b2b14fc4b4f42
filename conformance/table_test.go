package conformance_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sedabus/seda/conformance"
)

// TestEveryRowIsSeenRed: each row with cases is in the table of red runs, and
// the table names nothing that is not there.
func TestEveryRowIsSeenRed(t *testing.T) {
	cases := map[string][]string{}
	for _, r := range conformance.Rows() {
		cases[r.Test()] = r.Cases()
		switch {
		case (r.NotYet == "") != (len(r.Cases()) > 0):
			t.Errorf("%s has cases and says why it has none, or neither", r.Test())
		case r.Promise == "":
			t.Errorf("%s promises nothing", r.Test())
		case r.NotYet == "" && !slices.ContainsFunc(reds, func(x red) bool { return x.row == r.Test() }):
			t.Errorf("%s is not seen red by any fault", r.Test())
		}
	}
	for _, x := range reds {
		if !slices.Contains(cases[x.row], x.name) {
			t.Errorf("the table of red runs names %s/%s, which does not exist", x.row, x.name)
		}
		if x.says == "" {
			t.Errorf("%s/%s with %s says nothing", x.row, x.name, x.fault)
		}
	}
}

// TestRowsAreNumbered: a row's number never changes, so rows are in order and
// unique.
func TestRowsAreNumbered(t *testing.T) {
	for i, r := range conformance.Rows() {
		if want := fmt.Sprintf("C%02d", i+1); r.ID != want {
			t.Errorf("row %s stands where %s belongs", r.ID, want)
		}
	}
}

// TestDocument: docs/conformance.md holds the tables as they are. The lines
// that are wanted are shown when it does not.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{rowTable(), redTable()} {
		if !strings.Contains(string(text), table) {
			t.Errorf("docs/conformance.md lacks this table:\n%s", table)
		}
	}
}

func rowTable() string {
	var b strings.Builder
	b.WriteString("| row | test | scope | promise |\n|---|---|---|---|\n")
	for _, r := range conformance.Rows() {
		promise := r.Promise
		if r.NotYet != "" {
			promise += " Not applicable yet: " + r.NotYet + "."
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", r.ID, r.Test(), r.Scope, promise)
	}
	return b.String()
}

func redTable() string {
	var b strings.Builder
	b.WriteString("| row | case | fault that makes it red |\n|---|---|---|\n")
	for _, r := range conformance.Rows() {
		for _, name := range r.Cases() {
			var faults []string
			for _, x := range reds {
				if x.row == r.Test() && x.name == name {
					faults = append(faults, "`"+string(x.fault)+"`")
				}
			}
			fmt.Fprintf(&b, "| %s | `%s` | %s |\n", r.ID, name, strings.Join(faults, ", "))
		}
	}
	return b.String()
}
