// Package tune serves a bus's readings and live settings over HTTP, so that
// operators and controllers see every limit and change it safely while the bus
// runs. The wire types are in package api.
//
// Without tokens or client certificates everybody who reaches the handler may
// read, and nobody may write unless [Options].Open says so.
package tune

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/internal/clock"
	"github.com/sedabus/seda/tune/api"
)

// ErrInvalid is matched by errors of [New] and [Serve] about their arguments.
var ErrInvalid = errors.New("tune: invalid")

// Role is what an identity may do. Each role includes the ones before it.
type Role uint8

// Roles.
const (
	None  Role = iota
	Read       // sees everything that the API shows, and changes nothing
	Write      // changes settings, redrives, purges and cancels
)

// Token is a bearer token that is read from a file. The file is read again when
// it changes; one that is gone, empty or below 16 bytes lets nobody in.
type Token struct {
	Name string // shown in the history and to the audit hook; required
	Path string
	Role Role
}

// Bound is what the embedder allows for one setting. Durations count in
// seconds. A zero field is no bound.
type Bound struct {
	Min, Max float64
	MaxStep  float64       // largest change in one write
	Interval time.Duration // shortest time between two changes
}

// Options configures the API. The zero value lets everybody read who reaches it
// under a loopback name, and nobody write.
type Options struct {
	// Tokens are the bearer tokens. With any, every request but /healthz and
	// /readyz needs one.
	Tokens []Token
	// Certs gives roles to verified client certificates by their common name;
	// it needs a server with mutual TLS. With any, requests need one, or a token.
	Certs map[string]Role
	// Open lets everybody write; for a unix socket or a machine of one user. It
	// excludes Tokens and Certs.
	Open bool
	// Hosts are the host names, without port, that requests may be addressed to
	// besides localhost and loopback addresses.
	Hosts []string
	// Bounds restricts settings: by name, such as "concurrency" for all stages, or
	// by resource and name, such as "stages/parse:concurrency", which goes first.
	Bounds map[string]Bound
	// History is the number of changes remembered; default 1,000, at most 100,000.
	History int
	// WritesPerSecond limits writes; default 100, with bursts of twice as many.
	WritesPerSecond float64
	// Audit is called with each entry of the history, after the change and under
	// the lock of writes: it must not call the API. Its panics are contained.
	Audit func(api.Entry)
}

const (
	defaultHistory = 1000
	maxHistory     = 100_000
	defaultWrites  = 100
	maxBody        = 64 << 10
)

// API is the handler. All methods are safe for concurrent use.
type API struct {
	bus      *bus.Bus
	opt      Options
	clock    *clock.Clock
	mux      *http.ServeMux
	creds    []*credential
	limit    *rate.Limiter
	readings sync.Pool
	expiries atomic.Uint64

	marks struct { // of advice
		sync.Mutex
		of map[string]*window
	}

	mu struct { // the lock of writes; no request for statistics takes it
		sync.Mutex
		res    map[string]*state
		log    history
		past   map[string]*answer
		order  []string // of the keys of past
		timer  *time.Timer
		closed bool
	}
}

// New returns the handler for b, which can be mounted below a prefix with
// [http.StripPrefix]. All faults of o come at once and match [ErrInvalid].
func New(b *bus.Bus, o Options) (*API, error) {
	a := &API{bus: b, clock: clock.New()}
	if err := a.prepare(o); err != nil {
		return nil, err
	}
	a.mu.res = map[string]*state{}
	a.mu.past = map[string]*answer{}
	a.mu.log.ring = make([]api.Entry, 0, a.opt.History)
	a.marks.of = map[string]*window{}
	for _, s := range b.Stages() {
		var st bus.StageStats
		s.ReadStats(&st)
		a.lookBack(&st)
	}
	for _, s := range append([]string{""}, stageNames(b)...) {
		for _, part := range []string{"", "credit", "shedder"} { // the embedder's values
			if s != "" || part == "" {
				a.stateLocked(s, part)
			}
		}
	}
	a.mux = a.routes()
	return a, nil
}

// Close ends all leases without a change and stops the timer. Settings stay.
func (a *API) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.closed = true
	if a.mu.timer != nil {
		a.mu.timer.Stop()
	}
}

// Expiries is how many leases and holds of settings have run out.
func (a *API) Expiries() uint64 { return a.expiries.Load() }

func (a *API) prepare(o Options) error {
	var errs []error
	fault := func(bad bool, field string, v any, bound string) {
		if bad {
			errs = append(errs, fmt.Errorf("%w: Options.%s is %v: %s", ErrInvalid, field, v, bound))
		}
	}
	fault(a.bus == nil, "bus", "nil", "must not be nil")
	fault(o.History < 0 || o.History > maxHistory, "History", o.History, fmt.Sprintf("0 (default) to %d", maxHistory))
	fault(!(o.WritesPerSecond >= 0 && o.WritesPerSecond <= 1e6), "WritesPerSecond", o.WritesPerSecond, "0 (default) to 1,000,000")
	fault(o.Open && len(o.Tokens)+len(o.Certs) > 0, "Open", true, "cannot be combined with Tokens or Certs")
	for name, b := range o.Bounds {
		ok := !math.IsNaN(b.Min) && (b.Max == 0 || b.Min <= b.Max)
		fault(!ok || !(b.MaxStep >= 0) || b.Interval < 0, "Bounds["+name+"]", b, "needs Min <= Max, and nothing negative")
	}
	for i, t := range o.Tokens {
		field := fmt.Sprintf("Tokens[%d]", i)
		fault(t.Name == "", field+".Name", "empty", "must not be empty")
		fault(t.Role == None || t.Role > Write, field+".Role", t.Role, "must be Read or Write")
		c := &credential{Token: t}
		_, err := c.hash(a.clock.Now())
		fault(err != nil, field+".Path", t.Path, fmt.Sprintf("must be a readable file with at least %d bytes", minToken))
		a.creds = append(a.creds, c)
	}
	if o.History == 0 {
		o.History = defaultHistory
	}
	if o.WritesPerSecond == 0 {
		o.WritesPerSecond = defaultWrites
	}
	a.limit = rate.NewLimiter(rate.Limit(o.WritesPerSecond), max(1, int(2*o.WritesPerSecond)))
	a.opt = o
	return errors.Join(errs...)
}

func stageNames(b *bus.Bus) []string {
	var names []string
	for _, s := range b.Stages() {
		names = append(names, s.Name())
	}
	return names
}
