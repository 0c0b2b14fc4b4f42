package credit

import (
	"iter"
	"slices"
	"time"

	faults "github.com/sedabus/seda/internal/fault"
)

// Ledger keeps the credits of one stage: which account holds how many, which
// waits for more, and in which order they are served. It decides nothing by
// itself: the owner asks [Ledger.Next] and grants.
//
// A Ledger is for one goroutine at a time. It never waits, and after
// [Ledger.Open] it allocates nothing. Accounts of another ledger, nil, and
// closed ones are passed over by all methods; numbers out of range are taken
// as the nearest that make sense.
type Ledger struct {
	cfg     Config
	classes []classBook
	all     []*Account

	window  int
	used    int // spent, and the work has not ended
	unspent int // in the hands of accounts
	ceiling int // what used+unspent may reach, above window after a shrink
	waiting int
	seq     uint64

	gone   Counts // of closed accounts
	leases leases
	calls  uint // of the assertion build
}

// NewLedger returns a ledger without accounts. The error lists all faults of c
// and matches [ErrInvalid].
func NewLedger(c Config) (*Ledger, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	l := &Ledger{cfg: c.withDefaults(), window: c.Window, ceiling: c.Window, classes: make([]classBook, max(1, len(c.Classes)))}
	for i, class := range c.Classes {
		l.classes[i].share = int64(class.MinShare)
	}
	l.cfg.Classes = nil
	return l, nil
}

// Open adds an account. The error lists all faults of c and matches
// [ErrInvalid].
func (l *Ledger) Open(c AccountConfig) (*Account, error) {
	if err := c.validate(len(l.classes)); err != nil {
		return nil, err
	}
	a := &Account{ledger: l, class: &l.classes[c.Class], weight: uint64(max(c.Weight, 1)), index: len(l.all), place: -1}
	l.all = append(l.all, a)
	l.checked()
	return a, nil
}

// Close ends an account: its unspent credits count as returned, and it wants
// none any more. Closing it again does nothing.
func (l *Ledger) Close(a *Account) {
	if !l.owns(a) {
		return
	}
	l.Want(a, 0)
	if !faults.On(faults.CreditKept) {
		l.Return(a, a.unspent)
	}
	l.leases.remove(a)
	last := l.all[len(l.all)-1]
	last.index = a.index
	l.all[a.index] = last
	l.all[len(l.all)-1] = nil
	l.all = l.all[:len(l.all)-1]
	l.gone.add(a.Counts())
	a.closed = true
	l.checked()
}

// owns says whether a is a live account of l.
func (l *Ledger) owns(a *Account) bool { return a != nil && a.ledger == l && !a.closed }

// Want says that a waits for n credits at once, all or nothing; 0 ends it. An
// account has one want: a new number replaces the old one and keeps the place.
// A want above the window is never met and holds up those behind it: the owner
// ends it, see [Ledger.All].
//
// hot: 0 allocs once every account has waited at a time
func (l *Ledger) Want(a *Account, n int) {
	if !l.owns(a) {
		return
	}
	n = min(max(n, 0), maxWindow)
	was := a.want
	a.want = n
	switch {
	case was == 0 && n > 0:
		l.seq++
		a.seq = l.seq
		a.virtual = max(a.virtual, a.class.virtual)
		a.class.wanting.push(a)
		l.waiting++
	case was > 0 && n == 0:
		a.class.wanting.remove(a)
		l.waiting--
	}
	l.checked()
}

// Next returns the account whose want is to be met next, or nil if none wants
// any. It is of the highest class that wants credits, unless a lower one is
// owed its minimum share; in a class it is the one that was granted the least
// for its weight since it began to want (start-time fair queuing, Goyal, Vin
// and Cheng 1996), and of equals the one that waits the longest.
//
// Next does not look at [Ledger.Free]. If there is less than [Account.Wanted],
// everybody waits: nobody holds a part of what it needs while it waits for the
// rest, and a large want is not overtaken for ever by small ones.
//
// hot: 0 allocs
func (l *Ledger) Next() *Account {
	if l.waiting == 0 {
		return nil
	}
	if len(l.classes) == 1 {
		return l.classes[0].wanting[0]
	}
	var best, highest *classBook
	for i := range l.classes {
		c := &l.classes[i]
		if len(c.wanting) == 0 {
			continue
		}
		if highest == nil {
			highest = c
		}
		if c.owed >= wholeOne && !faults.On(faults.CreditShareless) && (best == nil || c.owed > best.owed) {
			best = c
		}
	}
	if best == nil {
		best = highest
	}
	return best.wanting[0]
}

// Grant books n credits for a, or as many as are free, and returns how many.
// They have to cover its want, which is over then: with fewer it books nothing.
// The grant renews the lease: all unspent credits of a are good until
// now + Config.Lease.
//
// hot: 0 allocs
func (l *Ledger) Grant(a *Account, n int, now time.Duration) int {
	n = min(n, l.Free())
	if !l.owns(a) || n <= 0 || n < a.want {
		return 0
	}
	c := a.class
	if a.want > 0 {
		c.wanting.remove(a)
		l.waiting--
		a.want = 0
	} else {
		a.virtual = max(a.virtual, c.virtual)
	}
	l.serve(c, n)
	c.virtual = max(c.virtual, a.virtual)
	a.virtual += a.cost(n)
	if a.virtual > rebaseAt {
		l.rebase(c)
	}
	a.unspent += n
	a.granted += uint64(n)
	l.unspent += n
	l.leases.renew(a, now, l.cfg.Lease)
	l.checked()
	return n
}

// Ahead returns how many credits to grant a beyond its want, so that it need
// not ask for each: at most Config.Batch, at most half its part of free, which
// is what is left once the want is met, and none while it holds more than half
// a batch.
//
// hot: 0 allocs
func (l *Ledger) Ahead(a *Account, free int) int {
	if !l.owns(a) || a.unspent > l.cfg.Batch/2 {
		return 0
	}
	return max(min(l.cfg.Batch, free/(2*len(l.all))), 0)
}

// Spend turns n unspent credits of a, or as many as it has, into used ones and
// returns how many. Those that [Ledger.Hold] marked are spent first.
//
// hot: 0 allocs
func (l *Ledger) Spend(a *Account, n int) int {
	if !l.owns(a) {
		return 0
	}
	n = min(max(n, 0), a.unspent)
	a.unspent -= n
	a.held = max(a.held-n, 0)
	a.spent += uint64(n)
	l.unspent -= n
	l.used += n
	l.checked()
	return n
}

// Return takes n unspent credits of a back, or as many as it has, and returns
// how many: the producer handed them back, or they were called back for
// others. They do not count against it when credits are scarce.
//
// hot: 0 allocs
func (l *Ledger) Return(a *Account, n int) int {
	if !l.owns(a) {
		return 0
	}
	n = min(max(n, 0), a.unspent)
	a.unspent -= n
	a.held = min(a.held, a.unspent)
	if !faults.On(faults.CreditUnbooked) {
		a.returned += uint64(n)
	}
	a.virtual -= min(a.cost(n), a.virtual)
	if a.place >= 0 {
		a.class.wanting.up(a.place)
	}
	l.unspent -= n
	l.lower()
	l.checked()
	return n
}

// Hold marks n unspent credits of a, besides those it has marked before, as
// acquired on purpose: [Ledger.Keep] counts them.
//
// hot: 0 allocs
func (l *Ledger) Hold(a *Account, n int) {
	if l.owns(a) {
		a.held = min(a.held+min(max(n, 0), maxWindow), a.unspent)
		l.checked()
	}
}

// Keep returns how many of a's unspent credits must not be called back for
// others at now: those on hold and its exclusive ones, which are
// Config.Exclusive but no more than its part of half the window. It is 0 once
// its lease is over.
//
// hot: 0 allocs
func (l *Ledger) Keep(a *Account, now time.Duration) int {
	if !l.owns(a) || l.leases.over(a, now) {
		return 0
	}
	return min(a.unspent, a.held+min(l.cfg.Exclusive, l.window/(2*len(l.all))))
}

// Release says that the work of n spent credits has ended. There are never
// fewer than 0 used.
//
// hot: 0 allocs
func (l *Ledger) Release(n int) {
	l.used -= min(max(n, 0), l.used)
	l.lower()
	l.checked()
}

// Use says that n units of work came in without a credit: they take up the
// window like spent ones, and beyond it where it has no room.
//
// hot: 0 allocs
func (l *Ledger) Use(n int) { l.SetUsed(l.used + min(max(n, 0), max(maxUsed-l.used, 0))) }

// SetUsed sets how many units of work are under way, for an owner that counts
// them itself.
//
// hot: 0 allocs
func (l *Ledger) SetUsed(n int) {
	l.used = min(max(n, 0), maxUsed)
	l.ceiling = max(l.ceiling, l.used+l.unspent)
	l.lower()
	l.checked()
}

// maxUsed bounds what an owner says is under way.
const maxUsed = 1 << 30

// Expire takes back the unspent credits of accounts whose lease is over at
// now, calling f, unless it is nil, for each with how many it loses; f must not
// call the ledger. It returns how many there were in all, and when the next
// lease ends, 0 if no account holds any credits.
//
// hot: 0 allocs
func (l *Ledger) Expire(now time.Duration, f func(a *Account, n int)) (n int, next time.Duration) {
	l.leases.advance(now, l.cfg.Lease)
	for {
		a := l.leases.first
		switch {
		case a == nil:
			l.lower()
			l.checked()
			return n, 0
		case a.unspent == 0:
			l.leases.remove(a)
		case a.until <= l.leases.now && !faults.On(faults.CreditForever):
			l.leases.remove(a)
			lost := a.unspent
			n += lost
			a.expired += uint64(lost)
			a.unspent, a.held = 0, 0
			l.unspent -= lost
			if f != nil {
				f(a, lost)
			}
		default:
			l.lower()
			l.checked()
			return n, l.leases.outside(a.until)
		}
	}
}

// SetWindow sets how many credits there are in all, 0 to 1073741824. A smaller
// window takes none back: [Ledger.Free] is 0 until enough have come back.
func (l *Ledger) SetWindow(n int) {
	if faults.On(faults.CreditBeyond) {
		n = max(n, l.window)
	}
	l.window = min(max(n, 0), maxWindow)
	l.lower()
	l.checked()
}

// lower lets the ceiling follow what is out, down to the window.
func (l *Ledger) lower() { l.ceiling = max(l.window, min(l.ceiling, l.used+l.unspent)) }

// Free returns how many credits can be granted now.
func (l *Ledger) Free() int { return max(l.window-l.unspent-l.used, 0) }

// Window returns how many credits there are in all.
func (l *Ledger) Window() int { return l.window }

// Used returns how many units of work are under way.
func (l *Ledger) Used() int { return l.used }

// Unspent returns how many credits are in the hands of accounts.
func (l *Ledger) Unspent() int { return l.unspent }

// Live returns how many accounts are open.
func (l *Ledger) Live() int { return len(l.all) }

// Waiting returns how many accounts want credits.
func (l *Ledger) Waiting() int { return l.waiting }

// All goes through the open accounts in no particular order. The loop may close
// the account it is at, and no other.
func (l *Ledger) All() iter.Seq[*Account] {
	return func(yield func(*Account) bool) {
		for _, a := range slices.Backward(l.all) { // a closed one is replaced by one seen before
			if !yield(a) {
				return
			}
		}
	}
}

// Counts returns the sums over all accounts, closed ones included.
func (l *Ledger) Counts() Counts {
	sum := l.gone
	for _, a := range l.all {
		sum.add(a.Counts())
	}
	return sum
}
