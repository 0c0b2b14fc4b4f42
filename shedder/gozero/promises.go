package gozero

import "github.com/zeromicro/go-zero/core/load"

// promises is a queue in a ring that grows.
type promises struct {
	ring  []load.Promise // a power of two of them
	first int
	n     int
}

func (q *promises) len() int { return q.n }

func (q *promises) at(i int) *load.Promise { return &q.ring[(q.first+i)&(len(q.ring)-1)] }

func (q *promises) push(p load.Promise) {
	if q.n == len(q.ring) {
		ring := make([]load.Promise, max(16, 2*len(q.ring)))
		for i := range q.n {
			ring[i] = *q.at(i)
		}
		q.ring, q.first = ring, 0
	}
	q.n++
	*q.at(q.n - 1) = p
}

func (q *promises) popOldest() load.Promise {
	p := *q.at(0)
	*q.at(0) = nil
	q.first = (q.first + 1) & (len(q.ring) - 1)
	q.n--
	return p
}

func (q *promises) popNewest() load.Promise {
	q.n--
	p := *q.at(q.n)
	*q.at(q.n) = nil
	return p
}
