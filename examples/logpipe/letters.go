package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sedabus/seda/bus"
)

// malformed lists the first letters by file and line, at most --letters.
func (p *pipeline) malformed() malformedTable {
	letters := p.bus.Letters()
	t := malformedTable{Lines: []letterRow{}, Evicted: letters.Stats().Evicted}
	for _, l := range letters.List(bus.LetterFilter{}) {
		if row, ok := letterOf(&l); ok {
			t.Lines = append(t.Lines, row)
		}
	}
	slices.SortFunc(t.Lines, func(a, b letterRow) int {
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.Line, b.Line))
	})
	t.Lines = slices.Clip(t.Lines[:min(len(t.Lines), p.o.letters)])
	return t
}

// letterOf makes the row of a letter, if it is a line's.
func letterOf(l *bus.Letter) (letterRow, bool) {
	bad, ok := l.Envelope.Payload.(*line)
	if !ok {
		return letterRow{}, false
	}
	text := bad.text
	if len(text) > excerptMax {
		text = text[:excerptMax]
	}
	return letterRow{
		File: bad.src.path, Line: bad.no, Reason: cmp.Or(bad.why, l.Error),
		Text: strings.ToValidUTF8(text, "\ufffd"), index: bad.src.index,
	}, true
}
