//go:build !linux

package shard

import (
	"fmt"
	"runtime"
)

// canBind returns why shards cannot be bound to processors.
func canBind([]int) error {
	return fmt.Errorf("%w: Config.Pin.CPUs works on linux, this is %s", ErrAffinity, runtime.GOOS)
}

// bind is never reached: New asks canBind first.
func bind(int) error { return ErrAffinity }
