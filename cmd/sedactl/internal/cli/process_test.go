package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Not parallel: the signal is one of the whole process.
func TestNotifyTellsOfSignals(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot interrupt itself here")
	}
	interrupts, stop := notify()
	defer stop()
	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, self.Signal(os.Interrupt))
		assert.Equal(t, os.Interrupt, <-interrupts)
	}
}

func TestAFileIsNoTerminal(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer func() { assert.NoError(t, f.Close()) }()
	_, _, ok := terminalSize(f)
	assert.False(t, ok)
	_, _, ok = terminalSize(closedPipe{})
	assert.False(t, ok)
}

func TestProcessIsThisOne(t *testing.T) {
	t.Setenv("NO_COLOR", "yes")
	env := Process()
	assert.Equal(t, os.Args[1:], env.Args)
	assert.Equal(t, "yes", env.Getenv("NO_COLOR"))
	assert.Equal(t, os.Stdout, env.Stdout)
	assert.Equal(t, os.Stderr, env.Stderr)
	assert.NotNil(t, env.Notify)
	assert.NotNil(t, env.Size)
}
