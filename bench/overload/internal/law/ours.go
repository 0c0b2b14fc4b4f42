package law

import (
	"github.com/sedabus/seda/bench/overload/internal/onbus"
	"github.com/sedabus/seda/bench/overload/internal/sim"
	"github.com/sedabus/seda/shedder"
)

// OurName is the row that has to meet the gates.
const OurName = "adaptive"

// BusName is the row of the same law in the bus itself.
const BusName = "adaptive-bus"

func ours() []Row {
	return []Row{
		{Name: OurName, Kind: Ours, New: adaptive},
		{Name: BusName, Kind: Ours, Clock: true, Run: onbus.Run},
	}
}

func adaptive(s *sim.Spec) sim.Control {
	return FromPolicy(s, len(s.Itinerary()), func() shedder.Policy {
		a, err := shedder.NewAdaptive(shedder.AdaptiveConfig{})
		if err != nil {
			return nil // the zero value is valid
		}
		return a
	})
}
