package shedder_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shedder"
)

// script is a policy whose answers are set by the test; the zero value admits.
type script struct {
	admit  func(*shedder.Request) shedder.Verdict
	done   func(*shedder.Done)
	undo   func(*shedder.Request)
	bound  int
	asked  int
	undone int
	told   []shedder.Done
}

func (p *script) Admit(r *shedder.Request) shedder.Verdict {
	p.asked++
	if p.admit == nil {
		return shedder.Verdict{}
	}
	return p.admit(r)
}

func (p *script) Undo(r *shedder.Request) {
	p.undone++
	if p.undo != nil {
		p.undo(r)
	}
}

func (p *script) Done(d *shedder.Done) {
	p.told = append(p.told, *d)
	if p.done != nil {
		p.done(d)
	}
}

func (p *script) Bound() int { return p.bound }

func (*script) Inspect(_ time.Duration, st *shedder.State) { st.Policy = "script" }

// refuse is an answer that refuses.
func refuse(*shedder.Request) shedder.Verdict {
	return shedder.Verdict{Action: shedder.Refuse, Rule: shedder.RuleBound, Limit: 10, Value: 11, RetryAfter: 3 * time.Millisecond}
}

func refusing() *script { return &script{admit: refuse} }

func newShedder(t testing.TB, c shedder.Config) *shedder.Shedder {
	t.Helper()
	s, err := shedder.New(c)
	require.NoError(t, err)
	return s
}

// requireAccount checks that nothing was lost: of all decisions, and of all
// that was let in.
func requireAccount(t testing.TB, st shedder.State) {
	t.Helper()
	require.Equal(t, st.Asked, st.Admitted+st.Shed, "decisions")
	p := st.Promises
	require.Equal(t, p.Admitted, p.Settled+p.PushedOut+p.Canceled+p.Doomed+uint64(p.Outstanding), "promises: %+v", p)
}
