package retry

import (
	"fmt"
	"strconv"
)

// Kind is how the waits of a Policy develop.
type Kind uint8

// The kinds of waits.
const (
	Immediate   Kind = iota // no wait: tried again at once
	Constant                // Base each time
	Exponential             // Base, then Factor times as much with each failure, up to Cap
)

// String returns the name that ParseKind takes, or "Kind(n)" for a value that
// is not one of this package's.
func (k Kind) String() string {
	switch k {
	case Immediate:
		return "immediate"
	case Constant:
		return "constant"
	case Exponential:
		return "exponential"
	default:
		return "Kind(" + strconv.Itoa(int(k)) + ")"
	}
}

// ParseKind returns the Kind of a name as String gives it. For any other text
// it returns Immediate and an error.
func ParseKind(name string) (Kind, error) {
	for k := Immediate; k <= Exponential; k++ {
		if k.String() == name {
			return k, nil
		}
	}
	return Immediate, fmt.Errorf("retry: Kind %.40q: must be immediate, constant or exponential", name)
}

// Jitter is how the waits of a Policy are spread, so that work which failed
// together does not come back together. Each draw is uniform.
type Jitter uint8

// The kinds of jitter. d is the wait without jitter.
const (
	NoJitter     Jitter = iota // exactly d
	Full                       // between 0 and d
	Equal                      // between d/2 and d
	Decorrelated               // between Base and three times the previous wait, at most Cap; Factor is not used
)

// String returns the name that ParseJitter takes, or "Jitter(n)" for a value
// that is not one of this package's.
func (j Jitter) String() string {
	switch j {
	case NoJitter:
		return "none"
	case Full:
		return "full"
	case Equal:
		return "equal"
	case Decorrelated:
		return "decorrelated"
	default:
		return "Jitter(" + strconv.Itoa(int(j)) + ")"
	}
}

// ParseJitter returns the Jitter of a name as String gives it. For any other
// text it returns NoJitter and an error.
func ParseJitter(name string) (Jitter, error) {
	for j := NoJitter; j <= Decorrelated; j++ {
		if j.String() == name {
			return j, nil
		}
	}
	return NoJitter, fmt.Errorf("retry: Jitter %.40q: must be none, full, equal or decorrelated", name)
}
