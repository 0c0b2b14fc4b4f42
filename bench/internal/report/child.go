package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/sedabus/seda/bench/internal/load"
	"github.com/sedabus/seda/bench/internal/quiet"
)

// Answer is what a measuring process writes to its standard output, as JSON.
type Answer struct {
	Sample      load.Sample `json:"sample"`
	Unsupported bool        `json:"unsupported,omitempty"`
	Error       string      `json:"error,omitempty"`
}

// NewAnswer packs the outcome of a measurement.
func NewAnswer(s load.Sample, err error) Answer {
	a := Answer{Sample: s}
	switch {
	case errors.Is(err, load.ErrUnsupported):
		a.Unsupported = true
	case err != nil:
		a.Error = err.Error()
	}
	return a
}

func (a Answer) unpack() (load.Sample, error) {
	switch {
	case a.Unsupported:
		return load.Sample{}, load.ErrUnsupported
	case a.Error != "":
		return load.Sample{}, errors.New(a.Error)
	default:
		return a.Sample, nil
	}
}

// Children measures each cell in a process of its own, which is this program
// again, so that no measurement inherits the heap, the pools or the threads of
// another.
type Children struct {
	// Args makes the arguments of the child for a cell.
	Args func(Cell) []string
	// Limit is the share of the machine that others may take, 0 to 1. A
	// measurement with more is repeated.
	Limit float64
	// Tries is how often a measurement is taken at most, at least 1. When all
	// were noisy the quietest counts.
	Tries int
	// Patience is how long to wait before a try for a quiet moment.
	Patience time.Duration
	// Timeout ends a child that hangs; it counts as a broken promise.
	Timeout time.Duration
}

// Measure takes one measurement. It is a Measurer.
func (c *Children) Measure(ctx context.Context, cell Cell) (load.Sample, error) {
	var best load.Sample
	for try := range max(1, c.Tries) {
		c.awaitQuiet(ctx)
		s, err := c.once(ctx, cell)
		if err != nil {
			return load.Sample{}, err
		}
		if try == 0 || s.Others < best.Others {
			best = s
		}
		if s.Others <= c.Limit {
			break
		}
	}
	return best, nil
}

// awaitQuiet waits for a moment in which others take less than the limit, or
// until the patience is used up.
func (c *Children) awaitQuiet(ctx context.Context) {
	const look = 100 * time.Millisecond
	for end := time.Now().Add(c.Patience); time.Now().Before(end); {
		before, err := quiet.Read()
		if err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(look):
		}
		after, err := quiet.Read()
		if err != nil || quiet.Others(before, after, 0) <= c.Limit {
			return
		}
	}
}

func (c *Children) once(ctx context.Context, cell Cell) (load.Sample, error) {
	self, err := os.Executable()
	if err != nil {
		return load.Sample{}, fmt.Errorf("report: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("report: %s %s hangs", cell.Workload, cell.System))
	defer cancel()
	var out, diag bytes.Buffer
	cmd := exec.CommandContext(ctx, self, c.Args(cell)...) //nolint:gosec // this program again
	cmd.Stdout, cmd.Stderr = &out, &diag
	before, quietErr := quiet.Read()
	runErr := cmd.Run()
	after, _ := quiet.Read()
	if ctx.Err() != nil {
		return load.Sample{}, context.Cause(ctx)
	}
	if runErr != nil {
		return load.Sample{}, fmt.Errorf("report: %s %s: %w: %s", cell.Workload, cell.System, runErr, firstLines(diag.Bytes()))
	}
	var a Answer
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		return load.Sample{}, fmt.Errorf("report: %s %s: %w", cell.Workload, cell.System, err)
	}
	s, err := a.unpack()
	if err == nil && quietErr == nil {
		own := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		s.Others = quiet.Others(before, after, own)
	}
	return s, err
}

func firstLines(b []byte) []byte {
	const most = 600
	return bytes.TrimSpace(b[:min(len(b), most)])
}
