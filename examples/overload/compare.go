package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"
)

// compare tries each load without and with a shedder and prints a line for
// each.
func compare(ctx context.Context, o *options, listen func() (*network, error), stdout io.Writer) error {
	_, _ = fmt.Fprintf(stdout, "%d workers of %v: a capacity of %.4g a second\n\n", o.workers, o.service, o.capacity())
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(table, "load\tshedder\tsent\tin time\tlate\trefused\tfailed\tunsent\tin time/s\tof capacity\tp50\tp99\t\n")
	var errs []error
	for _, load := range o.loads {
		for _, shed := range []bool{false, true} {
			out, err := measure(ctx, o, listen, shed, load)
			if err != nil {
				errs = append(errs, err)
			}
			if out == nil {
				continue
			}
			perSecond := float64(out.inTime) / o.length.Seconds()
			_, _ = fmt.Fprintf(table, "%g\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t%.0f%%\t%v\t%v\t\n",
				load, onOff(shed), out.sent, out.inTime, out.late, out.refused, out.failed, out.unsent,
				perSecond, 100*perSecond/o.capacity(), round(out.quantile(.5)), round(out.quantile(.99)))
		}
	}
	_ = table.Flush()
	if len(errs) == 0 {
		_, _ = fmt.Fprintln(stdout, "\nthe account balances: every request was served or refused, and the shedder counted the same")
	}
	return errors.Join(errs...)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// measure starts a service, sends it load times its capacity, and takes it down.
// An error comes with the outcome if the account does not balance.
func measure(ctx context.Context, o *options, listen func() (*network, error), shed bool, load float64) (*outcome, error) {
	s, err := newService(o, shed)
	if err != nil {
		return nil, err
	}
	nw, err := listen()
	if err != nil {
		return nil, err
	}
	srv := s.server()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(nw) }() // ends with the server
	tr := &http.Transport{DialContext: nw.dial, MaxIdleConns: o.outstanding, MaxIdleConnsPerHost: o.outstanding, DisableCompression: true}
	out := hammer(ctx, o, &http.Client{Transport: tr}, "http://"+nw.Addr().String()+"/work", load*o.capacity())
	tr.CloseIdleConnections()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := errors.Join(srv.Shutdown(grace), ignoreClosed(<-served)); err != nil {
		return out, err
	}
	return out, s.balance(out)
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// balance compares what those who asked have seen with what the shedder has
// counted. Where requests failed, as when the run was interrupted, the two need
// not agree on which.
func (s *service) balance(out *outcome) error {
	if sum := out.inTime + out.late + out.refused + out.failed; sum != out.sent {
		return fmt.Errorf("%d requests were sent, %d answered", out.sent, sum)
	}
	if s.shedder == nil {
		return nil
	}
	st := s.shedder.State(s.shedder.Now())
	switch {
	case st.Promises.Outstanding != 0:
		return fmt.Errorf("%d places are still taken", st.Promises.Outstanding)
	case st.Asked != st.Admitted+st.Shed:
		return fmt.Errorf("the shedder was asked %d times, admitted %d and shed %d", st.Asked, st.Admitted, st.Shed)
	case out.failed == 0 && (int(st.Shed) != out.refused || int(st.Admitted) != out.inTime+out.late):
		return fmt.Errorf("the shedder admitted %d and shed %d; %d were served and %d refused",
			st.Admitted, st.Shed, out.inTime+out.late, out.refused)
	}
	return nil
}
