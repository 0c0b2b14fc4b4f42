// Package cli is the command line of sedactl: data goes to standard output,
// errors to standard error, and the exit code says how it went.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Exit codes.
const (
	ExitOK      = 0
	ExitFailure = 1   // something went wrong, or an account does not balance
	ExitUsage   = 2   // the command line makes no sense
	ExitCut     = 130 // a second interrupt cut the run, as a shell would report the signal
)

// Env is the world around the command, so that tests can give it another.
type Env struct {
	Args   []string // without the name of the program
	Stdout io.Writer
	Stderr io.Writer
	Getenv func(name string) string
	// Notify returns the channel of interrupts, and what stops them from coming.
	Notify func() (interrupts <-chan os.Signal, stop func())
	// Size returns the columns and lines of the terminal that w is, and false if
	// it is none.
	Size func(w io.Writer) (width, height int, ok bool)
}

// Process returns the world of this process.
func Process() Env {
	return Env{
		Args: os.Args[1:], Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		Notify: notify, Size: terminalSize,
	}
}

func notify() (interrupts <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 2) // one to drain, one to cut
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	return c, func() { signal.Stop(c) }
}

func terminalSize(w io.Writer) (width, height int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(f.Fd()))
	return width, height, err == nil
}

// failure is an error that is not the command line's fault.
type failure struct {
	err  error // nil: all has been said
	code int
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// failed marks an error as a failure of what was asked for.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &failure{err, ExitFailure}
}

// Main runs the command and returns the exit code.
func Main(env Env) int {
	root := newRoot(&env)
	cmd, err := root.ExecuteC()
	if err == nil {
		return ExitOK
	}
	if f, ok := errors.AsType[*failure](err); ok {
		if f.err != nil {
			say(env.Stderr, "sedactl: %v\n", f.err)
		}
		return f.code
	}
	// Everything else is what the parser of the command line complains about.
	say(env.Stderr, "sedactl: %v\n\n%s", err, cmd.UsageString())
	return ExitUsage
}

// say writes to standard error, where a failure has no one left to tell.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...) // see above
}

// usageTemplate is how a command is used, in the terms of cobra.
const usageTemplate = `Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} command [flags]{{else}}{{.UseLine}}{{end}}
{{- if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}

"sedactl help command" tells more of a command.
{{- else}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
{{- end}}
`

func newRoot(env *Env) *cobra.Command {
	root := &cobra.Command{
		Use:                   "sedactl",
		Short:                 "Shows and checks what a seda bus does",
		Long:                  "sedactl shows and checks what a seda bus does.",
		Version:               version(),
		SilenceErrors:         true,
		SilenceUsage:          true,
		DisableFlagsInUseLine: true,
		Args:                  knownCommand,
		RunE:                  func(*cobra.Command, []string) error { return errors.New("no command given") },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetUsageTemplate(usageTemplate)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetArgs(env.Args)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.AddCommand(newDemo(env), newVersion())
	root.SetHelpCommand(newHelp())
	return root
}

// knownCommand complains about the name of a command that does not exist.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = ", do you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q%s", args[0], hint)
}

func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:                   "help [command]",
		Short:                 "Prints how a command is used",
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return knownCommand(about, rest)
			}
			about.InitDefaultHelpFlag()
			return failed(about.Help())
		},
	}
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:                   "version",
		Short:                 "Prints the version",
		DisableFlagsInUseLine: true,
		Args:                  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version())
			return failed(err)
		},
	}
}

// version tells the module's version and what the program was built with.
func version() string {
	v := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v = info.Main.Version
	}
	return fmt.Sprintf("sedactl %s %s %s/%s", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
