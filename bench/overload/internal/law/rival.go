package law

import (
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/go-kratos/aegis/ratelimit"
	"github.com/go-kratos/aegis/ratelimit/bbr"
	"github.com/zeromicro/go-zero/core/load"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stat"
	"golang.org/x/time/rate"

	"github.com/sedabus/seda/bench/overload/internal/sim"
)

// Asker is the shape that the libraries have in common: a job that is let in is
// settled at its end, with what became of it.
type Asker func() (settle func(ok bool), admitted bool)

// rival puts a library at the door of the first stage. What is in flight
// includes what waits, as it does behind a middleware.
type rival struct {
	sim.Base

	ask    Asker
	settle map[int]func(bool)
}

func newRival(a Asker) *rival { return &rival{ask: a, settle: map[int]func(bool){}} }

// Blind says that the library looks at no deadlines.
func (*rival) Blind() {}

// Admit asks the library.
func (r *rival) Admit(_ *sim.World, j *sim.Job) sim.Action {
	settle, ok := r.ask()
	if !ok {
		return sim.Refuse
	}
	r.settle[j.ID] = settle
	return sim.Admit
}

// Gone settles.
func (r *rival) Gone(_ *sim.World, j *sim.Job) {
	r.settle[j.ID](j.Fate == sim.Completed)
	delete(r.settle, j.ID)
}

// Silence turns off what the libraries log and report.
func Silence() {
	load.DisableLog()
	logx.Disable()
	stat.SetReporter(nil)
}

func goZero(opts ...load.ShedderOption) Asker {
	s := load.NewAdaptiveShedder(opts...)
	return func() (func(bool), bool) {
		p, err := s.Allow()
		if err != nil {
			return nil, false
		}
		return func(ok bool) {
			if ok {
				p.Pass()
			} else {
				p.Fail()
			}
		}, true
	}
}

func aegis(opts ...bbr.Option) Asker {
	l := bbr.NewLimiter(opts...)
	return func() (func(bool), bool) {
		done, err := l.Allow()
		if err != nil {
			return nil, false
		}
		return func(bool) { done(ratelimit.DoneInfo{}) }, true
	}
}

func failsafe() Asker {
	l := adaptivelimiter.NewWithDefaults[any]()
	return func() (func(bool), bool) {
		p, ok := l.TryAcquirePermit()
		if !ok {
			return nil, false
		}
		return func(ok bool) {
			if ok {
				p.Record()
			} else {
				p.Drop()
			}
		}, true
	}
}

// known is a token bucket at the capacity, which somebody must have told it: an
// oracle of the rate, as long as that does not change.
type known struct {
	sim.Base

	l *rate.Limiter
}

// Blind says that nothing looks at deadlines.
func (known) Blind() {}

// Admit takes a token.
func (k known) Admit(w *sim.World, _ *sim.Job) sim.Action {
	if k.l.AllowN(time.Unix(0, 0).Add(w.Now), 1) {
		return sim.Admit
	}
	return sim.Refuse
}

// tokenBurst is how many tokens the bucket holds.
const tokenBurst = 64

// Library is a library of others that can be put at a door.
type Library struct {
	Name string
	New  func() Asker
	// Open says that it is not as it comes: its processor gate is held open.
	Open bool
}

// Libraries returns those that have the shape of an Asker.
func Libraries() []Library {
	return []Library{
		{Name: "go-zero", New: func() Asker { return goZero() }},
		{Name: "go-zero-open", New: func() Asker { return goZero(load.WithCpuThreshold(0)) }, Open: true},
		{Name: "aegis", New: func() Asker { return aegis() }},
		{Name: "aegis-open", New: func() Asker { return aegis(bbr.WithCPUThreshold(0)) }, Open: true},
		{Name: "failsafe", New: failsafe},
	}
}

func rivals() []Row {
	all := Libraries()
	rows := make([]Row, 0, len(all)+1)
	for _, l := range all {
		rows = append(rows, Row{Name: l.Name, Kind: Rival, Clock: true, New: func(*sim.Spec) sim.Control { return newRival(l.New()) }})
	}
	return append(rows, Row{
		Name: "x-rate", Kind: Rival, New: func(s *sim.Spec) sim.Control {
			return known{l: rate.NewLimiter(rate.Limit(s.Bottleneck()), tokenBurst)}
		},
	})
}
