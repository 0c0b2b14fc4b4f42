package bus_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
)

// unsized is a payload whose size cannot be had.
type unsized func()

func (u unsized) Size() int {
	u()
	return 1 << 30
}

// A payload that misbehaves when it is asked for its size still becomes a
// letter, and its stage goes on.
func TestLettersOfUnsizedPayloads(t *testing.T) {
	for name, misbehave := range map[string]func(){
		"panic": func() { panic("no size") }, "goexit": runtime.Goexit, "nil": nil,
	} {
		t.Run(name, func(t *testing.T) {
			var where []string
			c := bus.Config{Hooks: bus.Hooks{Panic: func(p bus.PanicInfo) { where = append(where, p.Where) }}}
			letterBus(t, c, func(t *testing.T, b *bus.Bus, s *bus.Stage) {
				for range 3 {
					letter(t, s, bus.Envelope{Payload: unsized(misbehave)})
				}
				require.Equal(t, 3, b.Letters().Stats().Count)
				require.Less(t, b.Letters().Stats().Bytes, int64(10_000))
				require.Equal(t, []string{"size", "size", "size"}, where)
				require.EqualValues(t, 3, bustest.RequireBalanced(t, b).Panics)
			})
		})
	}
}
