package tune

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/shedder"
	"github.com/sedabus/seda/tune/api"
)

// state is what the API knows of a resource.
type state struct {
	label    string
	r        resource
	version  uint64
	seen     []value
	baseline []value
	owners   []owner
	changed  []int64 // when, by this API; 0 is never
}

type fieldError struct {
	field, value string
	err          error
}

func (e fieldError) Error() string { return e.field + ": " + e.err.Error() }
func (e fieldError) Unwrap() error { return e.err }

// stateLocked returns the resource up to date, or nil.
func (a *API) stateLocked(stage, part string) *state {
	label := "bus"
	if stage != "" {
		label = "stages/" + stage
		if part != "" {
			label += "/" + part
		}
	}
	st := a.mu.res[label]
	if st == nil {
		r := a.find(stage, part)
		if r == nil {
			return nil
		}
		now := r.read()
		st = &state{
			label: label, r: r, version: 1, seen: now, baseline: slices.Clone(now),
			owners: make([]owner, r.len()), changed: make([]int64, r.len()),
		}
		a.mu.res[label] = st
	}
	st.follow()
	return st
}

// follow takes up what the embedder has changed in Go.
func (st *state) follow() {
	now := st.r.read()
	if slices.Equal(now, st.seen) {
		return
	}
	for i := range now {
		if now[i] != st.seen[i] {
			st.baseline[i] = now[i]
		}
	}
	st.seen = now
	st.version++
}

func (st *state) etag() string { return strconv.Quote(strconv.FormatUint(st.version, 10)) }

func (st *state) index(name string) int {
	for i := range st.r.len() {
		if n, _, _ := st.r.row(i); n == name {
			return i
		}
	}
	return -1
}

// terms are what a write says of ownership.
type terms struct {
	kind   string // "", "lease" or "hold"
	length time.Duration
	expiry string
}

func termsOf(w *api.Write) (t terms, faults []api.Fault) {
	bad := func(field, v, bound string) {
		faults = append(faults, api.Fault{Field: field, Value: clip(v), Bound: bound})
	}
	faults = append(faults, signed(w.Actor, w.Reason)...)
	for _, l := range []struct{ kind, v string }{{"lease", w.Lease}, {"hold", w.Hold}} {
		if l.v == "" {
			continue
		}
		d, err := time.ParseDuration(l.v)
		if err != nil || d < time.Second || d > 24*time.Hour {
			bad(l.kind, l.v, "must be a duration from 1s to 24h")
		}
		if t.kind != "" {
			bad(l.kind, l.v, "a write has a lease or a hold, not both")
		}
		t.kind, t.length = l.kind, d
	}
	t.expiry = w.OnExpiry
	if t.expiry != "" && t.expiry != "keep" && t.expiry != "revert" {
		bad("on_expiry", t.expiry, "must be keep or revert")
	}
	if t.expiry != "" && t.kind == "" {
		bad("on_expiry", t.expiry, "needs a lease or a hold")
	}
	if len(w.Settings) == 0 {
		bad("settings", "", "must name at least one setting")
	}
	return t, faults
}

func signed(actor, why string) (faults []api.Fault) {
	if actor == "" || len(actor) > 128 {
		faults = append(faults, api.Fault{Field: "actor", Value: clip(actor), Bound: "required, at most 128 bytes"})
	}
	if why == "" || len(why) > 512 {
		faults = append(faults, api.Fault{Field: "reason", Value: clip(why), Bound: "required, at most 512 bytes"})
	}
	return faults
}

func clip(s string) string { return s[:min(len(s), 64)] }

// write checks w whole and then puts it into force.
func (a *API) write(st *state, w *api.Write, ifMatch []string, id identity) (*api.Written, *api.Problem) {
	t, faults := termsOf(w)
	asks, more := st.asks(w)
	if faults = append(faults, more...); len(faults) > 0 {
		return nil, withFaults(http.StatusBadRequest, api.Invalid, "the request is malformed", faults)
	}
	if !matches(ifMatch, st.etag()) {
		return nil, problem(http.StatusPreconditionFailed, api.Stale, "the settings are at version "+st.etag()+"; read them again")
	}
	now := a.clock.Now()
	for _, k := range asks {
		if p := st.owners[k.i].refuses(now, w.Actor, t.kind); p != nil {
			name, _, _ := st.r.row(k.i)
			p.Detail = name + " " + p.Detail
			return nil, p
		}
	}
	next, err := st.r.check(asks)
	if err != nil {
		return nil, refusal(err)
	}
	if p := a.withinBounds(st, next, now); p != nil {
		return nil, p
	}
	out := &api.Written{Resource: st.label, Version: st.version, DryRun: w.DryRun, Changes: st.diff(next)}
	if w.DryRun {
		return out, nil
	}
	if len(out.Changes) > 0 {
		if err := st.r.apply(asks); err != nil {
			return nil, refusal(err)
		}
		st.entered(next, now)
	}
	for _, k := range asks {
		name, _, _ := st.r.row(k.i)
		st.owners[k.i] = ownerOf(t, w.Actor, now, t.expiry == "revert" || t.expiry == "" && name == modeSetting)
	}
	a.armLocked()
	out.Version = st.version
	a.recordLocked(api.Entry{Actor: w.Actor, Identity: id.name, Action: "set", Resource: st.label, Reason: w.Reason, Changes: out.Changes})
	return out, nil
}

// entered notes that next is in force.
func (st *state) entered(next []value, now int64) {
	for i := range next {
		if next[i] != st.seen[i] {
			st.changed[i] = now
		}
	}
	st.seen = next
	st.version++
}

func (st *state) asks(w *api.Write) (asks []ask, faults []api.Fault) {
	for name, raw := range w.Settings {
		i := st.index(name)
		if i < 0 {
			faults = append(faults, api.Fault{Field: "settings." + clip(name), Bound: "is no setting of " + st.label})
			continue
		}
		if raw == nil || string(raw) == "null" {
			asks = append(asks, ask{i, st.baseline[i]})
			continue
		}
		_, _, k := st.r.row(i)
		v, err := decode(k, raw)
		if err != nil {
			faults = append(faults, api.Fault{Field: "settings." + name, Value: clip(string(raw)), Bound: err.Error()})
			continue
		}
		asks = append(asks, ask{i, v})
	}
	sort.Slice(asks, func(x, y int) bool { return asks[x].i < asks[y].i })
	sort.Slice(faults, func(x, y int) bool { return faults[x].Field < faults[y].Field })
	return asks, faults
}

func (st *state) diff(next []value) []api.Change {
	changes := []api.Change{}
	for i := range next {
		if name, _, _ := st.r.row(i); next[i] != st.seen[i] {
			changes = append(changes, api.Change{Setting: name, From: st.seen[i].encode(), To: next[i].encode()})
		}
	}
	return changes
}

func (a *API) bound(st *state, name string) Bound {
	if b, ok := a.opt.Bounds[st.label+":"+name]; ok {
		return b
	}
	return a.opt.Bounds[name]
}

// withinBounds holds what would change to the embedder's bounds.
func (a *API) withinBounds(st *state, next []value, now int64) *api.Problem {
	var faults []api.Fault
	wait := time.Duration(0)
	for i := range next {
		name, _, _ := st.r.row(i)
		b := a.bound(st, name)
		if next[i] == st.seen[i] || b == (Bound{}) {
			continue
		}
		if since := now - st.changed[i]; st.changed[i] != 0 && since < int64(b.Interval) {
			wait = max(wait, b.Interval-time.Duration(since))
		}
		to, ok := next[i].size()
		if !ok {
			continue
		}
		from, _ := st.seen[i].size()
		bad := func(bound string, v float64) {
			faults = append(faults, api.Fault{Field: "settings." + name, Value: string(next[i].encode()), Bound: fmt.Sprintf("%s %v", bound, v)})
		}
		switch {
		case b.Min != 0 && to < b.Min:
			bad("must be at least", b.Min)
		case b.Max != 0 && to > b.Max:
			bad("must be at most", b.Max)
		case b.MaxStep != 0 && math.Abs(to-from) > b.MaxStep:
			bad("must not differ from the value in force by more than", b.MaxStep)
		}
	}
	if len(faults) > 0 {
		return withFaults(http.StatusUnprocessableEntity, api.OutOfBounds, "outside the bounds that the program allows", faults)
	}
	if wait > 0 {
		p := problem(http.StatusTooManyRequests, api.TooSoon, "the setting was changed a short time ago")
		p.RetryWait = wait.String()
		return p
	}
	return nil
}

// refusal turns an error of the bus into a problem.
func refusal(err error) *api.Problem {
	var f fieldError
	switch {
	case errors.As(err, &f):
		return withFaults(http.StatusUnprocessableEntity, api.Invalid, f.Error(), []api.Fault{{Field: "settings." + f.field, Value: clip(f.value), Bound: f.err.Error()}})
	case errors.Is(err, bus.ErrClosed):
		return problem(http.StatusServiceUnavailable, api.Closed, err.Error())
	case errors.Is(err, bus.ErrInvalid), errors.Is(err, shedder.ErrInvalid):
		return problem(http.StatusUnprocessableEntity, api.Invalid, err.Error())
	}
	return problem(http.StatusConflict, api.Conflict, err.Error())
}

func (a *API) describeLocked(st *state) api.Resource {
	out := api.Resource{Resource: st.label, Version: st.version, Settings: map[string]api.Setting{}}
	now := a.clock.Now()
	for i := range st.r.len() {
		name, unit, _ := st.r.row(i)
		b := a.bound(st, name)
		s := api.Setting{Value: st.seen[i].encode(), Baseline: st.baseline[i].encode(), Unit: unit, Owner: st.owners[i].wire(now)}
		for _, f := range []struct {
			v  float64
			to **float64
		}{{b.Min, &s.Min}, {b.Max, &s.Max}, {b.MaxStep, &s.MaxStep}} {
			if v := f.v; v != 0 && !math.IsInf(v, 0) {
				*f.to = &v
			}
		}
		if b.Interval > 0 {
			s.Interval = b.Interval.String()
		}
		out.Settings[name] = s
	}
	return out
}
