package credit

// Account is what one producer has in a [Ledger], and is guarded like it.
type Account struct {
	// Tag is the owner's; the ledger does not look at it.
	Tag any

	ledger *Ledger
	class  *classBook
	weight uint64
	index  int // in Ledger.all
	closed bool

	want    int
	place   int    // in the class's heap, -1 if it wants nothing
	virtual uint64 // granted for its weight, in 2^-20 credits
	seq     uint64 // of the want

	unspent, held                     int
	granted, spent, returned, expired uint64

	lease
}

// Counts says where the credits of an account have gone: Granted = Spent +
// Returned + Expired + Outstanding.
type Counts struct {
	Granted     uint64 // in all
	Spent       uint64 // used for work
	Returned    uint64 // handed back, or called back for others
	Expired     uint64 // lapsed with their lease
	Outstanding int    // unspent, in hand
}

func (c *Counts) add(d Counts) {
	c.Granted += d.Granted
	c.Spent += d.Spent
	c.Returned += d.Returned
	c.Expired += d.Expired
	c.Outstanding += d.Outstanding
}

// Counts returns where the credits of a have gone. A closed account keeps its
// counts.
func (a *Account) Counts() Counts {
	return Counts{Granted: a.granted, Spent: a.spent, Returned: a.returned, Expired: a.expired, Outstanding: a.unspent}
}

// Wanted returns how many credits a waits for, 0 if it does not wait.
func (a *Account) Wanted() int { return a.want }

// Unspent returns how many credits a holds.
func (a *Account) Unspent() int { return a.unspent }

// virtualShift is how fine virtual time is: one credit at weight 1 is 2^20.
const virtualShift = 20

// rebaseAt is when a class begins to count its virtual time anew.
const rebaseAt = 1 << 62

// cost is the virtual time that n credits take.
func (a *Account) cost(n int) uint64 { return uint64(n) << virtualShift / a.weight }
