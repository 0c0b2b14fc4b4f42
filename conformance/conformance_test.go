package conformance_test

import (
	"testing"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Kit{
		New: func(t testing.TB, c bus.Config) *bus.Bus { return bustest.New(t, c) },
	})
}
