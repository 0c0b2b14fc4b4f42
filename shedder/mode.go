package shedder

// Mode says whether a shedder sheds.
type Mode uint8

// Modes.
const (
	On      Mode = iota // sheds
	Observe             // admits all and counts what it would shed
	Off                 // admits all without asking the policy, which goes on learning
)

// String returns the mode's name.
func (m Mode) String() string {
	switch m {
	case On:
		return "on"
	case Observe:
		return "observe"
	case Off:
		return "off"
	}
	return "unknown"
}

// gate is what stands between a decision and the policy, in one word: the mode
// in the low bits, and killed.
type gate uint32

const (
	gateMode gate = 3
	killed   gate = 4
)

func (g gate) mode() Mode { return Mode(g & gateMode) }

// closed says that the policy is not asked.
func (g gate) closed() bool { return g&killed != 0 || g.mode() == Off }

// sheds says that refusals are real.
func (g gate) sheds() bool { return g == gate(On) }
