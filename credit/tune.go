package credit

import "time"

// Tune changes how many credits an account may keep although others want them,
// and for how long unspent ones are good. A shorter lease counts from now for
// those that run; numbers out of the bounds of [Config] are taken as the
// nearest.
func (l *Ledger) Tune(exclusive int, lease time.Duration) {
	c := Config{Exclusive: min(max(exclusive, -1), maxExclusive), Lease: min(max(lease, 0), maxLease)}
	c = c.withDefaults()
	l.cfg.Exclusive, l.cfg.Lease = c.Exclusive, c.Lease
	for a := l.leases.first; a != nil; a = a.next {
		a.until = min(a.until, l.leases.now+c.Lease)
	}
	l.checked()
}

// Pass books n credits as granted to a and spent at once, whatever is free: an
// owner that hands out places by itself while nobody waits tells of them later.
// It does not change what is used, which such an owner counts with
// [Ledger.SetUsed].
//
// hot: 0 allocs
func (l *Ledger) Pass(a *Account, n int) {
	if !l.owns(a) || n <= 0 {
		return
	}
	n = min(n, maxWindow)
	c := a.class
	a.virtual = max(a.virtual, c.virtual)
	l.serve(c, n)
	c.virtual = max(c.virtual, a.virtual)
	a.virtual += a.cost(n)
	if a.virtual > rebaseAt {
		l.rebase(c)
	}
	if a.place >= 0 {
		c.wanting.down(a.place)
	}
	a.granted += uint64(n)
	a.spent += uint64(n)
	l.checked()
}
