package tune

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sedabus/seda/tune/api"
)

const minToken = 16

var errToken = errors.New("tune: token file unusable")

// credential is a token and what its file held last.
type credential struct {
	Token
	mu struct {
		sync.Mutex
		sum  [sha256.Size]byte
		ok   bool
		read int64 // when
	}
}

// hash returns the hash of the token, at most a second old.
func (c *credential) hash(now int64) ([sha256.Size]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.read == 0 || now-c.mu.read >= int64(time.Second) {
		c.mu.read = now
		c.mu.ok = false
		f, err := os.Open(c.Path)
		if err == nil {
			raw, err := io.ReadAll(io.LimitReader(f, 4096))
			_ = f.Close()
			raw = bytes.TrimSpace(raw)
			c.mu.ok = err == nil && len(raw) >= minToken
			c.mu.sum = sha256.Sum256(raw)
		}
	}
	if !c.mu.ok {
		return c.mu.sum, errToken
	}
	return c.mu.sum, nil
}

// identity is who asks.
type identity struct {
	name string
	role Role
}

// who finds out who asks; a nil problem lets it pass with at least role need.
func (a *API) who(r *http.Request, need Role) (identity, *api.Problem) {
	id := identity{}
	switch {
	case a.opt.Open:
		id.role = Write
	case len(a.creds) == 0 && len(a.opt.Certs) == 0:
		id.role = Read
	default:
		id = a.known(r)
	}
	switch {
	case id.role >= need:
		return id, nil
	case id.role == None:
		return id, problem(http.StatusUnauthorized, api.Unauthorized, "this needs a valid bearer token or client certificate")
	}
	return id, problem(http.StatusForbidden, api.Forbidden, "this needs the role write; a server without credentials grants it to nobody unless it was opened")
}

// known looks at certificates and tokens. All tokens are compared, each in
// constant time.
func (a *API) known(r *http.Request) (id identity) {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		name := r.TLS.VerifiedChains[0][0].Subject.CommonName
		id = identity{name: name, role: a.opt.Certs[name]}
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return id
	}
	got := sha256.Sum256([]byte(strings.TrimSpace(token)))
	now := a.clock.Now()
	for _, c := range a.creds {
		sum, err := c.hash(now)
		if subtle.ConstantTimeCompare(got[:], sum[:]) == 1 && err == nil && c.Role > id.role {
			id = identity{name: c.Name, role: c.Role}
		}
	}
	return id
}

// checkSite refuses requests that a browser was made to send: by a name that
// leads here although it is not ours, and from pages of elsewhere.
func (a *API) checkSite(r *http.Request) *api.Problem {
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	unix := addr != nil && addr.Network() == "unix"
	if !unix && !a.ourHost(r.Host) {
		return problem(http.StatusForbidden, api.Forbidden, "the Host of the request is none that this server answers to")
	}
	if s := r.Header.Get("Sec-Fetch-Site"); s != "" && s != "same-origin" && s != "none" {
		return problem(http.StatusForbidden, api.Forbidden, "requests from pages of another site are refused")
	}
	for _, o := range r.Header.Values("Origin") {
		u, err := url.Parse(o)
		if err != nil || u.Host == "" || u.Host != r.Host {
			return problem(http.StatusForbidden, api.Forbidden, "requests from pages of another origin are refused")
		}
	}
	return nil
}

func (a *API) ourHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if host == "localhost" || slices.Contains(a.opt.Hosts, host) {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
