package credit

import (
	"fmt"

	"github.com/sedabus/seda/internal/invariant"
)

// Check returns what is wrong with the books, or nil: for each account and in
// all, granted = spent + returned + expired + outstanding; nothing is negative;
// and what is out exceeds the window by no more than what was out when it
// shrank, or what came in without a credit. It is for tests and costs a walk
// over all accounts; the assertion build calls it by itself.
func (l *Ledger) Check() error {
	if err := l.checkSums(); err != nil {
		return err
	}
	unspent, waiting := 0, 0
	for i, a := range l.all {
		if err := a.check(i); err != nil {
			return err
		}
		unspent += a.unspent
		waiting += min(a.want, 1)
	}
	if unspent != l.unspent || waiting != l.waiting {
		return fmt.Errorf("credit: %d unspent and %d waiting, but the accounts say %d and %d", l.unspent, l.waiting, unspent, waiting)
	}
	for i := range l.classes {
		if err := l.classes[i].wanting.check(); err != nil {
			return err
		}
	}
	return l.leases.check()
}

// check is the part of Check about the account at index i.
func (a *Account) check(i int) error {
	c := a.Counts()
	switch {
	case c.Granted != c.Spent+c.Returned+c.Expired+uint64(c.Outstanding):
		return fmt.Errorf("credit: account %d: granted %d, but spent %d, returned %d, expired %d and outstanding %d",
			i, c.Granted, c.Spent, c.Returned, c.Expired, c.Outstanding)
	case a.unspent < 0 || a.held < 0 || a.held > a.unspent || a.want < 0:
		return fmt.Errorf("credit: account %d: %d on hold of %d unspent, %d wanted", i, a.held, a.unspent, a.want)
	case a.index != i || (a.want > 0) != (a.place >= 0) || a.unspent > 0 && !a.leased:
		return fmt.Errorf("credit: account %d: in the wrong place", i)
	}
	return nil
}

// checkSums is the part of Check that looks at no account.
func (l *Ledger) checkSums() error {
	if l.used < 0 || l.unspent < 0 || l.window < 0 || l.waiting < 0 || l.waiting > len(l.all) {
		return fmt.Errorf("credit: used %d, unspent %d, window %d, waiting %d of %d accounts", l.used, l.unspent, l.window, l.waiting, len(l.all))
	}
	if l.used+l.unspent > l.ceiling || l.ceiling < l.window {
		return fmt.Errorf("credit: used %d and unspent %d exceed the window of %d, at most %d", l.used, l.unspent, l.window, l.ceiling)
	}
	return nil
}

// checked ends every change: in the assertion build a broken ledger panics.
func (l *Ledger) checked() {
	if !invariant.Enabled {
		return
	}
	err := l.checkSums()
	if l.calls++; l.calls%64 == 0 {
		err = l.Check()
	}
	if err != nil {
		invariant.Violated("%v", err)
	}
}
