package report

import (
	"encoding/csv"
	"io"
	"math"
	"strconv"

	"github.com/sedabus/seda/bench/overload/internal/law"
	"github.com/sedabus/seda/bench/overload/internal/score"
)

// column is a figure of a run.
type column struct {
	name string
	of   func(*score.Score) float64
}

func columns() []column {
	return []column{
		{"offered", func(s *score.Score) float64 { return float64(s.Offered) }},
		{"shed", func(s *score.Score) float64 { return float64(s.Shed) }},
		{"dropped", func(s *score.Score) float64 { return float64(s.Dropped) }},
		{"in_time", func(s *score.Score) float64 { return float64(s.InTime) }},
		{"completed", func(s *score.Score) float64 { return float64(s.Completed) }},
		{"good_work_seconds", func(s *score.Score) float64 { return s.Good }},
		{"late_work_seconds", func(s *score.Score) float64 { return s.Late }},
		{"false_shed", func(s *score.Score) float64 { return float64(s.FalseShed) }},
		{"false_shed_of", func(s *score.Score) float64 { return float64(s.FalseOf) }},
		{"wait_p50_seconds", func(s *score.Score) float64 { return s.Wait.P50 }},
		{"wait_p99_seconds", func(s *score.Score) float64 { return s.Wait.P99 }},
		{"wait_p999_seconds", func(s *score.Score) float64 { return s.Wait.P999 }},
		{"total_p50_seconds", func(s *score.Score) float64 { return s.Total.P50 }},
		{"total_p99_seconds", func(s *score.Score) float64 { return s.Total.P99 }},
		{"total_p999_seconds", func(s *score.Score) float64 { return s.Total.P999 }},
		{"converged_seconds", func(s *score.Score) float64 { return s.Converged }},
		{"swing", func(s *score.Score) float64 { return s.Swing }},
		{"inversions", inversions},
		{"jain", func(s *score.Score) float64 { return s.Jain }},
		{"doomed", func(s *score.Score) float64 { return s.Doomed }},
		{"top_class_done", func(s *score.Score) float64 { return s.Top }},
		{"amplification", func(s *score.Score) float64 { return s.Amplification }},
		{"recovered_seconds", func(s *score.Score) float64 { return s.Recovered }},
		{"most_waiting", func(s *score.Score) float64 { return float64(s.MaxWaiting) }},
	}
}

// CSV writes the figures of every run, one a line; a cell is empty where a
// figure has no meaning. The last column is the goodput as a part of the
// oracle's.
func CSV(w io.Writer, p *Plan, d Data) error {
	out := csv.NewWriter(w)
	cols := columns()
	head := []string{"scenario", "stage", "law", "kind", "seed"}
	for _, c := range cols {
		head = append(head, c.name)
	}
	if err := out.Write(append(head, "goodput_of_oracle")); err != nil {
		return err
	}
	for _, sh := range p.Shapes {
		for _, sc := range sh.Over(p.Scales) {
			oracle := d[Key{sh.Name, sc.Name, law.OracleName}]
			for _, l := range p.Laws {
				for seed, s := range d[Key{sh.Name, sc.Name, l.Name}] {
					line := []string{sh.Name, sc.Name, l.Name, string(l.Kind), strconv.Itoa(seed)}
					for _, c := range cols {
						line = append(line, cell(c.of(s)))
					}
					goodput := math.NaN()
					if oracle != nil {
						goodput = Goodput(s, oracle[seed])
					}
					if err := out.Write(append(line, cell(goodput))); err != nil {
						return err
					}
				}
			}
		}
	}
	out.Flush()
	return out.Error()
}

func cell(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return ""
	}
	return strconv.FormatFloat(x, 'g', 6, 64)
}
