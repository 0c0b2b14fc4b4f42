package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/sedabus/seda/bench/internal/form"
)

// handlesJob is the name of the child that measures the memory of handles.
const handlesJob = "handles"

// handlesAnswer is what that child writes.
type handlesAnswer struct {
	Memory form.HandleMemory `json:"memory"`
	Error  string            `json:"error,omitempty"`
}

func measureHandles(ctx context.Context) handlesAnswer {
	m, err := form.MeasureHandles(ctx, handleCount)
	a := handlesAnswer{Memory: m}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

const handleCount = 1_000

// printHandles measures in a process of its own, since the heap of this one
// moves.
func printHandles(ctx context.Context, out *bytes.Buffer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var answer bytes.Buffer
	cmd := exec.CommandContext(ctx, self, "--one", handlesJob) //nolint:gosec // this program again
	cmd.Stdout, cmd.Stderr = &answer, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("memory of handles: %w", err)
	}
	var a handlesAnswer
	if err := json.Unmarshal(answer.Bytes(), &a); err != nil {
		return fmt.Errorf("memory of handles: %w", err)
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	fmt.Fprintf(out, "\nMemory of a producer handle, from %d on one stage: %.0f bytes when made, %.0f after its first message was handled.\n",
		handleCount, a.Memory.Made, a.Memory.Used)
	return nil
}
