package tune

import "github.com/sedabus/seda/tune/api"

// history is a ring of the latest entries.
type history struct {
	ring []api.Entry // its capacity is the bound
	seq  uint64
}

func (h *history) add(e *api.Entry) {
	h.seq++
	e.Seq = h.seq
	if len(h.ring) < cap(h.ring) {
		h.ring = append(h.ring, *e)
		return
	}
	h.ring[(h.seq-1)%uint64(len(h.ring))] = *e
}

// since returns up to limit entries behind the one with seq after, oldest first.
func (h *history) since(after uint64, limit int) api.History {
	n := uint64(len(h.ring))
	out := api.History{Entries: []api.Entry{}, Lost: h.seq - n}
	for seq := max(min(after, h.seq), h.seq-n) + 1; seq <= h.seq && len(out.Entries) < limit; seq++ {
		out.Entries = append(out.Entries, h.ring[(seq-1)%n])
	}
	return out
}

func (a *API) recordLocked(e api.Entry) {
	e.At = a.clock.Wall(a.clock.Now()).UTC()
	a.mu.log.add(&e)
	if a.opt.Audit == nil {
		return
	}
	defer func() { _ = recover() }() // an audit hook that panics undoes nothing
	a.opt.Audit(e)
}
