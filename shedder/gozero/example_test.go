package gozero_test

import (
	"errors"
	"fmt"

	"github.com/zeromicro/go-zero/core/load"

	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/gozero"
)

// Code written for go-zero's load.Shedder, with ours in its place.
func ExampleWrap() {
	serve := func(s load.Shedder) error {
		promise, err := s.Allow()
		if err != nil {
			return err
		}
		defer promise.Pass()
		fmt.Println("serving")
		return nil
	}

	s, err := shedder.New(shedder.Config{Concurrency: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	w, err := gozero.Wrap(s)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := serve(w); errors.Is(err, load.ErrServiceOverloaded) {
		fmt.Println("overloaded:", err)
	}
	// Output: serving
}

// go-zero's own law as the policy of a shedder, which adds guard rails, the
// kill switch and the account.
func ExampleNew() {
	gozero.Silence()
	p, err := gozero.New(gozero.Config{CPUThreshold: 800})
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := shedder.New(shedder.Config{Policy: p, Concurrency: 8, Guards: shedder.Guards{FloorInFlight: 8}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.State(s.Now()).Policy)
	// Output: gozero
}
