package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sedabus/seda/bench/overload/internal/law"
	"github.com/sedabus/seda/bench/overload/internal/report"
	"github.com/sedabus/seda/bench/overload/internal/shape"
	"github.com/sedabus/seda/bench/overload/internal/sim"
)

type options struct {
	plan    report.Plan
	verbose bool
	judged  string // the law that the gates are for
	csv     string // file for the figures of every run
	svg     string // folder for the charts
	skipped string // what is not run, and why
}

func parse(args []string, diag io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("overload", flag.ContinueOnError)
	fs.SetOutput(diag)
	shapes := fs.String("shape", "", "run these scenarios only, by name and with commas between")
	scales := fs.String("scale", "", "run at these scales only")
	laws := fs.String("law", "", "run these laws only; the oracle always runs")
	fs.StringVar(&o.judged, "judge", law.OurName, "hold this law against the gates")
	data := fs.String("data", "", "folder with azure-llm-code.csv and azure-llm-conv.csv, to be played as well")
	fs.StringVar(&o.csv, "csv", "", "write the figures of every run to this file")
	fs.StringVar(&o.svg, "svg", "", "draw the charts into this folder")
	fs.IntVar(&o.plan.Seeds, "seeds", 5, "how many seeds")
	fs.IntVar(&o.plan.Workers, "workers", 2, "how many runs go on at a time")
	fs.BoolVar(&o.plan.Visible, "deadlines", false, "give every job its budget as a deadline that laws can see")
	fs.BoolVar(&o.verbose, "v", false, "say which runs are finished")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if o.plan.Seeds < 1 || o.plan.Seeds > 100 {
		return nil, fmt.Errorf("--seeds is %d, must be from 1 to 100", o.plan.Seeds)
	}
	all, err := o.scenarios(*data)
	if err != nil {
		return nil, err
	}
	if o.plan.Shapes, err = choose("scenario", *shapes, all, func(s shape.Shape) string { return s.Name }); err != nil {
		return nil, err
	}
	if o.plan.Scales, err = choose("scale", *scales, shape.Scales(), func(s sim.Scale) string { return s.Name }); err != nil {
		return nil, err
	}
	names := *laws
	if names != "" && !slices.Contains(strings.Split(names, ","), law.OracleName) {
		names = law.OracleName + "," + names
	}
	o.plan.Laws, err = choose("law", names, law.All(), func(r law.Row) string { return r.Name })
	return o, err
}

// scenarios are those of the package, and the recordings where there are any.
func (o *options) scenarios(data string) ([]shape.Shape, error) {
	if data == "" {
		o.skipped = "recorded arrivals are not played: no --data"
		return shape.All(), nil
	}
	traces, err := shape.Traces(data)
	return append(shape.All(), traces...), err
}

// choose returns the entries of all that the list names, in the order of all;
// everything for no list.
func choose[T any](what, list string, all []T, name func(T) string) ([]T, error) {
	if list == "" {
		return all, nil
	}
	known := make([]string, len(all))
	for i := range all {
		known[i] = name(all[i])
	}
	wanted := strings.Split(list, ",")
	for _, want := range wanted {
		if !slices.Contains(known, want) {
			return nil, fmt.Errorf("no %s named %q; there are %s", what, want, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool { return !slices.Contains(wanted, name(x)) }), nil
}
