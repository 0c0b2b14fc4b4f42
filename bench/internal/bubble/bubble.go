// Package bubble runs functions in the simulated time of testing/synctest from a
// command.
package bubble

import (
	"flag"
	"os"
	"testing"
	"testing/synctest"
)

// Main runs a command that needs bubbles, with a function that runs another in
// a bubble, and exits with the code that it returns. The command's own flags
// must have been parsed from a FlagSet of its own.
//
// synctest gives bubbles to tests only. The testing package can run a test
// inside any program, which is all that this does.
func Main(run func(in func(f func())) int) {
	os.Args = os.Args[:1]
	testing.Init()
	flag.Parse()
	testing.Main(
		func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "bubble", F: func(t *testing.T) {
			os.Exit(run(func(f func()) {
				t.Run("run", func(t *testing.T) { synctest.Test(t, func(*testing.T) { f() }) })
			}))
		}}},
		nil, nil,
	)
}
