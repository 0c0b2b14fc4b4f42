// Package api holds the wire types of the tuning API, version 1: plain structs
// with JSON tags that a server, a client and tools share. It imports the
// standard library only.
//
// Names are in snake_case. Durations are Go duration strings such as "1m30s";
// rates are per second; times are RFC 3339 in UTC. No number is ever NaN or
// infinite: what is not known is 0. Readers must ignore fields that they do not
// know; the server refuses such fields in a write.
package api

import (
	"encoding/json"
	"time"
)

// Media types.
const (
	TypeJSON    = "application/json"
	TypePatch   = "application/merge-patch+json"
	TypeProblem = "application/problem+json"
)

// Reason says why a request was refused. Values are stable.
type Reason string

// Reasons of problems.
const (
	Invalid      Reason = "invalid"       // 400, 422: malformed, or a value out of the bus's bounds
	Unauthorized Reason = "unauthorized"  // 401: no valid token
	Forbidden    Reason = "forbidden"     // 403: the role, the Host or the Origin does not allow it
	NotFound     Reason = "not_found"     // 404: no such stage, letter or route
	Method       Reason = "method"        // 405
	Conflict     Reason = "conflict"      // 409: the bus does not take the change in its state
	Owned        Reason = "owned"         // 409: somebody else owns the setting; see Problem.Owner
	Stale        Reason = "stale"         // 412: If-Match names another version
	TooLarge     Reason = "too_large"     // 413
	MediaType    Reason = "media_type"    // 415
	OutOfBounds  Reason = "out_of_bounds" // 422: outside the embedder's bounds
	TooSoon      Reason = "too_soon"      // 429: within the shortest interval between changes
	TooMany      Reason = "too_many"      // 429: above the rate limit of writes
	Closed       Reason = "closed"        // 503: the bus shuts down or is closed
)

// Fault names one field that was refused.
type Fault struct {
	Field string `json:"field"`
	Value string `json:"value,omitempty"`
	Bound string `json:"bound"`
}

// Problem is the body of every error, after RFC 9457.
type Problem struct { //nolint:errname // the name of RFC 9457
	Type      string  `json:"type"` // "about:blank"
	Title     string  `json:"title"`
	Status    int     `json:"status"`
	Detail    string  `json:"detail"`
	Reason    Reason  `json:"reason"`
	Faults    []Fault `json:"faults,omitempty"`
	Owner     *Owner  `json:"owner,omitempty"`      // with Owned
	RetryWait string  `json:"retry_wait,omitempty"` // a duration; also in Retry-After, whole seconds
}

// Error returns the detail.
func (p *Problem) Error() string { return string(p.Reason) + ": " + p.Detail }

// Owner is who holds a setting, and for how long.
type Owner struct {
	Actor    string `json:"actor"`
	Kind     string `json:"kind"`      // "lease" or "hold"
	Left     string `json:"left"`      // duration
	OnExpiry string `json:"on_expiry"` // "keep" or "revert"
}

// Setting is one tunable value with all that is known of it.
type Setting struct {
	Value    json.RawMessage `json:"value"`
	Baseline json.RawMessage `json:"baseline"` // the embedder's value, to which null and "revert" go back
	Unit     string          `json:"unit,omitempty"`
	Min      *float64        `json:"min,omitempty"`          // seconds for durations
	Max      *float64        `json:"max,omitempty"`          // seconds for durations
	MaxStep  *float64        `json:"max_step,omitempty"`     // seconds for durations
	Interval string          `json:"min_interval,omitempty"` // duration between two changes
	Owner    *Owner          `json:"owner,omitempty"`
}

// Resource is the settings of a bus, a stage, a stage's credit or its shedder.
// Version is also the ETag, in quotes.
type Resource struct {
	Resource string             `json:"resource"` // such as "bus", "stages/parse", "stages/parse/credit"
	Version  uint64             `json:"version"`
	Settings map[string]Setting `json:"settings"`
}

// Write is the body of PATCH. Settings is a merge patch: settings that are not
// named stay, and null goes back to the embedder's value. All or nothing.
type Write struct {
	Actor    string                     `json:"actor"`  // required, 1 to 128 bytes
	Reason   string                     `json:"reason"` // required, 1 to 512 bytes
	Settings map[string]json.RawMessage `json:"settings"`
	// Lease makes Actor the owner for that duration, from 1s to 24h; it renews
	// by writing again.
	Lease string `json:"lease,omitempty"`
	// Hold is the lease of a person: it takes the setting over from a
	// controller, and a controller cannot take it over.
	Hold     string `json:"hold,omitempty"`
	OnExpiry string `json:"on_expiry,omitempty"` // "keep" (default) or "revert"; the shedder's mode: "revert" by default
	DryRun   bool   `json:"dry_run,omitempty"`   // checks all and changes nothing
}

// Written is the answer to a Write. Changes are in force when it is sent.
type Written struct {
	Resource string   `json:"resource"`
	Version  uint64   `json:"version"`
	DryRun   bool     `json:"dry_run"`
	Changes  []Change `json:"changes"`
}

// Change is one setting that a write changed.
type Change struct {
	Setting string          `json:"setting"`
	From    json.RawMessage `json:"from"`
	To      json.RawMessage `json:"to"`
}

// Entry is a line of the history.
type Entry struct {
	Seq      uint64    `json:"seq"` // rises by 1
	At       time.Time `json:"at"`
	Actor    string    `json:"actor"`
	Identity string    `json:"identity,omitempty"` // the name of the credential
	Action   string    `json:"action"`             // "set", "expired", "pause", "suspend", "resume", "redrive", "purge", "cancel"
	Resource string    `json:"resource"`
	Reason   string    `json:"reason"`
	Changes  []Change  `json:"changes,omitempty"`
}

// History is a page of the history, oldest first.
type History struct {
	Entries []Entry `json:"entries"`
	Lost    uint64  `json:"lost"` // entries that the ring has overwritten
}

// HoldRequest is the body of pause, suspend and resume.
type HoldRequest struct {
	Actor  string `json:"actor"`
	Reason string `json:"reason"`
	For    string `json:"for,omitempty"` // duration after which the hold ends by itself; "" is until resume
}

// Hold keeps admission paused or a stage suspended.
type Hold struct {
	By    string     `json:"by"`
	Why   string     `json:"why"`
	Since time.Time  `json:"since"`
	Until *time.Time `json:"until,omitempty"`
}
