package bus_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/shedder"
)

// Every stage gets an adaptive shedder. A publisher that is shed learns which
// stage could not take more, and when to try again.
func ExampleConfig_newShedder() {
	b := must(bus.New(bus.Config{NewShedder: shedder.Default}))
	render := must(b.Stage("render", bus.StageConfig{Concurrency: 4}))
	check(render.Handle(func(context.Context, *bus.Envelope) error { return nil }))
	check(b.Start())

	err := render.Publish(context.Background(), &bus.Envelope{})
	if r, ok := errors.AsType[*bus.RejectedError](err); ok && errors.Is(err, bus.ErrShed) {
		fmt.Println("stage", r.At, "is overloaded, try again in", r.RetryAfter)
	}
	must(b.Shutdown(context.Background()))
	st := render.ShedderState()
	fmt.Println(st.Policy, st.Mode, st.Shed)
	// Output: adaptive on 0
}

// A stage can have a policy of its own, here a limit that somebody chose. What
// waits at "send" is refused where it is published.
func ExampleStageConfig_shedder() {
	limit := must(shedder.NewFixed(1))
	b := must(bus.New(bus.Config{}))
	write := must(b.Stage("write", bus.StageConfig{}))
	send := must(b.Stage("send", bus.StageConfig{
		Shedder: must(shedder.New(shedder.Config{Policy: limit})),
	}))
	done := make(chan struct{})
	check(write.Handle(func(context.Context, *bus.Envelope) error { return nil }))
	check(send.Handle(func(context.Context, *bus.Envelope) error { <-done; return nil }))
	check(b.Start())

	check(send.Publish(context.Background(), &bus.Envelope{}))
	err := write.Publish(context.Background(), &bus.Envelope{Slip: bus.Via("send")})
	fmt.Println(err)
	b.SetShedding(false) // the kill switch
	check(write.Publish(context.Background(), &bus.Envelope{Slip: bus.Via("send")}))
	close(done)
	report := must(b.Shutdown(context.Background()))
	fmt.Println(report.Stats.Account())
	// Output:
	// bus: stage "write" refused (shed) by rule "fixed" of stage "send" on its way: 1 against the limit 1; publish less or raise Concurrency, see Stage.ShedderState
	// accepted 2 = completed 2 + dead-lettered 0 + dropped 0 + abandoned 0 + pending 0
}
