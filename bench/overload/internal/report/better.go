package report

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/sedabus/seda/bench/overload/internal/law"
	"github.com/sedabus/seda/bench/overload/internal/score"
)

// noise is the difference in goodput, as a part of the oracle's, that is not
// worth a word even where all seeds show it.
const noise = .001

// Better lists the libraries and formulas that do more work in time than a law
// by more than noise: the 99 % interval of the difference on the same seeds is
// above a thousandth of the oracle's goodput.
func Better(w io.Writer, p *Plan, d Data, name string) error {
	if _, err := fmt.Fprintf(w, "\nmore goodput than %s, by more than noise:\n\n", name); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	row(tw, "scenario", "stage", "law", "more, of the oracle's [99 %]", "its wait p99", "wait p99 of "+name)
	n := 0
	for _, sh := range p.Shapes {
		for _, sc := range sh.Over(p.Scales) {
			ours, oracle := d[Key{sh.Name, sc.Name, name}], d[Key{sh.Name, sc.Name, law.OracleName}]
			for _, l := range p.Laws {
				theirs := d[Key{sh.Name, sc.Name, l.Name}]
				if l.Kind != law.Rival && l.Kind != law.Formula || ours == nil || oracle == nil {
					continue
				}
				diff := make([]float64, len(theirs))
				for i := range theirs {
					diff[i] = (theirs[i].Good - ours[i].Good) / oracle[i].Good
				}
				if e := Mean(diff); e.Low > noise {
					n++
					p99 := func(s *score.Score) float64 { return s.Wait.P99 }
					row(tw, sh.Name, sc.Name, l.Name, fmt.Sprintf("%.4f [%.4f, %.4f]", e.Mean, e.Low, e.High),
						seconds(Over(theirs, p99).Mean), seconds(Over(ours, p99).Mean))
				}
			}
		}
	}
	if n == 0 {
		row(tw, "none")
	}
	return tw.Flush()
}
