package demo

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/cmd/sedactl/internal/table"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

func plain(lines []table.Line, colour bool) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.Render(0, colour) + "\n")
	}
	return b.String()
}

var settings = Settings{Policy: "reject", Capacity: 128, Concurrency: 4, ServiceMS: 2, Seed: 1}

var replay = &Replay{File: "t.csv", Rows: 8819, Skipped: 2, Speed: 200, Load: 1, PerTokenMS: 0.279463, SpanMS: 17179.74}

func frame() *Frame {
	return &Frame{
		Settings: settings, At: 11300 * time.Millisecond, Measured: 1951,
		Phases: []Progress{
			{Name: calibration, Rate: 1951, Part: 1, State: stateDone},
			{Name: "0.5x", Rate: 975.5, Part: 1, State: stateDone},
			{Name: "1x", Rate: 1951, Part: 0.24, State: stateRuns},
			{Name: "2x", Rate: 3902, State: stateWaits},
		},
		Stages: []StageRow{
			{Name: stageParse, Depth: 70, Capacity: 128, Concurrency: 4, Rate: 1710, P50: 61900 * time.Microsecond, P99: 155 * time.Millisecond, Refused: Counts{"full": 1529}},
			{Name: stageWork, Depth: 129, Capacity: 128, InFlight: 4, Concurrency: 4, Rate: 1662, P50: 64 * time.Millisecond, P99: 155 * time.Millisecond, Dropped: Counts{"evicted": 12}},
			{Name: stageStore, Capacity: 128, Concurrency: 4, Rate: 1662, P50: 263, P99: 242 * time.Microsecond},
		},
		Account: Account{Accepted: 15523, Completed: 15312, Dropped: Counts{"evicted": 12}, Pending: 199},
	}
}

func TestFrameGolden(t *testing.T) {
	t.Parallel()
	f := frame()
	golden(t, "frame", plain(FrameLines(f), false))
	golden(t, "frame_colour", plain(FrameLines(f), true))
	for i, l := range FrameLines(f) {
		assert.LessOrEqual(t, l.Width(), 100, "line %d fits an ordinary terminal", i)
	}
	f.Replay, f.Note = replay, "stopping"
	f.Phases = []Progress{{Name: "trace", Rate: 513, Part: 0.5, State: stateStop}}
	golden(t, "frame_trace", plain(FrameLines(f), false))
}

func TestFrameTextGolden(t *testing.T) {
	t.Parallel()
	f := frame()
	text := strings.Join(TitleTexts(f), "\n") + "\n" + FrameText(f) + "\n"
	f.Replay, f.Note, f.Phases = replay, "stopping", nil
	text += strings.Join(TitleTexts(f), "\n") + "\n" + FrameText(f) + "\n"
	golden(t, "text", text)
}

func summary() *Summary {
	return &Summary{
		Settings: settings, End: EndComplete, Capacity: 1951.25,
		Phases: []Outcome{
			{Name: "0.5x", Rate: 975.625, Offered: 3855, Accepted: 3855, Completed: 3855, Goodput: 963.2, ElapsedMS: 4002, WaitP50MS: 0.672, WaitP99MS: 9.7, Whole: true},
			{Name: "1x", Rate: 1951.25, Offered: 7922, Accepted: 7922, Completed: 7922, Goodput: 1959, ElapsedMS: 4043, WaitP50MS: 14.9, WaitP99MS: 38.8, MaxLagMS: 4, Whole: true},
			{Name: "2x", Rate: 3902.5, Offered: 15619, Accepted: 8000, Refused: Counts{"full": 7600, "shed": 19}, Completed: 7605, Dropped: Counts{"evicted": 395}, Goodput: 1820, ElapsedMS: 4178, WaitP50MS: 128, WaitP99MS: 294, MaxLagMS: 114},
		},
		Account: Account{
			Accepted: 21727, Completed: 21332, Dropped: Counts{"evicted": 395}, Refused: Counts{"full": 7600, "shed": 19},
			Published: 21727, Balanced: true,
		},
	}
}

func TestSummaryGolden(t *testing.T) {
	t.Parallel()
	s := summary()
	golden(t, "summary", plain(SummaryLines(s), false))
	golden(t, "summary_colour", plain(SummaryLines(s), true))
	s.Account.Balanced, s.Account.Published = false, 21728
	s.Capacity, s.Phases = 0, nil
	s.End = EndCut
	golden(t, "summary_cut", plain(SummaryLines(s), false))
	s.End = EndDrained
	golden(t, "summary_drained", plain(SummaryLines(s), false))
}

// The JSON form is an interface: what it holds must not change unseen.
func TestSummaryJSONGolden(t *testing.T) {
	t.Parallel()
	s := summary()
	s.Trace = replay
	s.Phases = s.Phases[2:]
	out, err := json.MarshalIndent(s, "", "  ")
	require.NoError(t, err)
	golden(t, "summary_json", string(out)+"\n")

	var back Summary
	d := json.NewDecoder(bytes.NewReader(out))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&back))
	assert.Equal(t, s, &back)
}

func TestAccountBalances(t *testing.T) {
	t.Parallel()
	good := Account{Accepted: 21, Completed: 10, DeadLettered: 5, Dropped: Counts{"evicted": 2, "expired": 1}, Abandoned: 2, Pending: 1, Published: 21}
	assert.True(t, good.balances())
	for name, change := range map[string]func(*Account){
		"accepted":      func(a *Account) { a.Accepted++ },
		"completed":     func(a *Account) { a.Completed-- },
		"dead-lettered": func(a *Account) { a.DeadLettered++ },
		"dropped":       func(a *Account) { a.Dropped = Counts{"evicted": 2} },
		"abandoned":     func(a *Account) { a.Abandoned++ },
		"pending":       func(a *Account) { a.Pending++ },
		"published":     func(a *Account) { a.Published++ },
	} {
		a := good
		change(&a)
		assert.False(t, a.balances(), name)
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "-", Counts(nil).String())
	assert.Equal(t, "full 1,200, shed 3", Counts{"shed": 3, "full": 1200}.String())
	assert.Equal(t, uint64(1203), Counts{"shed": 3, "full": 1200}.Total())
}
