package bus

import (
	faults "github.com/sedabus/seda/internal/fault"
	"github.com/sedabus/seda/reason"
)

// settleRange settles the finished envelopes a to b of the claim.
func (ex *executor) settleRange(a, b int) {
	c := ex.c
	if a == c.Rd && b == c.N && b-a > 1 && ex.stage.bus.cfg.Journal == nil {
		if to := ex.stage.sameNext(c); to != nil {
			if ex.passWhole(to) {
				return
			}
		}
	}
	ex.stage.settleChunk(c, a, b, &ex.resv, &ex.tally)
}

// passWhole hands the whole chunk to the next stage if it holds a place there
// for each envelope.
func (ex *executor) passWhole(to *Stage) bool {
	n := ex.c.Size()
	if to.mu.keyed != nil || to.mu.classes != nil || !to.takesAll() { // the first two are immutable
		return false
	}
	got := ex.resv.use(to, n)
	if got < n {
		ex.resv.restore(to, got)
		return false
	}
	c, ok := to.arriveWhole(ex.c)
	if !ok {
		ex.resv.restore(to, got)
		return false
	}
	ex.tally.hopped += uint64(n)
	ex.c = c
	return true
}

func (r *reservations) restore(to *Stage, n int) {
	for i := range r.n {
		if r.r[i].to == to {
			r.r[i].held += n
		}
	}
}

// sameNext returns the next stage if every envelope of c was acknowledged and
// goes to the same one, else nil.
func (s *Stage) sameNext(c *chunk) *Stage {
	slip := c.Items[c.Rd].Slip
	if slip.route == nil {
		return nil
	}
	next := slip.resolve(s.bus)
	to := s.partAhead(next, &c.Items[c.Rd])
	for i := c.Rd; i < c.N && to != nil; i++ {
		e := &c.Items[i]
		if e.disp != dispAck || e.flags&flagCopy != 0 || e.Slip.route == nil {
			return nil
		}
		if e.Slip != slip {
			slip, next = e.Slip, e.Slip.resolve(s.bus)
		}
		if s.partAhead(next, e) != to {
			return nil
		}
	}
	return to
}

// settleChunk settles the finished envelopes c.Items[a:b]: those at the end of
// their slip complete, the others go to their next stage, in order.
func (s *Stage) settleChunk(c *chunk, a, b int, resv *reservations, t *tally) {
	if s.bus.cfg.Journal != nil {
		s.journalAcks(c, a, b)
	}
	var out sorter
	var group groupRun
	var done gathered
	for i := a; i < b; i++ {
		e := &c.Items[i]
		switch {
		case e.disp == dispGone:
		case e.flags&flagCopy != 0:
			if e.Slip.route != nil {
				s.letterCopyHop(e)
				continue
			}
			t.completed[1]++
			group.add(s, e)
		case e.Slip.route == nil:
			t.completed[0]++
			if (e.OnDone != nil || e.par != nil) && !faults.On(faults.AckSilent) {
				s.completed(&done, e)
			}
		default:
			s.hopOut(&out, e, resv, t)
		}
	}
	group.flush()
	out.flush(s, resv, t)
	done.flush(s.bus)
}

// completed ends e, which is not a copy, as completed.
func (s *Stage) completed(done *gathered, e *Envelope) {
	r := Result{ID: e.id, TextID: e.TextID(), End: Completed, Stage: s.name, Attempts: int(e.attempt)}
	if e.par != nil && e.par.call != nil {
		e.par.call.finish(r)
	}
	if e.OnDone != nil {
		done.add(s.bus, e.OnDone, r)
	}
}

// hopOut collects e for its next stage.
func (s *Stage) hopOut(out *sorter, e *Envelope, resv *reservations, t *tally) {
	to := s.nextFor(e)
	if to == nil {
		s.letterHop(e, e.Slip.next(), reason.NoStage)
		return
	}
	if faults.On(faults.HopIsPublish) && gates(to.gates.Load())&gatesOfBus != 0 {
		t.hopped++
		return
	}
	way := out.of(to)
	if way == nil {
		out.flush(s, resv, t)
		way = out.of(to)
	}
	if way.c == nil {
		way.c, _ = s.bus.chunks.Get().(*chunk)
	}
	way.c.Items[way.c.N] = *e
	way.c.N++
}

// sorter collects what leaves a stage by next stage.
type sorter struct {
	ways [sortWays]sortWay
	n    int
}

type sortWay struct {
	to *Stage
	c  *chunk
}

// sortWays is how many next stages are collected for at a time.
const sortWays = 4

func (o *sorter) of(to *Stage) *sortWay {
	for i := range o.n {
		if o.ways[i].to == to {
			return &o.ways[i]
		}
	}
	if o.n == sortWays {
		return nil
	}
	o.n++
	o.ways[o.n-1].to = to
	return &o.ways[o.n-1]
}

// flush moves what was collected.
func (o *sorter) flush(s *Stage, resv *reservations, t *tally) {
	for i := range o.n {
		way := &o.ways[i]
		n := way.c.N
		held := resv.use(way.to, n)
		whole := held == n && way.to.mu.keyed == nil && way.to.mu.classes == nil && way.to.takesAll()
		if whole {
			way.c, whole = way.to.arriveWhole(way.c)
		}
		if whole {
			t.hopped += uint64(n)
		} else {
			lettered := 0
			parked := way.to.arrive(s, way.c, 0, n, held, &lettered)
			t.hopped += uint64(n - parked - lettered)
			if parked > 0 {
				s.addParked(way.to, parked)
			}
			way.c.Reset()
		}
		s.bus.chunks.Put(way.c)
		*way = sortWay{}
	}
	o.n = 0
}

// finish gives an envelope's end to those who asked for it. No lock is held.
func (b *Bus) finish(e *Envelope, r Result) {
	r.ID, r.TextID = e.id, e.TextID()
	if r.Attempts == 0 {
		r.Attempts = int(e.attempt)
	}
	if e.flags&flagCopy != 0 {
		e.par.group.failed(e.par.group.stage.sibling(b.lookup(r.Stage)), e, &r)
		return
	}
	if p := e.par; p != nil && p.call != nil {
		p.call.finish(r)
	}
	if e.OnDone != nil {
		b.callbacks.add(e.OnDone, r)
	}
}

// dropped ends e, which was counted as dropped, and tells the drop hook.
func (s *Stage) dropped(e *Envelope, why reason.Reason) {
	if s.bus.cfg.Journal != nil {
		s.journalEnd(e, Dropped, why)
	}
	s.bus.drops.add(s, e, why)
	if !faults.On(faults.VictimSilent) {
		s.bus.finish(e, Result{End: Dropped, Reason: why, Stage: s.name})
	}
	s.bus.settled()
}
