package conformance_test

import (
	"testing"

	"github.com/sedabus/seda/bustest"
	"github.com/sedabus/seda/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Kit{
		New: bustest.New,
	})
}
