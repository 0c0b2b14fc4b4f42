package bus_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/retry"
)

// must keeps the examples short; a program handles its errors.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// A pipeline of three stages: each envelope carries the list of those that it
// is still to visit.
func Example() {
	b := must(bus.New(bus.Config{}))
	parse := must(b.Stage("parse", bus.StageConfig{}))
	price := must(b.Stage("price", bus.StageConfig{Concurrency: 4}))
	store := must(b.Stage("store", bus.StageConfig{}))
	check(parse.Handle(func(_ context.Context, e *bus.Envelope) error {
		e.Payload = strings.Fields(e.Payload.(string))
		return nil
	}))
	check(price.Handle(bus.Typed(func(_ context.Context, words []string, e *bus.Envelope) error {
		e.Payload = len(words) * 10
		return nil
	})))
	total := 0
	check(store.Handle(bus.Typed(func(_ context.Context, cents int, _ *bus.Envelope) error {
		total += cents // one handler at a time
		return nil
	})))
	check(b.Start())
	itinerary := bus.Via("price", "store")
	for _, line := range []string{"two words", "now three words"} {
		check(parse.Publish(context.Background(), &bus.Envelope{Payload: line, Slip: itinerary}))
	}
	report := must(b.Shutdown(context.Background()))
	fmt.Println(total, report.Stats.Account())
	// Output: 50 accepted 2 = completed 2 + dead-lettered 0 + dropped 0 + abandoned 0 + pending 0
}

// A handler that fails is tried again, here after growing waits.
func ExampleStageConfig_retry() {
	b := must(bus.New(bus.Config{}))
	s := must(b.Stage("flaky", bus.StageConfig{Retry: retry.Policy{
		MaxAttempts: 3, Kind: retry.Exponential, Base: time.Millisecond, Cap: time.Second,
	}}))
	check(s.Handle(func(_ context.Context, e *bus.Envelope) error {
		fmt.Println("attempt", e.Attempt())
		if e.Attempt() < 3 {
			return errors.New("not yet")
		}
		return nil
	}))
	check(b.Start())
	r := must(s.Call(context.Background(), &bus.Envelope{}))
	fmt.Println(r.End, "after", r.Attempts, "attempts")
	must(b.Shutdown(context.Background()))
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
	// completed after 3 attempts
}

// What fails for good becomes a dead letter, which can be sent again once the
// reason is gone.
func ExampleLetters_Redrive() {
	b := must(bus.New(bus.Config{}))
	s := must(b.Stage("billing", bus.StageConfig{}))
	down := true
	check(s.Handle(func(_ context.Context, e *bus.Envelope) error {
		if down {
			return errors.New("the bank does not answer")
		}
		fmt.Println("billed", e.Payload)
		return nil
	}))
	check(b.Start())
	must(s.Call(context.Background(), &bus.Envelope{Payload: "order 7"}))
	for _, l := range b.Letters().List(bus.LetterFilter{Stage: "billing"}) {
		fmt.Println(l.Envelope.Payload, "failed:", l.Error)
	}
	down = false
	must(b.Letters().Redrive(context.Background(), bus.RedriveOptions{}))
	must(b.Shutdown(context.Background()))
	// Output:
	// order 7 failed: the bank does not answer
	// billed order 7
}

// A consumer that works at its own pace receives deliveries and settles each.
// One that it holds for longer than the lease goes back to the stage.
func ExampleStage_Receive() {
	b := must(bus.New(bus.Config{}))
	s := must(b.Stage("jobs", bus.StageConfig{Pull: true, Lease: time.Minute}))
	check(b.Start())
	for i := range 3 {
		check(s.TryPublish(&bus.Envelope{Payload: i}))
	}
	for range 3 {
		l := must(s.Receive(context.Background()))
		if l.Envelope().Payload == 1 {
			check(l.DeadLetter("cannot be done"))
			continue
		}
		fmt.Println("done", l.Envelope().Payload)
		check(l.Ack())
	}
	must(b.Shutdown(context.Background()))
	// Output:
	// done 0
	// done 2
}

// Each subscriber of a pub/sub stage gets a copy, with a queue, retries and
// dead letters of its own.
func ExampleStage_Subscribe() {
	b := must(bus.New(bus.Config{}))
	topic := must(b.Stage("orders", bus.StageConfig{Delivery: bus.PubSub}))
	done := make(chan string, 2)
	for _, name := range []string{"audit", "mail"} {
		must(topic.Subscribe(name, bus.StageConfig{}, bus.LagWait, func(_ context.Context, e *bus.Envelope) error {
			done <- fmt.Sprint(name, ": ", e.Payload)
			return nil
		}))
	}
	check(b.Start())
	check(topic.Publish(context.Background(), &bus.Envelope{Payload: "order 7"}))
	fmt.Println(<-done)
	fmt.Println(<-done)
	must(b.Shutdown(context.Background()))
	// Unordered output:
	// audit: order 7
	// mail: order 7
}

// An HTTP handler hands its request to a stage and waits for the reply. What
// the stage refuses becomes an answer that says when to come back.
func ExampleCallAs() {
	b := must(bus.New(bus.Config{}))
	s := must(b.Stage("greet", bus.StageConfig{Full: bus.Reject}))
	check(s.Handle(bus.Typed(func(_ context.Context, name string, e *bus.Envelope) error {
		e.Reply("hello " + name)
		return nil
	})))
	check(b.Start())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := bus.CallAs[string](r.Context(), s, &bus.Envelope{Payload: r.URL.Query().Get("name")})
		switch {
		case errors.Is(err, bus.ErrRejected):
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			_, _ = fmt.Fprintln(w, text)
		}
	}))
	defer server.Close()
	get := func() {
		resp, err := http.Get(server.URL + "?name=world")
		check(err)
		defer func() { _ = resp.Body.Close() }()
		fmt.Println(resp.StatusCode, strings.TrimSpace(string(must(io.ReadAll(resp.Body)))))
	}
	get()
	b.Pause(bus.Hold{Why: "maintenance"})
	get()
	b.Resume("")
	must(b.Shutdown(context.Background()))
	// Output:
	// 200 hello world
	// 503 bus: stage "greet" refused (paused): admission is paused, see Bus.Holds
}

// Settings change while the bus runs: all of a change, or nothing.
func ExampleStage_Tune() {
	b := must(bus.New(bus.Config{}))
	s := must(b.Stage("work", bus.StageConfig{}))
	check(b.Start())
	check(s.Tune(func(c *bus.StageConfig) {
		c.Concurrency = 8
		c.Capacity = 100
	}))
	fmt.Println(s.Config().Concurrency, s.Config().Capacity)
	err := s.Tune(func(c *bus.StageConfig) {
		c.Concurrency = 16
		c.Capacity = -1
	})
	fmt.Println(err)
	fmt.Println(s.Config().Concurrency)
	must(b.Shutdown(context.Background()))
	// Output:
	// 8 100
	// bus: invalid argument: stage "work": Capacity is -1: must be from 0 (default) to 1073741824
	// 8
}

// A shutdown lets accepted work finish until its context ends, and says what
// has become of everything.
func ExampleBus_Shutdown() {
	b := must(bus.New(bus.Config{}))
	s := must(b.Stage("slow", bus.StageConfig{}))
	started := make(chan struct{})
	check(s.Handle(func(ctx context.Context, _ *bus.Envelope) error {
		close(started)
		<-ctx.Done() // cancelled when the shutdown's time is over
		return ctx.Err()
	}))
	check(b.Start())
	for range 3 {
		check(s.TryPublish(&bus.Envelope{}))
	}
	<-started
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	report, err := b.Shutdown(ctx)
	fmt.Println(errors.Is(err, bus.ErrNotDrained))
	fmt.Println(report.Stats.Account())
	fmt.Println(len(report.Stuck), "handler had not returned")
	// Output:
	// true
	// accepted 3 = completed 0 + dead-lettered 0 + dropped 0 + abandoned 3 + pending 0
	// 1 handler had not returned
}
