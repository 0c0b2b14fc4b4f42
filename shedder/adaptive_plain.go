package shedder

// plain decides about most requests: those with nothing special about them, on a
// stage that is known, within the interval under way. It says whether it did.
// What it does is what admit does, without the questions whose answers are known
// then; admit decides about all others. It cannot panic: the shell calls it
// without being prepared for that.
func (a *Adaptive) plain(r *Request, v *Verdict) bool {
	if r.special() || !a.warm || a.guarded || r.Guards.measured() ||
		r.Now < a.now || r.Now >= a.ends || float64(r.Concurrency) != a.workers {
		return false
	}
	a.now = r.Now
	l := &a.load
	l.take(&r.Load)
	a.least = min(a.least, l.Waiting)
	a.count()
	v.Service = a.service0
	if l.Waiting == 0 && l.Busy < l.Concurrency {
		a.leaving.Idle()
		a.spare(l)
		return true
	}
	v.Wait = toDuration(float64(l.Ahead+1) * a.each)
	queue, bound := float64(l.Waiting), a.bound()
	if queue >= a.low {
		bound = a.room(queue, bound)
	}
	if queue >= bound {
		a.refuse(v, RuleBound, bound, queue)
	}
	return true
}

// special says that the law has to look at more of r than the queue.
func (r *Request) special() bool {
	return r.Classes > 1 || r.Sender != "" || r.Deadline != 0 || r.Later || r.Evictable > 0 || r.Held
}

// take sets l to what was given, made counts. Field by field: a copy in larger
// pieces has to wait for the stores that made its source.
func (l *Load) take(from *Load) {
	l.Waiting = max(from.Waiting, 0)
	l.Ahead = min(max(from.Ahead, 0), l.Waiting)
	l.Evictable = from.Evictable
	l.Inbound = max(from.Inbound, 0)
	l.Busy = max(from.Busy, 0)
	l.Concurrency = max(from.Concurrency, 1)
	l.Capacity = from.Capacity
	l.Held = from.Held
}
