package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sedabus/seda/cmd/sedactl/internal/demo"
	"github.com/sedabus/seda/cmd/sedactl/internal/table"
	"github.com/sedabus/seda/cmd/sedactl/internal/trace"
)

// How a run is shown, and how often.
const (
	textWidth = 100 // columns of the summary where no terminal is

	redrawEvery = 100 * time.Millisecond
	lineEvery   = time.Second
)

const demoLong = `Runs a pipeline of three stages, parse, work and store, of which work is the
bottleneck, and shows how it behaves under load: once without and once with the
shedder, side by side. There is no other difference between the two.

First the capacity is measured, with a fixed number of jobs under way. Then
come phases of load at 0.5, 1, 2 and, for half as long, 4 times that capacity.
The load is open-loop: arrivals are random and independent (Poisson) and do not
wait for the pipeline to keep up. What cannot be accepted at once is refused,
also under the policy block: no publisher waits. Latency counts from the time
at which an arrival was meant, and what is done within --budget mean service
times is done in time: whoever asked is still there. What is possible is the
least of what was offered and of what the capacity allows for.

Both pipelines run at the same time and get the same arrivals. Their handlers
wait instead of computing, so that neither takes processor time that the other
needs, and what disturbs the machine disturbs both.

At the end the accounts must balance: all that was accepted was completed,
dead-lettered, dropped, abandoned, or is pending.

With --trace the arrivals are those of a recorded trace instead: a CSV file
with the header
  ` + trace.Header + `
Each row's service time is proportional to the tokens that it generated.

An interrupt (Ctrl-C) ends the load, drains what is under way and prints the
summary; a second one cuts.

Exit codes: 0 all well; 1 a failure, or an account that does not balance;
2 a wrong command line; 130 cut by a second interrupt.`

// demoFlags are what the command line says.
type demoFlags struct {
	config    demo.Config
	policy    string
	shed      string
	trace     string
	json      bool
	noColour  bool
	hasLength bool // --duration was given
	hasReplay bool // --speed or --load was given
}

func newDemo(env *Env) *cobra.Command {
	f := &demoFlags{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Shows a pipeline below, at and above its capacity",
		Long:  demoLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.hasLength = cmd.Flags().Changed("duration")
			f.hasReplay = cmd.Flags().Changed("speed") || cmd.Flags().Changed("load")
			return runDemo(env, f)
		},
	}
	c, flags := &f.config, cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.policy, "policy", "reject", "what a full stage does: "+strings.Join(demo.Policies(), ", "))
	flags.IntVar(&c.Capacity, "capacity", demo.DefaultCapacity, "envelopes that may wait in each stage")
	flags.IntVar(&c.Concurrency, "concurrency", demo.DefaultConcurrency, "handlers at once in each stage")
	flags.DurationVar(&c.Service, "service", demo.DefaultService, "mean service time of the bottleneck")
	flags.DurationVar(&c.Duration, "duration", demo.DefaultDuration, "length of each phase; with --trace the most that is played")
	flags.Uint64Var(&c.Seed, "seed", demo.DefaultSeed, "seed of arrivals and service times")
	flags.StringVar(&f.shed, "shed", demo.ShedBoth.String(), "which pipelines run: "+strings.Join(demo.Sheddings(), ", "))
	flags.Float64Var(&c.Budget, "budget", demo.DefaultBudget, "latency, in mean service times, that is in time")
	flags.BoolVar(&c.Deadlines, "deadlines", false, "make the budget each arrival's deadline")
	flags.StringVar(&f.trace, "trace", "", "play the arrivals of this CSV file")
	flags.Float64Var(&c.Speed, "speed", demo.DefaultSpeed, "play the trace so many times faster")
	flags.Float64Var(&c.Load, "load", demo.DefaultLoad, "load of the bottleneck by the trace; 1 is all it can do")
	flags.BoolVar(&f.json, "json", false, "print nothing but a summary in JSON on standard output")
	flags.BoolVar(&f.noColour, "no-color", false, "no colours; also when NO_COLOR is set")
	return cmd
}

// runDemo runs the demo and prints what came of it.
func runDemo(env *Env, f *demoFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.trace != "" {
		if err := f.readTrace(env.Stderr); err != nil {
			return failed(err)
		}
	}
	if err := f.config.Check(); err != nil {
		return err
	}
	ctx, stop, release := interrupts(env)
	defer release()

	d := newDisplay(env, f)
	if err := d.open(); err != nil {
		return failed(err)
	}
	s, err := demo.Run(ctx, f.config, stop, demo.View{Every: d.every, Show: d.show})
	if err := errors.Join(err, d.close()); err != nil {
		return failed(err)
	}
	if err := d.summary(s); err != nil {
		return failed(err)
	}
	return verdict(s)
}

// verdict says what the exit code tells of a run.
func verdict(s *demo.Summary) error {
	switch {
	case !s.Balanced():
		return failed(errors.New("the account does not balance"))
	case s.End == demo.EndCut:
		return &failure{nil, ExitCut}
	}
	return nil
}

// check checks what the configuration does not know of.
func (f *demoFlags) check() (err error) {
	if f.config.Policy, err = demo.ParsePolicy(f.policy); err != nil {
		return err
	}
	if f.config.Shed, err = demo.ParseShedding(f.shed); err != nil {
		return err
	}
	if f.trace == "" && f.hasReplay {
		return errors.New("--speed and --load need --trace")
	}
	if f.trace != "" && !f.hasLength {
		f.config.Duration = 0 // all of it
	}
	return nil
}

// readTrace reads the trace and tells of the lines that it skipped.
func (f *demoFlags) readTrace(stderr io.Writer) error {
	file, err := os.Open(f.trace)
	if err != nil {
		return fmt.Errorf("open the trace: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	t, err := trace.Read(file, f.trace)
	if err != nil {
		return fmt.Errorf("read the trace: %w", err)
	}
	for _, fault := range t.Faults {
		say(stderr, "sedactl: skipped: %v\n", fault)
	}
	if more := t.Skipped - len(t.Faults); more > 0 {
		say(stderr, "sedactl: skipped: %s more lines\n", table.Count(more))
	}
	f.config.Trace, f.config.File = t, f.trace
	return nil
}

// sameInterrupt is the time after an interrupt within which another one counts
// as the same: some tools signal both a process and its group.
const sameInterrupt = 250 * time.Millisecond

// interrupts turns the first interrupt into the end of stop, and the second
// one into the end of ctx.
func interrupts(env *Env) (ctx context.Context, stop <-chan struct{}, release func()) {
	ctx, cut := context.WithCancel(context.Background())
	signals, stopSignals := env.Notify()
	drain := make(chan struct{})
	over := make(chan struct{})
	go func() { // ends with release
		defer close(over)
		var first time.Time
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
			}
			switch {
			case first.IsZero():
				first = time.Now()
				close(drain)
			case time.Since(first) > sameInterrupt:
				cut()
			}
		}
	}()
	return ctx, drain, func() {
		stopSignals()
		cut()
		<-over
	}
}

// display shows a run on a terminal, as lines, or not at all.
type display struct {
	w      io.Writer // of frames
	out    io.Writer // of the summary
	env    *Env
	json   bool
	live   bool // redraw in place
	lines  bool // a line for each frame
	colour bool
	every  time.Duration
	screen *table.Screen
	titled bool  // the title has been printed as lines
	err    error // the first of show
}

func newDisplay(env *Env, f *demoFlags) *display {
	d := &display{w: env.Stdout, out: env.Stdout, env: env, json: f.json, every: redrawEvery}
	if f.json {
		d.w = env.Stderr
	}
	dumb := env.Getenv("TERM") == "dumb"
	_, _, terminal := env.Size(d.w)
	d.live = terminal && !dumb
	d.lines = !d.live && !f.json
	if !d.live {
		d.every = lineEvery
	}
	d.colour = d.live && !f.noColour && env.Getenv("NO_COLOR") == ""
	return d
}

func (d *display) open() (err error) {
	if d.live {
		d.screen, err = table.NewScreen(d.w, d.colour)
	}
	return err
}

// show is the View's.
func (d *display) show(f *demo.Frame) {
	var err error
	switch {
	case d.live:
		width, height, ok := d.env.Size(d.w)
		if !ok {
			width, height = 80, 24
		}
		err = d.screen.Draw(demo.FrameLines(f), width, height)
	case d.lines:
		text := demo.FrameText(f) + "\n"
		if !d.titled {
			text = strings.Join(demo.TitleTexts(f), "\n") + "\n\n" + demo.TextHeader(f) + "\n" + text
			d.titled = true
		}
		_, err = io.WriteString(d.w, text)
	}
	if d.err == nil {
		d.err = err
	}
}

// close ends the live view and returns the first error of drawing.
func (d *display) close() error {
	if d.live {
		return errors.Join(d.err, d.screen.Close())
	}
	return d.err
}

// summary prints the end of it all.
func (d *display) summary(s *demo.Summary) error {
	if d.json {
		e := json.NewEncoder(d.out)
		e.SetIndent("", "  ")
		if err := e.Encode(s); err != nil {
			return fmt.Errorf("print the summary: %w", err)
		}
		return nil
	}
	var b strings.Builder
	b.WriteByte('\n')
	width := 0
	if d.live {
		width, _, _ = d.env.Size(d.w)
	}
	for _, l := range demo.SummaryLines(s, cmp.Or(width, textWidth)) {
		b.WriteString(l.Render(0, d.colour) + "\n")
	}
	if _, err := io.WriteString(d.out, b.String()); err != nil {
		return fmt.Errorf("print the summary: %w", err)
	}
	return nil
}
