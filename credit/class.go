package credit

import (
	"errors"

	faults "github.com/sedabus/seda/internal/fault"
)

// classBook is what a ledger knows of one priority class.
type classBook struct {
	wanting wantHeap
	virtual uint64 // of the account served last
	share   int64
	owed    int64 // hundredths of a credit; below 0 it has had more than its share
}

const (
	// wholeOne is what a class has to be owed to come before higher ones.
	wholeOne = 100
	// owedAtMost bounds the burst that a class may catch up with.
	owedAtMost = 16 * wholeOne
)

// serve books n credits for class c. Each credit earns every class that wants
// some its minimum share of one. What c gets although a higher class wants it
// is taken from what it is owed, and may put it into debt: with a large want a
// class gets far more at once than it was owed.
func (l *Ledger) serve(c *classBook, n int) {
	if len(l.classes) == 1 {
		return
	}
	higher := false
	for i := range l.classes {
		d := &l.classes[i]
		earned := int64(n) * d.share
		switch {
		case d == c && higher:
			d.owed += earned - int64(n)*wholeOne
		case d == c || len(d.wanting) == 0:
			d.owed = min(d.owed+earned, 0) // a share is not saved up while none is wanted
		default:
			d.owed = min(d.owed+earned, max(owedAtMost, earned))
		}
		d.owed = max(d.owed, -maxWindow*wholeOne)
		higher = higher || len(d.wanting) > 0
	}
}

// rebase starts the virtual time of a class anew, with the same differences
// between those that are ahead of it.
func (l *Ledger) rebase(c *classBook) {
	for _, a := range l.all {
		if a.class == c {
			a.virtual -= min(a.virtual, c.virtual)
		}
	}
	c.virtual = 0
	for i := len(c.wanting)/2 - 1; i >= 0; i-- { // equals may have come about
		c.wanting.down(i)
	}
}

// wantHeap is a heap of the accounts of a class that want credits, the next to
// be served at the top.
type wantHeap []*Account

func (h *wantHeap) less(i, j int) bool {
	a, b := (*h)[i], (*h)[j]
	if faults.On(faults.CreditOvertaken) && a.want != b.want {
		return a.want < b.want
	}
	if faults.On(faults.CreditUnfair) {
		return a.virtual > b.virtual
	}
	if a.virtual != b.virtual {
		return a.virtual < b.virtual
	}
	return a.seq < b.seq
}

func (h *wantHeap) swap(i, j int) {
	q := *h
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (h *wantHeap) push(a *Account) {
	a.place = len(*h)
	*h = append(*h, a)
	h.up(a.place)
}

func (h *wantHeap) remove(a *Account) {
	i, last := a.place, len(*h)-1
	if i != last {
		h.swap(i, last)
	}
	(*h)[last] = nil
	*h = (*h)[:last]
	a.place = -1
	if i != last {
		h.down(i)
		h.up(i)
	}
}

func (h *wantHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *wantHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(*h) {
			return
		}
		if child+1 < len(*h) && h.less(child+1, child) {
			child++
		}
		if !h.less(child, i) {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (h *wantHeap) check() error {
	for i, a := range *h {
		if a.place != i || a.want <= 0 || i > 0 && h.less(i, (i-1)/2) {
			return errors.New("credit: the order of those that want credits is broken")
		}
	}
	return nil
}
