package real

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sedabus/seda/bench/overload/internal/law"
	"github.com/sedabus/seda/shedder"
)

// priced is something whose cost is measured.
type priced struct {
	law, what string
	f         func()
	least     float64 // ns, in the quickest burst
	allocs    float64
}

// The bounds in nanoseconds.
const (
	admitWithin = 50
	shedWithin  = 30
	allowWithin = 60 // beyond the reads of the clock
)

const (
	perBurst    = 500
	costRounds  = 10 // the things are measured in turns, each so often in a round
	burstsATurn = 100
)

// cost measures what decisions cost: the quickest of many bursts of 500, which
// on a machine with neighbours is the code's own.
func cost(rounds int, say func(string)) (*outcome, error) {
	things, err := thingsToPrice()
	if err != nil {
		return nil, err
	}
	for round := range rounds * costRounds {
		if round%costRounds == 0 {
			say(fmt.Sprintf("round %d of %d", round/costRounds+1, rounds))
		}
		for i := range things {
			p := &things[i]
			for range burstsATurn {
				began := time.Now()
				for range perBurst {
					p.f()
				}
				p.least = min(p.least, float64(time.Since(began))/perBurst)
			}
		}
	}
	o := &outcome{head: []string{"law", "what", "time", "allocations"}}
	o.notes = append(o.notes, fmt.Sprintf("the quickest of %d bursts of %d", rounds*costRounds*burstsATurn, perBurst))
	at := map[string]*priced{}
	for i := range things {
		p := &things[i]
		p.allocs = testing.AllocsPerRun(1000, p.f)
		o.rows = append(o.rows, []string{p.law, p.what, nanos(p.least), fmt.Sprintf("%.0f", p.allocs)})
		at[p.law+" "+p.what] = p
	}
	admit, shed := at["seda "+decideAdmit], at["seda "+decideShed]
	allow, clock := at["seda "+allowPass], at["– "+clockTwice]
	o.checks = []check{
		{what: decideAdmit, limit: admitWithin, value: admit.least, text: nanos},
		{what: decideShed, limit: shedWithin, value: shed.least, text: nanos},
		{what: allowPass + ", beyond the clock", limit: allowWithin, value: allow.least - clock.least, text: nanos},
		{what: "allocations of the three", value: admit.allocs + shed.allocs + allow.allocs, text: plain},
	}
	return o, nil
}

// What is measured.
const (
	decideAdmit = "decision with the time given, admit"
	decideShed  = "decision with the time given, shed"
	allowPass   = "allow and settle"
	allowShed   = "allow, refused"
	clockTwice  = "two readings of the clock"
)

func thingsToPrice() ([]priced, error) {
	decide := func(waiting int) (func(), error) {
		s, err := warm()
		if err != nil {
			return nil, err
		}
		r := &shedder.Request{Now: time.Second, Load: shedder.Load{Waiting: waiting, Ahead: waiting, Busy: 4, Concurrency: 4}}
		return func() {
			r.Now += time.Microsecond
			s.Decide(r)
		}, nil
	}
	admit, err := decide(2)
	if err != nil {
		return nil, err
	}
	shed, err := decide(5000)
	if err != nil {
		return nil, err
	}
	s, err := warm()
	if err != nil {
		return nil, err
	}
	out := []priced{
		{law: "seda", what: decideAdmit, f: admit},
		{law: "seda", what: decideShed, f: shed},
		{law: "seda", what: allowPass, f: func() {
			if p, err := s.Allow(); err == nil {
				p.Pass()
			}
		}},
	}
	for _, l := range law.Libraries() {
		ask := l.New()
		out = append(out, priced{law: l.Name, what: allowPass, f: func() {
			if settle, ok := ask(); ok {
				settle(true)
			}
		}})
		if full := l.New(); fill(full) {
			out = append(out, priced{law: l.Name, what: allowShed, f: func() { full() }})
		}
	}
	began := time.Now()
	out = append(out, priced{law: "–", what: clockTwice, f: func() { _, _ = time.Since(began), time.Since(began) }})
	for i := range out {
		out[i].least = math.Inf(1)
	}
	return out, nil
}

// warm returns a shedder that knows its stage: 4 workers, 1 ms.
func warm() (*shedder.Shedder, error) {
	s, err := shedder.New(shedder.Config{Concurrency: 4})
	if err != nil {
		return nil, err
	}
	for i := range 200 {
		s.Done(&shedder.Done{
			Now: time.Duration(i) * time.Millisecond, N: 1, Service: time.Millisecond, Squares: 1e12,
			Shortest: time.Millisecond, Longest: time.Millisecond, Load: shedder.Load{Busy: 4, Concurrency: 4},
		})
	}
	return s, nil
}

// fill takes permits and settles none, until the library refuses for good;
// some never do.
func fill(ask law.Asker) bool {
	refused := 0
	for range 5000 {
		if _, ok := ask(); ok {
			refused = 0
			continue
		}
		if refused++; refused == 100 {
			return true
		}
	}
	return false
}
