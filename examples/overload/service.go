package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/shedder/shedhttp"
)

// service works on so many requests at once and keeps the others waiting: by
// the shedder, which refuses what would wait too long, or by a plain semaphore.
type service struct {
	o       *options
	shedder *shedder.Shedder // nil is none
	places  chan struct{}
	handler http.Handler
}

func newService(o *options, shed bool) (*service, error) {
	s := &service{o: o}
	if !shed {
		s.places = make(chan struct{}, o.workers)
		s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.places <- struct{}{}
			defer func() { <-s.places }()
			s.work(w, r)
		})
		return s, nil
	}
	var err error
	if s.shedder, err = shedder.New(shedder.Config{Name: "work", Concurrency: o.workers}); err != nil {
		return nil, err
	}
	m, err := shedhttp.New(shedhttp.Config{
		Shedder: s.shedder, Status: o.status,
		Skip: func(r *http.Request) bool { return r.URL.Path == "/stats" },
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/work", s.work)
	mux.HandleFunc("/stats", s.stats)
	s.handler = m.Wrap(mux)
	return s, nil
}

// work stands for a call of something behind the service.
func (s *service) work(w http.ResponseWriter, r *http.Request) {
	timer := time.NewTimer(s.o.service)
	defer timer.Stop()
	select {
	case <-timer.C:
		_, _ = io.WriteString(w, "done\n")
	case <-r.Context().Done():
	}
}

// figures are the body of /stats.
type figures struct {
	Policy      string  `json:"policy"`
	Admitted    uint64  `json:"admitted"`
	Shed        uint64  `json:"shed"`
	InHand      int     `json:"in_hand"`      // requests
	DrainRate   float64 `json:"drain_rate"`   // requests a second
	ServiceTime float64 `json:"service_time"` // seconds
	Bound       int     `json:"bound"`        // requests that may wait
	LastRule    string  `json:"last_rule,omitempty"`
}

// stats shows what the shedder knows.
func (s *service) stats(w http.ResponseWriter, _ *http.Request) {
	st := s.shedder.State(s.shedder.Now())
	body, err := json.MarshalIndent(figures{
		Policy: st.Policy, Admitted: st.Admitted, Shed: st.Shed, InHand: st.Promises.Outstanding,
		DrainRate: st.DrainRate, ServiceTime: st.Service.Seconds(), Bound: st.Bound, LastRule: string(st.Last.Rule),
	}, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
}

// network is where a service listens and how to reach it.
type network struct {
	net.Listener

	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// loopback is a port of this machine that nobody else can reach.
func loopback() (*network, error) {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &network{ln, (&net.Dialer{}).DialContext}, nil
}

func (s *service) server() *http.Server {
	return &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second}
}

// serve serves until ctx ends.
func serve(ctx context.Context, o *options, stdout io.Writer) error {
	s, err := newService(o, true)
	if err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stdout, "listening on http://%s, for %.4g requests a second\n", ln.Addr(), o.capacity())
	srv := s.server()
	down := make(chan error, 1)
	go func() { // ends with ctx
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		down <- srv.Shutdown(grace)
	}()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-down
}
