package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary the program itself.
const asProgram = "SEDA_TEST_AS_LOGPIPE"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestSignal interrupts a real process that waits for more input.
func TestSignal(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs signals")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "--json")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }() // for a test that failed half way

	// More than a pipe and every buffer and stage on the way can hold: when the
	// write returns, lines have been read, and long before that the process
	// began to listen for signals.
	const copies = 50_000
	_, err = io.WriteString(in, strings.Repeat(hdfsLines, copies))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))

	err = cmd.Wait()
	exit, failed := errors.AsType[*exec.ExitError](err)
	require.True(t, failed, "%v", err)
	require.Equal(t, exitInterrupted, exit.ExitCode(), "%s", &errs)
	got := result{out: out.String()}.report(t)
	assert.True(t, got.Interrupted)
	assert.NotZero(t, got.Account.Read)
	assert.LessOrEqual(t, got.Account.Read, uint64(3*copies))
}
