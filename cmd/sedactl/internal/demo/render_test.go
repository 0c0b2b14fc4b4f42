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

var settings = Settings{Policy: "reject", Capacity: 1024, Concurrency: 16, ServiceMS: 10, Seed: 1, Budget: 20, BudgetMS: 200}

var replay = &Replay{File: "t.csv", Rows: 8819, Skipped: 2, Speed: 200, Load: 1, PerTokenMS: 0.279463, SpanMS: 17179.74}

func frame() *Frame {
	return &Frame{
		Settings: settings, At: 11300 * time.Millisecond, Measured: 1951,
		Phases: []Progress{
			{Name: calibration, Rate: 1951, Part: 1, State: stateDone},
			{Name: "0.5x", Rate: 975.5, Part: 1, State: stateDone},
			{Name: "1x", Rate: 1951, Part: 0.24, State: stateRuns},
			{Name: "2x", Rate: 3902, Part: 1, State: stateDrain},
			{Name: "4x", Rate: 7804, State: stateWaits},
		},
		Sides: []Side{{
			Stages: []StageRow{
				{Name: stageParse, Depth: 700, Capacity: 1024, Concurrency: 16, Rate: 1710, P50: 619 * time.Millisecond, P99: 1550 * time.Millisecond},
				{Name: stageWork, Depth: 1025, Capacity: 1024, InFlight: 16, Concurrency: 16, Rate: 1662, P50: 640 * time.Millisecond, P99: 655 * time.Millisecond},
				{Name: stageStore, Capacity: 1024, Concurrency: 16, Rate: 1662, P50: 263, P99: 242 * time.Microsecond},
			},
			Depth: 1725, Room: 3 * 1024, InTime: 85, Possible: 1951, P50: time.Second, P99: 1250 * time.Millisecond,
			Refused: Counts{"full": 1529}, Dropped: Counts{"evicted": 12, "expired": 7},
			Account: Account{Accepted: 15523, Completed: 13761, Dropped: Counts{"evicted": 12, "expired": 7}, Pending: 1743},
		}, {
			Sheds: true,
			Stages: []StageRow{
				{Name: stageParse, Capacity: 1024, Concurrency: 16, Rate: 1990, P50: 900, P99: 143 * time.Microsecond},
				{Name: stageWork, Depth: 25, Capacity: 1024, InFlight: 16, Concurrency: 16, Rate: 1990, P50: 19400 * time.Microsecond, P99: 43 * time.Millisecond},
				{Name: stageStore, Capacity: 1024, Concurrency: 16, Rate: 1990, P50: 263, P99: 242 * time.Microsecond},
			},
			Depth: 25, Room: 3 * 1024, InTime: 1940, Possible: 1951, P50: 20 * time.Millisecond, P99: 44 * time.Millisecond,
			Refused: Counts{"work bound": 12263, "parse deadline": 300, "full": 3}, Dropped: Counts{},
			Account: Account{Accepted: 9853, Completed: 9812, Pending: 41},
		}},
	}
}

func TestFrameGolden(t *testing.T) {
	t.Parallel()
	f := frame()
	golden(t, "frame", plain(FrameLines(f), false))
	golden(t, "frame_colour", plain(FrameLines(f), true))
	for i, l := range FrameLines(f) {
		assert.LessOrEqual(t, l.Width(), 80, "line %d fits a small terminal", i)
	}
	assert.LessOrEqual(t, len(FrameLines(f)), 23, "and all fit its height")
	f.Replay, f.Note = replay, "stopping"
	f.Phases = []Progress{{Name: "trace", Rate: 513, Part: 0.5, State: stateStop}}
	f.Sides = f.Sides[:1]
	golden(t, "frame_trace", plain(FrameLines(f), false))
	f.Sides = nil
	assert.NotPanics(t, func() { FrameLines(f) })
}

func TestFrameTextGolden(t *testing.T) {
	t.Parallel()
	f := frame()
	text := strings.Join(TitleTexts(f), "\n") + "\n" + TextHeader(f) + "\n" + FrameText(f) + "\n"
	f.Replay, f.Note, f.Phases, f.Sides = replay, "stopping", nil, f.Sides[1:]
	text += strings.Join(TitleTexts(f), "\n") + "\n" + TextHeader(f) + "\n" + FrameText(f) + "\n"
	golden(t, "text", text)
}

func summary() *Summary {
	return &Summary{
		Settings: settings, End: EndComplete, Capacity: 1951.25,
		Sides: []Result{{
			Phases: []Outcome{
				{Name: "0.5x", Rate: 975.625, Offered: 3855, Accepted: 3855, Completed: 3855, InTime: 3855, Goodput: 963.2, OfPossible: 1, ElapsedMS: 4002, WaitP50MS: 0.672, WaitP99MS: 9.7, Depth: 2, BacklogMS: 6.13, Whole: true},
				{Name: "1x", Rate: 1951.25, Offered: 7922, Accepted: 7922, Completed: 7922, InTime: 7900, Late: 22, Goodput: 1940, OfPossible: 0.99, ElapsedMS: 4043, WaitP50MS: 14.9, WaitP99MS: 38.8, Depth: 20, BacklogMS: 20.1, MaxLagMS: 4, Whole: true},
				{Name: "2x", Rate: 3902.5, Offered: 15619, Accepted: 8019, Refused: Counts{"full": 7600}, Completed: 7605, InTime: 681, Late: 6924, Dropped: Counts{"evicted": 14, "expired": 400}, Goodput: 170, OfPossible: 0.087, ElapsedMS: 4000, WaitP50MS: 1280, WaitP99MS: 1394, Depth: 2049, BacklogMS: 1050, MaxLagMS: 114, Whole: true},
				{Name: "4x", Rate: 7805, Offered: 9619, Accepted: 4000, Refused: Counts{"full": 5619}, Completed: 4000, InTime: 680, Late: 3320, Goodput: 340, OfPossible: 0.174, ElapsedMS: 2000, WaitP50MS: 1280, WaitP99MS: 1394, Depth: 2049, BacklogMS: 1050, MaxLagMS: 14},
			},
			Account: Account{
				Accepted: 23796, Completed: 23382, Dropped: Counts{"evicted": 14, "expired": 400}, Refused: Counts{"full": 13219},
				Published: 23796, Balanced: true,
			},
		}, {
			Shedding: true,
			Phases: []Outcome{
				{Name: "0.5x", Rate: 975.625, Offered: 3855, Accepted: 3855, Completed: 3855, InTime: 3855, Goodput: 963.2, OfPossible: 1, ElapsedMS: 4002, WaitP50MS: 0.672, WaitP99MS: 9.7, Depth: 2, BacklogMS: 6.13, Whole: true},
				{Name: "1x", Rate: 1951.25, Offered: 7922, Accepted: 7900, Refused: Counts{"shed": 22}, Shed: Counts{"work bound": 22}, Completed: 7900, InTime: 7900, Goodput: 1940, OfPossible: 0.99, ElapsedMS: 4043, WaitP50MS: 12.9, WaitP99MS: 30.8, Depth: 10, BacklogMS: 11.1, MaxLagMS: 4, Whole: true},
				{Name: "2x", Rate: 3902.5, Offered: 15619, Accepted: 7785, Refused: Counts{"shed": 7824, "shed_deadline": 10}, Shed: Counts{"work bound": 7774, "parse bound": 50, "work deadline": 10}, Completed: 7780, InTime: 7770, Late: 10, Dropped: Counts{"doomed": 5}, Goodput: 1942, OfPossible: 0.995, ElapsedMS: 4000, WaitP50MS: 21.5, WaitP99MS: 86, Depth: 34, BacklogMS: 17.5, MaxLagMS: 114, Whole: true},
				{Name: "4x", Rate: 7805, Offered: 9619, Accepted: 2412, Refused: Counts{"shed": 7207}, Shed: Counts{"work bound": 7207}, Completed: 2412, InTime: 2412, Goodput: 1930, OfPossible: 0.985, ElapsedMS: 1250, WaitP50MS: 21.5, WaitP99MS: 86, Depth: 34, BacklogMS: 17.5, MaxLagMS: 14},
			},
			Account: Account{
				Accepted: 21952, Completed: 21947, Dropped: Counts{"doomed": 5}, Refused: Counts{"shed": 15053, "shed_deadline": 10},
				Published: 21952, Balanced: true,
			},
		}},
	}
}

func TestSummaryGolden(t *testing.T) {
	t.Parallel()
	s := summary()
	golden(t, "summary", plain(SummaryLines(s, 80), false))
	golden(t, "summary_colour", plain(SummaryLines(s, 0), true))
	for _, l := range SummaryLines(s, 80) {
		assert.LessOrEqual(t, l.Width(), 80, l.String())
	}
	golden(t, "summary_narrow", plain(SummaryLines(s, 50), false))
	one := summary()
	one.Sides, one.Capacity, one.Settings.Deadlines = one.Sides[1:], 0, true
	golden(t, "summary_one", plain(SummaryLines(one, 80), false))

	assert.True(t, s.Balanced())
	s.Sides[1].Account.Balanced, s.Sides[1].Account.Published = false, 21728
	assert.False(t, s.Balanced())
	for i := range s.Sides {
		s.Sides[i].Phases = nil
	}
	s.Capacity = 0
	s.End = EndCut
	golden(t, "summary_cut", plain(SummaryLines(s, 80), false))
	s.End = EndDrained
	golden(t, "summary_drained", plain(SummaryLines(s, 80), false))
}

// However narrow, a phase is shown whole.
func TestSummaryOfAnyWidth(t *testing.T) {
	t.Parallel()
	for width := range 120 {
		text := plain(SummaryLines(summary(), width), false)
		for _, name := range []string{"0.5x", "1x", "2x", "4x stopped"} {
			assert.Equal(t, 1, strings.Count(text, " "+name+" "), "width %d: %s", width, name)
		}
	}
}

// The JSON form is an interface: what it holds must not change unseen.
func TestSummaryJSONGolden(t *testing.T) {
	t.Parallel()
	s := summary()
	s.Trace = replay
	for i := range s.Sides {
		s.Sides[i].Phases = s.Sides[i].Phases[2:3]
	}
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
	assert.Equal(t, "full 1,200, lag 3, shed 3", Counts{"shed": 3, "lag": 3, "full": 1200}.Largest())
	assert.Equal(t, "-", Counts{"full": 0}.Largest())
	assert.Equal(t, uint64(1203), Counts{"shed": 3, "full": 1200}.Total())
}
