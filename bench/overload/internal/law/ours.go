package law

import (
	"github.com/sedabus/seda/bench/overload/internal/sim"
	"github.com/sedabus/seda/shedder"
)

// OurName is the row that has to meet the gates.
const OurName = "adaptive"

func ours() []Row {
	return []Row{{Name: OurName, Kind: Ours, New: func(s *sim.Spec) sim.Control {
		return FromPolicy(s, len(s.Itinerary()), func() shedder.Policy {
			a, err := shedder.NewAdaptive(shedder.AdaptiveConfig{})
			if err != nil {
				return nil // the zero value is valid
			}
			return a
		})
	}}}
}
