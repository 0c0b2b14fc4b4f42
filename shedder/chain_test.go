package shedder_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/shedder"
)

func newChain(t *testing.T, policies ...shedder.Policy) *shedder.Chain {
	t.Helper()
	c, err := shedder.NewChain(policies...)
	require.NoError(t, err)
	return c
}

func TestNewChainRefusesNone(t *testing.T) {
	_, err := shedder.NewChain()
	require.ErrorIs(t, err, shedder.ErrInvalid)
	_, err = shedder.NewChain(&script{}, nil)
	require.ErrorContains(t, err, "policy 1 of a Chain is nil")
}

func TestChainUndoesEarlierAdmissionsWhenOneRefuses(t *testing.T) {
	a, b, c, d := &script{}, &script{}, refusing(), &script{}
	chain := newChain(t, a, b, c, d)
	r := &shedder.Request{}
	v := chain.Admit(r)
	require.Equal(t, shedder.Refuse, v.Action)
	require.Equal(t, shedder.RuleBound, v.Rule)
	require.Equal(t, []int{1, 1, 0, 0}, []int{a.undone, b.undone, c.undone, d.undone})
	require.Zero(t, d.asked)

	c.admit = nil
	require.Equal(t, shedder.Admit, chain.Admit(r).Action)
	require.Equal(t, []int{1, 1, 0, 0}, []int{a.undone, b.undone, c.undone, d.undone})
	chain.Undo(r)
	require.Equal(t, []int{2, 2, 1, 1}, []int{a.undone, b.undone, c.undone, d.undone})
}

func TestChainJoinsWhatAdmits(t *testing.T) {
	answer := func(v shedder.Verdict) *script {
		return &script{admit: func(*shedder.Request) shedder.Verdict { return v }}
	}
	chain := newChain(t,
		answer(shedder.Verdict{Wait: 3, Service: 1}),
		answer(shedder.Verdict{Action: shedder.PushOut, Rule: shedder.RuleBound, Limit: 5}),
		answer(shedder.Verdict{Wait: 2, Service: 4}))
	v := chain.Admit(&shedder.Request{Load: shedder.Load{Evictable: 1}})
	require.Equal(t, shedder.Verdict{Action: shedder.PushOut, Rule: shedder.RuleBound, Limit: 5, Wait: 3, Service: 4}, v)
}

func TestChainTellsAllAlthoughOnePanics(t *testing.T) {
	broken := &script{
		done: func(*shedder.Done) { panic("done") }, undo: func(*shedder.Request) { panic("undo") },
	}
	before, after := &script{bound: 9}, &script{bound: 4}
	s := newShedder(t, shedder.Config{Policy: newChain(t, before, broken, broken, after), Concurrency: 1})
	s.Done(&shedder.Done{N: 1})
	require.Len(t, before.told, 1)
	require.Len(t, after.told, 1)
	r := &shedder.Request{}
	s.Decide(r)
	s.Undo(r)
	require.Equal(t, 1, before.undone)
	require.Equal(t, 1, after.undone)

	broken.admit = func(*shedder.Request) shedder.Verdict { panic("admit") }
	require.Equal(t, shedder.RulePanic, s.Decide(r).Rule)
	require.Equal(t, 2, before.undone, "the shedder admits by itself: the policies must not count it")
	require.EqualValues(t, 3, s.State(0).Panics)
}

func TestChainBoundAndState(t *testing.T) {
	fixed, err := shedder.NewFixed(12)
	require.NoError(t, err)
	chain := newChain(t, &script{bound: 20}, &script{}, fixed)
	require.Equal(t, 12, chain.Bound())
	var st shedder.State
	chain.Inspect(0, &st)
	require.Equal(t, "chain(script,script,fixed)", st.Policy)
	require.Equal(t, 12, st.Bound)
}

func TestAllocsAdmit(t *testing.T) {
	fixed, err := shedder.NewFixed(12)
	require.NoError(t, err)
	chain := newChain(t, fixed, refusing())
	r := &shedder.Request{}
	requireNoAllocs(t, func() { chain.Admit(r) })
}

func TestFixed(t *testing.T) {
	_, err := shedder.NewFixed(0)
	require.ErrorIs(t, err, shedder.ErrInvalid)
	require.ErrorContains(t, err, "limit of Fixed is 0: 1 or more")
	f, err := shedder.NewFixed(10)
	require.NoError(t, err)
	require.Equal(t, 10, f.Bound())

	load := func(waiting, busy, inbound, evictable int) *shedder.Request {
		return &shedder.Request{Load: shedder.Load{Waiting: waiting, Busy: busy, Inbound: inbound, Evictable: evictable, Concurrency: 4}}
	}
	require.Equal(t, shedder.Admit, f.Admit(load(5, 4, 0, 0)).Action)
	require.Equal(t, shedder.Verdict{Action: shedder.Refuse, Rule: shedder.RuleFixed, Limit: 10, Value: 10}, f.Admit(load(5, 4, 1, 0)))
	require.Equal(t, shedder.PushOut, f.Admit(load(6, 4, 0, 1)).Action, "a higher class takes the place of a lower one")
	require.Equal(t, shedder.Refuse, f.Admit(load(6, 4, -5, 0)).Action, "nonsense does not count")
	require.Equal(t, 6, f.Bound(), "the limit is on waiting and in service")

	require.ErrorIs(t, f.SetLimit(-3), shedder.ErrInvalid)
	require.Equal(t, 10, f.Limit())
	require.NoError(t, f.SetLimit(11))
	require.Equal(t, shedder.Admit, f.Admit(load(6, 4, 0, 0)).Action)
	f.Done(&shedder.Done{Load: shedder.Load{Busy: 20}})
	require.Equal(t, 1, f.Bound(), "0 would be no bound")
}

func TestFixedLimitIsTunedWhileItDecides(t *testing.T) {
	f, err := shedder.NewFixed(1)
	require.NoError(t, err)
	s := newShedder(t, shedder.Config{Policy: f, Concurrency: 1})
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for i := range 1000 {
			_ = f.SetLimit(1 + i%3)
		}
	}()
	for done := false; !done; {
		select {
		case <-stop:
			done = true
		default:
		}
		if p, err := s.Allow(); err == nil {
			p.Pass()
		}
	}
	require.Equal(t, 1, f.Limit())
	st := s.State(time.Second)
	requireAccount(t, st)
	require.Zero(t, st.Shed)
}
