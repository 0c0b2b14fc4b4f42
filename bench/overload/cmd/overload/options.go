package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sedabus/seda/bench/overload/internal/law"
	"github.com/sedabus/seda/bench/overload/internal/real"
	"github.com/sedabus/seda/bench/overload/internal/report"
	"github.com/sedabus/seda/bench/overload/internal/shape"
	"github.com/sedabus/seda/bench/overload/internal/sim"
)

type options struct {
	plan    report.Plan
	verbose bool
	judged  string     // the law that the gates are for
	csv     string     // file for the figures of every run
	svg     string     // folder for the charts
	legs    []real.Leg // by the wall clock, instead of the plan
	rounds  int
	skipped string // what is not run, and why
}

func parse(args []string, diag io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("overload", flag.ContinueOnError)
	fs.SetOutput(diag)
	all := fs.Bool("all", false, "run everything; without, what no other flag says is a selection")
	byClock := fs.Bool("real", false, "run the legs by the wall clock instead: cpu, neighbour, retune, cost")
	fs.IntVar(&o.rounds, "rounds", 2, "how many rounds of --real")
	shapes := fs.String("shape", "", "run these scenarios only, or legs of --real, by name and with commas between")
	scales := fs.String("scale", "", "run at these scales only")
	laws := fs.String("law", "", "run these laws only; the oracle always runs")
	fs.StringVar(&o.judged, "judge", law.OurName, "hold this law against the gates")
	data := fs.String("data", "", "folder with azure-llm-code.csv and azure-llm-conv.csv, to be played as well")
	fs.StringVar(&o.csv, "csv", "", "write the figures of every run to this file")
	fs.StringVar(&o.svg, "svg", "", "draw the charts into this folder")
	fs.IntVar(&o.plan.Seeds, "seeds", 0, fmt.Sprintf("how many seeds; %d, or %d with --all, if not said", fewSeeds, allSeeds))
	fs.IntVar(&o.plan.Workers, "workers", 2, "how many runs go on at a time")
	fs.BoolVar(&o.plan.Visible, "deadlines", false, "give every job its budget as a deadline that laws can see")
	fs.BoolVar(&o.verbose, "v", false, "say which runs are finished")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if *byClock {
		return o, o.chooseLegs(*shapes)
	}
	def := selection()
	if *all {
		def = scope{seeds: allSeeds}
	}
	if o.plan.Seeds == 0 {
		o.plan.Seeds = def.seeds
	}
	if o.plan.Seeds < 1 || o.plan.Seeds > 100 {
		return nil, fmt.Errorf("--seeds is %d, must be from 1 to 100", o.plan.Seeds)
	}
	return o, o.choosePlan(cmp.Or(*shapes, def.shapes), cmp.Or(*scales, def.scales), cmp.Or(*laws, def.laws), *data)
}

// scope is what runs unless it is said otherwise; "" is everything.
type scope struct {
	shapes, scales, laws string
	seeds                int
}

const (
	fewSeeds = 2
	allSeeds = 5
)

// selection is what shows the matter in a few minutes.
func selection() scope {
	return scope{
		shapes: "step,flash,after,triple,bimodal,trickle,cold,classes,senders,deadlines,tandem,outage",
		scales: "16x5ms,4x100ms,1x1ms",
		laws:   "adaptive,oracle,best-bound,none,cap64,go-zero,aegis,failsafe,x-rate",
		seeds:  fewSeeds,
	}
}

// chooseLegs chooses what runs by the wall clock.
func (o *options) chooseLegs(names string) (err error) {
	if o.rounds < 1 || o.rounds > 100 {
		return fmt.Errorf("--rounds is %d, must be from 1 to 100", o.rounds)
	}
	o.legs, err = choose("leg", names, real.Legs(), func(l real.Leg) string { return l.Name })
	return err
}

// choosePlan chooses what runs in simulated time.
func (o *options) choosePlan(shapes, scales, laws, data string) error {
	all, err := o.scenarios(data)
	if err != nil {
		return err
	}
	if o.plan.Shapes, err = choose("scenario", shapes, all, func(s shape.Shape) string { return s.Name }); err != nil {
		return err
	}
	if o.plan.Scales, err = choose("scale", scales, shape.Scales(), func(s sim.Scale) string { return s.Name }); err != nil {
		return err
	}
	if laws != "" && !slices.Contains(strings.Split(laws, ","), law.OracleName) {
		laws = law.OracleName + "," + laws
	}
	o.plan.Laws, err = choose("law", laws, law.All(), func(r law.Row) string { return r.Name })
	return err
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
