package sim

// Queue is a stage with its waiting jobs, one list a class. Laws may read it.
type Queue struct {
	Stage

	Busy    int
	Waiting int
	Inbound int // admitted, still at an earlier stage

	lists  []list
	shares []float64 // least part of the starts, by class
	owed   []float64 // starts that a class is behind its share
	served []float64 // starts of late, by class
	parked list      // jobs that wait, at the stage before, to get in here
	most   int       // that ever waited
	asked  int
}

func newQueue(st Stage, classes []Class) Queue {
	n := max(1, len(classes))
	q := Queue{
		Stage: st, lists: make([]list, n), shares: make([]float64, n),
		owed: make([]float64, n), served: make([]float64, n),
	}
	for i := range classes {
		q.shares[i] = classes[i].Share
	}
	return q
}

// Ahead is how many waiting jobs start before a new one of the class.
func (q *Queue) Ahead(class int) int {
	n := 0
	for i := range min(class+1, len(q.lists)) {
		n += q.lists[i].len()
	}
	return n
}

// Evictable is how many waiting jobs are of a lower class.
func (q *Queue) Evictable(class int) int {
	n := 0
	for i := class + 1; i < len(q.lists); i++ {
		n += q.lists[i].len()
	}
	return n
}

// Oldest returns the job that has waited longest in a class; -1 is none.
func (q *Queue) Oldest(class int) int {
	if q.lists[class].len() == 0 {
		return -1
	}
	return q.lists[class].front()
}

func (q *Queue) push(class, id int) {
	q.lists[class].push(id)
	q.Waiting++
	q.most = max(q.most, q.Waiting)
}

// evict removes the newest job of the lowest class below the given one.
func (q *Queue) evict(class int) int {
	for i := len(q.lists) - 1; i > class; i-- {
		if q.lists[i].len() > 0 {
			q.Waiting--
			return q.lists[i].popBack()
		}
	}
	return -1
}

// servedOfLate is how many starts the memory of shares goes back.
const servedOfLate = 1000

// arrived keeps the memory of shares short.
func (q *Queue) arrived() {
	if q.asked++; q.asked%servedOfLate == 0 {
		for i := range q.served {
			q.served[i] /= 2
		}
	}
}

// withinSlack is what a class may be above its least share, as a part of it and
// in starts, before it counts as above: shares are kept on average.
const withinSlack = .1

// within says whether a class has had no more than its least share of the
// starts of late.
func (q *Queue) within(class int) bool {
	sum := 0.
	for _, n := range q.served {
		sum += n
	}
	return q.served[class] <= (1+withinSlack)*q.shares[class]*sum+mostOwed
}

// unfair says whether a job of a lower class waits although that class has had
// more than its least share.
func (q *Queue) unfair(class int) bool {
	for i := class + 1; i < len(q.lists); i++ {
		if q.lists[i].len() > 0 && !q.within(i) {
			return true
		}
	}
	return false
}

// mostOwed bounds the burst that a class may catch up with.
const mostOwed = 16

// next removes the job to start: of the highest class, unless a lower one is
// owed a start by its share.
func (q *Queue) next(newest bool) int {
	best := -1
	for i := range q.lists {
		if q.lists[i].len() == 0 {
			continue
		}
		if best < 0 || q.owed[i] >= 1 && (q.owed[best] < 1 || q.owed[i] > q.owed[best]) {
			best = i
		}
	}
	q.Waiting--
	if newest {
		return q.lists[best].popBack()
	}
	return q.lists[best].popFront()
}

// started keeps account of the shares.
func (q *Queue) started(class int) {
	q.served[class]++
	if len(q.lists) == 1 {
		return
	}
	for i := range q.lists {
		if q.lists[i].len() > 0 || i == class {
			q.owed[i] = min(mostOwed, q.owed[i]+q.shares[i])
		}
	}
	if q.owed[class] >= 1 {
		q.owed[class]--
	}
}
