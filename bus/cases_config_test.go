package bus_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/retry"
	"github.com/sedabus/seda/shedder"
)

// logBuffer is a place for log lines that is safe for concurrent use.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// TestB069_NothingShowsAPayload: payloads and headers may hold secrets, so that
// neither logs nor errors nor reports may show them.
func TestB069_NothingShowsAPayload(t *testing.T) {
	const secret = "hunter2"
	var log logBuffer
	var mu sync.Mutex // hooks and callbacks run on goroutines of the bus
	var texts []string
	add := func(text ...string) {
		mu.Lock()
		defer mu.Unlock()
		texts = append(texts, text...)
	}
	hooks := bus.Hooks{
		State: func(i bus.StateInfo) { add(i.Why) },
	}
	bustest.Run(t, bus.Config{Logger: log.logger(), Hooks: hooks}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1, Full: bus.Reject}, func(_ context.Context, e *bus.Envelope) error {
			if e.Attempt() > 0 && e.Key == "panic" {
				panic("contained")
			}
			return errFails
		})
		ints := bustest.Stage(t, b, "ints", bus.StageConfig{Accepts: bus.TypeOf[int](), Retry: retry.Policy{MaxAttempts: 2}}, acknowledge)
		hold := bustest.Stage(t, b, "hold", bus.StageConfig{NoHandler: bus.NoHandlerHold}, nil)
		bustest.Start(t, b)
		e := bus.Envelope{Payload: secret, Headers: []bus.Header{{Name: "auth", Value: secret}}, OnDone: func(r bus.Result) {
			if err := r.Error(); err != nil {
				add(err.Error())
			}
		}}
		note := func(err error) {
			require.Error(t, err)
			add(err.Error())
		}
		note(ints.TryPublish(&e))
		s.Suspend(bus.Hold{})
		require.NoError(t, s.TryPublish(&e))
		note(s.TryPublish(&e))
		s.Resume("")
		synctest.Wait()
		e.Key = "panic"
		require.NoError(t, s.TryPublish(&e))
		synctest.Wait()
		require.NoError(t, hold.TryPublish(&e))
		for _, l := range b.Letters().List(bus.LetterFilter{}) {
			add(l.Error)
		}
		r, err := b.Shutdown(canceledContext(t))
		note(err)
		synctest.Wait()
		add(r.String(), r.Stats.Account(), log.String())
		require.Contains(t, log.String(), "panic contained")
	})
	require.Greater(t, len(texts), 8)
	for _, text := range texts {
		require.NotContains(t, text, secret)
	}
}

func canceledContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestB070_NamesCannotBePaths: see also TestBadNames.
func TestB070_NamesCannotBePaths(t *testing.T) {
	b := newBus(t, bus.Config{})
	for name, rule := range map[string]string{
		"../x": "letter", "a/b": "letters", `a\b`: "letters", "": "empty", ".": "start", "x\x00y": "letters",
		strings.Repeat("n", 300): "128", "CON": "device", "\U0001F680": "letters", "x ": "letters",
	} {
		_, err := b.Stage(name, bus.StageConfig{})
		require.ErrorIs(t, err, bus.ErrInvalid)
		require.ErrorContains(t, err, rule, name)
		require.Less(t, len(err.Error()), 300, "the name is shortened")
		_, err = bus.New(bus.Config{Name: name})
		require.Equal(t, name == "", err == nil, "the bus's name, for which empty is the default")
	}
	_, err := b.Stage(strings.Repeat("n", 128), bus.StageConfig{})
	require.NoError(t, err)
	finish(t, b)
}

// TestB071_ZeroMeansTheDefault: the settings in force can be read back, and
// every number out of bounds is refused with field, value and bound.
func TestB071_ZeroMeansTheDefault(t *testing.T) {
	b := newBus(t, bus.Config{})
	c := addStage(t, b, "zero", bus.StageConfig{}, nil).Config()
	require.Equal(t, bus.StageConfig{
		Capacity: 1024, Concurrency: 1, HopTimeout: 5 * time.Second, MaxWaiters: 10_000,
		Retry: retry.Policy{MaxAttempts: 1, Budget: 0.1}, Classes: c.Classes,
		Credit: bus.CreditConfig{TargetFactor: 2, Exclusive: 2, Lease: time.Second},
	}, c)
	require.Empty(t, c.Classes)
	pull := addStage(t, b, "pull", bus.StageConfig{Pull: true, Capacity: 7}, nil).Config()
	require.Equal(t, 7, pull.MaxOutstanding)
	require.Equal(t, bus.NoHandlerHold, pull.NoHandler)
	waits := addStage(t, b, "waits", bus.StageConfig{Retry: retry.Policy{Kind: retry.Exponential}}, nil).Config().Retry
	require.Equal(t, retry.Policy{MaxAttempts: 1, Kind: retry.Exponential, Base: 100 * time.Millisecond, Cap: time.Minute, Factor: 2, Budget: 0.1}, waits)
	bc := b.Config()
	require.Equal(t, bus.LetterBounds{MaxCount: 10_000, MaxBytes: 64 << 20}, bc.DeadLetters)
	require.Equal(t, 30*time.Second, bc.Grace)
	require.Zero(t, bc.MaxHandlers)

	set := map[string]func(*bus.StageConfig, int){
		"Capacity":    func(c *bus.StageConfig, n int) { c.Capacity = n },
		"Concurrency": func(c *bus.StageConfig, n int) { c.Concurrency = n },
		"Batch":       func(c *bus.StageConfig, n int) { c.Batch = n },
		"EgressCap":   func(c *bus.StageConfig, n int) { c.EgressCap = n },
		"DedupWindow": func(c *bus.StageConfig, n int) { c.DedupWindow = n },
		"MaxWaiters":  func(c *bus.StageConfig, n int) { c.MaxWaiters = n },
		"HopTimeout":  func(c *bus.StageConfig, n int) { c.HopTimeout = time.Duration(n) },
		"MaxAttempts": func(c *bus.StageConfig, n int) { c.Retry.MaxAttempts = n },
	}
	for field, change := range set {
		for _, n := range []int{-1, math.MinInt, math.MaxInt} {
			if field == "MaxAttempts" && n > 0 {
				continue // as often as it takes
			}
			var c bus.StageConfig
			change(&c, n)
			_, err := b.Stage("bad", c)
			require.ErrorIs(t, err, bus.ErrInvalid, field)
			require.ErrorContains(t, err, field)
		}
		zero := addStage(t, b, "z-"+field, bus.StageConfig{}, nil)
		require.NoError(t, zero.Tune(func(c *bus.StageConfig) {
			if field != "DedupWindow" {
				change(c, 0)
			}
		}))
		require.Equal(t, c, zero.Config(), "zero is the default in Tune as well")
	}
	finish(t, b)
}

func TestB072_TuneChangesWhatItNames(t *testing.T) {
	b := newBus(t, bus.Config{})
	given := bus.StageConfig{
		Capacity: 77, Concurrency: 3, Batch: 5, EgressCap: 2, Full: bus.DropNewest, HopTimeout: time.Minute,
		HandlerTimeout: time.Hour, MaxWaiters: 9, DedupWindow: 4, ExactTiming: true,
		Retry: retry.Policy{MaxAttempts: 4, Kind: retry.Constant, Base: time.Second},
	}
	s := addStage(t, b, "s", given, nil)
	want := s.Config()
	require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Concurrency = 8 }))
	want.Concurrency = 8
	require.Equal(t, want, s.Config())
	for name, change := range map[string]func(*bus.StageConfig){
		"one bad of three": func(c *bus.StageConfig) { c.Capacity, c.MaxWaiters, c.HopTimeout = 5, 5, -1 },
		"one not live":     func(c *bus.StageConfig) { c.Capacity, c.Order = 5, bus.ByKey },
		"all reset":        func(c *bus.StageConfig) { *c = bus.StageConfig{} }, // DedupWindow is not live
	} {
		require.Error(t, s.Tune(change), name)
		require.Equal(t, want, s.Config(), name)
	}
	require.Panics(t, func() { _ = s.Tune(func(c *bus.StageConfig) { c.Capacity = 1; panic("user") }) })
	require.Equal(t, want, s.Config())
	require.NoError(t, s.Tune(func(c *bus.StageConfig) { c.Capacity = 78 }), "the lock was given back")
	finish(t, b)
}

func TestB092_DefaultsDoNotFollowTheProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for _, procs := range []int{1, 4, 64} {
		runtime.GOMAXPROCS(procs)
		b := newBus(t, bus.Config{})
		s := addStage(t, b, "s", bus.StageConfig{}, acknowledge)
		require.NoError(t, b.Start())
		require.Equal(t, 1, s.Config().Concurrency, "a documented constant")
		require.Zero(t, b.Config().MaxHandlers)
		var st bus.Stats
		b.ReadStats(&st)
		require.Equal(t, 1, st.Stages[0].Concurrency)
		finish(t, b)
	}
}

// TestB097_RefusalsSayWhatToDo provokes refusals and looks at their texts.
func TestB097_RefusalsSayWhatToDo(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		shed := &bustest.Refuse{}
		gate := bustest.NewGate()
		orders := bustest.Stage(t, b, "orders", bus.StageConfig{Capacity: 2, Accepts: bus.TypeOf[int](), Shedder: shed.Shedder()}, gate.Handler(nil))
		bustest.Stage(t, b, "idle", bus.StageConfig{NoHandler: bus.NoHandlerReject}, nil)
		require.ErrorContains(t, orders.TryPublish(&bus.Envelope{Payload: 1}), "Start")
		bustest.Start(t, b)
		says := func(err, sentinel error, texts ...string) {
			t.Helper()
			require.ErrorIs(t, err, sentinel)
			require.ErrorIs(t, err, bus.ErrRejected)
			for _, text := range texts {
				require.ErrorContains(t, err, text)
			}
			require.NotContains(t, err.Error(), "\n")
		}
		for range 3 {
			require.NoError(t, orders.TryPublish(&bus.Envelope{Payload: 1}))
			synctest.Wait()
		}
		full := []string{`"orders"`, "depth 2", "capacity 2", "block", "Capacity", "Concurrency"}
		says(orders.TryPublish(&bus.Envelope{Payload: 1}), bus.ErrFull, full...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := orders.Publish(ctx, &bus.Envelope{Payload: 1})
		says(err, bus.ErrFull, append(full, "deadline exceeded")...)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, orders.Tune(func(c *bus.StageConfig) { c.Full = bus.DropNewest }))
		time.Sleep(time.Second)
		says(orders.TryPublish(&bus.Envelope{Payload: 1}), bus.ErrDropped, "newest", "drop-newest", "depth 2")
		says(orders.TryPublish(&bus.Envelope{Payload: "1"}), bus.ErrType, `"orders"`, "string", "int")
		shed.With(shedder.Verdict{Reason: reason.Shed, Limit: 5, Value: 8, RetryAfter: time.Second})
		says(orders.TryPublish(&bus.Envelope{Payload: 1}), bus.ErrShed, `"orders"`, "8", "5", "1s")
		says(b.Publish(t.Context(), "ordres", &bus.Envelope{}), bus.ErrNoStage, `"ordres"`, "registered")
		says(b.Publish(t.Context(), "idle", &bus.Envelope{}), bus.ErrNoHandler, `"idle"`, "Handle")
		b.Pause(bus.Hold{})
		says(orders.TryPublish(&bus.Envelope{Payload: 1}), bus.ErrPaused, `"orders"`, "Holds")
		b.Resume("")
		gate.Open()
		bustest.Drain(t, b)
		says(orders.TryPublish(&bus.Envelope{Payload: 1}), bus.ErrClosed, `"orders"`, "closed")
	})
}

// TestB099_FloodsDoNotFloodTheLog: numbers are in the counters; the log has a
// few lines.
func TestB099_FloodsDoNotFloodTheLog(t *testing.T) {
	n := scaled(2_000, 100_000)
	var log logBuffer
	bustest.Run(t, bus.Config{Logger: log.logger()}, func(t *testing.T, b *bus.Bus) {
		drop := bustest.Stage(t, b, "drop", bus.StageConfig{Capacity: 1, Full: bus.DropNewest, NoHandler: bus.NoHandlerHold}, nil)
		panics := bustest.Stage(t, b, "panics", bus.StageConfig{}, func(context.Context, *bus.Envelope) error { panic("again") })
		bustest.Start(t, b)
		require.NoError(t, drop.TryPublish(&bus.Envelope{}))
		dropped := 0
		for range n {
			if errors.Is(drop.TryPublish(&bus.Envelope{}), bus.ErrDropped) {
				dropped++
			}
			require.NoError(t, panics.Publish(t.Context(), &bus.Envelope{}))
			time.Sleep(5 * time.Second / time.Duration(n)) // the flood takes five seconds
		}
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.Equal(t, n, dropped)
		require.EqualValues(t, n, st.Stages[0].Refused[reason.Newest])
		require.EqualValues(t, n, st.Stages[1].Panics)
		require.EqualValues(t, n, st.Stages[1].DeadLettered)
		lines := strings.Count(log.String(), "panic contained")
		require.LessOrEqual(t, lines, 7)
		require.GreaterOrEqual(t, lines, 4)
		require.Contains(t, log.String(), "stage=panics")
		require.Contains(t, log.String(), "left_out=")
		require.LessOrEqual(t, strings.Count(log.String(), "\n"), 10)
		require.NoError(t, drop.Handle(acknowledge))
	})
}

// TestB099_LoggerMayCallTheBus: no lock is held while a line is written.
func TestB099_LoggerMayCallTheBus(t *testing.T) {
	var s *bus.Stage
	calls := 0
	log := slog.New(logFunc{func() error {
		if s == nil || calls > 0 {
			return nil
		}
		calls++
		var st bus.StageStats
		s.ReadStats(&st)
		return errors.Join(s.TryPublish(&bus.Envelope{Payload: "from the logger"}), s.Tune(func(c *bus.StageConfig) { c.Capacity++ }))
	}})
	bustest.Run(t, bus.Config{Logger: log}, func(t *testing.T, b *bus.Bus) {
		work := bustest.Stage(t, b, "s", bus.StageConfig{}, func(_ context.Context, e *bus.Envelope) error {
			if e.Payload == nil {
				panic("first")
			}
			return nil
		})
		bustest.Start(t, b)
		s = work // from here on the logger calls back
		require.NoError(t, work.TryPublish(&bus.Envelope{}))
		synctest.Wait()
		require.Equal(t, 1, calls)
		synctest.Wait()
		st := bustest.RequireBalanced(t, b)
		require.Equal(t, 1025, st.Stages[0].Capacity)
		require.EqualValues(t, 1, st.DeadLettered)
		require.EqualValues(t, 1, st.Completed)
	})
}

// logFunc is a log handler that calls a function for each line.
type logFunc struct{ line func() error }

func (logFunc) Enabled(context.Context, slog.Level) bool    { return true }
func (f logFunc) Handle(context.Context, slog.Record) error { return f.line() }
func (f logFunc) WithAttrs([]slog.Attr) slog.Handler        { return f }
func (f logFunc) WithGroup(string) slog.Handler             { return f }
