package sim

import "time"

// Fate is what became of a job.
type Fate uint8

// Fates.
const (
	Pending   Fate = iota // still waiting or in service when the run ended
	Completed             // the last attempt at the last stage succeeded
	Shed                  // refused at the door
	Dropped               // admitted, then thrown away when it was to start
	PushedOut             // admitted, then evicted by a higher class
	Failed                // its last attempt failed
)

// Job is one unit of work.
type Job struct {
	ID       int
	At       time.Duration // arrival
	Deadline time.Duration // that laws can see; 0 is none
	Entered  time.Duration // into the stage where it is
	Started  time.Duration // there
	End      time.Duration // when its fate was settled
	Wait     time.Duration // in the queues of all stages
	Work     time.Duration // in service, of all attempts
	Last     time.Duration // in service, of the last attempt at the last stage
	Wasted   bool          // was started when it could not make its deadline any more
	Class    uint8
	Sender   uint8
	Attempts uint8 // at all stages
	Tries    uint8 // at the stage where it is
	Stage    uint8
	Fate     Fate
}

// Action is a law's answer.
type Action uint8

// Actions.
const (
	Admit   Action = iota
	PushOut        // admit in place of the newest job of the lowest class that waits
	Refuse
)

// Control is an admission law with its queue discipline. Base has the methods
// that many laws do not need.
type Control interface {
	// Admit decides about a job that arrives now at the first stage.
	Admit(w *World, j *Job) Action
	// Start says whether a job that comes to its turn is started; otherwise it
	// is thrown away.
	Start(w *World, j *Job, stage int) bool
	// Done tells that a service at a stage ended.
	Done(w *World, j *Job, stage int, took time.Duration, ok bool)
	// Gone tells that an admitted job left: its fate says how.
	Gone(w *World, j *Job)
	// Newest says that the newest job of a queue is next, not the oldest.
	Newest(w *World, stage int) bool
}

// Base admits, starts everything and learns nothing.
type Base struct{}

// Admit admits.
func (Base) Admit(*World, *Job) Action { return Admit }

// Start starts.
func (Base) Start(*World, *Job, int) bool { return true }

// Done does nothing.
func (Base) Done(*World, *Job, int, time.Duration, bool) {}

// Gone does nothing.
func (Base) Gone(*World, *Job) {}

// Newest says no.
func (Base) Newest(*World, int) bool { return false }

// Bounder is implemented by laws that bound how many may wait at a stage; a hop
// that finds so many there parks at the stage it comes from.
type Bounder interface {
	Bound(stage int) int
}

// Blind is implemented by laws that stand for systems without deadlines: what
// has expired is served all the same.
type Blind interface{ Blind() }

// Alike is implemented by laws under which all classes wait in one queue.
type Alike interface{ Alike() }

// Budgeted is implemented by laws that bound retries.
type Budgeted interface {
	// Retry says whether a failed job may be tried again.
	Retry(w *World, j *Job) bool
}

// World is a run in progress.
type World struct {
	Spec *Spec
	Seed uint64
	Now  time.Duration
	Jobs []Job
	At   []Queue // one a stage

	law    Control
	bound  Bounder
	retry  Budgeted
	blind  bool
	alike  bool
	sleep  func(time.Duration)
	events heap
	seq    uint64

	// Inversions are refusals of a job while one of a lower class waited that
	// had more than the least share of its class.
	Inversions int
	// Retries is how many attempts were made after a first one.
	Retries int
}

// Result is what a run leaves.
type Result struct {
	Spec       *Spec
	Seed       uint64
	Jobs       []Job
	Inversions int // -1 where it is not known
	Retries    int
	MaxWaiting int // at any stage
	Events     int
}

// Run simulates spec under a law until every admitted job has its fate. sleep,
// if not nil, is called with the time to the next event.
func Run(spec *Spec, seed uint64, law Control, sleep func(time.Duration)) *Result {
	w := &World{Spec: spec, Seed: seed, law: law, sleep: sleep}
	w.bound, _ = law.(Bounder)
	_, w.blind = law.(Blind)
	_, w.alike = law.(Alike)
	w.retry, _ = law.(Budgeted)
	for _, st := range spec.Itinerary() {
		w.At = append(w.At, newQueue(st, spec.Classes))
	}
	n := w.loop()
	r := &Result{Spec: spec, Seed: seed, Jobs: w.Jobs, Inversions: w.Inversions, Retries: w.Retries, Events: n}
	for i := range w.At {
		r.MaxWaiting = max(r.MaxWaiting, w.At[i].most)
	}
	return r
}

// loop works off all events and says how many there were.
func (w *World) loop() int {
	next := newArrivals(w.Spec, w.Seed)
	at, more := next.next()
	n := 0
	for {
		n++
		if e, ok := w.events.peek(); ok && (!more || e.at <= at) {
			w.events.pop()
			w.advance(e.at)
			if e.kind == eventEnd {
				w.end(e.job, e.stage)
			} else {
				w.again(e.job, e.stage)
			}
			continue
		}
		if !more {
			return n
		}
		w.advance(at)
		w.arrive()
		at, more = next.next()
	}
}

func (w *World) advance(to time.Duration) {
	if to <= w.Now {
		return
	}
	if w.sleep != nil {
		w.sleep(to - w.Now)
	}
	w.Now = to
}

// newJob makes the job that arrives now.
func (w *World) newJob() *Job {
	id := len(w.Jobs)
	w.Jobs = append(w.Jobs, w.Spec.job(w.Seed, id, w.Now))
	return &w.Jobs[id]
}

// job makes a job that arrives at t.
func (s *Spec) job(seed uint64, id int, t time.Duration) Job {
	j := Job{ID: id, At: t, Entered: t}
	if len(s.Classes) > 1 {
		j.Class = uint8(pick(unit(seed, streamClass, id), len(s.Classes), func(i int) float64 { return s.Classes[i].Part }))
	}
	if len(s.Senders) > 1 {
		j.Sender = uint8(pick(unit(seed, streamSender, id), len(s.Senders), func(i int) float64 { return s.Senders[i] }))
	}
	switch {
	case s.Tight > 0 && unit(seed, streamTight, id) < s.Tight:
		j.Deadline = t + s.TightIn
	case s.LooseIn > 0:
		j.Deadline = t + s.LooseIn
	}
	return j
}

// Jobs returns all jobs that arrive, in order, as they are before anything
// happens to them.
func (s *Spec) Jobs(seed uint64) []Job {
	var out []Job
	next := newArrivals(s, seed)
	for {
		t, more := next.next()
		if !more {
			return out
		}
		out = append(out, s.job(seed, len(out), t))
	}
}

// pick returns the part of n in which u lies.
func pick(u float64, n int, part func(int) float64) int {
	sum := 0.
	for i := range n {
		sum += part(i)
	}
	u *= sum
	for i := range n - 1 {
		if u -= part(i); u < 0 {
			return i
		}
	}
	return n - 1
}

func (w *World) arrive() {
	j := w.newJob()
	q := &w.At[0]
	q.arrived()
	switch w.law.Admit(w, j) {
	case Refuse:
		if q.unfair(int(j.Class)) {
			w.Inversions++
		}
		w.settle(j, Shed)
		return
	case PushOut:
		if victim := q.evict(int(j.Class)); victim >= 0 {
			v := &w.Jobs[victim]
			v.Wait += w.Now - v.Entered
			w.settle(v, PushedOut)
			w.law.Gone(w, v)
		}
	case Admit:
	}
	for i := 1; i < len(w.At); i++ {
		w.At[i].Inbound++
	}
	w.enter(j.ID, 0)
}

func (w *World) settle(j *Job, f Fate) {
	j.Fate, j.End = f, w.Now
}

// enter puts a job into a stage's queue.
func (w *World) enter(id, stage int) {
	j := &w.Jobs[id]
	j.Entered, j.Stage = w.Now, uint8(stage)
	w.At[stage].push(w.classOf(j), id)
	w.start(stage)
}

// classOf is the class by which a job waits.
func (w *World) classOf(j *Job) int {
	if w.alike {
		return 0
	}
	return int(j.Class)
}
