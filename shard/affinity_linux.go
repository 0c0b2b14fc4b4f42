package shard

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// canBind returns why the process may not use one of the processors, or nil.
func canBind(cpus []int) error {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("%w: the system does not tell which processors may be used: %w", ErrAffinity, err)
	}
	for _, cpu := range cpus {
		if !may.IsSet(cpu) {
			return fmt.Errorf("%w: Config.Pin.CPUs holds %d, which is none of the %d processors that this process may use", ErrAffinity, cpu, may.Count())
		}
	}
	return nil
}

// bind binds the calling thread, which must be locked, to a processor.
func bind(cpu int) error {
	var only unix.CPUSet
	only.Set(cpu)
	return unix.SchedSetaffinity(0, &only)
}
