package tune

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/sedabus/seda/internal/clock"
	"github.com/sedabus/seda/tune/api"
)

// owner holds one setting; the zero owner is nobody.
type owner struct {
	actor  string
	kind   string
	until  int64
	revert bool
}

func ownerOf(t terms, actor string, now int64, revert bool) owner {
	if t.kind == "" {
		return owner{}
	}
	return owner{actor, t.kind, now + int64(t.length), revert}
}

func (o *owner) wire(now int64) *api.Owner {
	if o.kind == "" {
		return nil
	}
	end := "keep"
	if o.revert {
		end = "revert"
	}
	return &api.Owner{Actor: o.actor, Kind: o.kind, Left: time.Duration(max(0, o.until-now)).String(), OnExpiry: end}
}

// refuses says whether the owner stands against a write of actor. A hold
// outranks a lease, and nothing outranks a hold.
func (o *owner) refuses(now int64, actor, kind string) *api.Problem {
	if o.kind == "" || now >= o.until || o.actor == actor || o.kind == "lease" && kind == "hold" {
		return nil
	}
	w := o.wire(now)
	p := problem(http.StatusConflict, api.Owned, fmt.Sprintf("is owned by %q by %s for another %s", w.Actor, w.Kind, w.Left))
	p.Owner, p.RetryWait = w, w.Left
	return p
}

// armLocked sets the timer to the next end of a lease or hold.
func (a *API) armLocked() {
	next := int64(0)
	for _, st := range a.mu.res {
		for i := range st.owners {
			if o := &st.owners[i]; o.kind != "" && (next == 0 || o.until < next) {
				next = o.until
			}
		}
	}
	if a.mu.timer != nil {
		a.mu.timer.Stop()
		a.mu.timer = nil
	}
	if next != 0 && !a.mu.closed {
		a.mu.timer = clock.AfterFunc(time.Duration(max(0, next-a.clock.Now())), a.expire)
	}
}

func (a *API) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expireLocked()
	a.armLocked()
}

// expireLocked ends what has run out. Settings of one resource and actor go
// back together; bounds on steps and intervals do not apply.
func (a *API) expireLocked() {
	if a.mu.closed {
		return
	}
	now := a.clock.Now()
	for _, st := range a.mu.res {
		for i := range st.owners {
			if o := st.owners[i]; o.kind != "" && now >= o.until {
				a.endLocked(st, o, now)
			}
		}
	}
}

// endLocked ends all that o holds in st and that has run out.
func (a *API) endLocked(st *state, o owner, now int64) {
	st.follow()
	var asks []ask
	for i := range st.owners {
		v := &st.owners[i]
		if v.kind != o.kind || v.actor != o.actor || now < v.until {
			continue
		}
		if v.revert {
			asks = append(asks, ask{i, st.baseline[i]})
		}
		*v = owner{}
		a.expiries.Add(1)
	}
	e := api.Entry{Actor: o.actor, Action: "expired", Resource: st.label, Reason: "the " + o.kind + " ran out"}
	if len(asks) > 0 {
		next, err := st.r.check(asks)
		if err == nil && !slices.Equal(next, st.seen) {
			e.Changes = st.diff(next)
			if err = st.r.apply(asks); err == nil {
				st.entered(next, now)
			}
		}
		if err != nil {
			e.Reason, e.Changes = e.Reason+", and its settings stay: "+err.Error(), nil
		}
	}
	a.recordLocked(e)
}
