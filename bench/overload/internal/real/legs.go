package real

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/zeromicro/go-zero/core/stat"

	"github.com/sedabus/seda/bus"
)

// Leg is a part of the bench by the wall clock.
type Leg struct {
	Name, Title string
	run         func(rounds int, say func(string)) (*outcome, error)
	seconds     float64 // of a round, and once
	once        float64
}

// Takes is how long the leg takes.
func (l *Leg) Takes(rounds int) time.Duration {
	return time.Duration((l.once + l.seconds*float64(rounds)) * 1e9)
}

// Legs returns all.
func Legs() []Leg {
	return []Leg{
		{Name: "cpu", Title: "2 workers that compute for 1 ms, 0.5 to 2 times capacity", run: cpu, seconds: 15, once: 3},
		{Name: "neighbour", Title: "16 workers that wait for 5 ms, at 0.3 of capacity beside 2 goroutines that compute all the time", run: neighbour, seconds: 12.5, once: 3},
		{Name: "retune", Title: "workers that wait for 10 ms, 4 to 32 and back to 4 under 2 times the capacity of 32", run: retune, seconds: 6, once: 3},
		{Name: "cost", Title: "what decisions cost", run: cost, seconds: 1.5, once: 1},
	}
}

// outcome is what a leg showed.
type outcome struct {
	notes  []string
	cals   []calibration
	head   []string
	rows   [][]string
	checks []check
}

// check is a gate and what stands against it.
type check struct {
	what     string
	limit    float64
	least    bool
	value    float64
	text     func(float64) string
	unjudged string // why it is not judged
}

func (c *check) met() bool {
	if c.least {
		return c.value >= c.limit
	}
	return c.value <= c.limit
}

// Run runs legs, writes what they showed, and says how many gates were missed.
// Each leg runs its laws in turns, so many rounds.
func Run(w, diag io.Writer, legs []Leg, rounds int) (missed int, err error) {
	defer processors()()
	for i := range legs {
		l := &legs[i]
		say := func(what string) {
			_, _ = fmt.Fprintf(diag, "%s: %s\n", l.Name, what) // progress is not worth an error
		}
		before := loadAverage()
		o, err := l.run(rounds, say)
		if err != nil {
			return missed, fmt.Errorf("%s: %w", l.Name, err)
		}
		o.notes = append([]string{fmt.Sprintf("load average (1, 5, 15 minutes): %s before, %s after; %s", before, loadAverage(), machine())}, o.notes...)
		n, err := o.write(w, l)
		missed += n
		if err != nil {
			return missed, err
		}
	}
	return missed, nil
}

// sums are the figures of a door over the rounds.
type sums struct {
	good, done, shed, p50, p99, late []float64
}

func (s *sums) add(f figures) {
	s.good = append(s.good, f.good)
	s.done = append(s.done, f.done)
	s.shed = append(s.shed, float64(f.shed)/float64(f.offered))
	s.p50 = append(s.p50, f.p50.Seconds())
	s.p99 = append(s.p99, f.p99.Seconds())
	s.late = append(s.late, f.late.Seconds())
}

func mean(xs []float64) float64 {
	sum := 0.
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

// cells are the columns that all legs with load have.
func (s *sums) cells(name string, attainable float64) []string {
	least, most := math.Inf(1), 0.
	for _, x := range s.good {
		least, most = min(least, x/attainable), max(most, x/attainable)
	}
	return []string{
		name, fmt.Sprintf("%.0f/s", mean(s.good)), fmt.Sprintf("%.4f (%.4f to %.4f)", mean(s.good)/attainable, least, most),
		fmt.Sprintf("%.0f/s", mean(s.done)), percent(mean(s.shed)), millis(mean(s.p50)), millis(mean(s.p99)), millis(mean(s.late)),
	}
}

var loadHead = []string{"law", "in time", "of attainable (rounds)", "done", "shed", "wait p50", "p99", "publisher late p99"}

// cpu is a stage whose workers compute, without more processors than workers.
func cpu(rounds int, say func(string)) (*outcome, error) {
	st := stage{workers: 2, service: time.Millisecond, work: spinning(time.Millisecond)}
	say("calibrating")
	cal, err := calibrate("2 workers, 1 ms of computing", st, time.Second)
	if err != nil {
		return nil, err
	}
	phases := []phase{{long: 500 * time.Millisecond, rate: .5 * cal.best}, {long: 2500 * time.Millisecond, rate: 2 * cal.best}}
	all := append(doors(), door{name: "cap64", most: 64})
	got := make([]sums, len(all))
	known := ""
	for round := range rounds {
		for i := range all {
			say(fmt.Sprintf("round %d of %d, %s", round+1, rounds, all[i].name))
			r, err := play(st, all[i], phases, uint64(round))
			if err != nil {
				return nil, err
			}
			got[i].add(r.figures(phases[0].long, phases[0].long+phases[1].long))
			if all[i].ours {
				known = r.known()
			}
		}
	}
	o := &outcome{cals: []calibration{cal}, head: loadHead, notes: []string{known}}
	o.notes = append(o.notes, "figures are of the time at 2 times capacity; attainable is what the calibration did; cap64 is the stage with 64 places and no shedder, which shows what the arrivals leave of that", hot())
	for i := range all {
		o.rows = append(o.rows, got[i].cells(all[i].name, cal.best))
	}
	o.checks = []check{{
		what: "goodput of " + all[0].name + ", of attainable", limit: .995, least: true, value: mean(got[0].good) / cal.best, text: part, unjudged: cal.doubt(),
	}}
	return o, nil
}

// known says what the bus's shedder knew at the end.
func (r *rig) known() string {
	st := &r.state
	return fmt.Sprintf("the shedder of the bus at the end: service %v, drain rate %.0f/s, target %v, %d may wait, burst budget %.2f",
		st.Service.Round(10*time.Microsecond), st.DrainRate, st.Target.Round(10*time.Microsecond), st.Bound, st.Burst)
}

// doubt says why nothing can be judged by the calibration.
func (c *calibration) doubt() string {
	if c.steady() {
		return ""
	}
	return "the calibration is not steady"
}

func play(st stage, d door, phases []phase, seed uint64) (*rig, error) {
	r, err := open(st, d, bus.StageConfig{Capacity: cmp.Or(d.most, capacity), Full: bus.Reject})
	if err != nil {
		return nil, err
	}
	return r, r.run(phases, seed)
}

// neighbour is a stage that has enough, beside goroutines that compute.
func neighbour(rounds int, say func(string)) (*outcome, error) {
	st := stage{workers: 16, service: 5 * time.Millisecond, work: sleeping(5 * time.Millisecond)}
	say("calibrating")
	quiet, err := calibrate("16 workers, 5 ms of waiting, alone", st, 500*time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer hog(2)()
	beside, err := calibrate("the same beside 2 that compute", st, 500*time.Millisecond)
	if err != nil {
		return nil, err
	}
	return compare(st, quiet, beside, rounds, say)
}

// compare runs the neighbour's laws, and none, on the same arrivals.
func compare(st stage, quiet, beside calibration, rounds int, say func(string)) (*outcome, error) {
	long := 2500 * time.Millisecond
	phases := []phase{{long: long, rate: .3 * quiet.best}}
	all := append([]door{{name: "none"}}, doors()...)
	got := make([]sums, len(all))
	for round := range rounds {
		for i := range all {
			say(fmt.Sprintf("round %d of %d, %s", round+1, rounds, all[i].name))
			r, err := play(st, all[i], phases, uint64(round))
			if err != nil {
				return nil, err
			}
			got[i].add(r.figures(0, long))
		}
	}
	o := &outcome{cals: []calibration{quiet, beside}, head: loadHead}
	o.notes = append(o.notes, "attainable is what was done in time on the same arrivals without any shedder, in the same rounds", hot())
	attainable := mean(got[0].good)
	for i := range all {
		o.rows = append(o.rows, got[i].cells(all[i].name, attainable))
	}
	c := check{what: "goodput of " + all[1].name + ", of attainable", limit: .98, least: true, value: mean(got[1].good) / attainable, text: part}
	if !(attainable > 0) {
		c.unjudged = "without a shedder nothing was done in time"
	}
	o.checks = []check{c}
	return o, nil
}

// effectWithin is the time within which a change of the concurrency has to show.
const effectWithin = 50 * time.Millisecond

// retune changes the concurrency under load. Raised, it has taken effect when
// as many run as allowed; lowered, when no more run: the services that run are
// not cancelled, so that this takes one of them at least.
func retune(rounds int, say func(string)) (*outcome, error) {
	const few, many = 4, 32
	st := stage{workers: few, service: 10 * time.Millisecond, work: sleeping(10 * time.Millisecond)}
	wide := st
	wide.workers = many
	say("calibrating")
	small, err := calibrate("4 workers, 10 ms of waiting", st, 500*time.Millisecond)
	if err != nil {
		return nil, err
	}
	large, err := calibrate("32 workers, 10 ms of waiting", wide, 500*time.Millisecond)
	if err != nil {
		return nil, err
	}
	long := 500 * time.Millisecond
	phases := []phase{{long: long, rate: 2 * large.best}, {long: long, rate: 2 * large.best, workers: many}, {long: long, rate: 2 * large.best, workers: few}}
	o := &outcome{cals: []calibration{small, large}, head: []string{"law", "in time at 32", "of its capacity", "wait p99", "in time at 4, after", "of its capacity", "wait p99", "effect up", "effect down", "lost", "account"}}
	all := doors()
	rigs := make([][]*rig, len(all))
	for round := range rounds {
		for i := range all {
			say(fmt.Sprintf("round %d of %d, %s", round+1, rounds, all[i].name))
			r, err := play(st, all[i], phases, uint64(round))
			if err != nil {
				return nil, err
			}
			rigs[i] = append(rigs[i], r)
		}
	}
	o.notes = append(o.notes,
		"the effect is the time from Stage.Tune until as many run as allowed, or no more; a service that runs is not cancelled, so that down takes up to 10 ms more; the longest of the rounds")
	for i := range all {
		row, checks := retuned(all[i].name, rigs[i], long, small.best, large.best)
		o.rows = append(o.rows, row)
		if all[i].ours {
			o.checks = append(o.checks, checks...)
		}
	}
	return o, nil
}

// retuned sums up the runs of a law.
func retuned(name string, rigs []*rig, long time.Duration, small, large float64) ([]string, []check) {
	var at32, at4 sums
	up, down, lost := time.Duration(0), time.Duration(0), 0
	account := "balances"
	faults := 0.
	for _, r := range rigs {
		at32.add(r.figures(long, 2*long))
		at4.add(r.figures(2*long, 3*long))
		if r.effects[1] < 0 {
			r.effects[1] = math.MaxInt64 // never
		}
		up, down = max(up, r.effects[1]), max(down, r.effects[2])
		lost += max(r.lost, -r.lost)
		if r.faults != nil {
			account = r.faults.Error()
			faults++
		}
	}
	row := []string{
		name, fmt.Sprintf("%.0f/s", mean(at32.good)), part(mean(at32.good) / large), millis(mean(at32.p99)),
		fmt.Sprintf("%.0f/s", mean(at4.good)), part(mean(at4.good) / small), millis(mean(at4.p99)),
		millis(up.Seconds()), millis(down.Seconds()), strconv.Itoa(lost), account,
	}
	service := 10 * time.Millisecond
	return row, []check{
		{what: "4 to 32 takes effect", limit: effectWithin.Seconds(), value: up.Seconds(), text: millis},
		{what: "32 to 4 takes effect, with a service", limit: (effectWithin + service).Seconds(), value: down.Seconds(), text: millis},
		{what: "accepted and not ended", value: float64(lost), text: plain},
		{what: "accounts that do not balance", value: faults, text: plain},
	}
}

// hot says how busy the processors are for those who look at that.
func hot() string {
	return fmt.Sprintf("processors at the end, as go-zero reads them: %.0f %% busy", float64(stat.CpuUsage())/10)
}
