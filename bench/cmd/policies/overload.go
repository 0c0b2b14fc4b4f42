package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/sedabus/seda/bench/internal/door"
	"github.com/sedabus/seda/bench/internal/report"
)

// overloadJob is the child that simulates: bubbles need the testing package to
// themselves.
const overloadJob = "overload"

// printOverload adds the tables of simulated time.
func printOverload(ctx context.Context, doc *bytes.Buffer) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("simulation: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "--one", overloadJob) //nolint:gosec // this program again
	cmd.Stdout, cmd.Stderr = doc, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("simulation: %w", err)
	}
	return nil
}

// simulateAll is what that child does; it returns the exit code.
func simulateAll(in func(func()), out io.Writer) int {
	err := errors.Join(overloadTable(in, out), branchTable(in, out))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func overloadTable(in func(func()), out io.Writer) error {
	if _, err := fmt.Fprintf(out, "\nA pipeline of three stages at twice what it can bear: %s. Simulated time.\n\n", door.Scenario); err != nil {
		return err
	}
	rows := [][]string{{
		"policy", "capacity", "in time, /s", "of possible", "too late, /s", "refused, /s", "dropped, /s", "left in the source, /s",
		"wait p50", "p99", "producers blocked",
	}}
	for _, c := range door.Cases() {
		var r door.Outcome
		var err error
		in(func() { r, err = door.Overload(c) })
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		per := func(n int) string { return fmt.Sprintf("%.0f", float64(n)/r.Span.Seconds()) }
		rows = append(rows, []string{
			c.Name, strconv.Itoa(c.Capacity), per(r.InTime), fmt.Sprintf("%.1f %%", 100*float64(r.InTime)/r.Span.Seconds()/door.Possible),
			per(r.Late), per(r.Refused), per(r.Dropped), per(r.Left), tenths(r.WaitP50), tenths(r.WaitP99),
			fmt.Sprintf("%.0f %%", 100*r.Blocked),
		})
	}
	return report.Markdown(out, rows)
}

func branchTable(in func(func()), out io.Writer) error {
	if _, err := fmt.Fprintf(out, "\nOne stage that sends on to four, of which one is ten times slower: %s. Simulated time.\n\n", door.Fan); err != nil {
		return err
	}
	rows := [][]string{{"policy", "producers", "healthy three, /s", "of offered", "p99", "slow one, /s", "skipped, /s"}}
	for _, c := range door.FanCases() {
		var r door.FanOutcome
		var err error
		in(func() { r, err = door.RunFan(c) })
		if err != nil {
			return fmt.Errorf("%s, %s: %w", c.Full, c.Name, err)
		}
		rows = append(rows, []string{
			c.Full.String(), c.Name, fmt.Sprintf("%.0f", r.Healthy), fmt.Sprintf("%.1f %%", 100*r.Healthy/door.HealthyOffered),
			tenths(r.P99), fmt.Sprintf("%.0f", r.Slow), fmt.Sprintf("%.0f", r.Skipped),
		})
	}
	return report.Markdown(out, rows)
}

// tenths writes milliseconds.
func tenths(d time.Duration) string {
	if d >= time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return fmt.Sprintf("%.1fms", d.Seconds()*1e3)
}
