package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/sedabus/seda/bus"
)

// report is the result of a run. Its lists are sorted, so that the same input
// gives the same report whatever the number of workers.
type report struct {
	Files       []fileRow      `json:"files"`      // in the order they were read
	Levels      []countRow     `json:"levels"`     // by form, then the most frequent first, then by name
	Components  []countRow     `json:"components"` // in the same order
	Malformed   malformedTable `json:"malformed"`
	Account     lineAccount    `json:"account"`
	Bus         busAccount     `json:"bus"`
	Interrupted bool           `json:"interrupted"`
}

type fileRow struct {
	File        string `json:"file"`
	Lines       uint64 `json:"lines"`
	Error       string `json:"error,omitempty"`
	Interrupted bool   `json:"interrupted,omitempty"`
}

type countRow struct {
	Form  form   `json:"form"`
	Name  string `json:"name"`
	Lines uint64 `json:"lines"`
}

// malformedTable lists the first dead letters by file and line. The store
// keeps the newest 100,000 letters in at most 64 MiB: when older ones had to go
// the list starts later, and Evicted says how many are missing.
type malformedTable struct {
	Total   uint64      `json:"total"`
	Evicted uint64      `json:"evicted"`
	Lines   []letterRow `json:"lines"`
}

type letterRow struct {
	File   string `json:"file"`
	Line   uint64 `json:"line"`
	Reason string `json:"reason"`
	Text   string `json:"text"` // at most the first 80 bytes

	index int // of the file among the sources
}

// lineAccount says where the lines went.
type lineAccount struct {
	Read         uint64 `json:"read"`
	Counted      uint64 `json:"counted"`
	DeadLettered uint64 `json:"dead_lettered"`
	Balanced     bool   `json:"balanced"`
}

// busAccount is the bus's own account, in envelopes: one a line and one a file.
type busAccount struct {
	Accepted     uint64 `json:"accepted"`
	Completed    uint64 `json:"completed"`
	DeadLettered uint64 `json:"dead_lettered"`
	Dropped      uint64 `json:"dropped"`
	Abandoned    uint64 `json:"abandoned"`
	Pending      uint64 `json:"pending"`
	Balanced     bool   `json:"balanced"`
}

// report collects the results. Call it after run.
func (p *pipeline) report() report {
	r := report{Files: []fileRow{}, Levels: []countRow{}, Components: []countRow{}}
	for _, s := range p.sources {
		row := fileRow{File: s.path, Lines: s.lines, Interrupted: s.interrupted}
		if s.err != nil {
			row.Error = s.err.Error()
		}
		r.Files = append(r.Files, row)
		r.Account.Read += s.lines
		r.Interrupted = r.Interrupted || s.interrupted
	}
	levels, components := map[countRow]uint64{}, map[countRow]uint64{}
	for rec, n := range p.tally {
		levels[countRow{Form: rec.form, Name: rec.level}] += n
		components[countRow{Form: rec.form, Name: rec.component}] += n
		r.Account.Counted += n
	}
	r.Levels, r.Components = ranked(levels), ranked(components)
	p.reportBus(&r)
	return r
}

// reportBus adds what the bus knows: the accounts and the dead letters.
func (p *pipeline) reportBus(r *report) {
	var st bus.Stats
	p.bus.ReadStats(&st)
	r.Bus = busAccount{
		Accepted: st.Accepted, Completed: st.Completed, DeadLettered: st.DeadLettered,
		Abandoned: st.Abandoned, Pending: st.Pending,
	}
	for _, n := range st.Dropped {
		r.Bus.Dropped += n
	}
	r.Bus.Balanced = st.Check() == nil && st.Pending == 0 // every stage's account, too
	for i := range st.Stages {
		if st.Stages[i].Name != stageRead {
			r.Account.DeadLettered += st.Stages[i].DeadLettered
		}
	}
	a := &r.Account
	a.Balanced = a.Read == a.Counted+a.DeadLettered
	r.Malformed = p.malformed()
	r.Malformed.Total = a.DeadLettered
}

// ranked makes the rows of a table.
func ranked(counts map[countRow]uint64) []countRow {
	rows := make([]countRow, 0, len(counts))
	for row, n := range counts {
		row.Lines = n
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b countRow) int {
		return cmp.Or(cmp.Compare(a.Form, b.Form), cmp.Compare(b.Lines, a.Lines), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// write writes the report as JSON or as tables.
func (r *report) write(w io.Writer, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(r)
	}
	var b strings.Builder
	r.text(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// text writes the tables. Names and texts come from the input, so whatever a
// terminal could take for a command is quoted.
func (r *report) text(b *strings.Builder) {
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	row := func(format string, v ...any) { _, _ = fmt.Fprintf(tw, format+"\n", v...) }
	row("FILE\tLINES")
	for _, f := range r.Files {
		switch {
		case f.Error != "":
			row("%s\t%d\tnot read to its end: %s", shown(f.File), f.Lines, shown(f.Error))
		case f.Interrupted:
			row("%s\t%d\tinterrupted", shown(f.File), f.Lines)
		default:
			row("%s\t%d", shown(f.File), f.Lines)
		}
	}
	for _, table := range []struct {
		title string
		rows  []countRow
	}{{"LEVEL", r.Levels}, {"COMPONENT", r.Components}} {
		row("\nFORM\t%s\tLINES", table.title)
		for _, c := range table.rows {
			row("%s\t%s\t%d", c.Form, shown(c.Name), c.Lines)
		}
	}
	m := &r.Malformed
	row("\nMALFORMED\t%d, listed %d", m.Total, len(m.Lines))
	if m.Evicted > 0 {
		row("%d older ones are no longer in the dead-letter store", m.Evicted)
	}
	for _, l := range m.Lines {
		row("%s:%d\t%s\t%s", shown(l.File), l.Line, shown(l.Reason), strconv.QuoteToASCII(l.Text))
	}
	_ = tw.Flush() // a strings.Builder takes everything
	a, u := &r.Account, &r.Bus
	fmt.Fprintf(b, "\nACCOUNT\nlines: read %d = counted %d + dead-lettered %d: %s\n",
		a.Read, a.Counted, a.DeadLettered, verdict(a.Balanced))
	fmt.Fprintf(b, "bus: accepted %d = completed %d + dead-lettered %d + dropped %d + abandoned %d + pending %d: %s\n",
		u.Accepted, u.Completed, u.DeadLettered, u.Dropped, u.Abandoned, u.Pending, verdict(u.Balanced))
}

func verdict(balanced bool) string {
	if balanced {
		return "balanced"
	}
	return "NOT BALANCED"
}

// shown returns s, quoted if a terminal would not simply print it.
func shown(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) || r == '\ufffd' }) {
		return strconv.QuoteToASCII(s)
	}
	return s
}
