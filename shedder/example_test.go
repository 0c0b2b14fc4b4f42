package shedder_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sedabus/seda/shedder"
)

func ExampleShedder_Allow() {
	s, err := shedder.New(shedder.Config{Name: "search", Concurrency: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	work := func() error { return nil }

	p, err := s.Allow()
	if errors.Is(err, shedder.ErrShed) {
		return // answer "try later"; *RefusedError has RetryAfter
	}
	err = work()
	p.Done(err)
	fmt.Println("done, out now:", s.State(s.Now()).Promises.Outstanding)
	// Output: done, out now: 0
}

func ExampleShedder_Acquire() {
	s, err := shedder.New(shedder.Config{Concurrency: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	first, err := s.Acquire(context.Background(), shedder.Request{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The only place is taken: the next one waits, and not for ever.
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err = s.Acquire(ctx, shedder.Request{Class: 1, Classes: 2})
	fmt.Println(errors.Is(err, shedder.ErrDeadline), errors.Is(err, context.DeadlineExceeded))

	first.Pass()
	second, err := s.Acquire(context.Background(), shedder.Request{})
	fmt.Println(err)
	second.Pass()
	// Output:
	// true true
	// <nil>
}

func ExampleGuards() {
	limit, err := shedder.NewFixed(1)
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := shedder.New(shedder.Config{
		Policy:      limit,
		Concurrency: 1,
		Guards:      shedder.Guards{Exempt: []int{0}}, // health checks are never shed
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var out []shedder.Promise
	for _, class := range []int{1, 1, 0} {
		p, err := s.AllowRequest(shedder.Request{Class: class, Classes: 2})
		fmt.Println(class, err)
		out = append(out, p)
	}
	fmt.Println("by a rail:", s.State(s.Now()).Rails)

	// Rails are changed while the shedder works.
	err = s.Tune(func(c *shedder.Config) { c.Guards = shedder.Guards{FloorInFlight: 5} })
	fmt.Println(err)
	p, err := s.AllowRequest(shedder.Request{Class: 1, Classes: 2})
	fmt.Println(err)
	for _, p := range append(out, p) {
		p.Pass() // one that was refused is a zero Promise, which does nothing
	}
	// Output:
	// 1 <nil>
	// 1 shedder: refused (shed, rule fixed): 1 against the limit 1; retry later, send less or raise Concurrency
	// 0 <nil>
	// by a rail: 1
	// <nil>
	// <nil>
}

func ExampleNewChain() {
	brake, err := shedder.NewCPU(shedder.CPUConfig{Threshold: 0.9})
	if err != nil {
		fmt.Println(err)
		return
	}
	law, err := shedder.NewAdaptive(shedder.AdaptiveConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	both, err := shedder.NewChain(law, brake)
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := shedder.New(shedder.Config{Policy: both, Concurrency: 4})
	fmt.Println(s.State(s.Now()).Policy, err)
	// Output: chain(adaptive,cpu) <nil>
}
