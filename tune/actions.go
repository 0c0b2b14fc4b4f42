package tune

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/tune/api"
)

// The functions here run under the lock of writes.

func (a *API) patch(part string) func(*call) (any, *api.Problem) {
	return func(c *call) (any, *api.Problem) {
		var w api.Write
		if p := decodeBody(c.body, &w); p != nil {
			return nil, p
		}
		st := a.stateLocked(c.PathValue("name"), part)
		if st == nil {
			return nil, noStage()
		}
		out, p := a.write(st, &w, c.Header.Values("If-Match"), c.id)
		if p == nil {
			c.header.Set("ETag", st.etag())
		}
		return out, p
	}
}

// holder is what the bus and a stage have in common.
type holder interface {
	Resume(by string) bool
	Holds() []bus.Hold
}

// heldBy returns what the request holds or lets go.
func (a *API) heldBy(c *call) (h api.HoldRequest, on holder, label string, p *api.Problem) {
	if p = decodeBody(c.body, &h); p != nil {
		return h, nil, "", p
	}
	if faults := signed(h.Actor, h.Reason); len(faults) > 0 {
		return h, nil, "", withFaults(http.StatusBadRequest, api.Invalid, "the request is malformed", faults)
	}
	if c.PathValue("name") == "" {
		return h, a.bus, "bus", nil
	}
	s, p := a.stage(c)
	if p != nil {
		return h, nil, "", p
	}
	return h, s, "stages/" + s.Name(), nil
}

func (a *API) pause(c *call) (any, *api.Problem) {
	q, on, label, p := a.heldBy(c)
	if p != nil {
		return nil, p
	}
	h := bus.Hold{By: q.Actor, Why: q.Reason}
	if q.For != "" {
		d, err := time.ParseDuration(q.For)
		if err != nil || d <= 0 {
			return nil, withFaults(http.StatusBadRequest, api.Invalid, "the request is malformed", []api.Fault{{Field: "for", Value: clip(q.For), Bound: "must be a duration above 0"}})
		}
		h.For = d
	}
	action := "pause"
	if s, ok := on.(*bus.Stage); ok {
		action = "suspend"
		s.Suspend(h)
	} else {
		a.bus.Pause(h)
	}
	a.recordLocked(api.Entry{Actor: q.Actor, Identity: c.id.name, Action: action, Resource: label, Reason: q.Reason})
	return wireHolds(on.Holds()), nil
}

// resume lifts the actor's own hold; those of others stay and are listed.
func (a *API) resume(c *call) (any, *api.Problem) {
	q, on, label, p := a.heldBy(c)
	if p != nil {
		return nil, p
	}
	if !on.Resume(q.Actor) {
		return nil, problem(http.StatusConflict, api.Conflict, fmt.Sprintf("%q holds nothing there; each holder lifts its own", clip(q.Actor)))
	}
	a.recordLocked(api.Entry{Actor: q.Actor, Identity: c.id.name, Action: "resume", Resource: label, Reason: q.Reason})
	return wireHolds(on.Holds()), nil
}

func (a *API) cancel(c *call) (any, *api.Problem) {
	s, p := a.stage(c)
	if p != nil {
		return nil, p
	}
	id, err := strconv.ParseUint(c.PathValue("id"), 10, 64)
	q := c.URL.Query()
	if faults := signed(q.Get("actor"), q.Get("reason")); len(faults) > 0 {
		return nil, withFaults(http.StatusBadRequest, api.Invalid, "give actor and reason in the query", faults)
	}
	if err != nil || !s.Cancel(id) {
		return nil, problem(http.StatusNotFound, api.NotFound, "no envelope of that id is in flight there")
	}
	a.recordLocked(api.Entry{
		Actor: q.Get("actor"), Identity: c.id.name, Action: "cancel", Reason: q.Get("reason"),
		Resource: "stages/" + s.Name() + "/inflight/" + c.PathValue("id"),
	})
	return struct{}{}, nil
}

func wireLetter(l *bus.Letter) api.Letter {
	return api.Letter{
		ID: strconv.FormatUint(l.ID, 10), Stage: l.Stage, From: l.From, Reason: l.Reason.String(), Error: l.Error,
		Attempts: l.Attempts, First: l.First.UTC(), Last: l.Last.UTC(), Slip: l.Slip, Redrives: l.Redrives,
		Payload: fmt.Sprintf("%T", l.Envelope.Payload),
	}
}

func filter(stage, why, text string) (f bus.LetterFilter, p *api.Problem) {
	f = bus.LetterFilter{Stage: stage, Text: text}
	if why != "" {
		r, ok := reason.Parse(why)
		if !ok {
			return f, withFaults(http.StatusBadRequest, api.Invalid, "no such reason", []api.Fault{{Field: "letter_reason", Value: clip(why), Bound: "must be a reason of the bus"}})
		}
		f.Reason = r
	}
	return f, nil
}

// getLetters pages with after and limit, and filters by stage, letter_reason
// and text. It takes no lock of the API.
func (a *API) getLetters(c *call) (any, *api.Problem) {
	q := c.URL.Query()
	f, p := filter(q.Get("stage"), q.Get("letter_reason"), q.Get("text"))
	if p != nil {
		return nil, p
	}
	if f.After, f.Limit, p = paging(c); p != nil {
		return nil, p
	}
	out := api.Letters{Letters: []api.Letter{}}
	for _, l := range a.bus.Letters().List(f) {
		out.Letters = append(out.Letters, wireLetter(&l))
	}
	if n := len(out.Letters); n == f.Limit {
		out.Next = out.Letters[n-1].ID
	}
	return out, nil
}

func (a *API) getLetter(c *call) (any, *api.Problem) {
	if id, err := strconv.ParseUint(c.PathValue("id"), 10, 64); err == nil {
		if l, ok := a.bus.Letters().Get(id); ok {
			return wireLetter(&l), nil
		}
	}
	return nil, problem(http.StatusNotFound, api.NotFound, "there is no letter of that id")
}

func lettersOf(c *call) (q api.LettersRequest, f bus.LetterFilter, p *api.Problem) {
	if p = decodeBody(c.body, &q); p != nil {
		return q, f, p
	}
	faults := signed(q.Actor, q.Reason)
	if q.Limit < 0 {
		faults = append(faults, api.Fault{Field: "limit", Value: strconv.Itoa(q.Limit), Bound: "must be 0 (all) or more"})
	}
	if len(faults) > 0 {
		return q, f, withFaults(http.StatusBadRequest, api.Invalid, "the request is malformed", faults)
	}
	f, p = filter(q.Stage, q.Why, q.Text)
	f.Limit = q.Limit
	return q, f, p
}

func (a *API) redrive(c *call) (any, *api.Problem) {
	q, f, p := lettersOf(c)
	if p != nil {
		return nil, p
	}
	rep, err := a.bus.Letters().Redrive(c.Context(), bus.RedriveOptions{Filter: f, Rate: q.Rate})
	if rep.Redriven+rep.Refused > 0 {
		a.recordLocked(api.Entry{Actor: q.Actor, Identity: c.id.name, Action: "redrive", Resource: "letters", Reason: q.Reason})
	}
	if err != nil {
		return nil, refusal(err)
	}
	out := api.LettersDone{Redriven: rep.Redriven, Refused: rep.Refused}
	if rep.Err != nil {
		out.Error = rep.Err.Error()
	}
	return out, nil
}

func (a *API) purge(c *call) (any, *api.Problem) {
	q, f, p := lettersOf(c)
	if p != nil {
		return nil, p
	}
	out := api.LettersDone{Purged: a.bus.Letters().Purge(f)}
	a.recordLocked(api.Entry{Actor: q.Actor, Identity: c.id.name, Action: "purge", Resource: "letters", Reason: q.Reason})
	return out, nil
}
