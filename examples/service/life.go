package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/sedabus/seda/bus"
)

const stageWork = "work"

// service is one server with its bus. It lives once.
type service struct {
	o      options
	out    io.Writer
	bus    *bus.Bus
	work   *bus.Stage
	server *http.Server
	served chan error // the result of Serve

	ready    atomic.Bool
	draining chan struct{} // closed when the listener is
}

// newService builds the parts without starting any. Its errors are faults of
// the settings.
func newService(o options, out io.Writer) (*service, error) {
	b, err := bus.New(bus.Config{Name: "service", Grace: o.grace})
	if err != nil {
		return nil, err
	}
	s := &service{o: o, out: out, bus: b, served: make(chan error, 1), draining: make(chan struct{})}
	o.stage.Accepts = bus.TypeOf[*job]()
	if s.work, err = b.Stage(stageWork, o.stage); err != nil {
		return nil, err
	}
	if err := s.work.Handle(bus.Typed(s.doJob)); err != nil {
		return nil, err
	}
	s.server = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	return s, nil
}

// start opens the listener and turns ready last: whoever sees a ready service
// is served.
func (s *service) start() error {
	if err := s.bus.Start(); err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.o.listen)
	if err != nil {
		return errors.Join(err, s.bus.Close())
	}
	go func() { s.served <- s.server.Serve(ln) }() // ends with Shutdown or Close
	s.ready.Store(true)
	s.say("listening on http://%s", ln.Addr())
	return nil
}

// untilDown waits for the first signal, drains, and returns the exit status.
func (s *service) untilDown(signals <-chan os.Signal, complain func(error)) int {
	code := exitDrained
	wait := s.o.endpointsWait
	select {
	case sig := <-signals:
		s.ready.Store(false)
		// Clients on a connection that stays open would never meet another
		// endpoint: make them dial again.
		s.server.SetKeepAlivesEnabled(false)
		s.say("%v: not ready, serving for %v more", sig, wait)
	case err := <-s.served: // the listener broke
		complain(err)
		s.ready.Store(false)
		code, wait = exitFailed, 0
	}
	cut := make(chan struct{})
	drained := make(chan bool, 1)
	go func() { drained <- s.drain(wait, cut) }() // ends by the deadline or with the process
	select {
	case ok := <-drained:
		if ok {
			return max(code, s.summary("drained"))
		}
		s.summary("deadline passed")
		return exitFailed
	case sig := <-signals:
		close(cut)
		s.say("%v again: cutting", sig)
		_ = s.server.Close()
		_ = s.bus.Close()
		s.summary("cut")
		return exitCut
	}
}

// drain goes down in order and reports whether everything was finished and
// answered. It gives up early when cut is closed.
func (s *service) drain(wait time.Duration, cut <-chan struct{}) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-cut:
		return false
	}
	grace, cancel := context.WithTimeout(context.Background(), s.o.grace)
	defer cancel()
	// The bus gives up a little before the grace is over, so that the callers
	// of abandoned work can still be told.
	work, cancel := context.WithTimeout(grace, s.o.grace-min(s.o.grace/10, time.Second))
	defer cancel()

	s.say("draining for up to %v", s.o.grace)
	close(s.draining)
	// The server goes first: the bus must take what requests that have arrived
	// still want to publish.
	httpErr := s.server.Shutdown(work)
	report, busErr := s.bus.Shutdown(work)
	if httpErr != nil {
		httpErr = s.server.Shutdown(grace)
		_ = s.server.Close()
	}
	return report.Drained && busErr == nil && httpErr == nil
}

// summary prints the account in one line and returns the exit status that it
// deserves.
func (s *service) summary(how string) int {
	a := s.account()
	s.say("%s: accepted=%d completed=%d dead_lettered=%d dropped=%d abandoned=%d pending=%d refused=%d balanced=%t",
		how, a.Accepted, a.Completed, a.DeadLettered, a.Dropped, a.Abandoned, a.Pending, a.Refused, a.Balanced)
	if !a.Balanced {
		return exitFailed
	}
	return exitDrained
}

func (s *service) say(format string, v ...any) {
	_, _ = fmt.Fprintf(s.out, "service: "+format+"\n", v...)
}

// account is the bus's account and the gauges of the work stage.
type account struct {
	Ready        bool   `json:"ready"`
	Accepted     uint64 `json:"accepted"`
	Completed    uint64 `json:"completed"`
	DeadLettered uint64 `json:"dead_lettered"`
	Dropped      uint64 `json:"dropped"`
	Abandoned    uint64 `json:"abandoned"`
	Pending      uint64 `json:"pending"`
	Refused      uint64 `json:"refused"`
	Balanced     bool   `json:"-"` // says nothing while work is moving
	Depth        int    `json:"depth"`
	InFlight     int    `json:"in_flight"`
	Waiters      int    `json:"waiters"`
}

func (s *service) account() account {
	var st bus.Stats
	s.bus.ReadStats(&st)
	a := account{
		Ready: s.ready.Load(), Accepted: st.Accepted, Completed: st.Completed,
		DeadLettered: st.DeadLettered, Abandoned: st.Abandoned, Pending: st.Pending,
	}
	for i := range st.Dropped {
		a.Dropped += st.Dropped[i]
		a.Refused += st.Refused[i]
	}
	for i := range st.Stages {
		stage := &st.Stages[i]
		a.Depth += stage.Depth
		a.InFlight += stage.InFlight
		a.Waiters += stage.Waiters
	}
	a.Balanced = st.Check() == nil
	return a
}
