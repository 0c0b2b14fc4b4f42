// Command sedactl shows and checks what a seda bus does. See sedactl help.
package main

import (
	"os"

	"github.com/sedabus/seda/cmd/sedactl/internal/cli"
)

func main() {
	os.Exit(cli.Main(cli.Process()))
}
