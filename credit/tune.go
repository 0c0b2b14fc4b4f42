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
