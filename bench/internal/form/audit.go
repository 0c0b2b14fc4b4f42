package form

import (
	"errors"
	"fmt"

	"github.com/sedabus/seda/bus"
)

// audit compares the bus's accounts with what the producers sent. Nothing moves
// any more, so they must be exact.
func (in *instance) audit() error {
	sent := in.run.Sent()
	var s bus.Stats
	in.bus.ReadStats(&s)
	errs := []error{s.Check()}
	if s.Accepted != sent || s.Completed != sent || s.Pending != 0 {
		errs = append(errs, fmt.Errorf("form: sent %d, %s", sent, s.Account()))
	}
	for _, st := range in.last {
		var ss bus.StageStats
		st.ReadStats(&ss)
		if ss.Completed != sent {
			errs = append(errs, fmt.Errorf("form: stage %s completed %d of %d", ss.Name, ss.Completed, sent))
		}
	}
	if in.done != nil {
		errs = append(errs, in.done.check(sent))
	}
	return errors.Join(errs...)
}
