package tune

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/sedabus/seda/bus"
)

// Listen says where [Serve] listens. The zero value is 127.0.0.1:7030.
type Listen struct {
	// Network is "tcp" (default) or "unix". Guard a socket by the permissions of
	// its directory.
	Network string
	// Address is host:port, or the path of the socket. Any address but a loopback
	// one needs Options.Tokens or Options.Certs.
	Address string
	// TLS is for https; with ClientAuth tls.RequireAndVerifyClientCert it is
	// mutual.
	TLS *tls.Config
}

const (
	defaultAddress = "127.0.0.1:7030"
	headerTimeout  = 5 * time.Second
	requestTimeout = 15 * time.Second
	idleTimeout    = time.Minute
	maxHeader      = 16 << 10
	stopTimeout    = 5 * time.Second
)

// Serve serves the API for b until ctx ends; ready, if not nil, is called with
// the address once it listens. It returns nil after an orderly end, and an error
// that matches [ErrInvalid] for arguments that are not safe to serve.
func Serve(ctx context.Context, b *bus.Bus, l Listen, o Options, ready func(net.Addr)) error {
	a, err := New(b, o)
	if err != nil {
		return err
	}
	defer a.Close()
	ln, err := l.open(ctx, &a.opt)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler: a, TLSConfig: l.TLS, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout,
	}
	if ready != nil {
		ready(ln.Addr())
	}
	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if srv.Shutdown(end) != nil {
			_ = srv.Close()
		}
	})
	defer stop()
	if l.TLS != nil {
		err = srv.ServeTLS(ln, "", "")
	} else {
		err = srv.Serve(ln)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// open listens, unless everybody on a network could then write or read.
func (l *Listen) open(ctx context.Context, o *Options) (net.Listener, error) {
	network, address := l.Network, l.Address
	if network == "" {
		network = "tcp"
	}
	if network != "tcp" && network != "unix" {
		return nil, fmt.Errorf("%w: Listen.Network is %q: must be tcp or unix", ErrInvalid, network)
	}
	if address == "" {
		if network == "unix" {
			return nil, fmt.Errorf("%w: Listen.Address is empty: must be the path of the socket", ErrInvalid)
		}
		address = defaultAddress
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	tcp, ok := ln.Addr().(*net.TCPAddr)
	if ok && !tcp.IP.IsLoopback() && len(o.Tokens)+len(o.Certs) == 0 {
		_ = ln.Close()
		return nil, fmt.Errorf("%w: Listen.Address is %q: an address that is not loopback needs Options.Tokens or Options.Certs", ErrInvalid, address)
	}
	return ln, nil
}
