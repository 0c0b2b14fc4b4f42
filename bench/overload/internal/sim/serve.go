package sim

import "time"

// start gives idle workers of a stage the jobs that are next. As many jobs as it
// has workers may be parked for the stage behind it before it starts no more.
func (w *World) start(stage int) {
	q := &w.At[stage]
	for q.Busy < q.Workers && q.Waiting > 0 {
		if stage+1 < len(w.At) && w.At[stage+1].parked.len() >= q.Workers {
			return
		}
		id := q.next(w.law.Newest(w, stage))
		j := &w.Jobs[id]
		j.Wait += w.Now - j.Entered
		if w.expired(j) || !w.law.Start(w, j, stage) {
			w.drop(j, stage)
			continue
		}
		q.started(w.classOf(j))
		j.Started = w.Now
		took := w.Spec.ServiceOf(w.Seed, id, stage, int(j.Tries), w.Now)
		if j.Deadline > 0 && w.Now+w.Spec.Shortest(stage) > j.Deadline {
			j.Wasted = true
		}
		j.Attempts++
		j.Tries++
		q.Busy++
		w.schedule(event{at: w.Spec.EndOf(w.Now, took), job: id, stage: stage, kind: eventEnd})
	}
}

// expired says whether a job's deadline has passed. Stages throw such jobs away
// whatever the law, except for Blind ones.
func (w *World) expired(j *Job) bool {
	return j.Deadline != 0 && w.Now > j.Deadline && !w.blind
}

// Shortest is the least time that a service at a stage can take.
func (s *Spec) Shortest(stage int) time.Duration {
	if s.Dist == nil {
		return 0
	}
	return time.Duration(s.Dist(1) * float64(s.Itinerary()[stage].Service))
}

func (w *World) schedule(e event) {
	e.seq = w.seq
	w.seq++
	w.events.push(e)
}

// drop throws an admitted job away that was to start at a stage.
func (w *World) drop(j *Job, stage int) {
	w.settle(j, Dropped)
	for i := stage + 1; i < len(w.At); i++ {
		w.At[i].Inbound--
	}
	w.law.Gone(w, j)
}

// end ends a service.
func (w *World) end(id, stage int) {
	q := &w.At[stage]
	j := &w.Jobs[id]
	took := w.Now - j.Started
	j.Work += took
	j.Last = took
	q.Busy--
	ok := !w.Spec.Fails(w.Now)
	w.law.Done(w, j, stage, took, ok)
	switch {
	case !ok:
		w.failed(j, stage)
	case stage+1 < len(w.At):
		w.hop(id, stage+1)
	default:
		w.settle(j, Completed)
		w.law.Gone(w, j)
	}
	w.start(stage)
	w.unpark(stage)
}

// Fails says whether attempts that end at t fail.
func (s *Spec) Fails(t time.Duration) bool {
	for _, o := range s.Outages {
		if o.Contains(t) {
			return true
		}
	}
	return false
}

// RetryBase is the delay that retries start from.
func RetryBase(service time.Duration) time.Duration { return max(10*time.Millisecond, 4*service) }

// failed retries a job, with full jitter, or gives it up.
func (w *World) failed(j *Job, stage int) {
	if int(j.Tries) < w.Spec.Attempts && (w.retry == nil || w.retry.Retry(w, j)) {
		w.Retries++
		base := RetryBase(w.At[stage].Service) << j.Tries
		delay := time.Duration(unit(w.Seed, streamRetry+uint64(j.Tries)<<8, j.ID) * float64(base))
		w.schedule(event{at: w.Now + delay, job: j.ID, stage: stage, kind: eventAgain})
		return
	}
	w.settle(j, Failed)
	for i := stage + 1; i < len(w.At); i++ {
		w.At[i].Inbound--
	}
	w.law.Gone(w, j)
}

// again brings a job back after the delay of its retry.
func (w *World) again(id, stage int) { w.enter(id, stage) }

// hop moves a job on, or parks it if the next stage has reached its bound.
func (w *World) hop(id, stage int) {
	q := &w.At[stage]
	if q.parked.len() > 0 || w.full(stage) {
		w.Jobs[id].Entered = w.Now
		q.parked.push(id)
		return
	}
	q.Inbound--
	w.Jobs[id].Tries = 0
	w.enter(id, stage)
}

func (w *World) full(stage int) bool {
	if w.bound == nil {
		return false
	}
	b := w.bound.Bound(stage)
	return b > 0 && w.At[stage].Waiting >= b
}

// unpark lets parked jobs into a stage that has room again, and the stage
// before it start what was held back.
func (w *World) unpark(stage int) {
	q := &w.At[stage]
	if q.parked.len() == 0 {
		return
	}
	for q.parked.len() > 0 && !w.full(stage) {
		id := q.parked.popFront()
		j := &w.Jobs[id]
		j.Wait += w.Now - j.Entered
		q.Inbound--
		j.Tries = 0
		w.enter(id, stage)
	}
	w.start(stage - 1)
}
