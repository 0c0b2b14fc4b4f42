package shedder

import "strings"

// fair shares admissions among senders by their demand, max-min: nobody gets
// more than it asks for, and who asks for more gets the level. It passes each
// unit of a sender that asks at rate d with weight min(1, level/d), after core-
// stateless fair queueing (Stoica, Shenker, Zhang, SIGCOMM 1998), but by adding
// the weights up instead of by chance, and moves the level until what passes is
// what the stage gets done.
type fair struct {
	size    int
	index   map[string]int
	senders []sender
	swept   uint32

	level  float64 // units a nanosecond for each sender
	asked  float64 // rate of the sender that was refused last
	passed float64 // since from
	total  float64
	from   float64 // ns
	on     bool
	latest *sender // of senders: that of the request under way, if admit was asked about it
}

type sender struct {
	name   string
	asked  counter
	credit float64
}

// others is the sender that all share which found no place of their own.
const others = 0

// admit says whether one more unit of name may wait, behind queue others, and
// whether the sender asks for less than its share.
func (f *fair) admit(a *Adaptive, name string, queue float64) (ok, modest bool) {
	if !f.on {
		f.start(a)
	}
	s := f.find(a, name)
	f.latest = s
	s.asked.add(a.epoch)
	f.total++
	rate := s.asked.count(a.epoch, a.part()) * a.perSpan
	weight := 1.0
	if rate > f.level {
		weight = f.level / rate
	}
	s.credit = min(s.credit+weight, mostCredit)
	ok = s.credit >= 1 || queue < a.low*a.k.fairShort && s.credit > -mostDue // never let the stage run dry
	if ok {
		s.credit--
	}
	if ok {
		f.passed++
	}
	f.adjust(a)
	if !ok {
		f.asked = rate
	}
	return ok, weight == 1
}

// pass counts work that was let in without asking: others get less.
func (f *fair) pass() {
	f.passed++
	f.total++
}

const (
	// mostCredit bounds what a sender saves up, and mostDue what it owes for
	// what it was let in with while the queue was short.
	mostCredit = 2
	mostDue    = 4
)

// start begins with no memory of an overload that is over.
func (f *fair) start(a *Adaptive) {
	f.on = true
	clear(f.index)
	f.senders, f.latest = f.senders[:0], nil
	f.level = a.drain
	f.passed, f.total, f.from = 0, 0, float64(a.now)
}

// adjust moves the level so that a little more passes than is worked off: the
// bound refuses that, so that the stage does not run dry.
func (f *fair) adjust(a *Adaptive) {
	const every = 64
	gone := float64(a.now) - f.from
	if f.total < every || gone <= 0 {
		return
	}
	want := a.drain * gone * (1 + a.k.fairOver)
	f.level = clampTo(f.level*clampTo(want/max(f.passed, 1), 0.5, 2), a.drain*1e-6, a.drain)
	f.passed, f.total, f.from = 0, 0, float64(a.now)
}

// find returns the sender of that name, making a place for it if there is one.
func (f *fair) find(a *Adaptive, name string) *sender {
	if i, ok := f.index[name]; ok && i < len(f.senders) {
		return &f.senders[i]
	}
	if f.index == nil {
		f.index = make(map[string]int)
	}
	if len(f.senders) == 0 {
		f.senders = append(f.senders, sender{})
	}
	if len(f.senders) > f.size && f.swept != a.epoch {
		f.sweep(a.epoch)
	}
	if len(f.senders) > f.size {
		return &f.senders[others]
	}
	name = strings.Clone(name) // may be part of something large
	f.index[name] = len(f.senders)
	f.senders = append(f.senders, sender{name: name, asked: counter{epoch: a.epoch}})
	return &f.senders[len(f.senders)-1]
}

// sweep forgets senders that have not asked for two epochs.
func (f *fair) sweep(epoch uint32) {
	f.swept = epoch
	kept := f.senders[:1]
	for i := 1; i < len(f.senders); i++ {
		s := f.senders[i]
		if epoch-s.asked.epoch > 2 {
			delete(f.index, s.name)
			continue
		}
		f.index[s.name] = len(kept)
		kept = append(kept, s)
	}
	clear(f.senders[len(kept):])
	f.senders = kept
}

// undo gives back what an admission took.
func (f *fair) undo(name string) {
	if i, ok := f.index[name]; ok && f.on && i < len(f.senders) {
		s := &f.senders[i]
		s.credit = min(s.credit+1, mostCredit)
	}
}

// undoLatest is undo for the request under way, if admit was asked about it.
func (f *fair) undoLatest() {
	if s := f.latest; s != nil {
		s.credit = min(s.credit+1, mostCredit)
	}
}

// resize changes how many senders are told apart.
func (f *fair) resize(size int) {
	if size != f.size {
		*f = fair{size: size}
	}
}
