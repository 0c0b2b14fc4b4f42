package sim

import "time"

type eventKind uint8

const (
	eventEnd   eventKind = iota // a service ends
	eventAgain                  // a failed job is due again
)

type event struct {
	at    time.Duration
	seq   uint64 // ties are in the order of making
	job   int
	stage int
	kind  eventKind
}

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && e.seq < o.seq
}

// heap is a binary heap of events, the earliest first.
type heap []event

func (h *heap) peek() (event, bool) {
	if len(*h) == 0 {
		return event{}, false
	}
	return (*h)[0], true
}

func (h *heap) push(e event) {
	a := append(*h, e)
	i := len(a) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(&a[up]) {
			break
		}
		a[i] = a[up]
		i = up
	}
	a[i] = e
	*h = a
}

func (h *heap) pop() {
	a := *h
	n := len(a) - 1
	e := a[n]
	a = a[:n]
	*h = a
	if n == 0 {
		return
	}
	i := 0
	for {
		kid := 2*i + 1
		if kid >= n {
			break
		}
		if kid+1 < n && a[kid+1].before(&a[kid]) {
			kid++
		}
		if !a[kid].before(&e) {
			break
		}
		a[i] = a[kid]
		i = kid
	}
	a[i] = e
}

// list is a queue of job numbers that can lose its newest.
type list struct {
	ids  []int
	head int
}

func (l *list) len() int   { return len(l.ids) - l.head }
func (l *list) front() int { return l.ids[l.head] }

func (l *list) push(id int) {
	if l.head > 64 && l.head > len(l.ids)/2 {
		l.ids = l.ids[:copy(l.ids, l.ids[l.head:])]
		l.head = 0
	}
	l.ids = append(l.ids, id)
}

func (l *list) popFront() int {
	l.head++
	return l.ids[l.head-1]
}

func (l *list) popBack() int {
	n := len(l.ids) - 1
	id := l.ids[n]
	l.ids = l.ids[:n]
	return id
}
