package credit

import (
	"errors"
	"fmt"
)

// Sentinels for errors.Is.
var (
	// ErrInvalid is matched by errors about settings and arguments.
	ErrInvalid = errors.New("credit: invalid")
	// ErrNoCredit is matched where there was no credit: now, or before the context
	// ended, whose cause matches as well.
	ErrNoCredit = errors.New("credit: no credit")
	// ErrClosed: the producer or the gate is closed.
	ErrClosed = errors.New("credit: closed")
)

// LimitError says that more credits were asked for at once than there can be in
// all. It matches [ErrNoCredit].
type LimitError struct {
	Want  int // what was asked for
	Limit int // the window, or the capacity of one that adapts
}

// Error names what was asked for and the bound.
func (e *LimitError) Error() string {
	return fmt.Sprintf("credit: %d credits at once are more than there are in all: at most %d", e.Want, e.Limit)
}

// Is matches ErrNoCredit.
func (*LimitError) Is(target error) bool { return target == ErrNoCredit }
