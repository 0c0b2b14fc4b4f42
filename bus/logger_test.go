package bus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
)

// lockedBuffer is a log that may be written to from several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// lines returns the records since the last time.
func (b *lockedBuffer) lines(t *testing.T) (out []map[string]any) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for d := json.NewDecoder(&b.buf); d.More(); {
		var m map[string]any
		require.NoError(t, d.Decode(&m))
		delete(m, "time")
		out = append(out, m)
	}
	return out
}

func TestLoggerGetsChangesOfState(t *testing.T) {
	var log lockedBuffer
	c := bus.Config{Name: "orders", Logger: slog.New(slog.NewJSONHandler(&log, nil))}
	bustest.Run(t, c, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, acknowledge)
		bustest.Start(t, b)
		s.Suspend(bus.Hold{By: "ops", Why: "release"})
		s.Resume("ops")
		for range 1000 {
			require.NoError(t, s.TryPublish(&bus.Envelope{}), "nothing is logged for an envelope")
		}
		bustest.Drain(t, b)
		var states []any
		for _, m := range log.lines(t) {
			require.Equal(t, "INFO", m["level"])
			require.Equal(t, "orders", m["bus"])
			require.Equal(t, "state changed", m["msg"])
			states = append(states, m["state"])
			if m["state"] == "suspended" {
				require.Equal(t, []any{"s", "ops", "release"}, []any{m["stage"], m["by"], m["why"]})
			}
		}
		require.Equal(t, []any{"started", "suspended", "resumed", "draining", "closed"}, states)
	})
}

// A stage that panics all the time must not flood the log.
func TestPanicsAreLoggedOnceASecond(t *testing.T) {
	var log lockedBuffer
	c := bus.Config{Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	bustest.Run(t, c, func(t *testing.T, b *bus.Bus) {
		boom := func(context.Context, *bus.Envelope) error { panic("boom") }
		s := bustest.Stage(t, b, "s", bus.StageConfig{}, boom)
		other := bustest.Stage(t, b, "other", bus.StageConfig{}, boom)
		bustest.Start(t, b)
		burst := func() {
			for range 100 {
				require.NoError(t, s.TryPublish(&bus.Envelope{}))
			}
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		burst()
		require.NoError(t, other.TryPublish(&bus.Envelope{}))
		synctest.Wait()
		lines := log.lines(t)
		require.Len(t, lines, 2, "one for each stage")
		require.Equal(t, []any{"ERROR", "panic contained", "s", "handler", 0.0}, []any{
			lines[0]["level"], lines[0]["msg"], lines[0]["stage"], lines[0]["where"], lines[0]["left_out"],
		})
		require.Contains(t, lines[0]["error"], "boom")
		time.Sleep(time.Second)
		burst()
		lines = log.lines(t)
		require.Len(t, lines, 1)
		require.Equal(t, 99.0, lines[0]["left_out"])
		require.EqualValues(t, 200, readStage(s).Panics, "the statistics are exact")
	})
}
