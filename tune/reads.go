package tune

import (
	"net/http"
	"strconv"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/reason"
	"github.com/sedabus/seda/tune/api"
)

func (*API) healthz(*call) (any, *api.Problem) { return api.Health{OK: true}, nil }

// readyz fails before Start and from the beginning of a shutdown on. A bus that
// is full, sheds or is out of credit is ready: an autoscaler that counts ready
// pods must see it.
func (a *API) readyz(*call) (any, *api.Problem) {
	if phase := a.bus.Phase(); phase != "running" {
		return api.Health{Reason: "the bus is " + phase}, nil
	}
	return api.Health{OK: true}, nil
}

// Health returns a handler of /healthz and /readyz alone, for probes on another
// port. It needs no credentials and changes nothing.
func Health(b *bus.Bus) http.Handler {
	a := &API{bus: b}
	mux := http.NewServeMux()
	for _, r := range []route{{path: "/healthz", serve: a.healthz}, {path: "/readyz", serve: a.readyz}} {
		mux.HandleFunc("GET "+r.path, func(w http.ResponseWriter, q *http.Request) {
			send(w, &call{Request: q, header: w.Header()}, r.serve)
		})
	}
	return mux
}

func (a *API) stats() *bus.Stats {
	s, ok := a.readings.Get().(*bus.Stats)
	if !ok {
		s = new(bus.Stats)
	}
	a.bus.ReadStats(s)
	return s
}

func (a *API) getStages(*call) (any, *api.Problem) {
	s := a.stats()
	defer a.readings.Put(s)
	out := api.Stages{At: s.At.UTC(), Bus: a.wireBus(s), Stages: make([]api.Stage, len(s.Stages))}
	for i := range s.Stages {
		out.Stages[i] = wireStage(&s.Stages[i])
	}
	return out, nil
}

func (a *API) wireBus(s *bus.Stats) api.Bus {
	return api.Bus{
		Name: s.Name, Holds: wireHolds(a.bus.Holds()),
		Accepted: s.Accepted, Completed: s.Completed, Lettered: s.DeadLettered, Abandoned: s.Abandoned, Pending: s.Pending,
		Dropped: byReason(&s.Dropped), Refused: byReason(&s.Refused),
		Handlers: s.Handlers, MaxHandlers: s.MaxHandlers, Letters: s.Letters.Count,
	}
}

func wireStage(s *bus.StageStats) api.Stage {
	return api.Stage{
		Name: s.Name, Suspended: s.Suspended,
		Capacity: s.Capacity, Concurrency: s.Concurrency, Full: s.Full.String(),
		Depth: s.Depth, InFlight: s.InFlight, Delayed: s.Delayed, Parked: s.Parked, Waiters: s.Waiters, Stuck: s.Stuck,
		Accepted: s.Accepted, Entered: s.Entered, Hopped: s.Hopped, Completed: s.Completed, Lettered: s.DeadLettered,
		Abandoned: s.Abandoned, Dropped: byReason(&s.Dropped), Refused: byReason(&s.Refused),
		Delivered: s.Delivered, Nacked: s.Nacked, Retried: s.Retried,
		OldestWait: s.OldestWaiting.String(), Wait: wireTiming(&s.Wait), Service: wireTiming(&s.Service),
	}
}

func wireTiming(t *bus.Timing) api.Timing {
	return api.Timing{
		Count: t.Count(), Mean: t.Mean().String(), P50: t.Quantile(.5).String(),
		P99: t.Quantile(.99).String(), Max: t.Max().String(),
	}
}

func byReason(counts *[reason.Count]uint64) map[string]uint64 {
	var out map[string]uint64
	for i, n := range counts {
		if n == 0 {
			continue
		}
		if out == nil {
			out = map[string]uint64{}
		}
		out[reason.Reason(i).String()] = n
	}
	return out
}

func wireHolds(hs []bus.Hold) []api.Hold {
	out := make([]api.Hold, len(hs))
	for i, h := range hs {
		out[i] = api.Hold{By: h.By, Why: h.Why, Since: h.Since.UTC()}
		if !h.Until.IsZero() {
			until := h.Until.UTC()
			out[i].Until = &until
		}
	}
	return out
}

func noStage() *api.Problem {
	return problem(http.StatusNotFound, api.NotFound, "there is no such stage, or it has no such part")
}

func (a *API) stage(c *call) (*bus.Stage, *api.Problem) {
	s, ok := a.bus.Lookup(c.PathValue("name"))
	if !ok {
		return nil, noStage()
	}
	return s, nil
}

// resource reads settings with their owners and sets the ETag.
func (a *API) resource(c *call, part string) (out api.Resource, p *api.Problem) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expireLocked()
	st := a.stateLocked(c.PathValue("name"), part)
	if st == nil {
		return out, noStage()
	}
	c.header.Set("ETag", st.etag())
	return a.describeLocked(st), nil
}

func (a *API) getPart(part string) func(*call) (any, *api.Problem) {
	return func(c *call) (any, *api.Problem) { return orProblem(a.resource(c, part)) }
}

func orProblem[T any](v T, p *api.Problem) (any, *api.Problem) { return v, p }

func (a *API) getStage(c *call) (any, *api.Problem) {
	s, p := a.stage(c)
	if p != nil {
		return nil, p
	}
	r, p := a.resource(c, "")
	var st bus.StageStats
	s.ReadStats(&st)
	out := api.StageDetail{Resource: r, Stage: wireStage(&st)}
	out.Stage.Holds = wireHolds(s.Holds())
	return out, p
}

func (a *API) getBus(c *call) (any, *api.Problem) {
	r, p := a.resource(c, "")
	s := a.stats()
	defer a.readings.Put(s)
	return api.BusDetail{Resource: r, Bus: a.wireBus(s)}, p
}

func (a *API) getInFlight(c *call) (any, *api.Problem) {
	s, p := a.stage(c)
	if p != nil {
		return nil, p
	}
	out := api.Flights{InFlight: []api.InFlight{}}
	for _, f := range s.InFlight() {
		out.InFlight = append(out.InFlight, api.InFlight{ID: strconv.FormatUint(f.ID, 10), Age: f.Age.String(), Attempt: f.Attempt, Overdue: f.Overdue})
	}
	return out, nil
}

func (a *API) getHistory(c *call) (any, *api.Problem) {
	after, limit, p := paging(c)
	if p != nil {
		return nil, p
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.log.since(after, limit), nil
}

const maxPage = 1000

// paging reads the query parameters after and limit (1 to 1000, default 100).
func paging(c *call) (after uint64, limit int, p *api.Problem) {
	limit = 100
	q := c.URL.Query()
	if v := q.Get("after"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return 0, 0, withFaults(http.StatusBadRequest, api.Invalid, "bad query", []api.Fault{{Field: "after", Value: clip(v), Bound: "must be a number of a page"}})
		}
		after = n
	}
	if v := q.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > maxPage {
			return 0, 0, withFaults(http.StatusBadRequest, api.Invalid, "bad query", []api.Fault{{Field: "limit", Value: clip(v), Bound: "must be from 1 to 1000"}})
		}
		limit = n
	}
	return after, limit, nil
}

// getAdvice judges the stage by what has happened since an earlier look, ten to
// twenty seconds ago if there was one, else since the API was made.
func (a *API) getAdvice(c *call) (any, *api.Problem) {
	s, p := a.stage(c)
	if p != nil {
		return nil, p
	}
	var st bus.StageStats
	s.ReadStats(&st)
	return advise(&st, a.lookBack(&st), s.ShedderState().Last.Rule), nil
}

func (a *API) lookBack(st *bus.StageStats) mark {
	a.marks.Lock()
	defer a.marks.Unlock()
	w := a.marks.of[st.Name]
	if w == nil {
		w = &window{}
		a.marks.of[st.Name] = w
	}
	return w.since(markOf(st))
}
