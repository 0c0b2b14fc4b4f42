package api

import "time"

// Timing sums up a histogram of durations.
type Timing struct {
	Count uint64 `json:"count"`
	Mean  string `json:"mean"`
	P50   string `json:"p50"`
	P99   string `json:"p99"`
	Max   string `json:"max"`
}

// Stage is a reading of one stage. Counters never go down.
type Stage struct {
	Name        string            `json:"name"`
	Suspended   bool              `json:"suspended"`
	Holds       []Hold            `json:"holds,omitempty"`
	Capacity    int               `json:"capacity"`
	Concurrency int               `json:"concurrency"`
	Full        string            `json:"full"`
	Depth       int               `json:"depth"`
	InFlight    int               `json:"in_flight"`
	Delayed     int               `json:"delayed"`
	Parked      int               `json:"parked"`
	Waiters     int               `json:"waiters"`
	Stuck       int               `json:"stuck"`
	Accepted    uint64            `json:"accepted"`
	Entered     uint64            `json:"entered"`
	Hopped      uint64            `json:"hopped"`
	Completed   uint64            `json:"completed"`
	Lettered    uint64            `json:"dead_lettered"`
	Abandoned   uint64            `json:"abandoned"`
	Dropped     map[string]uint64 `json:"dropped,omitempty"` // by reason
	Refused     map[string]uint64 `json:"refused,omitempty"` // by reason
	Delivered   uint64            `json:"delivered"`
	Nacked      uint64            `json:"nacked"`
	Retried     uint64            `json:"retried"`
	OldestWait  string            `json:"oldest_waiting"`
	Wait        Timing            `json:"wait"`
	Service     Timing            `json:"service"`
}

// Bus is a reading of the bus's account.
type Bus struct {
	Name        string            `json:"name"`
	Holds       []Hold            `json:"holds,omitempty"`
	Accepted    uint64            `json:"accepted"`
	Completed   uint64            `json:"completed"`
	Lettered    uint64            `json:"dead_lettered"`
	Abandoned   uint64            `json:"abandoned"`
	Pending     uint64            `json:"pending"`
	Dropped     map[string]uint64 `json:"dropped,omitempty"`
	Refused     map[string]uint64 `json:"refused,omitempty"`
	Handlers    int               `json:"handlers"`
	MaxHandlers int               `json:"max_handlers"` // 0 is no bound
	Letters     int               `json:"letters"`
}

// Stages is the answer to GET /v1/stages.
type Stages struct {
	At     time.Time `json:"at"`
	Bus    Bus       `json:"bus"`
	Stages []Stage   `json:"stages"`
}

// StageDetail is the answer to GET /v1/stages/{name}.
type StageDetail struct {
	Resource
	Stage Stage `json:"stage"`
}

// BusDetail is the answer to GET /v1/bus.
type BusDetail struct {
	Resource
	Bus Bus `json:"bus"`
}

// InFlight is an envelope inside a handler or with a pull consumer.
type InFlight struct {
	ID      string `json:"id"` // decimal
	Age     string `json:"age"`
	Attempt int    `json:"attempt"`
	Overdue bool   `json:"overdue"`
}

// Flights is the answer to GET /v1/stages/{name}/inflight, oldest first.
type Flights struct {
	InFlight []InFlight `json:"in_flight"`
}

// Letter is a dead letter without its payload and headers.
type Letter struct {
	ID       string    `json:"id"` // decimal
	Stage    string    `json:"stage"`
	From     string    `json:"from,omitempty"`
	Reason   string    `json:"reason"`
	Error    string    `json:"error"`
	Attempts int       `json:"attempts"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
	Slip     []string  `json:"slip,omitempty"`
	Redrives int       `json:"redrives"`
	Payload  string    `json:"payload_type"` // the Go type
}

// Letters is a page of dead letters, oldest first. Next is the value of the
// query parameter "after" for the next page, or "".
type Letters struct {
	Letters []Letter `json:"letters"`
	Next    string   `json:"next,omitempty"`
}

// LettersRequest is the body of redrive and purge. Empty fields match all.
type LettersRequest struct {
	Actor  string  `json:"actor"`
	Reason string  `json:"reason"`
	Stage  string  `json:"stage,omitempty"`
	Why    string  `json:"letter_reason,omitempty"`
	Text   string  `json:"text,omitempty"`
	Limit  int     `json:"limit,omitempty"`      // 0 is all
	Rate   float64 `json:"per_second,omitempty"` // redrive only; 0 is no bound
}

// LettersDone says what redrive or purge did.
type LettersDone struct {
	Redriven int    `json:"redriven"`
	Refused  int    `json:"refused"` // still in the store
	Purged   int    `json:"purged"`
	Error    string `json:"error,omitempty"` // the first refusal
}

// Advice is what the readings say about a stage's concurrency.
type Advice struct {
	Stage       string  `json:"stage"`
	Why         string  `json:"why"`          // what the figures rest on, or why there are none
	Service     string  `json:"service"`      // mean time of a handler call, since the last advice or the start
	Offered     float64 `json:"offered"`      // entered and refused a second
	Drain       float64 `json:"drain"`        // handler calls a second
	Utilisation float64 `json:"utilisation"`  // of the concurrency, 0 to 1
	WaitP99     string  `json:"wait_p99"`     // since the start
	Concurrency int     `json:"concurrency"`  // in force
	For80       int     `json:"for_80"`       // that would give a utilisation of 80 %; 0 is unknown
	LastRefused string  `json:"last_refused"` // rule of the shedder's latest refusal
}

// Health is the answer to /healthz and /readyz.
type Health struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}
